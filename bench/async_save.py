#!/usr/bin/env python3
"""Cost of a background checkpoint for the training thread, compared with one step.

    bench/async_save.py --bin-dir build/release --net NETS/resnet18_64 --folder DIR [--steps 40] [--every 10] [--rounds 3]

Prints one JSON line: processor and wall time of a step (processor time of the main thread of the process, from /proc;
the best of the rounds), the checkpoint times that run-program reports (the median of the rounds), and the ratios. Wall
times are meaningful on an idle machine only. Batches are those of run_step.py. Needs numpy.
"""
import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
from run_step import batch


def one_run(command):
    """Processor seconds of the main thread, wall seconds, and stderr."""
    begin, used = time.monotonic(), 0.0
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log)
        while process.poll() is None:
            try:
                with open(f"/proc/{process.pid}/task/{process.pid}/schedstat", encoding="ascii") as f:
                    used = max(used, int(f.read().split()[0]) * 1e-9)
            except (OSError, ValueError, IndexError):
                pass
            time.sleep(0.002)
        log.seek(0)
        words = log.read().decode()
    if process.returncode:
        sys.exit(words.strip())
    return used, time.monotonic() - begin, words


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin-dir", default="build/release")
    parser.add_argument("--net", required=True, help="folder of the net")
    parser.add_argument("--folder", required=True, help="folder for the checkpoints")
    parser.add_argument("--batch", type=int, help="default: that of net.json")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--every", type=int, default=10, help="steps between checkpoints")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    with open(os.path.join(args.net, "net.json"), encoding="utf-8") as f:
        net = json.load(f)
    ours = os.path.join(args.folder, "async_save")
    with tempfile.TemporaryDirectory() as work:
        feeds = os.path.join(work, "feeds.npz")
        np.savez(feeds, **batch(net, args.batch or net["batch"], False))
        plain = [os.path.join(args.bin_dir, "tools/run-program"), "--program", os.path.join(args.net, "main.pb"), "--startup",
                 os.path.join(args.net, "startup.pb"), "--feed", feeds, "--fetch", net["loss"], "--threads", "1", "--progress", "never", "--force",
                 "-o", os.path.join(work, "out.npz")]
        saving = ["--save-every", str(args.every), "--checkpoint-dir", ours, "--keep-last", "1"]
        found = {name: [] for name in ("half", "plain", "saving")}
        for _ in range(args.rounds):
            found["half"].append(one_run(plain + ["--steps", str(args.steps // 2)]))
            found["plain"].append(one_run(plain + ["--steps", str(args.steps)]))
            shutil.rmtree(ours, ignore_errors=True)
            found["saving"].append(one_run(plain + saving + ["--steps", str(args.steps)]))
        shutil.rmtree(ours, ignore_errors=True)
    best = lambda name, k: min(run[k] for run in found[name])
    said = [re.search(r"checkpoints took ([0-9.]+) ms of training each, ([0-9.]+) ms of the processor", run[2])
            for run in found["saving"]]
    rest = args.steps - args.steps // 2
    line = {"net": net["net"], "steps": args.steps, "saves": args.steps // args.every}
    for k, group, name in ((0, 2, "processor"), (1, 1, "wall")):
        step = (best("plain", k) - best("half", k)) / rest * 1e3
        save = statistics.median(float(match.group(group)) for match in said)
        line.update({f"{name}_ms_step": round(step, 2), f"{name}_ms_save": round(save, 2),
                     f"{name}_share": round(save / step, 4)})
    print(json.dumps(line))


if __name__ == "__main__":
    main()
