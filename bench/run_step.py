#!/usr/bin/env python3
"""Times steps of a stored net with run-program and prints one JSON line, in the format of the peer comparison:

    compare.py --ours "bench/run_step.py --bin-dir build/release --net {dir} --threads {threads} --batch {batch} --mode {mode}" ...

A net folder has main.pb, startup.pb, infer.pb and net.json (name, shape, dtype of every feed). The batch is generated
from a fixed seed: ids of large tables follow a power law, everything else is uniform. Training: startup program, then
main program, with the loss fetched in every step. Needs numpy.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

import numpy as np


def batch(net, rows, infer):
    random = np.random.RandomState(0)
    feeds = {}
    for feed in net["feeds"]:
        if infer and not feed["infer"]:
            continue
        shape = [rows if d < 0 else d for d in feed["shape"]]
        if "high" not in feed:
            value = np.zeros(shape, "f4") if feed["name"] == "mask" else random.standard_normal(shape).astype("f4")
        elif feed["name"] == "pos":
            value = np.broadcast_to(np.arange(shape[1], dtype="i8"), shape).copy()
        elif feed["high"] >= 100000:
            value = (random.random_sample(shape) ** 4 * feed["high"]).astype("i8")
        else:
            value = random.randint(0, feed["high"], shape).astype("i8")
        feeds[feed["name"]] = value
    return feeds


def run(args, net, feeds, steps):
    infer = args.mode == "infer"
    command = [os.path.join(args.bin_dir, "tools/run-program"), "--program",
               os.path.join(args.net, "infer.pb" if infer else "main.pb"), "--feed", feeds, "--benchmark", str(steps),
               "--warmup", str(args.warmup), "--threads", str(args.threads)]
    if args.cpu_isa:
        command += ["--cpu-isa", args.cpu_isa]
    startup = os.path.join(args.net, "startup.pb")
    if os.path.exists(startup):
        command += ["--startup", startup]
    if not infer and net["loss"]:
        command += ["--fetch", net["loss"]]
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ, OMP_NUM_THREADS=str(args.threads)))
    if done.returncode:
        sys.exit(done.stderr.strip())
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin-dir", default="build/release")
    parser.add_argument("--net", required=True, help="folder of the net")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch", type=int, help="default: that of net.json")
    parser.add_argument("--mode", choices=["train", "infer"], default="train")
    parser.add_argument("--cpu-isa", help="as of run-program")
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--budget", type=float, default=2, help="seconds of measured steps")
    args = parser.parse_args()
    with open(os.path.join(args.net, "net.json"), encoding="utf-8") as file:
        net = json.load(file)
    if hasattr(os, "sched_setaffinity"):  # one thread means one processor, for every peer
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: args.threads])
    with tempfile.TemporaryDirectory() as work:
        feeds = os.path.join(work, "feeds.npz")
        rows = args.batch or net["batch"]
        np.savez(feeds, **batch(net, rows, args.mode == "infer"))
        probe = run(args, net, feeds, 3)
        steps = int(min(max(args.budget * 1e3 / max(probe["ms"]["p50"], 1e-3), 5), 20000))
        result = run(args, net, feeds, steps)
    ms = result["ms"]
    print(json.dumps({"peer": "millrace", "net": net["net"], "mode": args.mode, "threads": args.threads, "batch": rows,
                      "steps": steps, "ms_median": ms["p50"], "ms_min": ms["min"], "ms_p90": ms["p90"],
                      "cpu_ms_median": result["cpu_ms"], "rss_mb": result["peak_rss_mb"], "cpu_isa": result["cpu_isa"],
                      "plan_ms": result["plan_ms"], "load_ms": result["load_ms"]}))


if __name__ == "__main__":
    main()
