#!/usr/bin/env python3
"""Reads every #include of the tree and reports violations of the layers.

    check_layers.py [ROOT]

A file may include files of the same folder or of one with lower rank (cmake/layers.txt); the folders within a layer have
ranks of their own (cmake/inner_layers.txt); includes must not form a cycle; a third-party header is allowed only where THIRD_PARTY lists it; installed headers (cmake/public_headers.txt) may
include only the standard library and each other. Exit status: 0 clean, 1 findings (one line each), 2 the tree could not
be read.
"""
import os
import re
import sys

SOURCES = (".h", ".cc", ".cu", ".cuh", ".c")
HEADERS = (".h", ".cuh")
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.M)
STANDARD = re.compile(r"^([a-z_]+|(assert|errno|limits|math|signal|stdarg|stddef|stdint|stdio|stdlib|string|time)\.h)$")
SYSTEM = re.compile(r"^(sys|netinet|arpa)/[a-z]+\.h$|^(dirent|dlfcn|execinfo|fcntl|glob|immintrin|linux\/magic|malloc|netdb|poll|pthread|sched|semaphore|spawn|ucontext|unistd)\.h$")

# library: (pattern, folders whose .cc files may use it, folders whose headers may use it)
ALL = "framework ops kernels transpiler io frontend interchange executor ps fleet jobs api tools examples bench tests"
THIRD_PARTY = {
    "installed millrace": (r"^millrace/", "examples python", "python"),
    "nanobind": (r"^nanobind/", "python", "python"),
    "LLVM": (r"^llvm/", ALL, ALL),
    "fmt": (r"^fmt/", ALL, ALL),
    "protobuf": (r"^google/protobuf/|^proto/.*\.pb\.h$", "framework io ps fleet tests bench", ""),
    "nlohmann-json": (r"^nlohmann/", "transpiler io interchange fleet jobs tools bench tests", "jobs tools"),
    "CLI11": (r"^CLI/", "tools examples bench", "tools"),
    "GoogleTest": (r"^g(test|mock)/", "tests", "tests"),
    "Google Benchmark": (r"^benchmark/", "bench", ""),
    "Eigen": (r"^(unsupported/)?Eigen/", "kernels", "kernels"),
    "oneDNN": (r"^(oneapi/)?dnnl", "kernels", "kernels"),
    "ONNX": (r"^onnx/", "interchange tests", "interchange"),
    "mimalloc": (r"^mimalloc\.h$", "tools", ""),
    "CUDA": (r"^(cuda|cublas|cudnn)", "kernels tests", "kernels tests"),
    "zstd": (r"^zstd", "io ps", ""),
    "libzip": (r"^zip\.h$", "io", ""),
    "zlib": (r"^zlib\.h$", "io tests", ""),
    "xxHash": (r"^xxh(ash|_x86dispatch)", "io ps transpiler kernels", ""),
    "OpenSSL": (r"^openssl/", "io", ""),
    "NCCL": (r"^nccl", "tests", ""),
    "Gloo": (r"^gloo/", "executor bench", ""),
    "MPI": (r"^mpi\.h$", "executor", ""),
    "UCX": (r"^uc[pt]/api/", "bench", ""),
    "spdlog": (r"^spdlog/", "executor ps fleet jobs tools", ""),
    # Headers: those of the gRPC module (ps/transport/grpc_stream.h), which no other source includes.
    "gRPC": (r"^grpc(pp)?/", "ps tests", "ps"),
    "Abseil": (r"^absl/", "ps", ""),
    "RocksDB": (r"^rocksdb/", "ps", ""),
}


def read_table(path):
    """Lines without comments and blanks; a missing file is empty."""
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as f:
        return [line.strip() for line in f if line.strip() and not line.startswith("#")]


def read_ranks(root):
    rows = [line.split() for line in read_table(os.path.join(root, "cmake/layers.txt"))]
    return {folder: int(rank) for rank, folder in rows}


def read_includes(root, folders):
    """path -> [(line, quoted, included path)], for all sources of the layers."""
    found = {}
    for folder in folders:
        for at, dirs, names in os.walk(os.path.join(root, folder)):
            dirs[:] = sorted(d for d in dirs if not d.startswith((".", "build")))
            for name in sorted(n for n in names if n.endswith(SOURCES)):
                path = os.path.join(at, name)
                with open(path, encoding="utf-8") as f:
                    text = f.read()
                found[os.path.relpath(path, root)] = [
                    (text.count("\n", 0, m.start()) + 1, m[1] == '"', m[2]) for m in INCLUDE.finditer(text)]
    return found


def third_party_problem(path, target):
    """None if `target` may be included in `path`, else the reason."""
    folder = path.split("/")[0]
    for library, (pattern, sources, headers) in THIRD_PARTY.items():
        if re.search(pattern, target):
            allowed = headers if path.endswith(HEADERS) else sources
            kind = "headers" if path.endswith(HEADERS) else "sources"
            if folder in allowed.split():
                return None
            return f"{library} is not for {kind} of {folder} (allowed in: {allowed or 'none'})"
    return "no such file in the tree, and no third-party library that the layers know"


def edge_problem(path, quoted, target, ranks, public):
    """None, or the reason why `path` may not include `target`."""
    folder, other = path.split("/")[0], target.split("/")[0]
    standard = not quoted and STANDARD.match(target)
    if path in public and not standard and target not in public:
        return "an installed header may include the standard library and installed headers only"
    if standard or (not quoted and SYSTEM.match(target)):
        return None
    if other not in ranks or "/" not in target or target.endswith(".pb.h"):
        return third_party_problem(path, target)
    if other == folder or ranks[other] < ranks[folder]:
        return None
    return f"{folder} (rank {ranks[folder]}) may not include {other} (rank {ranks[other]})"


def read_inner_ranks(root):
    """layer -> {folder, or "path.*" of a source and its header: rank} (cmake/inner_layers.txt)."""
    ranks = {}
    for line in read_table(os.path.join(root, "cmake/inner_layers.txt")):
        units = line.split()
        own = ranks.setdefault(units[0].split("/")[0], {})
        own.update(dict.fromkeys(units, len(set(own.values()))))
    return ranks


def inner_problem(path, target, ranks):
    """None, or what is wrong with an include within one layer."""
    layer = path.split("/")[0]
    if target.split("/")[0] != layer or layer not in ranks or target.endswith(".pb.h"):
        return None
    units = []
    for name in (path, target):
        files, folder = os.path.splitext(name)[0] + ".*", os.path.dirname(name)
        units.append(files if files in ranks[layer] else folder)
        if units[-1] not in ranks[layer]:
            return f"{folder} has no rank in cmake/inner_layers.txt"
    own, other = units
    if own == other or ranks[layer][other] < ranks[layer][own]:
        return None
    return f"{own} may not include {other} (cmake/inner_layers.txt)"


def find_cycle(graph):
    """The files of one include cycle in order, or []."""
    state = {}  # absent: not visited, 1: on the stack, 2: done
    for start in sorted(graph):
        stack = [(start, iter(graph[start]))] if start not in state else []
        if stack:
            state[start] = 1
        while stack:
            node, edges = stack[-1]
            nxt = next((e for e in edges if e in graph and state.get(e) != 2), None)
            if nxt is None:
                state[node] = 2
                stack.pop()
            elif state.get(nxt) == 1:
                names = [n for n, _ in stack]
                return names[names.index(nxt):] + [nxt]
            else:
                state[nxt] = 1
                stack.append((nxt, iter(graph[nxt])))
    return []


def check(root):
    """All findings, sorted by file and line."""
    ranks = read_ranks(root)
    if not ranks:
        raise OSError(f"{root}: cmake/layers.txt is missing or empty")
    inner = read_inner_ranks(root)
    public = set(read_table(os.path.join(root, "cmake/public_headers.txt")))
    includes = read_includes(root, ranks)
    findings = []
    for path, rows in includes.items():
        for line, quoted, target in rows:
            problem = edge_problem(path, quoted, target, ranks, public) or inner_problem(path, target, inner)
            own = target in includes or target.endswith(".pb.h") or target.split("/")[0] not in ranks
            if problem is None and quoted and not own:
                problem = "no such file in the tree"
            if problem:
                findings.append(f'{path}:{line}: include of "{target}": {problem}')
    findings += [f"cmake/public_headers.txt: {p}: no such file" for p in sorted(public - set(includes))]
    if len(public) > 30:
        findings.append(f"cmake/public_headers.txt: {len(public)} headers, expected at most 30")
    cycle = find_cycle({p: [t for _, _, t in rows] for p, rows in includes.items()})
    if cycle:
        findings.append("include cycle: " + " -> ".join(cycle))
    return findings, len(includes)


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
    try:
        findings, files = check(root)
    except (OSError, ValueError) as e:
        print(f"error: {e}", file=sys.stderr)
        return 2
    for line in findings:
        print(line)
    print(f"{files} files, {len(findings)} findings", file=sys.stderr)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
