#!/usr/bin/env python3
"""Converts every real program to both forms and runs the verifier on it.

    roundtrip.py --bin-dir build/ci/tools [--dir ../shared/models]

Binary to binary must produce the same bytes. Binary to text to binary must produce the same bytes, or, for files whose
fields are not in order of their numbers, a program that diff-program finds equal. inspect-program --verify must find no
errors. Prints the failures and "N passed, N failed". Exit status: 0 all passed, 1 some failed, 77 the folder does not
exist, 2 it has no programs.
"""
import argparse
import os
import subprocess
import sys
import tempfile

NAMES = ("__model__", "main_program", "startup_program", "test_program")


def programs(folder):
    for root, _, files in sorted(os.walk(folder)):
        for name in sorted(files):
            if name in NAMES or name.endswith(".pb"):
                yield os.path.join(root, name)


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def read(path):
    with open(path, "rb") as file:
        return file.read()


def faults(path, bin_dir, work):
    """(an error text for one program, whether the text form produced the same bytes)"""
    tool = os.path.join(bin_dir, "transpile-program")
    binary, text, again = (os.path.join(work, n) for n in ("binary", "text", "again"))
    out = []
    for source, target, form in ((path, binary, "pb"), (path, text, "text"), (text, again, "pb")):
        p = run(tool, "--program", source, "--passes", "", "--format", form, "--force", "-o", target)
        if p.returncode != 0:
            return [f"{form}: exit {p.returncode}: {p.stderr.strip()[:300]}"], False
    if read(binary) != read(path):
        out.append("binary to binary changed the bytes")
    same = read(again) == read(path)
    if not same:
        p = run(os.path.join(bin_dir, "diff-program"), path, again)
        if p.returncode != 0:
            out.append(f"binary to text to binary: {p.stdout.strip()[:300]}")
    p = run(os.path.join(bin_dir, "inspect-program"), path, "--verify")
    if p.returncode != 0:
        out.append(f"--verify: exit {p.returncode}: {(p.stdout + p.stderr).strip()[:300]}")
    return out, same


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin-dir", required=True)
    parser.add_argument("--dir", default="../shared/models")
    args = parser.parse_args()
    if not os.path.isdir(args.dir):
        print(f"{args.dir} is not there")
        return 77
    good = bad = identical = 0
    with tempfile.TemporaryDirectory() as work:
        for path in programs(args.dir):
            found, same = faults(path, args.bin_dir, work)
            identical += same
            good += not found
            bad += bool(found)
            for line in found:
                print(f"FAIL {os.path.relpath(path, args.dir)}: {line}")
    print(f"{identical} of {good + bad} programs keep their bytes through text")
    print(f"{good} passed, {bad} failed")
    return 2 if good + bad == 0 else int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
