#!/usr/bin/env python3
"""Wall time of a training step with one thread and with several, the same program in one run.

    bench/threads.py --bin-dir build/release --shared ../shared [--nets mlp,lenet] [--threads 2] [--rounds 3] [--write docs/performance.md]

Rounds alternate; the median step of the best round of each counts, on an otherwise idle machine. The goal is 1.6 for
mlp and larger nets. Needs numpy.
"""
import argparse
import json
import os
import subprocess
import tempfile

import numpy as np

from page import write_table
from run_step import batch

NETS = "mlp,lenet,word2vec,ctr_dnn,bert_mini,resnet18_64,resnet50_64"
GOAL = 1.6


def measure(args, folder, loss, feeds, threads, steps):
    done = subprocess.run(
        [os.path.join(args.bin_dir, "tools/run-program"), "--program", os.path.join(folder, "main.pb"), "--startup",
         os.path.join(folder, "startup.pb"), "--feed", feeds, "--fetch", loss, "--threads", str(threads), "--benchmark", str(steps),
         "--warmup", str(max(3, steps // 4)), "-q"], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)["ms"]["p50"]


def compare(args, name):
    folder = os.path.join(args.shared, "bench/programs", name)
    with open(os.path.join(folder, "net.json"), encoding="utf-8") as file:
        net = json.load(file)
    with tempfile.TemporaryDirectory() as work:
        feeds = os.path.join(work, "feeds.npz")
        np.savez(feeds, **batch(net, net["batch"], False))
        probe = measure(args, folder, net["loss"], feeds, 1, 3)
        steps = int(min(max(args.budget * 1e3 / max(probe, 1e-3), 10), 2000))
        rounds = [[measure(args, folder, net["loss"], feeds, threads, steps) for threads in (1, args.threads)] for _ in range(args.rounds)]
    one, several = (min(times) for times in zip(*rounds))
    return {"net": name, "batch": net["batch"], "threads": args.threads, "ms_one": one, "ms_several": several, "ratio": round(one / several, 2)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin-dir", required=True)
    parser.add_argument("--shared", required=True)
    parser.add_argument("--nets", default=NETS)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--budget", type=float, default=2, help="seconds of measured steps")
    parser.add_argument("--write", help="page in which to replace the table 'threads'")
    args = parser.parse_args()
    lines = [f"| net | batch | one thread ms | {args.threads} threads ms | ratio | goal |", "|---|---|---|---|---|---|"]
    for name in args.nets.split(","):
        row = compare(args, name)
        print(json.dumps(row), flush=True)
        lines.append(f"| {name} | {row['batch']} | {row['ms_one']:.3g} | {row['ms_several']:.3g} | {row['ratio']:.2f} | {GOAL} |")
    if args.write:
        write_table(args.write, "threads", "\n".join(lines))


if __name__ == "__main__":
    main()
