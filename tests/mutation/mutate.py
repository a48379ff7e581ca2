#!/usr/bin/env python3
"""Mutation runs: how many small faults in a folder do the tests of that folder detect?

    mutate.py [--folders ops/backward,io/checkpoint] [--count 100] [--seed 1] [--jobs 2]
    mutate.py --again survivors        only the survivors of the last run, after tests were added

Samples COUNT mutants of each folder and builds all of them at once in a copy of the tree (build/mutation/tree), where
the variable MILLRACE_MUTANT selects one at run time. Runs each against the tests of its folder that reach it, the
fastest first, for at most a minute; checks of whole programs need ../shared. A mutant counts as killed when a test
fails twice, or hangs. Needs the Python package libclang 16 and its headers (clang-16). Writes
build/mutation/result/FOLDER.json with every mutant; survivors.json next to this file has the reasons for equivalent
mutants, which no input can distinguish from the source.
Exit status: 1 if less than 90 % of those without a reason are killed.
"""
import argparse
import collections
import hashlib
import json
import multiprocessing
import os
import random
import re
import shlex
import shutil
import subprocess
import sys

import runner
import sites as finding

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
WORK = os.path.join(ROOT, "build", "mutation")
TREE = os.path.join(WORK, "tree")
BUILD = os.path.join(TREE, "build", "ci")
WANTED_SHARE = 0.9
STEP = 10000  # numbers of mutants per folder

# The tests of a folder: GoogleTest programs, golden tests of passes, fuzz targets that run their seeds once; and checks of
# whole programs, of which each case is a test: see whole_programs().
FOLDERS = {
    "ops/backward": {"programs": ["ops_backward_test", "ops_math_test", "ops_graph_test", "gradients_test"], "golden": ["minimize/"],
                     "seeds": {"minimize_fuzz": "minimize"}, "whole": ["nets"]},
    "ops/minimize": {"programs": ["ops_backward_test"], "golden": ["minimize/"], "seeds": {"minimize_fuzz": "minimize"},
                     "whole": ["nets"]},
    "transpiler/distribute": {"programs": ["transpiler_test", "transpiler_modes_test", "transpiler_pserver_test"],
                              "golden": [""],
                              "seeds": {"transpile_fuzz": "transpile", "slices_fuzz": "slices", "pipeline_fuzz": "pipeline"},
                              "whole": ["references", "jobs"]},
    "ps/server": {"programs": ["ps_server_test", "ps_table_test", "communicator_test", "transport_test", "discovery_test"],
                  "golden": [], "seeds": {"ps_message_fuzz": "ps_message", "table_rows_fuzz": "table_rows"},
                  "whole": ["jobs", "simulation"]},
    "ps/table": {"programs": ["ps_table_test", "ps_server_test", "communicator_test", "transport_test", "fleet_runtime_test"],
                 "golden": [], "seeds": {"ps_message_fuzz": "ps_message", "table_rows_fuzz": "table_rows"},
                 "whole": ["jobs"]},
    "io/checkpoint": {"programs": ["io_checkpoint_test", "io_original_test", "checkpoint_tool_test", "checkpoint_servers_test"],
                      "golden": [],
                      "seeds": {"safetensors_fuzz": "safetensors", "manifest_fuzz": "manifest", "rank_text_fuzz": "rank_text"},
                      "whole": []},
}
# The programs that checks of whole programs run.
CHECKED_TOOLS = ["inspect-program", "run-program", "transpile-program"]
TOOLS = {"nets": CHECKED_TOOLS, "jobs": CHECKED_TOOLS, "references": ["transpile-program"], "simulation": ["simulate_jobs"]}
# A different source is built in their place.
NOT_BUILT = re.compile(r"/(checksum_update_plain|no_rocks_store)\.cc$")


# --- the copy of the tree

def write(path, text):
    """Writes files only if they changed, so that only those are rebuilt."""
    data = text if isinstance(text, bytes) else text.encode()
    if os.path.exists(path):
        with open(path, "rb") as file:
            if file.read() == data:
                return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(data)


def tracked_files():
    """Text by name, for files that are tracked or not ignored by git."""
    names = subprocess.run(["git", "-C", ROOT, "ls-files", "-co", "--exclude-standard"], capture_output=True, text=True,
                           check=True).stdout.splitlines()
    return sorted(n for n in set(names) if os.path.isfile(os.path.join(ROOT, n)))


def read(name):
    with open(os.path.join(ROOT, name), "rb") as file:
        return file.read()


def copy_tree(mutated):
    """Writes the tree with mutated sources (text by name) and the chooser."""
    names = set(tracked_files())
    for name in names:
        if name in mutated:
            continue
        text = read(name)
        if name == "framework/CMakeLists.txt":
            text += (b"\nset_source_files_properties(${PROJECT_SOURCE_DIR}/mutant.cc PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)\n"
                     b"target_sources(millrace_framework PRIVATE ${PROJECT_SOURCE_DIR}/mutant.cc)\n")
        path = os.path.join(TREE, name)
        write(path, text)
        os.chmod(path, os.stat(os.path.join(ROOT, name)).st_mode)
    for name, text in mutated.items():
        write(os.path.join(TREE, name), text)
    with open(os.path.join(HERE, "chooser.txt"), "rb") as file:
        write(os.path.join(TREE, "mutant.cc"), file.read())
    for folder, folders, files in os.walk(TREE):
        if folder == TREE:
            folders.remove("build") if "build" in folders else None
        for file in files:
            name = os.path.relpath(os.path.join(folder, file), TREE)
            if name not in names and name != "mutant.cc":
                os.remove(os.path.join(TREE, name))


def configure():
    if not os.path.exists(os.path.join(BUILD, "build.ninja")):
        launcher = f"{sys.executable};{HERE}/launcher.py;{TREE}"
        subprocess.run(["cmake", "--preset", "ci", f"-DCMAKE_CXX_COMPILER_LAUNCHER={launcher}"], cwd=TREE, check=True,
                       stdout=subprocess.DEVNULL)
    with open(os.path.join(TREE, "proto", "CMakeLists.txt"), encoding="utf-8") as file:
        schemas = re.search(r"foreach\(schema ([^)]+)\)", file.read()).group(1).split()
    subprocess.run(["ninja", "-C", BUILD, *(f"generated/proto/{schema}.pb.h" for schema in schemas)], check=True,
                   stdout=subprocess.DEVNULL)


def clang_arguments():
    """Arguments for libclang to read each source. Preset dev has no unity sources, so its commands name every
    source."""
    subprocess.run(["cmake", "--preset", "dev"], cwd=TREE, check=True, stdout=subprocess.DEVNULL)
    with open(os.path.join(TREE, "build", "dev", "compile_commands.json"), encoding="utf-8") as file:
        entries = json.load(file)
    resources = subprocess.run(["clang-16", "-print-resource-dir"], capture_output=True, text=True, check=True).stdout.strip()
    found = {}
    for entry in entries:
        words = shlex.split(entry["command"].replace("/build/dev", "/build/ci"))
        kept, at = ["-resource-dir", resources, "-Wno-everything", "-Wno-c++11-narrowing", "-ferror-limit=0"], 0
        while at < len(words):
            if words[at] in ("-I", "-isystem", "-D"):
                kept += words[at:at + 2]
                at += 1
            elif re.match(r"-I|-D|-std=|-isystem|-m", words[at]):
                kept.append(words[at])
            at += 1
        found[os.path.relpath(entry["file"], TREE)] = kept
    return found


# --- mutants

def find_in(task):
    source, arguments, wanted, seed = task
    os.chdir(BUILD)
    finder = finding.Finder(ROOT, wanted, seed)
    finder.parse(os.path.join(ROOT, source), [a if "/build/ci" in a else a.replace(TREE, ROOT) for a in arguments])
    return finder.result()


def all_sites(folder, seed, jobs):
    """Every site of a folder, in an order that the seed determines; cached, since reading all sources takes minutes."""
    names = [n for n in tracked_files() if n.startswith(folder + "/") and n.endswith((".cc", ".h")) and not NOT_BUILT.search(n)]
    state = hashlib.sha256(f"{seed}".encode())
    for name in names + [os.path.relpath(finding.__file__, ROOT)]:
        state.update(name.encode() + read(name))
    kept = os.path.join(WORK, "sites", folder.replace("/", "_") + ".json")
    if os.path.exists(kept):
        with open(kept, encoding="utf-8") as file:
            found = json.load(file)
        if found["state"] == state.hexdigest():
            return found["sites"]
    arguments = clang_arguments()
    tasks = [(n, arguments[n], set(names), seed) for n in names if n in arguments]
    found = {}
    with multiprocessing.Pool(jobs) as pool:
        for sites in pool.imap_unordered(find_in, tasks):
            for site in sites:
                found[(site["file"], site["begin"], site["end"])] = dict(site, folder=folder)
    ordered = [found[key] for key in sorted(found)]
    random.Random(f"{seed}:{folder}").shuffle(ordered)
    write(kept, json.dumps({"state": state.hexdigest(), "sites": ordered}))
    return ordered


def render_all(chosen):
    """The mutated sources of the chosen sites."""
    by_file = collections.defaultdict(list)
    for site in chosen:
        by_file[site["file"]].append(site)
    out = {}
    for name, sites in by_file.items():
        head = b'extern "C" bool millrace_mutant(int number);\n'
        if name.endswith(".h"):
            head = b"#pragma GCC system_header\n" + head
        out[name] = head + finding.render(read(name), sites).encode()
    return out


def errors_of_build(log):
    """Locations in mutated sources of compiler errors: (message, locations), the location of the error first."""
    found, context = [], []
    for line in log.splitlines():
        match = re.match(r"(?:In file included from |\s+from )?(\S+?):(\d+):(\d+)", line)
        if match:
            path = os.path.normpath(os.path.join(BUILD, match.group(1)))
            place = (os.path.relpath(path, TREE), int(match.group(2)), int(match.group(3)))
            if re.search(r":\d+: (fatal )?error:", line):
                found.append((line, [place] + context))
                context = []
            elif "required from" in line or "In instantiation" in line:
                context.append(place)
            elif found and ": note:" in line:
                found[-1][1].append(place)
    return found


def blamed(errors, mutated):
    """The mutants at the locations of errors."""
    numbers = set()
    for message, places in errors:
        for name, line, column in places:
            at = finding.numbers_at(mutated[name].decode(), line, column) if name in mutated else []
            if at:
                numbers.add(at[0])
                break
        else:
            raise SystemExit(f"an error that no mutant explains: {message} {places[:3]}")
    return numbers


class Sample:
    """The chosen mutants of all folders: COUNT each, with replacements for those that do not compile."""

    def __init__(self, sites, count):
        self.left = {folder: list(found) for folder, found in sites.items()}
        self.count, self.chosen, self.dropped = count, [], collections.Counter()
        self.next = {folder: 1 + STEP * list(FOLDERS).index(folder) for folder in sites}  # so that numbers of several runs can be merged
        self.fill()

    def fill(self):
        for folder, left in self.left.items():
            have = sum(site["folder"] == folder for site in self.chosen)
            while have < self.count and left:
                site = left.pop(0)
                site["number"] = self.next[folder]
                site["old"] = hashlib.sha256(read(site["file"])[site["begin"]:site["end"]]).hexdigest()
                self.next[folder] += 1
                self.chosen.append(site)
                have += 1

    def drop(self, numbers):
        for site in self.chosen:
            if site["number"] in numbers:
                self.dropped[site["folder"]] += 1
        self.chosen = [site for site in self.chosen if site["number"] not in numbers]
        self.fill()


def targets_of(folders):
    names = {"transpile-program"} if any(FOLDERS[f]["golden"] for f in folders) else set()
    for folder in folders:
        names.update(FOLDERS[folder]["programs"], FOLDERS[folder]["seeds"])
        for kind in FOLDERS[folder]["whole"]:
            names.update(TOOLS[kind])
    return sorted(names)


def build(folders, jobs):
    command = ["cmake", "--build", BUILD, "--parallel", str(jobs), "--target", *targets_of(folders), "--", "-k", "0"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def make(folders, args):
    """Builds the sample; returns the mutants."""
    if not os.path.exists(os.path.join(TREE, "CMakeLists.txt")):
        copy_tree({})
    configure()
    found = {folder: all_sites(folder, args.seed, args.jobs) for folder in folders}
    sample = Sample(found, args.count)
    while True:
        mutated = render_all(sample.chosen)
        copy_tree(mutated)
        code, log = build(folders, args.jobs)
        if code == 0:
            break
        bad = blamed(errors_of_build(log), mutated)
        if not bad:
            raise SystemExit(log[-4000:])
        print(f"{len(bad)} mutants do not compile", flush=True)
        sample.drop(bad)
    for folder in folders:
        print(f"{folder}: {len(found[folder])} places, {sample.dropped[folder]} of those drawn do not compile", flush=True)
    return sample.chosen


# --- tests and results

def whole_programs(kind, python):
    """A test for each stored random net or job, each reference of the transpiler, or ten jobs in virtual time."""
    shared = os.path.join(os.path.dirname(ROOT), "shared")
    if kind in ("nets", "jobs"):
        names = sorted(n[:-len(".tar.xz")] for n in os.listdir(os.path.join(ROOT, "tests/differential/cases", kind)))
        command = [python, "-B", "tests/differential/run.py", "--replay", "tests/differential/cases", "--jobs", "1", "--shared",
                   shared, "--bin-dir", BUILD + "/tools", "--only"]
        return [runner.Test(name, command + [name]) for name in names]
    if kind == "references":
        command = [python, "-B", shared + "/tools/check_transpiler.py", "--bin", BUILD + "/tools/transpile-program", "--only"]
        return [runner.Test(name, command + [name]) for name in sorted(os.listdir(shared + "/goldens/transpiler"))]
    return [runner.Test(f"simulation {first}", [BUILD + "/tests/simulate_jobs", "--seeds", f"{first}:{first + 9}"])
            for first in range(1, 100, 10)]


def tests_of(folder, args):
    spec, env = FOLDERS[folder], BUILD + "/tests/"
    tests = []
    for program in spec["programs"]:
        tests += runner.cases_of(env + program)
    golden = sorted(n for n in tracked_files() if n.startswith("tests/passes/") and n.endswith(".test"))
    filecheck = shutil.which("FileCheck") or "/usr/lib/llvm-16/bin/FileCheck"
    for name in golden:
        if any(name.startswith("tests/passes/" + prefix) for prefix in spec["golden"]):
            command = ["python3", "-B", "tests/passes/run_test.py", "--bin-dir", BUILD + "/tools", "--filecheck", filecheck, name]
            tests.append(runner.Test(name, command))
    for program, seeds in spec["seeds"].items():
        tests.append(runner.Test(program + ".seeds", [env + program, "tests/fuzz/seeds/" + seeds]))
    for kind in [] if args.quick else spec["whole"]:
        tests += whole_programs(kind, args.python)
    return tests


def reasons():
    with open(os.path.join(HERE, "survivors.json"), encoding="utf-8") as file:
        return {(r["file"], r["text"], r["kind"], r["change"]): r["reason"] for r in json.load(file)}


def result_file(folder):
    return os.path.join(WORK, "result", folder.replace("/", "_") + ".json")


def save(mutants, folders, seed):
    for folder in folders:
        own = [m for m in mutants if m["folder"] == folder]
        write(result_file(folder), json.dumps({"seed": seed, "mutants": own}, indent=1) + "\n")


def load(folders):
    """The mutants of the last run, and its seed."""
    mutants, seed = [], None
    for folder in folders:
        if not os.path.exists(result_file(folder)):
            raise SystemExit(f"{folder}: no last run")
        with open(result_file(folder), encoding="utf-8") as file:
            last = json.load(file)
        seed = last["seed"]
        mutants += last["mutants"]
    for mutant in mutants:
        at = slice(mutant["begin"], mutant["end"])
        if hashlib.sha256(read(mutant["file"])[at]).hexdigest() != mutant["old"]:
            raise SystemExit(f"{mutant['file']}:{mutant['line']} has changed since the last run")
    return mutants, seed


def summary(mutants, folders):
    """A line per folder; true if enough are killed in every folder."""
    good = True
    for folder in folders:
        own = [m for m in mutants if m["folder"] == folder]
        killed = sum(m["result"] == "killed" for m in own)
        hung = sum(m["result"] == "killed" and m["by"].startswith("hangs: ") for m in own)
        excused = sum(m["result"] != "killed" and "reason" in m for m in own)
        counted = len(own) - excused
        share = killed / counted if counted else 1.0
        good = good and share >= WANTED_SHARE
        print(f"{folder}: {len(own)} mutants, {killed} killed ({hung} of them hang), {excused} survived with a reason, "
              f"{counted - killed} survived; killed of those without a reason {share:.1%}, of all {killed / len(own):.1%}")
    return good


def main():
    global TREE, BUILD
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folders", default=",".join(FOLDERS))
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--minute", type=float, default=60, help="seconds a mutant")
    parser.add_argument("--tree", default=TREE, help="where the copy lies, if not in build/mutation: one that the compiler cache "
                                                     "knows, say; what else is there is deleted")
    parser.add_argument("--python", default=os.path.join(ROOT, ".ci/venv/bin/python"),
                        help="has numpy and protobuf, for checks of whole programs (.ci/run venv makes the default)")
    parser.add_argument("--quick", action="store_true", help="without checks of whole programs")
    parser.add_argument("--again", choices=["survivors", "summary"], help="with the mutants of the last run")
    args = parser.parse_args()
    TREE = os.path.abspath(args.tree)
    BUILD = os.path.join(TREE, "build", "ci")
    if os.path.lexists(os.path.join(TREE, ".git")):
        parser.error(f"--tree {TREE}: expected a folder without .git, since what is there is deleted")
    folders = args.folders.split(",")
    known = reasons()
    if args.again:
        mutants, args.seed = load(folders)
        to_run = [m for m in mutants if m["result"] != "killed"] if args.again == "survivors" else []
        if to_run:
            copy_tree(render_all(mutants))
            code, log = build(folders, args.jobs)
            if code:
                raise SystemExit(log[-4000:])
    else:
        mutants = to_run = make(folders, args)
    for folder in folders:
        own = [m for m in to_run if m["folder"] == folder]
        if not own:
            continue
        for mutant, (result, by) in runner.run_all(own, tests_of(folder, args), ROOT, WORK, BUILD, args):
            mutant.update(result=result, by=by)
            save(mutants, [folder], args.seed)
    for m in mutants:
        m.pop("reason", None)
        reason = known.get((m["file"], m["text"], m["kind"], m["change"]))
        if reason and m["result"] != "killed":
            m["reason"] = reason
    save(mutants, folders, args.seed)
    for m in mutants:
        if m["result"] != "killed" and "reason" not in m:
            print(f"{m['file']}:{m['line']}: {m['kind']}: {m['change']} [{m['number']}, {m['result']}]")
    return 0 if summary(mutants, folders) else 1


if __name__ == "__main__":
    sys.exit(main())
