#!/usr/bin/env python3
"""transpile-program --minimize --backward-only produces the reference's gradients for every training program.

    backward.py --bin-dir TOOLS_FOLDER --dir REFERENCE_FOLDER

Programs are compared by diff-program. EXTRA has settings with which a reference program was made but that its
config.json lacks. Exit status: 0 all equal, 1 some differ, 77 no references found.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

from each_case import run_cases

# error clips are properties of program objects; neither the programs nor the configurations carry them
EXTRA = {"cond_error_clip_rmsprop_centered": {"error_clip": {"fc_0.tmp_2": {"min": -0.01, "max": 0.02}}}}


def check(bin_dir, folder, name):
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    config.update(EXTRA.get(name, {}))
    with tempfile.TemporaryDirectory() as work:
        path = os.path.join(work, "config.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(config, file)
        out = os.path.join(work, "out")
        made = subprocess.run([os.path.join(bin_dir, "transpile-program"), "--program", f"{folder}/main_forward.pb",
                               "--startup", f"{folder}/startup_forward.pb", "--minimize", path, "--backward-only", "-o", out],
                              capture_output=True, text=True)
        if made.returncode:
            return f"exit {made.returncode}: {made.stderr.strip()}"
        same = subprocess.run([os.path.join(bin_dir, "diff-program"), f"{folder}/backward.pb", f"{out}/backward/__model__"],
                              capture_output=True, text=True)
        return "" if same.returncode == 0 else same.stdout.strip() or same.stderr.strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin-dir", required=True)
    parser.add_argument("--dir", required=True)
    args = parser.parse_args()
    if not os.path.isdir(args.dir):
        print(f"skipped: {args.dir} is not here")
        return 77
    names = sorted(n for n in os.listdir(args.dir) if os.path.exists(os.path.join(args.dir, n, "backward.pb")))
    return run_cases(names, lambda name: check(args.bin_dir, os.path.join(args.dir, name), name))


if __name__ == "__main__":
    sys.exit(main())
