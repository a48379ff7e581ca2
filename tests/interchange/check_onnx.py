#!/usr/bin/env python3
"""Exports models and single ops with migrate, runs them in ONNX Runtime and compares with the original's results.

    check_onnx.py --bin build/ci/tools --shared ../shared [--opset 17] [--only NAME] [--models-only] [--floors FILE]

Needs numpy, onnx and onnxruntime. For each model and op it prints how many cases are equal, refused by migrate (with
the first reason), not implemented by the runtime for an element type, or different. Fails if a case differs, migrate
fails in another way than by refusing, or fewer cases are equal than the floors say.
"""
import argparse
import collections
import concurrent.futures
import json
import pathlib
import subprocess
import sys
import tempfile
import zipfile

import numpy as np
import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as state

from inference_program import inference_program

REFUSED = 7
MODEL_TOLERANCE = 1e-5
# The last function of this model is a sigmoid with slope 50: rounding differences of its argument are as much larger.
STEEP = {"ocr_det_db": 50 * MODEL_TOLERANCE}
# What a runtime says about an element type or rank that it has no kernel for.
NO_KERNEL = ("NOT_IMPLEMENTED", "Type Error", "not supported")


# References that are wrong (docs/decisions/0005-reference-differences.md).
WRONG_REFERENCES = {("split", 3), ("split", 4)}
# Outputs that models do not use and that ONNX has no operator for.
NOT_COMPUTED = {"lstm": {"Cell"}, "lrn": {"MidOut"}}


class Refused(Exception):
    """migrate refuses the program."""


def migrate(tool, folder, out, opset, dims=()):
    """Exports a model folder. dims: pairs of input and shape, instead of the declared dims."""
    flags = [f"--input-dims={name}={','.join(map(str, shape))}" for name, shape in dims]
    done = subprocess.run([tool, "--to", "onnx", folder, "-o", out, "--opset", str(opset), "--force", "-q", *flags],
                          capture_output=True, text=True, check=False)
    if done.returncode == REFUSED:
        raise Refused(done.stderr.strip().splitlines()[0].replace("error: ", "", 1))
    if done.returncode != 0:
        raise RuntimeError(f"migrate ended with {done.returncode}: {done.stderr.strip()}")


def run(path, feeds):
    """Results by name. Feeds that the model does not read are left out."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    wanted = {i.name for i in session.get_inputs()}
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(names, {k: v for k, v in feeds.items() if k in wanted})))


def close(got, want, rtol, atol):
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{got.dtype} {got.shape}, expected {want.dtype} {want.shape}"
    if want.size == 0 or want.dtype == bool:
        return None if np.array_equal(got, want) else "other values"
    got, want = got.astype(np.float64), want.astype(np.float64)
    with np.errstate(invalid="ignore"):
        good = (got == want) | (np.abs(got - want) <= atol + rtol * np.abs(want)) | (np.isnan(got) & np.isnan(want))
    if good.all():
        return None
    return f"{(~good).sum()} of {good.size} elements differ, by {np.nanmax(np.abs(got - want)[~good]):.3g} at most"


def check_model(tool, folder, work, opset):
    case = json.loads((folder / "case.json").read_text())
    feeds = {}
    for feed in case["feed"]:
        feeds[feed["name"]] = np.load(folder / feed["file"])
        for level, offsets in enumerate(feed.get("lod_offsets") or []):
            feeds[f"{feed['name']}.lod{level}"] = np.array(offsets, np.int64)
    out = work / f"{folder.name}.onnx"
    try:
        migrate(tool, folder, out, opset)
        results = run(out, feeds)
    except (state.InvalidArgument, state.Fail):
        # Two models are fed other sizes than they declare, which the original does not check; one has squeeze ops
        # on axes whose extents are unknown in the file and are not 1.
        migrate(tool, folder, out, opset, [(f["name"], np.load(folder / f["file"]).shape) for f in case["feed"]])
        results = run(out, feeds)
    tolerance = STEEP.get(folder.name, MODEL_TOLERANCE)
    for fetch in case["fetch"]:
        want = np.load(folder / fetch["file"])
        # relative to the largest value of the tensor as well: sums of terms that cancel have no better precision
        atol = tolerance * max(1e-30, float(np.abs(want).max(initial=0)))
        if np.issubdtype(want.dtype, np.integer):
            atol = 0
        if difference := close(results[fetch["name"]], want, tolerance, atol):
            return f"{fetch['name']}: {difference}"
    return None


def array_of(archive, member, dtype):
    array = np.load(archive.open(member + ".npy"))
    return array.astype(bool) if dtype == "bool" else array


def check_case(tool, archive, number, work, opset):
    meta = json.loads(bytes(np.load(archive.open(f"case{number}/meta.npy"))))
    program = bytes(np.load(archive.open(f"case{number}/program.npy")))
    if (meta["op"], number) in WRONG_REFERENCES:
        raise Refused("the reference is wrong")
    if any(f["kind"] != "lod_tensor" or f["dtype"] == "bfloat16" for f in meta["feeds"] + meta["expects"]):
        raise Refused("not dense tensors of a type that ONNX Runtime and numpy have")
    forward = {name for names in meta["outputs"].values() for name in names}
    inputs = {name for names in meta["inputs"].values() for name in names}
    feeds = [f for f in meta["feeds"] if f["name"] in inputs]
    expects = [e for e in meta["expects"] if e["name"] in forward - inputs and not e.get("optional")
               and e["compare"] == "values" and e["slot"] not in NOT_COMPUTED.get(meta["op"], ())]
    if not expects:
        raise Refused("random values, or updates of its inputs")
    folder = work / f"{meta['op']}_{number}"
    folder.mkdir()
    (folder / "__model__").write_bytes(inference_program(
        program, meta["n_forward_ops"], [f["name"] for f in feeds], [e["name"] for e in expects]))
    out = folder / "model.onnx"
    migrate(tool, folder, out, opset)
    values = {}
    for feed in feeds:
        values[feed["name"]] = array_of(archive, f"case{number}/{feed['member']}", feed["dtype"])
        for level, offsets in enumerate(feed.get("lod") or []):
            values[f"{feed['name']}.lod{level}"] = np.array(offsets, np.int64)
    results = run(out, values)
    for expect in expects:
        want = array_of(archive, f"case{number}/{expect['member']}", expect["dtype"])
        if difference := close(results[expect["name"]], want, expect["rtol"], expect["atol"]):
            return f"{meta['tag']}: {expect['name']}: {difference}"
        for level, offsets in enumerate(expect.get("lod") or []):
            if results[f"{expect['name']}.lod{level}"].tolist() != offsets:
                return f"{meta['tag']}: LoD of {expect['name']}"
    return None


class Row:
    """The cases of a model or op."""

    def __init__(self):
        self.count = collections.Counter()
        self.why = {}

    def add(self, check, *arguments):
        try:
            difference = check(*arguments)
            verdict, why = ("differs", difference) if difference else ("equal", None)
        except Refused as error:
            verdict, why = "refused", str(error)
        except RuntimeError as error:
            verdict, why = "failed", str(error)
        except Exception as error:  # pylint: disable=broad-except  # of ONNX Runtime, which has many types
            text = f"{type(error).__name__}: {error}"
            verdict = "no kernel" if any(word in text for word in NO_KERNEL) else "failed"
            why = " ".join(text.split())[:200]
        self.count[verdict] += 1
        self.why.setdefault(verdict, why)
        return why

    def text(self, name):
        cells = "".join(f"{self.count[v]:>10}" for v in VERDICTS)
        reasons = "; ".join(f"{v}: {w}" for v, w in self.why.items() if w)
        return f"{name:<30}{cells}  {reasons}"


VERDICTS = ("equal", "refused", "no kernel", "differs", "failed")


def check_op(tool, path, work, opset):
    row = Row()
    with zipfile.ZipFile(path) as archive:
        numbers = sorted({int(n.split("/")[0][4:]) for n in archive.namelist() if n.startswith("case")})
        for number in numbers:
            why = row.add(check_case, tool, archive, number, work, opset)
            if why and "the op has no counterpart" in why:
                row.count["refused"] = len(numbers)  # the other cases say the same
                break
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True, type=pathlib.Path, help="folder with migrate")
    parser.add_argument("--shared", required=True, type=pathlib.Path, help="folder with models and goldens")
    parser.add_argument("--opset", type=int, default=17)
    parser.add_argument("--only", help="comma-separated names of models and ops")
    parser.add_argument("--models-only", action="store_true")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--floors", type=pathlib.Path, help="JSON with the smallest numbers of equal models and cases")
    args = parser.parse_args()
    tool = str(args.bin / "migrate")
    only = set(args.only.split(",")) if args.only else None
    models = [p.parent for p in sorted(args.shared.glob("models/*/case.json"))
              if all("file" in f for f in json.loads(p.read_text()).get("feed", [{}])) and (p.parent / "outputs").is_dir()]
    ops = [] if args.models_only else sorted(args.shared.glob("goldens/ops/*.npz"))
    failures = 0
    equal = {}
    with tempfile.TemporaryDirectory() as work, concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        work = pathlib.Path(work)
        for kind, checks in (("models", models), ("ops", ops)):
            jobs = {}
            for path in checks:
                if only and path.stem not in only:
                    continue
                if kind == "models":
                    row = Row()
                    jobs[path.stem] = pool.submit(lambda r, p: r.add(check_model, tool, p, work, args.opset) and r or r, row, path)
                else:
                    jobs[path.stem] = pool.submit(check_op, tool, path, work, args.opset)
            print(f"{kind:<30}" + "".join(f"{v:>10}" for v in VERDICTS))
            total = collections.Counter()
            for name, job in jobs.items():
                row = job.result()
                total += row.count
                print(row.text(name))
            print(f"{'all ' + kind:<30}" + "".join(f"{total[v]:>10}" for v in VERDICTS))
            equal[kind] = total["equal"]
            failures += total["differs"] + total["failed"]
    if args.floors:
        floors = json.loads(args.floors.read_text())
        for kind, floor in floors.items():
            if equal.get(kind, 0) < floor:
                print(f"{kind}: {equal.get(kind, 0)} equal, expected at least {floor}")
                failures += 1
    print(f"{sum(equal.values())} passed, {failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
