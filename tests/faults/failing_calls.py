#!/usr/bin/env python3
"""The n-th call of a server or trainer fails, for every n of a short job with snapshots: fsync, write, rename, connect,
and where an allocation, a thread or a descriptor is wanted.

    tests/faults/failing_calls.py --bin-dir build/dev/tools [--most 1000] [--case ../shared/goldens/ps_sync/linear_exact_3s4t]
    tests/faults/failing_calls.py --bin-dir build/dev/tools --transport grpc --only server/allocation --at 4711

The job passes with the same bits, or its processes end with an error, one of which has the text of the system's error, and
the job that is started again on the snapshots has the same bits. failing_calls.c says which calls count; failing_tools.py
does the same for tools that run alone and for collective jobs.

--most: that many of the n for each process and call (8), drawn by --seed from parts of equal size, 0: every n. Without
--only, the pairs of PAIRS.

Exit status: 0 all passed, 1 not. Needs numpy and a C compiler.
"""
import argparse
import concurrent.futures
import os
import sys
import tempfile
import time

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from failing_tools import compile_shim, spread  # noqa: E402
from job import Job  # noqa: E402

STEPS = 3
SERVER_FLAGS = ["--start-timeout-ms", "10000", "--silence-timeout-ms", "8000", "--snapshot-every", "1", "--snapshot-durable"]
TRAINER_FLAGS = ["--deadline-ms", "15000", "--silence-timeout-ms", "8000", "--force"]

ERRORS = {"fsync": "Input/output error", "write": "No space left on device", "rename": "Input/output error", "connect": "Connection refused",
          "allocation": "memory", "thread": "thread", "descriptor": ("Too many open files", "descriptor")}
PAIRS = ("server/fsync", "server/write", "server/rename", "server/thread", "server/descriptor", "server/allocation", "trainer/write",
         "trainer/connect", "trainer/thread", "trainer/descriptor", "trainer/allocation")


def require(condition, message):
    if not condition:
        raise RuntimeError(message)


def same(job, want):
    got = job.load("after.npz")
    return set(got) == set(want) and all(np.array_equal(got[name], value) for name, value in want.items())


def run(job, role, shim, call, at):
    """Runs the job; in process 0 of the role, call number `at` fails. Returns all statuses."""
    plain, counted = dict(job.env), os.path.join(job.dir, "count")
    failing = {**plain, "LD_PRELOAD": shim, "FAILING_CALL": call, "FAILING_AT": str(at), "FAILING_COUNT": counted,
               "FAILING_NAME": "pserver" if role == "server" else "run-program"}
    if job.shows:
        failing["FAILING_SHOW"] = "1"
    flags = ["--snapshot-dir", os.path.join(job.dir, "snapshots")]
    for i, _ in enumerate(job.servers):
        job.env = failing if (role, i) == ("server", 0) else plain
        job.start_server(i, wait=False, flags=flags)
    for t, _ in enumerate(job.trainers):
        job.env = failing if (role, t) == ("trainer", 0) else plain
        job.start_trainer(t)
    job.env = plain
    return [code for side in job.wait_all(90) for code in side]


def check(args, shim, role, call, error, at):
    """Returns how many such calls the process made."""
    transport = ["--transport", args.transport] if args.transport else []
    with Job(args.bin_dir, args.case, STEPS, SERVER_FLAGS + transport, TRAINER_FLAGS + transport) as job:
        job.shows = args.at > 0
        want = job.prepare(with_proxies=False).reference()
        codes = run(job, role, shim, call, at)
        said = "\n".join(f"{process.text[-300:]}" for process in job.processes[1:])
        require(all(code is not None and 0 <= code < 128 for code in codes), f"processes end with {codes}: {said}")
        counted = os.path.join(job.dir, "count")
        count = 0
        if os.path.exists(counted):
            with open(counted, "rb") as file:
                count = int.from_bytes(file.read(8), "little")
        if args.at and at:
            print("\n".join(process.text for process in job.processes[1:]))
        if set(codes) == {0}:
            require(same(job, want), "the job passes with another result")
            return count
        words = (error,) if isinstance(error, str) else error
        require(any(word in said for word in words), f"no process names the error '{error}' ({codes}): {said}")
        for name in ("after.npz", "count"):
            if os.path.exists(f"{job.dir}/{name}"):
                os.remove(f"{job.dir}/{name}")
        codes = run(job, role, shim, call, 0)
        said = "\n".join(f"{process.text[-300:]}" for process in job.processes[-len(codes):])
        require(set(codes) == {0} and same(job, want), f"started again, the job ends with {codes}: {said}")
        return count


def try_pair(args, shim, pair):
    """Returns how many of the n went wrong."""
    role, call = pair.split("/")
    begin, wrong = time.monotonic(), []
    count = 0 if args.at else check(args, shim, role, call, ERRORS[call], 0)
    tried = [args.at] if args.at else spread(count, args.most, f"{args.seed} {pair}")

    def one(at):
        try:
            check(args, shim, role, call, ERRORS[call], at)
        except (RuntimeError, OSError) as problem:
            return f"number {at}: {problem}"
        return None

    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        wrong = [problem for problem in pool.map(one, tried) if problem is not None]
    print(f"{role} {call}: {len(tried)} of {count} calls, {len(wrong)} wrong ({time.monotonic() - begin:.0f} s)", *wrong, sep="\n  ", flush=True)
    return len(wrong)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin-dir", required=True)
    parser.add_argument("--most", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--transport", default="")
    parser.add_argument("--only", default=",".join(PAIRS), help="pairs of role and call, separated by commas")
    parser.add_argument("--at", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--case", default=os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                                       "../../../shared/goldens/ps_sync/linear_exact_3s4t"))
    args = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory(prefix="millrace_failing") as work:
        shim = compile_shim(work)
        for pair in args.only.split(","):
            failed += try_pair(args, shim, pair)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
