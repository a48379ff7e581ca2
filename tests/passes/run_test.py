#!/usr/bin/env python3
"""Runs golden pass tests: one behaviour, one file.

A file begins with comments: a sentence with the expected behaviour, then its commands

    # RUN: transpile-program --program %s --passes 'a,b{x=1}' -o - | FileCheck %s
    # RUN: not transpile-program --program %s --passes 'a' -o - 2>&1 | FileCheck %s --check-prefix=ERR
    # GOLDEN: transpile-program --program %s --passes 'a' -o -

followed by the program in the text form. %s is the file, %t a separate temporary folder. Every RUN must succeed ("not"
inverts the exit code); the output of GOLDEN must equal <file>.expected, which --update rewrites. After a backslash a
command continues in the next comment line.
"""

import argparse
import difflib
import os
import re
import subprocess
import sys
import tempfile

MAX_LINES = 100
TIMEOUT_S = 60


def read_test(path):
    """Returns (commands, errors); a command is (kind, text)."""
    with open(path, encoding="utf-8") as file:
        lines = file.read().splitlines()
    faults = []
    if len(lines) > MAX_LINES:
        faults.append(f"{len(lines)} lines, at most {MAX_LINES}: one behaviour, one file")
    if not lines or not re.match(r"# \S.*\.$|# \S+ \S+", lines[0]) or lines[0].startswith("# RUN"):
        faults.append("the first line must be a comment that says what must hold")
    commands = []
    going_on = False
    for line in lines:
        if going_on:
            commands[-1][1] += " " + line.lstrip("# ").rstrip("\\").strip()
        else:
            match = re.match(r"#\s*(RUN|GOLDEN):\s*(.*)", line)
            if not match:
                continue
            commands.append([match.group(1), match.group(2).rstrip("\\").strip()])
        going_on = line.endswith("\\")
    if not commands:
        faults.append("no RUN and no GOLDEN line")
    return commands, faults


def run_command(command, path, folder, args):
    """Runs one command in the shell; returns the finished process."""
    text = command.replace("%s", path).replace("%t", folder)
    script = f"set -o pipefail; not() {{ ! \"$@\"; }}; FileCheck() {{ {args.filecheck} \"$@\"; }}; {text}"
    env = dict(os.environ, PATH=args.bin_dir + os.pathsep + os.environ.get("PATH", ""))
    return subprocess.run(["bash", "-c", script], env=env, capture_output=True, timeout=TIMEOUT_S,
                          check=False)


def check_golden(process, path, update):
    """Compares the output with the expected file, or rewrites it; returns the error or None."""
    expected_path = path + ".expected"
    found = process.stdout.decode("utf-8", "replace")
    if process.returncode != 0:
        return f"exit code {process.returncode}"
    expected = ""
    if os.path.exists(expected_path):
        with open(expected_path, encoding="utf-8") as file:
            expected = file.read()
    if found == expected:
        return None
    if update:
        with open(expected_path, "w", encoding="utf-8") as file:
            file.write(found)
        print(f"updated {expected_path}")
        return None
    diff = difflib.unified_diff(expected.splitlines(), found.splitlines(), expected_path, "found",
                                lineterm="")
    return "\n".join(diff) + "\n(run_test.py --update accepts it)"


def run_test(path, args):
    """Runs one file; returns its errors."""
    commands, faults = read_test(path)
    with tempfile.TemporaryDirectory() as folder:
        for kind, command in commands:
            process = run_command(command, path, folder, args)
            fault = None
            if kind == "GOLDEN":
                fault = check_golden(process, path, args.update)
            elif process.returncode != 0:
                fault = f"exit code {process.returncode}"
            if fault:
                output = process.stderr.decode("utf-8", "replace")
                if kind == "RUN":
                    output = process.stdout.decode("utf-8", "replace") + output
                faults.append(f"{kind}: {command}\n{fault}\n{output}")
    return faults


def main():
    """Runs the files of the command line; the exit code is 0 if all passed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--bin-dir", required=True, help="folder of the tools")
    parser.add_argument("--filecheck", default="FileCheck", help="FileCheck program")
    parser.add_argument("--update", action="store_true", help="rewrite .expected files")
    parser.add_argument("files", nargs="+")
    args = parser.parse_args()
    failed = 0
    for path in args.files:
        faults = run_test(path, args)
        for fault in faults:
            print(f"{path}: {fault}", file=sys.stderr)
        failed += bool(faults)
    print(f"{len(args.files) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
