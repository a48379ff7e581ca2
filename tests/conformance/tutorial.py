#!/usr/bin/env python3
"""Runs the commands of docs/tutorial.md in their order, with tools that are built already.

    tutorial.py --bin-dir build/ci/tools

Leaves out the commands that build and install. Every command must end with 0 (diff-program with 1, since the programs differ), and
the model that the job with parameter servers wrote must predict the targets of the data. Exit status: 0 if so, else 1.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
NEAR = 0.5  # the data has noise of 0.1
BUILDS = ("scripts/setup.sh", "cmake ", "BIN=", "$W/infer/infer")


def commands(page):
    """The shell commands of the page; one that continues on the next line is one."""
    text = "".join(re.findall(r"```sh\n(.*?)```", page, re.S)).replace("\\\n", " ")
    for line in text.splitlines():
        if line.startswith(BUILDS):
            continue
        yield line + (" || [ $? = 1 ]" if line.startswith("$BIN/diff-program") else "")


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--bin-dir", required=True)
    args = ap.parse_args()
    os.chdir(ROOT)
    with open("docs/tutorial.md", encoding="utf-8") as f:
        script = "\n".join(["set -euxo pipefail", f"BIN={os.path.abspath(args.bin_dir)}", *commands(f.read())])
    shutil.rmtree("build/tutorial", ignore_errors=True)
    done = subprocess.run(["bash", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300, check=False)
    print(done.stdout)
    if done.returncode:
        print(f"a command ends with {done.returncode}\n0 passed, 1 failed")
        return 1
    found = [float(v) for v in re.search(r"\[([-0-9., e]+)\]\s*\Z", done.stdout).group(1).split(",")]
    with open("build/tutorial/five.csv", encoding="utf-8") as f:
        wanted = [float(line.split(",")[-1]) for line in f]
    good = len(found) == len(wanted) and all(abs(a - b) < NEAR for a, b in zip(found, wanted))
    print(f"predicted {found}, targets {wanted}\n{int(good)} passed, {int(not good)} failed")
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
