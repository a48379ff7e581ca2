#!/usr/bin/env python3
"""Checks the names in unnamed namespaces: short, and such that sources can be compiled together (MILLRACE_UNITY).

    check_names.py [ROOT]

The sources of a folder of a layer are compiled ten at a time (cmake/millrace_library.cmake), so two sources of a folder
may not define the same type, var or function in an unnamed namespace, nor overloads of a function; equal aliases are
allowed. A source whose names would not be distinct puts its unnamed namespace into a namespace named after the file,
and its public functions say `using namespace` in their bodies (docs/decisions/0028-build-time.md). Then its names may be
those of other such sources, but not those of a source without: a use after `using namespace` would be ambiguous. A new
source can move others into another group; therefore the rule holds for the whole folder. Main programs and modules are
compiled separately.

No name ends with the name of its file (infer_data_norm in data_norm.cc), unless names_of_files.txt lists it with a
reason; a row that is no longer needed is a finding.
Exit status: 0 clean, 1 findings (one line each).
"""
import os
import re
import sys

TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|R"\((?s:.*?)\)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|^[ \t]*#(?:\\\n|[^\n])*|\w+|::|<<|<=|.', re.M | re.S)
SKIPPED = re.compile(r"//|/\*|\s|[ \t]*#")
TYPES = ("struct", "class", "enum", "union")
# Sources that are in no library.
SEPARATE = re.compile(r"(bench|examples|tests|proto)/|tools/[^/]*$|tools/dev/|kernels/gpu/cuda/|executor/collective/(gloo|mpi)_group"
                      r"|ps/(transport/grpc_(client|module|parts|server|stream|tls)|discovery/etcd_grpc|table/rocks_store|metrics/exposer)\b")


ALLOWED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "names_of_files.txt")


def read_allowed(path):
    with open(path, encoding="utf-8") as file:
        return [line.strip() for line in file if line.strip() and not line.startswith("#")]


def tokens(text):
    return [t for t in TOKEN.findall(text) if not SKIPPED.match(t)]


def unnamed_parts(words):
    """The tokens inside each outermost unnamed namespace, and the name of the namespace around it."""
    at, around = 0, []  # around: the name of each open brace, "" if it is not a namespace's
    while at < len(words):
        if words[at:at + 2] == ["namespace", "{"]:
            depth, begin = 1, at + 2
            at = begin
            while depth and at < len(words):
                depth += (words[at] == "{") - (words[at] == "}")
                at += 1
            yield "::".join(name for name in around if name), words[begin:at - 1]
            continue
        if words[at] == "{":
            begin = at
            while begin and re.fullmatch(r"\w+|::", words[begin - 1]) and words[begin - 1] != "namespace":
                begin -= 1
            named = begin and words[begin - 1] == "namespace"
            around.append("".join(words[begin:at]) if named else "")
        elif words[at] == "}" and around:
            around.pop()
        at += 1


def has_initializer(head):
    """Whether the declaration so far is that of a var with an initial value, in which a brace ends nothing."""
    depth = 0
    for word in without_brackets(head):
        if word == "=" and depth == 0:
            return "operator" not in head
        depth += (word == "(") - (word == ")")
    return False


def declarations(words):
    """The tokens of each declaration, without what is in braces."""
    head, depth = [], 0
    for number, word in enumerate(words):
        if depth == 0 and word not in "{;":
            head.append(word)
        depth += (word == "{") - (word == "}")
        following = words[number + 1] if number + 1 < len(words) else ""
        if depth == 0 and (word == ";" or word == "}" and following != ";" and not has_initializer(head)):
            yield [w for w in head if w != "}"]
            head = []


def without_brackets(words):
    """The tokens outside of template arguments and attributes."""
    depth, kept = 0, []
    for number, word in enumerate(words):
        opens = word == "<" and number and (words[number - 1] == "template" or re.match(r"\w", words[number - 1])) or word == "["
        if not (depth or opens):
            kept.append(word)
        depth += bool(opens) - (depth > 0 and word in (">", "]"))
    return kept


def name_of(words):
    """The name that a declaration defines; none if it defines none, or defines a member of a class."""
    if words[:1] == ["using"]:
        return words[1] if "=" in words else None
    words = without_brackets(words)
    while words and words[0] in ("template", "requires", "static", "inline", "constexpr", "constinit", "const", "thread_local"):
        words = words[1:]
    if not words or words[0] in ("friend", "extern", "static_assert", "namespace"):
        return None
    if words[0] in TYPES:
        rest = [w for w in words[1:] if w not in ("class", "struct", "final")]
        if len(words) < 3 or words[2] in (":", "final") or (words[0] == "enum" and "(" not in words):
            return rest[0] if rest else None
    end = next((n for n, word in enumerate(words) if word in ("(", "=")), len(words))
    if end == 0 or not re.fullmatch(r"\w+", words[end - 1]) or (end > 1 and words[end - 2] == "::") or "operator" in words:
        return None
    return words[end - 1]


def enumerators(words):
    """The enumerators of enumerations without a scope, which are names of the namespace."""
    depth = 0
    for number, word in enumerate(words):
        if depth == 0 and word == "enum" and words[number + 1] not in ("class", "struct"):
            begin = words.index("{", number)
            body = words[begin:words.index("}", begin)]
            yield from (name for before, name in zip(body, body[1:]) if before in "{,")
        depth += (word == "{") - (word == "}")


def spaces_in(text):
    """For each namespace that has an unnamed one: the names that this defines, and for aliases their definitions."""
    found = {}
    for space, part in unnamed_parts(tokens(text)):
        names = found.setdefault(space, {})
        names.update((name, None) for name in enumerators(part))
        for words in declarations(part):
            if name := name_of(words):
                names[name] = " ".join(words) if words[0] == "using" else None
    return found


def names_in(text):
    """The names that the unnamed namespaces of a source define, and for aliases their definitions."""
    return {name: alias for names in spaces_in(text).values() for name, alias in names.items()}


def is_glued(name, stem):
    """Whether the name ends with that of its file, or is the file's in a function's or type's spelling with a prefix."""
    camel = "".join(word.capitalize() for word in stem.split("_"))
    return name.endswith("_" + stem) or name.endswith(camel) and name not in (camel, "k" + camel)


def double_findings(sources):
    first = {}
    for path, spaces in sources:
        for space, names in sorted(spaces.items()):
            for name, alias in sorted(names.items()):
                other, other_alias = first.setdefault((space, name), (path, alias))
                if other != path and (alias is None or alias != other_alias):
                    yield f"{path}: '{name}' is also in the unnamed namespace of {other}"
    for path, spaces in sources:
        stem = os.path.basename(path)[:-3]
        for space, names in sorted(spaces.items()):
            outer, _, own = space.rpartition("::")
            for name, alias in sorted(names.items()) if own.startswith(stem) else []:
                other, other_alias = first.get((outer, name), (path, None))
                if other != path and (alias is None or alias != other_alias):
                    yield f"{path}: '{name}' is also in the unnamed namespace of {other}, which has no namespace of its own"


def check(root, allowed=()):
    """All findings; `allowed`: names that may end with the name of their file, as PATH:NAME."""
    unused, findings = set(allowed), []
    with open(os.path.join(root, "cmake/layers.txt"), encoding="utf-8") as file:
        layers = [line.split()[1] for line in file if line[:1].isdigit()]
    for layer in layers:
        for folder, _, files in sorted(os.walk(os.path.join(root, layer))):
            sources = []
            for path in sorted(os.path.relpath(os.path.join(folder, file), root) for file in files if file.endswith(".cc")):
                with open(os.path.join(root, path), encoding="utf-8") as source:
                    sources.append((path, spaces_in(source.read())))
            for path, spaces in sources:
                for name in sorted(name for names in spaces.values() for name in names):
                    if not is_glued(name, os.path.basename(path)[:-3]):
                        continue
                    unused.discard(f"{path}:{name}")
                    if f"{path}:{name}" not in allowed:
                        findings.append(f"{path}: '{name}' ends with the name of the file, expected a short name")
            findings += double_findings([source for source in sources if not SEPARATE.match(source[0])])
    return findings + [f"names_of_files.txt: no source defines {name}, or it does not end with the name of its file" for name in sorted(unused)]


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
    findings = check(root, read_allowed(ALLOWED))
    for line in findings:
        print(line)
    print(f"{len(findings)} findings", file=sys.stderr)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
