#!/usr/bin/env python3
"""Checks the examples of docs/extending.md: small diffs, each of which adds one thing to this tree.

    check_diffs.py [NAME...]            the diffs apply, one after another, and the tree with them passes tests/layers
    check_diffs.py --build [NAME...]    and is built, with the tests of the diffs, which must pass

Without names all diffs are checked, and docs/extending.md must link to each of them. A diff in docs/extending begins
with a sentence and with one or more lines "# tests: TARGET REGEX": CMake builds TARGET, and ctest runs the tests whose
names match REGEX.

--build writes the tree into build/extending/tree (--tree) and uses preset ci. Files that did not change are not written
again, so that a second run builds little. Exit status: 0 if all is well, 1 otherwise.
"""
import argparse
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
PAGE, FOLDER = "docs/extending.md", "docs/extending"
CHECKS = ("layers", "names", "tree", "words")
TESTS = re.compile(r"# tests: (\S+) (\S+)")
CPP = (".h", ".cc")


class Diff:
    """A diff file: its tests, and the files that it changes or adds."""

    def __init__(self, root, name):
        self.name, self.path = name, f"{FOLDER}/{name}.diff"
        with open(os.path.join(root, self.path), encoding="utf-8") as file:
            head, _, body = file.read().partition("diff --git ")
        body = "diff --git " + body
        self.sentence = head.splitlines()[0] if head else ""
        self.tests = TESTS.findall(head)  # (target, regex)
        self.files = re.findall(r"^diff --git a/(\S+) b/\1$", body, re.M)


def environment(folder):
    """For git and for the checks: a repository around the folder does not count."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return dict(env, GIT_CEILING_DIRECTORIES=os.path.dirname(os.path.realpath(folder)))


def tracked_files(root):
    command = ["git", "-C", root, "ls-files", "-co", "--exclude-standard"]
    names = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return sorted(name for name in set(names) if os.path.isfile(os.path.join(root, name)))


# --- the checks without a build

def page_findings(root, diffs):
    """A line for each diff without a link, and for each link without a diff."""
    with open(os.path.join(root, PAGE), encoding="utf-8") as file:
        linked = set(re.findall(r"\]\(extending/([\w-]+)\.diff\)", file.read()))
    there = {diff.name for diff in diffs}
    yield from (f"{PAGE}: no link to extending/{name}.diff" for name in sorted(there - linked))
    yield from (f"{PAGE}: extending/{name}.diff does not exist" for name in sorted(linked - there))


def apply_all(root, diffs, stage):
    """Applies the diffs to the files in the folder `stage`; returns a line for each that does not apply."""
    findings = []
    for diff in diffs:
        if not diff.sentence or diff.sentence.startswith("#"):
            findings.append(f"{diff.path}: expected a sentence in line 1")
        if not diff.tests:
            findings.append(f"{diff.path}: expected a line '# tests: TARGET REGEX'")
        for name in diff.files:
            path = os.path.join(stage, name)
            if os.path.islink(path):  # git does not patch what a link points to
                os.remove(path)
                shutil.copy(os.path.join(root, name), path)
        command = ["git", "apply", "--whitespace=error-all", os.path.join(root, diff.path)]
        done = subprocess.run(command, cwd=stage, env=environment(stage), capture_output=True, text=True, check=False)
        if done.returncode:
            findings.append(f"{diff.path}: does not apply: {done.stderr.strip()}")
    return findings


def layout_findings(stage, diffs):
    names = sorted({name for diff in diffs for name in diff.files if name.endswith(CPP)})
    if not names or not shutil.which("clang-format"):
        return []
    command = ["clang-format", "--dry-run", "--Werror", *names]
    done = subprocess.run(command, cwd=stage, capture_output=True, text=True, check=False)
    return [line for line in done.stderr.splitlines() if "error:" in line]


def source_findings(stage, diffs):
    """What the checks of tests/layers report about the files of the diffs."""
    findings, names = [], {name for diff in diffs for name in diff.files}
    for check in CHECKS:
        script = os.path.join(stage, "tests/layers", f"check_{check}.py")
        command = [sys.executable, "-B", script, stage]
        done = subprocess.run(command, env=environment(stage), capture_output=True, text=True, check=False)
        if done.returncode == 1 and done.stdout:
            findings += [f"check_{check}: {line}" for line in done.stdout.splitlines() if any(name in line for name in names)]
        elif done.returncode:
            findings.append(f"check_{check}: {done.stderr.strip()}")
    return findings


@contextlib.contextmanager
def staged_tree(root):
    """A folder with links to all files of the tree."""
    with tempfile.TemporaryDirectory() as stage:
        for name in tracked_files(root):
            path = os.path.join(stage, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            os.symlink(os.path.join(root, name), path)
        yield stage


# --- the build

def write(path, data, mode):
    """Writes a file only if it changed, so that only what depends on it is rebuilt."""
    if os.path.exists(path):
        with open(path, "rb") as file:
            if file.read() == data:
                return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(data)
    os.chmod(path, mode)


def write_tree(stage, tree):
    names = set()
    for at, _, files in os.walk(stage):
        for file in files:
            path = os.path.join(at, file)
            name = os.path.relpath(path, stage)
            with open(path, "rb") as source:
                data = source.read()
            write(os.path.join(tree, name), data, os.stat(path).st_mode)
            names.add(name)
    for at, folders, files in os.walk(tree):
        if at == tree:
            folders[:] = [folder for folder in folders if folder != "build"]
        for file in files:
            path = os.path.join(at, file)
            if os.path.relpath(path, tree) not in names:
                os.remove(path)


def ctest(tree, *arguments):
    command = ["ctest", "--preset", "ci", "--no-tests=error", *arguments]
    return subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)


def build_and_test(tree, diffs, jobs):
    """Builds the targets of the diffs and runs their tests; returns a line for each failure."""
    if not os.path.exists(os.path.join(tree, "build/ci/build.ninja")):
        subprocess.run(["cmake", "--preset", "ci"], cwd=tree, check=True)
    targets = sorted({target for diff in diffs for target, _ in diff.tests})
    command = ["cmake", "--build", "--preset", "ci", "--parallel", str(jobs), "--target", *targets]
    if subprocess.run(command, cwd=tree, check=False).returncode:
        return ["the tree with the diffs does not build"]
    findings = []
    for diff in diffs:
        for _, regex in diff.tests:
            if ctest(tree, "-N", "-R", regex).returncode:
                findings.append(f"{diff.path}: no test matches '{regex}'")
    done = ctest(tree, "-R", "|".join(regex for diff in diffs for _, regex in diff.tests))
    print(done.stdout)
    return findings + (["a test of a diff fails"] if done.returncode else [])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these diffs")
    parser.add_argument("--build", action="store_true", help="build the tree and run the tests of the diffs")
    parser.add_argument("--tree", default=os.path.join(ROOT, "build/extending/tree"), help="its other files are deleted")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    args = parser.parse_args()
    tree = os.path.abspath(args.tree)
    if args.build and os.path.lexists(os.path.join(tree, ".git")):
        parser.error(f"--tree {tree}: expected a folder without .git, since its files are deleted")
    known = sorted(name[:-len(".diff")] for name in os.listdir(os.path.join(ROOT, FOLDER)) if name.endswith(".diff"))
    for name in set(args.names) - set(known):
        parser.error(f"{name}: expected one of {', '.join(known)}")
    diffs = [Diff(ROOT, name) for name in known if not args.names or name in args.names]
    findings = [] if args.names else list(page_findings(ROOT, diffs))
    with staged_tree(ROOT) as stage:
        broken = apply_all(ROOT, diffs, stage)
        findings += broken or layout_findings(stage, diffs) + source_findings(stage, diffs)
        if args.build and not findings:
            write_tree(stage, tree)
    if args.build and not findings:
        findings += build_and_test(tree, diffs, args.jobs)
    for line in findings:
        print(line)
    print(f"{len(diffs)} diffs, {len(findings)} findings", file=sys.stderr)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
