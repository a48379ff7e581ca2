#!/usr/bin/env python3
"""All-reduce between two processes: ours over MPI beside MPI_Allreduce itself, in turn, and over shared memory and Gloo.

    bench/all_reduce.py --bin-dir build/release --peer ../shared/bench/limits/mpi_allreduce.c [--rounds 3]

The peer is compiled with mpicc. Prints the JSON lines of all; where there is no mpirun, those without it.
"""
import argparse
import os
import shutil
import subprocess
import tempfile

MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2"]


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} exited with {done.returncode}:\n{done.stderr}")
    print(done.stdout, end="", flush=True)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--bin-dir", required=True)
    ap.add_argument("--peer")
    ap.add_argument("--rounds", type=int, default=3)
    args = ap.parse_args()
    ours = os.path.join(args.bin_dir, "bench/all_reduce")
    run([ours, "--engine", "threads"])
    for engine in ("shm", "gloo"):
        run([ours, "--engine", engine])
    if not shutil.which("mpirun"):
        return
    with tempfile.TemporaryDirectory() as work:
        peer = os.path.join(work, "peer")
        if args.peer:
            subprocess.run(["mpicc", "-O2", args.peer, "-o", peer], check=True)
        for _ in range(args.rounds):
            if args.peer:
                run([*MPIRUN, peer])
            run([*MPIRUN, ours, "--engine", "mpi"])


if __name__ == "__main__":
    main()
