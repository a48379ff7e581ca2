#!/usr/bin/env python3
"""All-reduce between two ranks by size: threads against the memory bandwidth, processes against each engine's peer.

    bench/all_reduce.py --bin-dir build/release --peer ../shared/bench/limits/mpi_allreduce.c [--engine mpi ...] [--least]
        [--rounds 5] [-v]

Millrace and the peers alternate; for both the best median of the rounds counts. The MPI peer is compiled with mpicc.
The peer of Gloo is bench/gloo_all_reduce, which only calls the library. With --least the shortest time counts, which is
still meaningful on a machine with other load. Prints a JSON line per size and engine: us, and if there is a peer its us
and the ratio of both (goal G8: 1.05); for 64 MiB between threads the time that memory needs over the time of millrace
(goal 0.6), for 1 KiB the goal of 2 us. -v also prints every line of the programs.
"""
import argparse
import json
import os
import shutil
import subprocess
import tempfile

MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2"]
SIZES = "1,4,16,64,256,1024,4096,16384,65536"


def run(args, words, limit=600):
    """The JSON lines of a program."""
    done = subprocess.run(words, capture_output=True, text=True, timeout=limit)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(words)} exited with {done.returncode}:\n{done.stderr[-2000:]}")
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if args.v:
        for line in lines:
            print(json.dumps(line), flush=True)
    return lines


def keep_best(best, name, lines, key_of_us):
    for line in lines:
        size = line.get("kib", line.get("kb"))
        key = (name, size)
        if size is None:
            key = (name, "memory")
        best[key] = min(best.get(key, float("inf")), line[key_of_us])


def programs(args, work):
    """The commands that alternate: a name and a command each."""
    ours = os.path.join(args.bin_dir, "bench/all_reduce")
    turns = [(engine, [ours, "--engine", engine, "--kib", SIZES]) for engine in ("threads", "shm", "gloo")]
    gloo_peer = os.path.join(args.bin_dir, "bench/gloo_all_reduce")
    if os.path.exists(gloo_peer):
        turns.append(("gloo_peer", [gloo_peer, "--kib", SIZES]))
    if args.engine:
        turns = [turn for turn in turns if turn[0].removesuffix("_peer") in args.engine]
    if not shutil.which("mpirun") or (args.engine and "mpi" not in args.engine):
        return turns
    turns.append(("mpi", [*MPIRUN, ours, "--engine", "mpi", "--kib", SIZES]))
    if args.peer:
        peer = os.path.join(work, "peer")
        subprocess.run(["mpicc", "-O3", args.peer, "-o", peer], check=True)
        turns.append(("mpi_peer", [*MPIRUN, peer]))
    return turns


def report(best, load):
    for (name, size), us in sorted(best.items(), key=str):
        if name.endswith("_peer") or size == "memory":
            continue
        line = {"name": f"all_reduce_{name}", "kib": size, "us": round(us, 2)}
        peer = best.get((f"{name}_peer", size))
        if peer is not None:
            line |= {"peer_us": round(peer, 2), "ratio": round(us / peer, 3), "goal": 1.05}
        if name == "threads" and size == 1:
            line |= {"goal_us": 2}
        if name == "threads" and size == 65536:
            memory = best[("threads", "memory")]
            line |= {"memory_us": round(memory, 2), "share_of_memory": round(memory / us, 3), "goal": 0.6}
        if name == "shm":
            others = {n: best[(n, size)] for n in ("mpi", "gloo") if (n, size) in best}
            line |= {f"{n}_us": round(other, 2) for n, other in others.items()}
        print(json.dumps(line | {"load": load}), flush=True)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--bin-dir", required=True)
    ap.add_argument("--peer")
    ap.add_argument("--engine", action="append", help="only these")
    ap.add_argument("--least", action="store_true")
    ap.add_argument("--rounds", type=int, default=5)
    ap.add_argument("-v", action="store_true")
    args = ap.parse_args()
    best = {}
    with tempfile.TemporaryDirectory() as work:
        turns = programs(args, work)
        for _ in range(args.rounds):
            for name, words in turns:
                keep_best(best, name, run(args, words), "us_min" if args.least else "us_median")
    report(best, round(os.getloadavg()[0], 2))


if __name__ == "__main__":
    main()
