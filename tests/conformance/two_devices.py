#!/usr/bin/env python3
"""Two devices that get the same feed each train like one: every loss, and every parameter at the end of every step.

    two_devices.py --bin build/ci/tools/run-program --dir ../shared/goldens/found [--dir ...] [--only SUBSTR] [--devices 2]
                   [--kind cpu|gpu] [--reduce]

The gradient of each device is divided by their number and the sum is exchanged, so that the update equals that of one
device except for rounding. This finds a loss gradient that is not scaled, a value that outlives its step, or one that
devices share by mistake. Programs that draw random numbers are left out, by name: each device has different numbers.
With --reduce each device updates its share of the parameters. Limits are those of the references (config.json). Needs
numpy. Exit status: 0 all equal, 1 some differ or nothing could be run.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from each_case import run_cases  # noqa: E402

RANDOM_OPS = {"dropout", "uniform_random", "gaussian_random", "truncated_gaussian_random", "sampling_id", "nce", "randint",
              "random_crop", "shuffle_batch", "randperm", "bernoulli"}
# Gradients that are clipped in the backward pass (error_clip) are those of the scaled loss, as in the original.
NOT_LINEAR = {"cond_error_clip_rmsprop_centered"}


def load(path):
    with np.load(path) as members:
        return {name: members[name] for name in members.files}


def config_of(folder):
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        return json.load(file)


def spread(feeds, devices):
    """stepK/x for one device -> stepK/devD/x for each of several."""
    spread_out = {}
    for name, value in feeds.items():
        step, var = name.split("/", 1)
        for device in range(devices):
            spread_out[f"{step}/dev{device}/{var}"] = value
    return spread_out


def train(args, folder, config, work, devices):
    """The fetched and the stored values of one run, or its error message."""
    feeds = os.path.join(folder, "feeds.npz")
    extra = []
    if devices > 1:
        extra = ["--devices", f"{args.kind}:{devices}", "--feed-mode", "list", "--merge-fetches=false", "--loss", config["losses"][0]]
        if args.reduce:
            extra += ["--reduce-strategy", "reduce"]
        np.savez(os.path.join(work, "spread.npz"), **spread(load(feeds), devices))
        feeds = os.path.join(work, "spread.npz")
    out, kept = os.path.join(work, f"out{devices}.npz"), os.path.join(work, f"kept{devices}.npz")
    done = subprocess.run(
        [args.bin, "--program", os.path.join(folder, "main.pb"), "--params", os.path.join(folder, "init.npz"), "--feed-steps", feeds,
         "--fetch", ",".join(config["fetch_list"]), "--steps", str(config["steps"]), "--output", out, "--save-persistables", kept,
         "--force", "-q", *extra], capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        raise RuntimeError(f"{devices} devices: exit {done.returncode}: {done.stderr.strip()}")
    return load(out), load(kept)


def differences(config, one, two, devices):
    """Lines with the differences."""
    limits, steps = config["tolerance"], config["steps"]
    (fetched_one, kept_one), (fetched_two, kept_two) = one, two
    for step in range(steps):
        limit = limits["loss_rtol_first"] if step < steps // 2 else limits["loss_rtol_last"]
        for name in config["fetch_list"]:
            want = fetched_one[f"step{step}/{name}"].astype("f8")
            for device in range(devices):
                got = fetched_two[f"step{step}/dev{device}/{name}"].astype("f8")
                error = np.max(np.abs(got - want) / np.maximum(np.abs(want), 1e-3))
                if not error <= limit:
                    yield f"  step {step}, device {device}: {name} is {got.ravel()[:4]}, one device has {want.ravel()[:4]}"
    for name in config["persistables"]:
        if name not in kept_two:
            yield f"  {name} is missing"
            continue
        want, got = kept_one[name].astype("f8"), kept_two[name].astype("f8")
        error = np.max(np.abs(got - want), initial=0) / max(np.max(np.abs(want), initial=0), 1e-2)
        if got.shape != want.shape or not error <= limits["param_rel_to_max"]:
            yield f"  {name} differs by {error:.2e} of its largest element, limit {limits['param_rel_to_max']:.0e}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--dir", action="append", required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--kind", choices=("cpu", "gpu"), default="cpu", help="gpu: --bin makes names of gpu:2")
    parser.add_argument("--reduce", action="store_true")
    args = parser.parse_args()
    folders = {}
    for root in args.dir:
        for name in sorted(os.listdir(root)):
            folder = os.path.join(root, name)
            if args.only not in name or not os.path.exists(os.path.join(folder, "config.json")):
                continue
            drawn = RANDOM_OPS & set(config_of(folder)["op_counts"])
            if name in NOT_LINEAR:
                print(f"{name}: left out, it clips gradients on their way back, which are smaller on several devices")
            elif drawn:
                print(f"{name}: left out, it draws random numbers ({', '.join(sorted(drawn))})")
            else:
                folders[name] = folder

    def check(name):
        config = config_of(folders[name])
        with tempfile.TemporaryDirectory() as work:
            try:
                one = train(args, folders[name], config, work, 1)
                two = train(args, folders[name], config, work, args.devices)
            except RuntimeError as error:
                return f"  {error}"
        return "\n".join(list(differences(config, one, two, args.devices))[:10])

    return run_cases(list(folders), check)


if __name__ == "__main__":
    sys.exit(main())
