"""Programs of the references on a GPU, compared with the CPU: results, and counts of the ops on each device.

    gpu_programs.py --bin RUN_PROGRAM --shared DIR [--devices gpu:emulated] [--nets mlp,resnet18_64]
                    [--batch N] [--steps N] [--rtol X] [--rounding X] [--optimize true]

Runs each network of shared/bench/programs, inference and training, with the same parameters and feeds on one thread of
the CPU, in f32 and in f64, and on the device. Training runs some steps and then also compares the persistable vars.
Results of the device must agree with those in f64 within --rtol of the largest element (ten times that for training),
and further by --rounding times the error of the CPU in f32, which shows how much a result depends on rounding: steps of
deep networks make it grow, and the gradient of a bias before a softmax is nothing else. Prints a line per program and
"N passed, N failed".
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

import numpy as np


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        raise RuntimeError(" ".join(command) + "\n" + done.stdout + done.stderr)
    return done.stderr


def make_feeds(net, batch, steps, training, seed):
    """Arrays by name; those of training have one entry per step."""
    random = np.random.default_rng(seed)
    result = []
    for _ in range(steps):
        feeds = {}
        for feed in net["feeds"]:
            if not training and not feed.get("infer"):
                continue
            shape = [batch if d < 0 else d for d in feed["shape"]]
            if feed["dtype"] == "int64":
                feeds[feed["name"]] = random.integers(0, feed.get("high", 10), shape)
            else:
                feeds[feed["name"]] = random.standard_normal(shape).astype(np.float32)
        result.append(feeds)
    return result


def differences(name, want, got, exact, rtol, share):
    """Arrays of the CPU in f32, of the device, and of the CPU in f64."""
    problems = []
    for key in want.files:
        a, b = want[key], got[key] if key in got.files else None
        if b is None or a.shape != b.shape or a.dtype != b.dtype:
            problems.append(f"{name}: {key}: expected {a.dtype} {a.shape}")
        elif a.dtype.kind == "f":
            true = exact[key]
            largest = max(1e-3, float(np.max(np.abs(true), initial=0)))
            worst = float(np.max(np.abs(b - true), initial=0)) / largest
            rounding = float(np.max(np.abs(a - true), initial=0)) / largest
            if not worst <= rtol + share * rounding:
                problems.append(f"{name}: {key}: differs by {worst:.2e} of its largest element, the CPU by {rounding:.2e}")
        elif not np.array_equal(a, b):
            problems.append(f"{name}: {key}: differs")
    return problems


class Checker:
    def __init__(self, args, work):
        self.args, self.work = args, work

    def path(self, *parts):
        return os.path.join(self.work, "_".join(parts))

    def tool(self, device, *flags):
        rewrites = self.args.optimize if device != "cpu:1" else "false"
        return [self.args.bin, "--devices", device, "--optimize", rewrites, "--threads", "1", "--seed", "7", *flags]

    def compare(self, name, flags_of, rtol):
        """flags_of(output file) are the flags of the run."""
        said = {}
        for side, device, flags in (("cpu", "cpu:1", ()), ("gpu", self.args.devices, ()),
                                    ("exact", "cpu:1", ("--precision", "f64"))):
            said[side] = run(self.tool(device, *flags, *flags_of(self.path(name, side + ".npz"))))
        with np.load(self.path(name, "cpu.npz")) as want, np.load(self.path(name, "gpu.npz")) as got, \
                np.load(self.path(name, "exact.npz")) as exact:
            problems = differences(name, want, got, exact, rtol, self.args.rounding)
        summary = [line for line in said["gpu"].splitlines() if "ops on the gpu" in line]
        if not summary:
            problems.append(f"{name}: the tool did not say what ran on the gpu")
        print(f"{'FAIL' if problems else 'ok'}  {name}: {' '.join(summary)}")
        for problem in problems:
            print("      " + problem)
        return not problems

    def net(self, folder):
        with open(os.path.join(folder, "net.json"), encoding="utf-8") as f:
            net = json.load(f)
        name = net["net"]
        program = lambda part: os.path.join(folder, part + ".pb")
        params = self.path(name, "params.npz")
        # one set of initial values for all runs
        empty = make_feeds(net, 1, 1, True, 1)[0]
        np.savez(self.path(name, "first.npz"), **empty)
        run(self.tool("cpu:1", "--program", program("main"), "--startup", program("startup"), "--feed",
                      self.path(name, "first.npz"), "--fetch", net["loss"], "--save-persistables", params))
        feeds = make_feeds(net, self.args.batch, 1, False, 2)[0]
        np.savez(self.path(name, "infer.npz"), **feeds)
        good = [self.compare(name + ".infer", lambda out: [
            "--program", program("infer"), "--params", params, "--feed", self.path(name, "infer.npz"), "--fetch",
            net["prediction"], "--output", out], self.args.rtol)]
        steps = make_feeds(net, self.args.batch, self.args.steps, True, 3)
        named = {f"step{i}/{key}": array for i, step in enumerate(steps) for key, array in step.items()}
        np.savez(self.path(name, "steps.npz"), **named)
        good.append(self.compare(name + ".train", lambda out: [
            "--program", program("main"), "--params", params, "--feed-steps", self.path(name, "steps.npz"), "--steps",
            str(self.args.steps), "--fetch", net["loss"], "--save-persistables", out], 10 * self.args.rtol))
        return good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--shared", required=True)
    parser.add_argument("--devices", default="gpu:emulated")
    parser.add_argument("--nets", default="mlp,resnet18_64")
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--rtol", type=float, default=1e-4)
    parser.add_argument("--rounding", type=float, default=0, help="errors of the CPU in f32 that are allowed in addition")
    parser.add_argument("--optimize", choices=["true", "false"], default="false", help="rewrite programs on the device")
    args = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory() as work:
        checker = Checker(args, work)
        for net in args.nets.split(","):
            try:
                results += checker.net(os.path.join(args.shared, "bench", "programs", net))
            except (RuntimeError, OSError, KeyError, subprocess.TimeoutExpired) as error:
                print(f"FAIL  {net}: {error}")
                results.append(False)
    print(f"{results.count(True)} passed, {results.count(False)} failed")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
