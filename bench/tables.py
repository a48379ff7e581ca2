#!/usr/bin/env python3
"""Lookups and updates of a sparse table beside FBGEMM's table-batched embeddings on a CPU, one thread, in turn.

    bench/tables.py --bin-dir build/release --fbgemm PYTHON [--rounds 3] [--rows N] [--dim D] [--power P]

PYTHON has torch and the package fbgemm-gpu-cpu. A batch is 26 x 512 ids, in proportion to u^4 unless --power says otherwise, of a
million rows of 16 floats. Both return a row for each id, and apply a gradient for each id: sgd, and Adagrad with one number of state
a row. FBGEMM's rows are in an array, ours in a hash table whose keys are any 64-bit integers; its update also passes through
torch's autograd. Prints a line of JSON for each: rows per second, best median of the rounds, the ratio, and the goal.
"""
import argparse
import json
import os
import subprocess
import sys

IDS = 26 * 512
GOALS = {"lookup": 1.5, "sgd": 3.0, "adagrad": 3.0}


def peer(args):
    """Rows per second of FBGEMM; runs in the Python that has it."""
    import time

    import numpy as np
    import torch
    from fbgemm_gpu.split_embedding_configs import EmbOptimType
    from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation, PoolingMode
    from fbgemm_gpu.split_table_batched_embeddings_ops_training import ComputeDevice, SplitTableBatchedEmbeddingBagsCodegen

    torch.set_num_threads(1)
    random = np.random.RandomState(0)
    batches = [torch.from_numpy((random.random_sample(IDS) ** args.power * args.rows).astype("i8")) for _ in range(16)]
    offsets, grads = torch.arange(IDS + 1), torch.full((IDS, args.dim), 0.01)
    found = {}
    for name, kind in (("sgd", EmbOptimType.EXACT_SGD), ("adagrad", EmbOptimType.EXACT_ROWWISE_ADAGRAD)):
        table = SplitTableBatchedEmbeddingBagsCodegen([(args.rows, args.dim, EmbeddingLocation.HOST, ComputeDevice.CPU)], optimizer=kind,
                                                      learning_rate=0.05, pooling_mode=PoolingMode.SUM)
        times = {"lookup": [], name: []}
        for run in range(args.runs):
            start = time.perf_counter()
            rows = table(batches[run % 16], offsets)
            middle = time.perf_counter()
            rows.backward(grads)
            times["lookup"].append(middle - start)
            times[name].append(time.perf_counter() - middle)
        for what, each in times.items():
            found[what] = max(found.get(what, 0), IDS / float(np.median(each)))
    print(json.dumps(found))


def ours(args):
    found = {}
    for name, rule in (("sgd", "naive"), ("adagrad", "adagrad")):
        command = [os.path.join(args.bin_dir, "bench/ps_table_bench"), "--rule", rule, "--rows", args.rows, "--dim", args.dim, "--power", args.power,
                   "--runs", args.runs]
        lines = subprocess.run([str(each) for each in command], capture_output=True, text=True, check=True).stdout.splitlines()
        for row in map(json.loads, lines):
            what = {"pull": "lookup", "push": name}.get(row["what"])
            if what:
                found[what] = max(found.get(what, 0), row["median"])
    return found


def theirs(args):
    done = subprocess.run([args.fbgemm, __file__, "--peer", "--rows", str(args.rows), "--dim", str(args.dim), "--power", str(args.power), "--runs",
                           str(args.runs)], capture_output=True, text=True, env=dict(os.environ, OMP_NUM_THREADS="1"))
    if done.returncode:
        sys.exit(f"{args.fbgemm}: {done.stderr.strip()[-400:]}")
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin-dir", default="build/release")
    parser.add_argument("--fbgemm", help="Python that has it")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--runs", type=int, default=200, help="batches in a round")
    parser.add_argument("--rows", type=int, default=1000000)
    parser.add_argument("--dim", type=int, default=16)
    parser.add_argument("--power", type=float, default=4)
    parser.add_argument("--peer", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.peer:
        return peer(args)
    if not args.fbgemm:
        parser.error("--fbgemm is missing")
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    best = ({}, {})
    for _ in range(args.rounds):
        for rates, run in zip(best, (ours, theirs)):
            for what, rate in run(args).items():
                rates[what] = max(rates.get(what, 0), rate)
    for what, goal in GOALS.items():
        mine, other = best[0][what], best[1][what]
        print(json.dumps({"what": what, "rows": args.rows, "dim": args.dim, "power": args.power, "unit": "million rows/s",
                          "millrace": round(mine / 1e6, 2), "fbgemm": round(other / 1e6, 2), "ratio": round(mine / other, 2), "goal": goal}))


if __name__ == "__main__":
    main()
