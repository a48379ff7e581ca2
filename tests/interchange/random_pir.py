#!/usr/bin/env python3
"""Random attributes for the operator cases: exported with migrate, run in release 3 of the original, compared with millrace.

    random_pir.py --bin build/ci/tools --shared ../shared [--seed 1] [--count 8] [--only conv2d,pool2d]

For each op, `count` of its stored cases get up to three attributes of other cases, or such changed at random. Needs
paddlepaddle and numpy. What run-program or migrate refuses, or release 3 with a message, is only counted. Fails if a
result differs, migrate fails otherwise, or the runtime crashes.
"""
import argparse
import collections
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import zipfile

import check_pir
import export_cases as cases
import numpy as np
import paddle

TOLERANCE = 1e-4
# Random values, and a mean over labels that are all ignored.
KNOWN = {("dropout", "elements differ"), ("sigmoid_cross_entropy_with_logits", "by nan")}


def forward_op(program, op_type):
    block = program.block(0)
    return next((op for op in (block.op(i) for i in range(block.op_size())) if op.type() == op_type), None)


def read_cases(path, work):
    """Pairs of a case and its program."""
    found = []
    archive = zipfile.ZipFile(path)
    for number in cases.case_numbers(path):
        try:
            case = cases.OpCase(archive, number, work, {})
        except cases.Refused:
            continue
        found.append((case, (case.folder / "__model__").read_bytes()))
    return found


def attributes_of(found):
    """The values of each attribute in all cases."""
    values = collections.defaultdict(list)
    for case, content in found:
        program = paddle.base.core.ProgramDesc(content)  # ops refer to it
        op = forward_op(program, case.meta["op"])
        for name in case.meta.get("attrs_set", {}) if op is not None else ():
            if op.has_attr(name):
                values[name].append(op.attr(name))
    return values


def changed(rng, value):
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + rng.choice([-2, -1, 1, 2])
    if isinstance(value, float):
        return value * rng.choice([0.5, 1.5, 2, -1])
    if isinstance(value, list) and value and all(type(v) is int for v in value):
        return [v + rng.choice([0, 0, 1, -1]) for v in value]
    return value


def change_attributes(rng, op, values):
    """Returns what was set."""
    done = []
    for _ in range(rng.choice([0, 1, 1, 2, 3]) if values else 0):
        name = rng.choice(sorted(values))
        value = rng.choice(values[name])
        value = changed(rng, value) if rng.random() < 0.25 else value
        op._set_attr(name, value)  # pylint: disable=protected-access
        done.append((name, value))
    return done


def add_lod(rng, program, case):
    """Gives inputs LoD that had none. Returns the feeds."""
    feeds = case.feeds()
    for feed in feeds:
        if not feed.lod and feed.array.ndim > 1 and feed.array.shape[0] > 1 and rng.random() < 0.2:
            feed.lod = [[0, rng.randrange(1, feed.array.shape[0]), feed.array.shape[0]]]
            program.block(0).find_var(feed.name.encode()).set_lod_level(1)
    return feeds


def difference(got, want):
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{got.dtype} {got.shape}, expected {want.dtype} {want.shape}"
    if want.dtype == bool:
        return None if np.array_equal(got, want) else "other values"
    half = (want.dtype == np.float16) * 200 + 1
    scale = float(np.abs(want[np.isfinite(want)].astype(np.float64)).max(initial=0))
    return cases.close(got, want, half * TOLERANCE, half * (0.1 * TOLERANCE * scale + 1e-5))


def reference(tools, folder, feeds):
    """Arrays by name as run-program computes them; None if it refuses the program."""
    np.savez(folder / "feed.npz", **{f.name: f.array for f in feeds})
    lods = [f"--lod={f.name}={','.join(map(str, level))}" for f in feeds for level in f.lod]
    done = subprocess.run([tools / "run-program", "--program", folder / "__model__", "--feed", folder / "feed.npz", *lods,
                           "-o", folder / "out.npz", "-q", "--force"], capture_output=True, text=True, check=False)
    return dict(np.load(folder / "out.npz")) if done.returncode == 0 else None


def verdict(args, rng, found, values, folder):
    """One case: a word to count, and what is wrong or None."""
    case, content = rng.choice(found)
    program = paddle.base.core.ProgramDesc(content)
    op = forward_op(program, case.meta["op"])
    if op is None:
        return "without the op", None
    done = change_attributes(rng, op, values)
    feeds = add_lod(rng, program, case)
    done += [(f.name, f.lod) for f in feeds if f.lod]
    (folder / "__model__").write_bytes(program.serialize_to_string())
    want = reference(args.bin, folder, feeds)
    if want is None:
        return "refused by millrace", None
    print(f"{case.meta['tag']}, {done}", file=args.last, flush=True)
    try:
        cases.migrate(str(args.bin / "migrate"), "pir", folder, folder / "m",
                      dims=[(f.name, f.array.shape) for f in feeds if f.array.ndim and not f.lod])
    except cases.Refused:
        return "refused", None
    except RuntimeError as error:
        if "dims of the input" in str(error):
            return "other dims than declared", None
        return "failed", f"{done}: {error}"
    try:
        got, lods = check_pir.run(folder / "m", feeds)
    except Exception as error:  # pylint: disable=broad-except  # of the runtime, which has many types
        return "refused by the runtime", f"{done}: {' '.join(str(error).split())[:300]}" if args.strict else None
    expected_lods = cases.lods_in(want)
    for expect in case.expects:
        name = expect["name"]
        if name not in want:  # run-program returns an input that the op only renames
            return "renamed by millrace", None
        wrong = difference(got[name], want[name])
        if wrong and any(case.meta["op"] == op_type and text in wrong for op_type, text in KNOWN):
            return "known", None
        if wrong:
            return "differs", f"{case.meta['tag']}, {done}: {name}: {wrong}"
        # release 3 keeps the LoD of some outputs that had none
        if name in expected_lods and {k: list(v) for k, v in enumerate(lods[name])} != expected_lods[name]:
            return "differs", f"{case.meta['tag']}, {done}: LoD of {name}: {lods[name]}, expected {expected_lods[name]}"
    return "equal", None


def check_op(args, path):
    """Prints what is wrong; returns the verdicts with their numbers."""
    count = collections.Counter()
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        rng, found = random.Random(f"{args.seed} {path.stem}"), read_cases(path, work)
        values = attributes_of(found)
        for number in range(args.count if found else 0):
            folder = work / f"random{number}"
            folder.mkdir()
            word, wrong = verdict(args, rng, found, values, folder)
            count[word] += 1
            if wrong:
                print(f"{path.stem}: {wrong}", flush=True)
            if count["refused"] == 4:  # most likely it has no converter
                break
    return count


def last_line(file):
    file.seek(0)
    return (file.read().splitlines() or [""])[-1]


def in_child(args, path):
    """check_op() in a process of its own, as the runtime may crash."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        signal.alarm(120)  # an error in a thread of the runtime may leave it waiting
        count = check_op(args, path)
        with os.fdopen(writer, "w") as out:
            json.dump(count, out)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as result:
        text = result.read()
    os.waitpid(child, 0)
    if not text:
        print(f"{path.stem}: the runtime crashed or waits: {last_line(args.last)}")
    return collections.Counter(json.loads(text) if text else {"crashed": 1})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True, type=pathlib.Path)
    parser.add_argument("--shared", required=True, type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=8)
    parser.add_argument("--only")
    parser.add_argument("--strict", action="store_true", help="print what the runtime refuses, too")
    args = parser.parse_args()
    paddle.enable_static()
    count = collections.Counter()
    args.last = tempfile.TemporaryFile("w+")  # pylint: disable=consider-using-with  # what a child that crashes did last
    for path in sorted(args.shared.glob("goldens/ops/*.npz")):
        if not args.only or path.stem in args.only.split(","):
            count += in_child(args, path)
    print(", ".join(f"{n} {word}" for word, n in count.most_common()))
    failed = count["differs"] + count["failed"] + count["crashed"]
    print(f"{count['equal']} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
