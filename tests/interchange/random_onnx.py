#!/usr/bin/env python3
"""Random attributes for the operator cases: exported with migrate, run in ONNX Runtime, compared with millrace.

    random_onnx.py --bin build/ci/tools --shared ../shared [--seed 1] [--count 8] [--only conv2d,pool2d]

For each op, `count` of its stored cases get up to three attributes of other cases, or such changed at random. Needs the
Python package millrace, onnxruntime and numpy. What millrace or migrate refuses is only counted. Fails if a result
differs, migrate fails otherwise, or the runtime does not load the model.
"""
import argparse
import collections
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import zipfile

import numpy as np
import onnxruntime

import millrace

NO_KERNEL = ("NOT_IMPLEMENTED", "Type Error", "not supported")
# What the runtime refuses when it runs, with a message.
REFUSED_BY_RUNTIME = ("iou_threshold must be in range",)
TOLERANCE = 1e-4


class Case:
    """A stored case: its forward op, and the arrays that it is fed."""

    def __init__(self, archive, number):
        self.meta = json.loads(bytes(np.load(archive.open(f"case{number}/meta.npy"))))
        self.program = bytes(np.load(archive.open(f"case{number}/program.npy")))
        inputs = {name for names in self.meta["inputs"].values() for name in names}
        self.feeds = {}
        for feed in self.meta["feeds"]:
            if feed["name"] in inputs and self.is_dense():
                array = np.load(archive.open(f"case{number}/{feed['member']}.npy"))
                array = array.astype(bool) if feed["dtype"] == "bool" else array
                self.feeds[feed["name"]] = millrace.LodArray(array, feed["lod"]) if feed.get("lod") else array

    def is_dense(self):
        return all(f["kind"] == "lod_tensor" and f["dtype"] != "bfloat16" for f in self.meta["feeds"] + self.meta["expects"])

    def forward(self):
        """A program with the forward op alone, and that op."""
        program = millrace.Program.from_bytes(self.program)
        for op in program.ops[self.meta["n_forward_ops"]:]:
            op.erase()
        return program, next((op for op in program.ops if op.type == self.meta["op"]), None)


def read_cases(path):
    with zipfile.ZipFile(path) as archive:
        numbers = sorted({int(name.split("/")[0][4:]) for name in archive.namelist() if name.startswith("case")})
        return [case for case in (Case(archive, number) for number in numbers) if case.is_dense()]


def attributes_of(cases):
    """The values of each attribute in all cases of an op."""
    values = collections.defaultdict(list)
    for case in cases:
        op = case.forward()[1]
        for name, value in (op.attrs.items() if op else ()):
            if not name.startswith("op_") and name != "with_quant_attr":
                values[name].append(value)
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
    """:returns: what was set"""
    done = []
    for _ in range(rng.choice([0, 1, 1, 2, 3])):
        names = [name for name in values if name in op.attrs or rng.random() < 0.3]
        if not names:
            break
        name = rng.choice(names)
        value = rng.choice(values[name])
        value = changed(rng, value) if rng.random() < 0.25 else value
        try:
            op.attrs[name] = value
            done.append((name, value))
        except (ValueError, TypeError):
            pass
    return done


def run_model(path, feeds):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    wanted = {i.name for i in session.get_inputs()}
    given = {}
    for name, array in feeds.items():
        given[name] = np.asarray(array)
        for level, offsets in enumerate(getattr(array, "lod", [])):
            given[f"{name}.lod{level}"] = np.array(offsets, np.int64)
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(names, {k: v for k, v in given.items() if k in wanted})))


def difference(got, want):
    want = np.asarray(want)
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{got.dtype} {got.shape}, expected {want.dtype} {want.shape}"
    if want.size == 0 or want.dtype == bool:
        return None if np.array_equal(got, want) else "other values"
    is_half = want.dtype == np.float16
    got, want = got.astype(np.float64), want.astype(np.float64)
    scale = np.abs(want[np.isfinite(want)]).max(initial=0)
    half = is_half * 200 + 1
    bound = half * (TOLERANCE * (np.abs(want) + 0.1 * scale) + 1e-5)
    with np.errstate(invalid="ignore"):
        near = np.isfinite(want) & (np.abs(got - want) <= bound)  # inf <= inf says nothing
        good = (got == want) | near | (np.isnan(got) & np.isnan(want))
    return None if good.all() else f"differs by {np.nanmax(np.abs(got - want)[~good]):.3g}"


def verdict(args, rng, cases, values, folder):
    """One case: a word to count, and what is wrong or None."""
    case = rng.choice(cases)
    program, op = case.forward()
    if op is None:
        return "without the op", None
    done = change_attributes(rng, op, values)
    inputs = {name for names in case.meta["inputs"].values() for name in names}
    fetches = [name for names in case.meta["outputs"].values() for name in names
               if name not in inputs and name in op.output_names]
    scope = millrace.Scope()
    try:
        want = millrace.Executor(optimize=False).run(program, scope, case.feeds, fetches)
        millrace.save_inference_model(program, scope, folder, sorted(case.feeds), fetches)
    except millrace.Error:
        return "refused by millrace", None
    dims = [f"--input-dims={name}={','.join(map(str, a.shape))}" for name, a in case.feeds.items()
            if a.ndim and a.ndim == len(program.var(name).dims)]
    tool = subprocess.run([args.bin / "migrate", "--to", "onnx", folder, "-o", folder / "m.onnx", "-q", *dims],
                          capture_output=True, text=True, check=False)
    if tool.returncode:
        return "refused", None if tool.returncode == 7 else f"{done}: {tool.stderr.strip()}"
    try:
        got = run_model(folder / "m.onnx", case.feeds)
    except Exception as error:  # pylint: disable=broad-except  # of ONNX Runtime, which has many types
        text = " ".join(str(error).split())
        known = any(word in text for word in NO_KERNEL + REFUSED_BY_RUNTIME)
        return ("no kernel", None) if known else ("failed", f"{done}: {text[:300]}")
    wrong = [f"{name}: {found}" for name in fetches if (found := difference(got[name], want[name]))]
    return ("differs", f"{case.meta['tag']}, {done}: {wrong[0]}") if wrong else ("equal", None)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True, type=pathlib.Path)
    parser.add_argument("--shared", required=True, type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=8)
    parser.add_argument("--only")
    args = parser.parse_args()
    count, findings = collections.Counter(), 0
    for path in sorted(args.shared.glob("goldens/ops/*.npz")):
        if args.only and path.stem not in args.only.split(","):
            continue
        rng, cases = random.Random(f"{args.seed} {path.stem}"), read_cases(path)
        values, refused = attributes_of(cases), 0
        for _ in range(args.count if cases else 0):
            with tempfile.TemporaryDirectory() as folder:
                word, wrong = verdict(args, rng, cases, values, pathlib.Path(folder))
            count[word] += 1
            refused += word == "refused"
            if wrong:
                findings += 1
                print(f"{path.stem}: {wrong}")
            if refused == 4:  # most likely it has no converter
                break
    print(", ".join(f"{n} {word}" for word, n in count.most_common()))
    print(f"{count['equal']} passed, {findings} failed")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
