#!/usr/bin/env python3
"""Trains the bench nets for ten steps with and without --precision bf16: losses must be within 2 % of those of f32.

    bf16_losses.py --bin build/ci/tools/run-program --shared ../shared [--only SUBSTR]

Needs numpy. On a processor without bfloat16 products both runs are the same. Last line: "N passed, N failed". Exit
status: 0 all within the limit, 1 some are not, 2 nothing could be run.
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

NETS = ("bert_mini", "ctr_dnn", "mlp", "word2vec")
STEPS = 10
LIMIT = 0.02


def losses(args, folder, net, feeds, precision, work):
    out = os.path.join(work, precision + ".npz")
    command = [args.bin, "--program", os.path.join(folder, "main.pb"), "--startup", os.path.join(folder, "startup.pb"), "--feed",
               feeds, "--fetch", net["loss"], "--steps", str(STEPS), "--precision", precision, "--output", out]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode:
        sys.exit(f"{net['net']}: {done.stderr.strip()}")
    values = np.load(out)
    return [float(values[f"step{step}/{net['loss']}"].reshape(-1)[0]) for step in range(STEPS)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--shared", required=True)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    passed = failed = 0
    for folder in sorted(glob.glob(os.path.join(args.shared, "bench/programs/*"))):
        if os.path.basename(folder) not in NETS or args.only not in folder:
            continue
        with open(os.path.join(folder, "net.json"), encoding="utf-8") as file:
            net = json.load(file)
        with tempfile.TemporaryDirectory() as work:
            feeds = os.path.join(work, "feeds.npz")
            np.savez(feeds, **batch(net, net["batch"], False))
            wide, rounded = (losses(args, folder, net, feeds, precision, work) for precision in ("f32", "bf16"))
        worst = max(abs(a - b) / abs(a) for a, b in zip(wide, rounded))
        good = worst <= LIMIT
        passed, failed = passed + good, failed + (not good)
        print(f"{'pass' if good else 'FAIL'}  {net['net']}: largest difference of ten losses {worst:.2%}, last loss {wide[-1]:.5g}")
    print(f"{passed} passed, {failed} failed")
    sys.exit(0 if passed and not failed else 1 if failed else 2)


if __name__ == "__main__":
    main()
