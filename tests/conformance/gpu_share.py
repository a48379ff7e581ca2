"""Counts the cases of the operator references that run wholly on a GPU.

    gpu_share.py --bin RUN_PROGRAM --shared DIR [--most-on-cpu N]

Runs every case of shared/goldens/ops with --devices gpu:emulated; results are not compared here (check_ops.py does
that). Prints how many cases had an op on the CPU, and these counts by operator. Fails if there are more than N.
"""
import argparse
import collections
import glob
import json
import os
import subprocess
import sys
import tempfile

import numpy as np


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--shared", required=True)
    parser.add_argument("--most-on-cpu", type=int)
    args = parser.parse_args()
    sys.path.insert(0, os.path.join(args.shared, "tools"))
    import check_ops

    names, jobs = [], []
    with tempfile.TemporaryDirectory() as work:
        for path in sorted(glob.glob(os.path.join(args.shared, "goldens", "ops", "*.npz"))):
            for meta, arrays in check_ops.load(path):
                base = os.path.join(work, str(len(jobs)))
                with open(base + ".pb", "wb") as f:
                    f.write(arrays["program"].tobytes())
                np.savez(base + ".in.npz", **check_ops.feed_members(meta, arrays))
                names.append(os.path.basename(path)[:-4])
                jobs.append({"program": base + ".pb", "feed": base + ".in.npz",
                             "fetch": check_ops.fetch_names(meta, False), "output": base + ".out.npz"})
        with open(os.path.join(work, "jobs.jsonl"), "w", encoding="utf-8") as f:
            f.writelines(json.dumps(job) + "\n" for job in jobs)
        done = subprocess.run([args.bin, "--devices", "gpu:emulated", "--batch", f.name], capture_output=True, text=True,
                              timeout=600)
        answers = [json.loads(line) for line in done.stdout.splitlines()]
    if len(answers) != len(jobs):
        print(f"{len(answers)} answers to {len(jobs)} cases\n{done.stderr[-2000:]}")
        return 1
    on_cpu = collections.Counter(name for name, answer in zip(names, answers) if answer.get("ops_on_cpu"))
    count = sum(on_cpu.values())
    print(" ".join(f"{name} {number}/{names.count(name)}" for name, number in on_cpu.most_common()))
    print(f"{count} of {len(jobs)} cases have an op on the CPU; {100 - 100 * count / len(jobs):.1f} % run wholly on the GPU")
    return 0 if args.most_on_cpu is None or count <= args.most_on_cpu else 1


if __name__ == "__main__":
    sys.exit(main())
