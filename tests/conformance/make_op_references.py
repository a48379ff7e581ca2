#!/usr/bin/env python3
"""Writes tests/data/ops: results of the original for operators that have no cases in the reference corpus.

    /opt/oracle/bin/python tests/conformance/make_op_references.py --shared ../shared --output tests/data/ops [--only op,op]

Operators that it cannot run come from handmade_references.py. Same format as goldens/ops of the corpus, generated with
its generator (tools/gen_op_goldens.py), so that check_ops.py and random_shapes.py can read both. Needs paddlepaddle
2.6.2; neither the build nor its tests need it.
"""
import argparse
import os
import sys

import numpy as np


def load_generator(shared):
    sys.path.insert(0, os.path.join(shared, "tools"))
    import gen_op_goldens
    sys.modules.setdefault("gen_op_goldens", gen_op_goldens)
    return gen_op_goldens


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    generator = load_generator(args.shared)
    import op_reference_cases
    import option_reference_cases  # noqa: F401, adds its cases to the table
    only = set(args.only.split(",")) if args.only else None
    made = generator.Gen(False)
    functions = {}
    for op, function in op_reference_cases.TABLE:
        functions.setdefault(op, []).append(function)
    for op, listed in functions.items():
        if only is None or op in only:
            made.isolated(op, listed)
    import handmade_references
    import program_diff
    rng = np.random.default_rng(21)
    for case in handmade_references.cases(rng):
        if only is None or case.op in only:
            made.store.setdefault(case.op, []).append(case.make(program_diff.ProgramDesc, rng))
    size = made.write(args.output)
    for gone in made.skipped:
        print("skipped", gone["op"], gone["tag"], gone["why"])
    for op, cases in sorted(made.store.items()):
        for _, _, meta in cases:
            if "no_grad_because" in meta:
                print("no gradient", op, meta["tag"], meta["no_grad_because"])
    print(f"{len(made.store)} ops, {sum(len(c) for c in made.store.values())} cases, {size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
