"""run-program with the flags that check_training.py uses, by the Python package: its references then train through it.

usage: run_program.py --program FILE [--params NPZ] [--feed-steps NPZ] [--fetch VAR ...] [--steps N] [--output NPZ]
                      [--save-persistables NPZ]
"""

import argparse
import re

import numpy

import millrace


def with_lods(members):
    """The arrays of an npz by name; members NAME.lod0, NAME.lod1, ... are the LoD of NAME."""
    arrays = {}
    for name in members:
        if re.fullmatch(r".*\.(lod\d+|rows|height)", name):
            continue
        levels = []
        while f"{name}.lod{len(levels)}" in members:
            levels.append(members[f"{name}.lod{len(levels)}"].tolist())
        arrays[name] = millrace.LodArray(members[name], levels) if levels else members[name]
    return arrays


def feeds_of_steps(path, steps):
    given = with_lods(numpy.load(path)) if path else {}
    count = 1 + max((int(re.match(r"step(\d+)/", name)[1]) for name in given), default=0)
    by_step = [{} for _ in range(count)]
    for name, array in given.items():
        step, var = name.split("/", 1)
        by_step[int(step.removeprefix("step"))][var] = array
    return [by_step[step % count] for step in range(steps)]


def put(members, name, array):
    if isinstance(array, millrace.Rows):
        members[name], members[name + ".rows"], members[name + ".height"] = array.values, array.rows, array.height
        return
    members[name] = numpy.asarray(array)
    for level, offsets in enumerate(getattr(array, "lod", [])):
        members[f"{name}.lod{level}"] = numpy.array(offsets, "int64")


def main():
    flags = argparse.ArgumentParser()
    flags.add_argument("tool", nargs="?", help="the checkers pass run-program")
    for flag in ("program", "params", "feed-steps", "output", "save-persistables"):
        flags.add_argument("--" + flag)
    flags.add_argument("--fetch", action="append", default=[])
    flags.add_argument("--steps", type=int, default=1)
    args = flags.parse_args()

    program, scope = millrace.Program.read(args.program), millrace.Scope()
    for name, value in (with_lods(numpy.load(args.params)) if args.params else {}).items():
        scope[name] = value
    prepared = millrace.Executor().prepare(program, scope)
    fetched = {}
    for step, feeds in enumerate(feeds_of_steps(args.feed_steps, args.steps)):
        for name, value in prepared.run(feeds, args.fetch).items():
            put(fetched, f"step{step}/{name}", value)
    if args.output:
        numpy.savez(args.output, **fetched)
    if args.save_persistables:
        persistable = {name for block in program.blocks for name, var in block.vars.items() if var.persistable}
        numpy.savez(args.save_persistables, **{name: scope[name] for name in scope if name in persistable})


if __name__ == "__main__":
    main()
