#!/usr/bin/env python3
"""Training on N CPU devices of one thread each against one device of one thread, the same program in one run.

    bench/data_parallel.py --bin-dir build/release --net ../shared/bench/programs/mlp [--devices 2] [--batch 64] [--steps 30]

Every device gets `batch` rows; goal G8 asks for the ratio of samples a second. Rounds alternate, so that other work on the
machine hits both alike; the best round of each counts. Prints one JSON line. With --check one short round. Needs numpy.
"""
import argparse
import json
import os
import subprocess
import tempfile

import numpy as np

from run_step import batch


def measure(args, loss, rows, devices, work):
    with open(os.path.join(args.net, "net.json"), encoding="utf-8") as file:
        net = json.load(file)
    feeds = os.path.join(work, f"feeds{rows}.npz")
    np.savez(feeds, **batch(net, rows, False))
    done = subprocess.run(
        [os.path.join(args.bin_dir, "tools/run-program"), "--program", os.path.join(args.net, "main.pb"), "--startup",
         os.path.join(args.net, "startup.pb"), "--feed", feeds, "--fetch", loss, "--devices", f"cpu:{devices}", "--threads",
         str(devices), "--benchmark", str(args.steps), "--warmup", "3", "-q"],
        check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--bin-dir", required=True)
    ap.add_argument("--net", required=True)
    ap.add_argument("--devices", type=int, default=2)
    ap.add_argument("--batch", type=int, default=64)
    ap.add_argument("--steps", type=int, default=30)
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--check", action="store_true")
    args = ap.parse_args()
    if args.check:
        args.steps = args.rounds = 1
    with open(os.path.join(args.net, "net.json"), encoding="utf-8") as file:
        loss = json.load(file)["loss"]
    with tempfile.TemporaryDirectory() as work:
        rounds = [(measure(args, loss, args.batch, 1, work), measure(args, loss, args.batch * args.devices, args.devices, work))
                  for _ in range(args.rounds)]
    one = min(r[0]["ms"]["min"] for r in rounds)
    several = min(r[1]["ms"]["min"] for r in rounds)
    cpu = [min(r[i]["cpu_ms"] for r in rounds) for i in (0, 1)]
    print(json.dumps({"name": os.path.basename(os.path.normpath(args.net)), "devices": args.devices, "batch_per_device": args.batch,
                      "ms_one": one, "ms_several": several, "ratio": round(args.devices * one / several, 3),
                      "cpu_ms_one": cpu[0], "cpu_ms_several": cpu[1], "runs": args.rounds}))


if __name__ == "__main__":
    main()
