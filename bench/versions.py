#!/usr/bin/env python3
"""Compares two builds of millrace: steps of the stored nets, jobs with servers, transpiling. The builds take turns.

    bench/versions.py --before OTHER/build/release --after build/release [--shared ../shared] [--nets A,B] [--rounds 5] [--budget 1]
                      [--write PAGE --table NAME]

Steps: processor time on one thread, in milliseconds, best of the rounds; training where a net has a loss, and inference.
`ps sync` and `ps async`: examples a second of two trainers and two servers (ps.py), turned into seconds for a million.
`transpile`: processor time of transpile-program with 10,000 ops and 16 servers. The ratio is after / before; below 1 is
faster. Needs numpy.
"""
import argparse
import gzip
import json
import math
import os
import resource
import shutil
import subprocess
import sys
import tempfile

import numpy as np

from page import write_table
from run_step import batch

HERE = os.path.dirname(os.path.abspath(__file__))


def output_of(command):
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ, OMP_NUM_THREADS="1"))
    if done.returncode:
        sys.exit(f"{command[0]}: exit status {done.returncode}: {(done.stderr or done.stdout).strip()[-800:]}")
    return done.stdout


def step_command(build, folder, net, feeds, infer, steps):
    command = [os.path.join(build, "tools/run-program"), "--program", os.path.join(folder, "infer.pb" if infer else "main.pb"),
               "--feed", feeds, "--benchmark", str(steps), "--warmup", "3", "--threads", "1"]
    if os.path.exists(os.path.join(folder, "startup.pb")):
        command += ["--startup", os.path.join(folder, "startup.pb")]
    return command + ([] if infer or not net["loss"] else ["--fetch", net["loss"]])


def in_turn(measure, builds, rounds):
    """The best of several rounds for each build."""
    best = [math.inf, math.inf]
    for number in range(rounds):
        for place in (0, 1) if number % 2 == 0 else (1, 0):
            best[place] = min(best[place], measure(builds[place]))
    return best


def time_steps(args, builds, name, infer):
    folder = os.path.join(args.shared, "bench/programs", name)
    with open(os.path.join(folder, "net.json"), encoding="utf-8") as file:
        net = json.load(file)
    if not os.path.exists(os.path.join(folder, "infer.pb" if infer else "main.pb")) or (not infer and not net["loss"]):
        return None
    with tempfile.TemporaryDirectory() as work:
        feeds = os.path.join(work, "feeds.npz")
        np.savez(feeds, **batch(net, net["batch"], infer))
        first = json.loads(output_of(step_command(builds[1], folder, net, feeds, infer, 3)))["ms"]["p50"]
        steps = int(min(max(args.budget * 1e3 / max(first, 1e-3), 5), 20000))
        return in_turn(lambda build: json.loads(output_of(step_command(build, folder, net, feeds, infer, steps)))["cpu_ms"],
                       builds, args.rounds)


def time_job(args, builds, mode):
    def seconds(build):
        row = json.loads(output_of([sys.executable, "-B", os.path.join(HERE, "ps.py"), "--bin-dir", build, "--mode", mode,
                                    "--hidden", "8", "--steps", "60"]))
        return 1e6 / row["examples_per_s_total"]
    return in_turn(seconds, builds, args.rounds)


def time_transpile(args, builds):
    with tempfile.TemporaryDirectory() as work:
        for name in ("main", "startup"):
            with gzip.open(os.path.join(args.shared, f"bench/data/fc_10k_{name}.pb.gz")) as source:
                with open(os.path.join(work, name), "wb") as target:
                    shutil.copyfileobj(source, target)
        servers = ",".join(f"10.0.0.{i}:6174" for i in range(16))

        def milliseconds(build):
            begin = resource.getrusage(resource.RUSAGE_CHILDREN)
            output_of([os.path.join(build, "tools/transpile-program"), "--program", os.path.join(work, "main"), "--startup",
                       os.path.join(work, "startup"), "--pservers", servers, "--trainers", "2", "--trainer-id", "all", "--force", "-o",
                       os.path.join(work, "out")])
            end = resource.getrusage(resource.RUSAGE_CHILDREN)
            return 1e3 * (end.ru_utime + end.ru_stime - begin.ru_utime - begin.ru_stime)
        return in_turn(milliseconds, builds, args.rounds)


def measured(args, builds):
    nets = args.nets.split(",") if args.nets else sorted(os.listdir(os.path.join(args.shared, "bench/programs")))
    for name in nets:
        for infer in (False, True):
            best = time_steps(args, builds, name, infer)
            if best:
                yield f"{name}, {'inference' if infer else 'training'}", best
    if args.nets:
        return
    for mode in ("sync", "async"):
        yield f"ps {mode}", time_job(args, builds, mode)
    yield "transpile", time_transpile(args, builds)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", required=True)
    parser.add_argument("--after", default="build/release")
    parser.add_argument("--shared", default="../shared")
    parser.add_argument("--nets", help="only these, and nothing else")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--budget", type=float, default=1, help="seconds of steps in each round")
    parser.add_argument("--write", help="page with the table")
    parser.add_argument("--table", default="versions")
    args = parser.parse_args()
    builds, rows = [os.path.abspath(args.before), os.path.abspath(args.after)], []
    for what, (before, after) in measured(args, builds):
        rows.append([what, f"{before:.4g}", f"{after:.4g}", f"{after / before:.3f}"])
        print(json.dumps(dict(zip(("what", "before", "after", "ratio"), rows[-1]))), flush=True)
    mean = math.exp(sum(math.log(float(row[3])) for row in rows) / len(rows))
    print(f"geometric mean of {len(rows)} ratios: {mean:.3f}")
    if args.write:
        lines = ["| what | before | after | ratio |", "|---|---|---|---|"] + [f"| {' | '.join(row)} |" for row in rows]
        write_table(args.write, args.table, "\n".join(lines))


if __name__ == "__main__":
    main()
