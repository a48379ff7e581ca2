#!/usr/bin/env python3
"""Runs every program with and without --optimize: fetched and stored values must be equal except for rounding.

    optimize.py --bin build/ci/tools/run-program --shared ../shared [--only SUBSTR] [--threads 2] [--inter-op]

Programs: the bench programs (training steps and inference), the training references, the real models. Only the first
steps are compared, because training amplifies rounding. A tensor passes if its largest difference is at most 1e-5 of
its largest element. If one differs by more, the program also runs in float64 (--precision f64), and the optimized run
may be at most four times as far from that as the plain one: rounding alone affects both alike, a wrong rewrite affects
only one. The rounding error of a single number is random (a loss may equal the float64 result to the last bit), so the
plain run's distance is that of the tensor or, if that is larger, the average of its tensors of that step. Programs with
an op that has no kernel for float64 are listed; for them the limit is 1e-4 for inference and 1e-3 for training. With
--inter-op the optimized program runs independent ops concurrently, whose kernels then have one thread each, and only
one training step is run, because sums in another order soon lead to different results. Needs numpy. Exit status: 0 all
equal, 1 some differ, 2 nothing could be run.
"""
import argparse
import glob
import json
import os
import subprocess
import sys
import tempfile

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../bench"))
from run_step import batch  # noqa: E402

BENCH_ROWS = 4
STEPS = 3
CLOSE = 1e-5  # of the largest element: smaller differences always pass
FARTHER = 4


def bench_jobs(folder):
    with open(os.path.join(folder, "net.json"), encoding="utf-8") as file:
        net = json.load(file)
    startup = os.path.join(folder, "startup.pb")
    start = ["--startup", startup] if os.path.exists(startup) else []
    if net.get("loss"):
        yield "train", 1e-3, batch(net, BENCH_ROWS, False), [
            "--program", os.path.join(folder, "main.pb"), *start, "--fetch", net["loss"], "--steps", str(STEPS)]
    infer = os.path.join(folder, "infer.pb")
    if os.path.exists(infer):
        yield "infer", 1e-4, batch(net, BENCH_ROWS, True), ["--program", infer, *start]


def training_jobs(folder):
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    yield "train", 1e-3, None, [
        "--program", os.path.join(folder, "main.pb"), "--params", os.path.join(folder, "init.npz"), "--feed-steps",
        os.path.join(folder, "feeds.npz"), "--fetch", ",".join(config["losses"]), "--steps", str(STEPS)]


def model_jobs(folder):
    with open(os.path.join(folder, "case.json"), encoding="utf-8") as file:
        case = json.load(file)
    if case.get("kind") == "training program" or "fetch" not in case or any("file" not in feed for feed in case["feed"]):
        return
    feeds = {}
    for feed in case["feed"]:
        feeds[feed["name"]] = np.load(os.path.join(folder, feed["file"]))
        for level, offsets in enumerate(feed.get("lod_offsets") or []):
            feeds[f"{feed['name']}.lod{level}"] = np.array(offsets, np.int64)
    yield "infer", 1e-4, feeds, ["--model-dir", folder]


def run(args, job, feeds, optimize, work, precision="f32"):
    out = os.path.join(work, f"out_{optimize}_{precision}.npz")
    kept = os.path.join(work, f"kept_{optimize}_{precision}.npz")
    if args.inter_op:
        job = ["1" if before == "--steps" else word for before, word in zip(["", *job], job)]
    beside = ["--inter-op", "true"] if args.inter_op and optimize == "true" else []
    command = [args.bin, *job, *beside, "--optimize", optimize, "--threads", str(args.threads), "--seed", "3", "--output", out, "--force", "-q",
               "--precision", precision]
    if "--model-dir" not in job:
        command += ["--save-persistables", kept]
    if feeds is not None:
        path = os.path.join(work, "feeds.npz")
        np.savez(path, **feeds)
        command += ["--feed", path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode:
        return None, done.stderr.strip()
    values = {}
    for path in (out, kept):
        if os.path.exists(path):
            with np.load(path) as file:
                values.update({(os.path.basename(path).split("_")[0], name): file[name] for name in file.files})
    return values, ""


def finite_parts(want, got):
    """Both as float64, where they are finite; None if they are not finite at the same positions."""
    a, b = want.astype("f8"), got.astype("f8")
    if not np.array_equal(np.isfinite(a), np.isfinite(b)):
        return None
    return a[np.isfinite(a)], b[np.isfinite(b)]


def scale_of(values, training):
    # Adam turns gradients that consist of rounding errors into updates of constant size
    return max(np.abs(values).max(initial=0), 0.1 if training else 1e-6)


def difference(plain, fast, limit, training=False):
    """A description of the values that differ by more than the limit; None if there are none."""
    if plain.keys() != fast.keys():
        return f"other names: {sorted(plain.keys() ^ fast.keys())[:3]}"
    for name, want in plain.items():
        got = fast[name]
        if got.shape != want.shape or got.dtype != want.dtype:
            return f"{name[1]}: {got.dtype}{list(got.shape)} instead of {want.dtype}{list(want.shape)}"
        if want.size == 0 or want.dtype.kind not in "fiub":
            continue
        parts = finite_parts(want, got)
        if parts is None:
            return f"{name[1]}: not finite in other places"
        scale = scale_of(parts[0], training)
        if parts[0].size and np.abs(parts[0] - parts[1]).max() > limit * scale:
            return f"{name[1]}: differs by {np.abs(parts[0] - parts[1]).max():.3g} where the largest element is {scale:.3g}"
    return None


def distances(plain, fast, true, training):
    """For every float value: its distance from the float64 run without and with the passes, and the scale of the value.
    None instead of the distances if it is not finite at the same positions."""
    for name, want in true.items():
        if want.size == 0 or want.dtype.kind != "f" or name not in plain:
            continue
        before, after = finite_parts(want, plain[name]), finite_parts(want, fast[name])
        if before is None or after is None:
            yield name, None, 0
        elif before[0].size:
            yield name, [np.abs(parts[0] - parts[1]).max() for parts in (before, after)], scale_of(before[0], training)


def step_of(name):
    """The step of a fetched value; values stored at the end count as a separate step."""
    return (name[0], name[1].split("/")[0] if name[1].startswith("step") else "")


def usual_distances(found):
    """For each step: root mean square of the distances of its values from the float64 run without the passes, relative
    to their scale."""
    squares = {}
    for name, off, scale in found:
        if off is not None:
            squares.setdefault(step_of(name), []).append((off[0] / scale) ** 2)
    return {step: np.sqrt(np.mean(parts)) for step, parts in squares.items()}


def farther(plain, fast, true, training, limit):
    """Describes the value that is more than FARTHER times as far from the float64 run as rounding alone explains. If
    already the
    first results are far from it, that run has drawn other random numbers and cannot be used: then the fixed limit
    applies."""
    found = list(distances(plain, fast, true, training))
    for name, off, scale in found:
        first = name[0] == "out" and (name[1].startswith("step0/") or not name[1].startswith("step"))
        if first and off is not None and off[0] > 10 * limit * scale:
            return difference(plain, fast, limit, training)
    usual = usual_distances(found)
    for name, off, scale in found:
        if off is None:
            return f"{name[1]}: not finite where the float64 run is"
        rounding = max(off[0], usual[step_of(name)] * scale)
        if off[1] > FARTHER * rounding + CLOSE * scale:
            return f"{name[1]}: {off[1]:.3g} from the float64 run, {off[0]:.3g} without the passes, {rounding:.3g} at most by rounding"
    return None


def verdict_of(args, job, feeds, work, training, limit):
    """An error text, and remarks."""
    plain, error = run(args, job, feeds, "false", work)
    if plain is None:
        return error, ""
    fast, error = run(args, job, feeds, "true", work)
    if fast is None:
        return error, ""
    small = difference(plain, fast, CLOSE, training)
    if small is None:
        return None, ""
    true, error = run(args, job, feeds, "false", work, "f64")
    if true is None:
        return difference(plain, fast, limit, training), f" (limit {limit}: {error.splitlines()[0]})"
    # shapes, names and integers have no rounding
    exact = difference({k: v for k, v in plain.items() if v.dtype.kind != "f"}, {k: v for k, v in fast.items() if v.dtype.kind != "f"}, CLOSE)
    return exact or farther(plain, fast, true, training, limit), " (judged by float64)"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--shared", required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--inter-op", action="store_true")
    args = parser.parse_args()
    kinds = [("bench/programs/*/net.json", bench_jobs), ("goldens/training/*/config.json", training_jobs),
             ("models/*/case.json", model_jobs)]
    passed = failed = 0
    for pattern, jobs in kinds:
        for path in sorted(glob.glob(os.path.join(args.shared, pattern))):
            folder = os.path.dirname(path)
            if args.only not in folder:
                continue
            for mode, limit, feeds, job in jobs(folder):
                with tempfile.TemporaryDirectory() as work:
                    verdict, note = verdict_of(args, job, feeds, work, mode == "train", limit)
                passed += verdict is None
                failed += verdict is not None
                print(f"{'pass' if verdict is None else 'FAIL'}  {os.path.basename(folder)} {mode}{note}{'' if verdict is None else ': ' + verdict}", flush=True)
    print(f"{passed} passed, {failed} failed")
    sys.exit(2 if passed + failed == 0 else failed > 0)


if __name__ == "__main__":
    main()
