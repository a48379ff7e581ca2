#!/usr/bin/env python3
"""Trainers with several devices, and with several workers.

    ps_trainers.py --bin-dir build/dev/tools --shared ../shared [--only NAME]

- `--devices cpu:2` in every synchronous reference job: the same parameters and state as with one device, within
  rounding. Jobs whose result depends on how a batch is split are named below with the reason.
- `--worker-threads 3` in the asynchronous references, whose gradients are whole numbers: the same bits as with one
  thread, since every batch counts once; in half-asynchronous mode a round of three counts as its mean.
- Options that such trainers do not support are refused.
Prints a line per job. Exit status: 0 all as expected, 1 some not.
"""
import argparse
import os
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../faults"))
from job import Job  # noqa: E402
from each_case import run_checks  # noqa: E402

LIMIT, WORKERS = 60, 3
TOLERANCE = 1e-6  # sums of two halves of a batch against one sum, over the steps of a job
EXCEPT_DEVICES = {"lenet_bn_momentum_2s3t": "batch norm sees the rows of one device"}
REFUSED = {"geo_dense_2s2t": "geo", "geo_sparse_2s2t": "geo", "linear_exact_3s4t": "synchronous"}
# The loss is a sum over rows, not a mean: the gradients of two halves add up to that of the whole batch without a
# scale.
SUMMED = {"linear_exact_3s4t"}
# The result depends on the order in which gradients arrive: only that the job ends is checked.
ORDERED = {"dc_asgd_2s1t"}


def require(holds, what):
    if not holds:
        raise RuntimeError(what)


def run(job):
    """The values at the end of the job; its exit statuses if they are not all 0."""
    servers, trainers = job.start_all().wait_all(LIMIT)
    last = job.trainers[0].lines[-1][:300] if job.trainers[0].lines else ""
    require(set(servers + trainers) == {0}, f"servers {servers}, trainers {trainers}: {last}")
    return job.load("after.npz")


def devices(args, name):
    with Job(args.bin_dir, f"{args.shared}/goldens/ps_sync/{name}", 4, [],
             ["--devices", "cpu:2", "--gradient-scale", "one" if name in SUMMED else "weighted"]).prepare(with_proxies=False) as job:
        job.steps = min(job.steps, job.cfg["steps"])
        want, have = job.reference(), run(job)
        for var, value in want.items():
            off = np.abs(have[var].astype("f8") - value).max() if value.size else 0
            require(off <= TOLERANCE * max(1, np.abs(value).max()), f"'{var}' is off by {off:.2e}")


def workers(args, name, folder="ps_async"):
    with Job(args.bin_dir, f"{args.shared}/goldens/{folder}/{name}", 12, [], ["--worker-threads", str(WORKERS)]).prepare(with_proxies=False) as job:
        if name in REFUSED:
            for i in range(len(job.servers)):
                job.start_server(i)
            for t in range(len(job.trainers)):
                job.start_trainer(t)
            code = job.trainers[0].wait(float("inf"))
            require(code == 7 and REFUSED[name] in job.trainers[0].text, f"exit status {code}: {job.trainers[0].text[-300:]}")
            return
        want, have = job.reference(), run(job)
        with np.load(job.params) as stored:
            begin = {k: stored[k] for k in stored.files}
        for var, value in want.items():
            if name in ORDERED or var not in begin:
                continue
            moved = value.astype("f8") - begin[var]
            half = name.startswith("half_async")
            expected = moved / WORKERS if half else moved
            require(np.allclose(have[var].astype("f8") - begin[var], expected, rtol=0, atol=1e-5 if half else 0),  # thirds are rounded
                    f"'{var}' moved by {np.abs(have[var] - begin[var]).max()}, expected {np.abs(expected).max()}")


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--bin-dir", required=True)
    ap.add_argument("--shared", required=True)
    ap.add_argument("--only", default="")
    args = ap.parse_args()
    names = {folder: sorted(n for n in os.listdir(f"{args.shared}/goldens/{folder}") if not n.endswith(".md")) for folder in ("ps_sync", "ps_async")}
    checks = [(f"devices {name}", lambda name=name: devices(args, name)) for name in names["ps_sync"] if name not in EXCEPT_DEVICES]
    checks += [(f"workers {name}", lambda name=name: workers(args, name)) for name in names["ps_async"]]
    checks += [("workers linear_exact_3s4t", lambda: workers(args, "linear_exact_3s4t", "ps_sync"))]
    return run_checks(checks, args.only)


if __name__ == "__main__":
    sys.exit(main())
