#!/usr/bin/env python3
"""diff-program returns the same verdict as the reference comparison on pairs of programs.

    diff_verdicts.py TOOLS_FOLDER [REFERENCE_FOLDER] [--pairs N] [--seed S]

Pairs are neighbours among the reference's transpiled programs, and programs with one random change. Needs the protobuf
package and tools/program_diff.py of the reference folder. Exit status: 0 all verdicts agree, 1 some do not, 77 a
requirement is missing. The same seed produces the same pairs.
"""
import argparse
import os
import random
import subprocess
import sys
import tempfile

MODES = [((), {}), (("--strict-attrs",), {"strict_attrs": True}), (("--any-order",), {"any_order": True}),
         (("--strict-types", "--strict-vars"), {"strict_types": True, "strict_vars": True}),
         (("--ignore", "op_role_var,op_role"), {"ignore_attr": ("op_role_var", "op_role")})]


def copies(messages):
    return [type(m).FromString(m.SerializeToString()) for m in messages]


def replace(field, messages):
    messages = copies(messages)
    del field[:]
    field.extend(messages)


def shuffled(messages):
    messages = copies(messages)
    random.shuffle(messages)
    return messages


def rename_controls(program):
    def new(name):
        return name + "9" if name.startswith("__control") else name
    for block in program.blocks:
        for var in block.vars:
            var.name = new(var.name)
        for op in block.ops:
            for slot in list(op.inputs) + list(op.outputs):
                slot.arguments[:] = [new(x) for x in slot.arguments]


def move_op(block):
    ops = copies(block.ops)
    ops.insert(random.randrange(len(ops)), ops.pop(random.randrange(len(ops))))
    replace(block.ops, ops)


def drop_one(field):
    if len(field):
        del field[random.randrange(len(field))]


def longs_for_ints(op):
    for attr in op.attrs:
        if attr.type == 0:
            value = attr.i
            attr.ClearField("i")
            attr.type, attr.l = 9, value


def mutate(program):
    """Makes one random change, harmless or not."""
    block = random.choice([b for b in program.blocks if b.ops])
    op = random.choice(block.ops)
    random.choice([
        lambda: replace(block.vars, shuffled(block.vars)),
        lambda: replace(op.attrs, shuffled(op.attrs)),
        lambda: rename_controls(program),
        lambda: drop_one(op.attrs),
        lambda: drop_one(block.vars),
        lambda: drop_one(block.ops),
        lambda: move_op(block),
        lambda: setattr(op.inputs.add(), "parameter", "Empty"),
        lambda: longs_for_ints(op),
        lambda: setattr(block.vars[0], "stop_gradient", True) if block.vars else None,
        lambda: setattr(block.vars[0], "persistable", random.random() < 0.5) if block.vars else None,
    ])()


def program_pairs(reference, folder, count, parse):
    files = [os.path.join(at, n) for at, _, names in os.walk(os.path.join(reference, "goldens/transpiler"))
             for n in names if n.endswith(".pb")]
    files = sorted(f for f in files if os.path.getsize(f) < 300_000)
    by_name = {}
    for f in files:
        by_name.setdefault(os.path.basename(f), []).append(f)
    neighbours = [p for group in by_name.values() for p in zip(group, group[1:])]
    yield from random.sample(neighbours, min(count // 3, len(neighbours)))
    for i in range(count - count // 3):
        original = random.choice(files)
        with open(original, "rb") as f:
            program = parse(f.read())
        if not any(b.ops for b in program.blocks):
            continue
        mutate(program)
        changed = os.path.join(folder, f"{i}.pb")
        with open(changed, "wb") as f:
            f.write(program.SerializePartialToString())
        yield original, changed


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("tools")
    ap.add_argument("reference", nargs="?", default="../shared")
    ap.add_argument("--pairs", type=int, default=120)
    ap.add_argument("--seed", type=int, default=1)
    args = ap.parse_args()
    sys.path.insert(0, os.path.join(args.reference, "tools"))
    sys.dont_write_bytecode = True
    try:
        import program_diff
    except ImportError as error:
        print(f"skipped: {error}")
        return 77
    if not os.path.isdir(os.path.join(args.reference, "goldens/transpiler")):
        print("skipped: no goldens/transpiler in the reference folder")
        return 77
    random.seed(args.seed)
    bad = total = equal = 0
    with tempfile.TemporaryDirectory() as folder:
        for a, b in program_pairs(args.reference, folder, args.pairs, program_diff.ProgramDesc.FromString):
            for flags, options in MODES:
                wanted = program_diff.diff_programs(program_diff.load(a), program_diff.load(b),
                                                    program_diff.Options(**options))
                ours = subprocess.run([os.path.join(args.tools, "diff-program"), a, b, *flags],
                                      capture_output=True, text=True, check=False)
                total += 1
                equal += not wanted
                if ours.returncode != (1 if wanted else 0):
                    bad += 1
                    print(f"FAIL {a} {b} {' '.join(flags)}: exit {ours.returncode}, expected {wanted[:2]}")
                    print(ours.stdout[:300] + ours.stderr[:300])
    print(f"{equal} of {total} comparisons are of equal programs")
    print(f"{total - bad} passed, {bad} failed")
    return 1 if bad or not total else 0


if __name__ == "__main__":
    sys.exit(main())
