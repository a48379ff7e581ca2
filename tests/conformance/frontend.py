#!/usr/bin/env python3
"""Networks of the training references, built with the C++ front end, equal the programs of the references.

    frontend.py --bin BUILD/tests/write_training_nets --tools TOOLS_FOLDER --dir REFERENCE_FOLDER

Forward and startup program, and both after minimize(), are compared by diff-program. Ignored: op_namescope, which
counts over all programs of the process that generated the references, and the order in which ops list the vars that
their blocks read and write, which the original takes from a set. Exit status: 0 all equal, 1 some differ, 77 no
references found. Needs protobuf.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

from each_case import run_cases

FILES = ("main_forward.pb", "startup_forward.pb", "main.pb", "startup.pb")
# paddle.add of 2.x uses the name "elementwise_add_0" where fluid and millrace use "elementwise_add_0.tmp_0"
OTHER_NAME = re.compile(r"^(elementwise_add_\d+)(?=@|$)")
BLOCK_OPS = ("while", "while_grad", "conditional_block", "conditional_block_grad")


def comparable(reference_tools, path):
    """A program with the lists of names of ops with blocks sorted, and names as in fluid."""
    sys.path.insert(0, reference_tools)
    import program_diff
    program = program_diff.ProgramDesc()
    with open(path, "rb") as file:
        program.ParseFromString(file.read())
    for block in program.blocks:
        for var in block.vars:
            var.name = OTHER_NAME.sub(r"\1.tmp_0", var.name)
        for op in block.ops:
            for slot in [*op.inputs, *op.outputs]:
                names = [OTHER_NAME.sub(r"\1.tmp_0", name) for name in slot.arguments]
                slot.arguments[:] = sorted(names) if op.type in BLOCK_OPS else names
    return program.SerializeToString()


def run(*words):
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout.strip() or done.stderr.strip()


def check(args, name, work):
    """Differences of a network, or ""."""
    reference = os.path.join(args.dir, name)
    with open(os.path.join(reference, "config.json"), encoding="utf-8") as file:
        seed = json.load(file)["random_seed"]
    code, text = run(args.bin, work, name, str(seed))
    if code:
        return f"exit {code}: {text}"
    faults = []
    for made in FILES:
        paths = []
        for side, folder in (("reference", reference), ("made", work)):
            paths.append(os.path.join(work, f"{side}.{made}"))
            content = comparable(args.reference_tools, os.path.join(folder, made))
            with open(paths[-1], "wb") as file:
                file.write(content)
        code, text = run(f"{args.tools}/diff-program", *paths, "--ignore", "op_namescope")
        if code:
            faults.append(f"{made}:\n{text}")
    return "\n".join(faults)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--tools", required=True)
    parser.add_argument("--dir", required=True)
    args = parser.parse_args()
    if not os.path.isdir(args.dir):
        print(f"skipped: {args.dir} is not here")
        return 77
    args.reference_tools = os.path.join(args.dir, "..", "..", "tools")
    names = run(args.bin)[1].split()

    def one(name):
        with tempfile.TemporaryDirectory() as work:
            return check(args, name, work)

    return run_cases(names, one)


if __name__ == "__main__":
    sys.exit(main())
