#!/usr/bin/env python3
"""Hybrid jobs beside jobs of servers alone and collective training of the same net, in one run.

    bench/hybrid.py --bin-dir build/release [--servers 2] [--trainers 2] [--vocab 100000] [--batch 512] [--hidden 400] [--steps 100]
                    [--warmup 10] [--rounds 3]

The net is that of make_ctr_net (8 dense parameters, one embedding), trained synchronously: with all parameters on
servers (`servers`), dense ones by all-reduce and rows on servers (`hybrid`), all gradients between ranks (`collective`).
Each job runs with `warmup` and with `warmup + steps` steps; the difference of their times counts, so that start-up and
first rows are excluded. Rounds alternate between the three; the best of each counts. `ratio` is the time of a hybrid
step by that of the slower of the others (goal 1.05). One line of JSON. With --check one short round of a small net.
Needs numpy.
"""
import argparse
import json
import os
import tempfile
import time

from ps import free_ports, run, write_feeds

KINDS = ("servers", "hybrid", "collective")


class Jobs:
    def __init__(self, args, work):
        self.args, self.work = args, work
        self.loss = run([self.path("bench/make_ctr_net"), work, "--vocab", str(args.vocab), "--hidden", str(args.hidden)]).strip()
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("PADDLE_", "FLAGS_"))}
        self.env.update(CPU_NUM="1", OMP_NUM_THREADS="1")

    def path(self, name):
        return os.path.join(self.args.bin_dir, name)

    def transpiled(self, kind, endpoints):
        with open(f"{self.work}/fleet.json", "w", encoding="utf-8") as file:
            json.dump({"mode": "sync", "pservers": endpoints, "trainers": self.args.trainers,
                       "dense_gradients": "all_reduce" if kind == "hybrid" else "servers"}, file)
        with open(f"{self.work}/minimize.json", "w", encoding="utf-8") as file:
            json.dump({"losses": [self.loss], "optimizer": [{"type": "sgd", "learning_rate": 1e-3}]}, file)
        run([self.path("tools/transpile-program"), "--program", f"{self.work}/forward.pb", "--startup", f"{self.work}/forward_startup.pb",
             "--minimize", f"{self.work}/minimize.json", "--fleet", f"{self.work}/fleet.json", "-o", f"{self.work}/{kind}", "--force", "-q"])
        return ["--role", "auto", "--transpiled", f"{self.work}/{kind}"]

    def seconds(self, kind, steps):
        """Of a whole job."""
        launch = [self.path("tools/launch"), "--log_dir", f"{self.work}/logs"]
        if kind == "collective":
            launch += ["--nproc_per_node", str(self.args.trainers)]
            program = ["--program", f"{self.work}/main.pb", "--startup", f"{self.work}/startup.pb", "--data-parallel"]
        else:
            endpoints = ",".join(f"127.0.0.1:{port}" for port in free_ports(self.args.servers))
            launch += ["--servers", endpoints, "--trainer_num", str(self.args.trainers)]
            program = self.transpiled(kind, endpoints)
        begin = time.monotonic()
        run(launch + ["--", self.path("tools/run-program")] + program +
            ["--feed-steps", f"{self.work}/feeds{{rank}}.{steps}.npz", "--steps", str(steps), "--fetch", self.loss, "--output",
             f"{self.work}/out{{rank}}.npz", "--threads", "1", "--force", "-q"], env=self.env, timeout=self.args.timeout)
        return time.monotonic() - begin

    def step_ms(self, kind):
        short, long = self.args.warmup, self.args.warmup + self.args.steps
        return 1e3 * (self.seconds(kind, long) - self.seconds(kind, short)) / self.args.steps


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--bin-dir", required=True)
    for name, value in (("servers", 2), ("trainers", 2), ("vocab", 100000), ("batch", 512), ("hidden", 400), ("steps", 100), ("warmup", 10),
                        ("rounds", 3), ("timeout", 240)):
        ap.add_argument(f"--{name}", type=int, default=value)
    ap.add_argument("--check", action="store_true")
    args = ap.parse_args()
    if args.check:
        args.vocab, args.batch, args.hidden, args.steps, args.warmup, args.rounds = 1000, 32, 8, 2, 1, 1
    with tempfile.TemporaryDirectory(prefix="millrace_hybrid_bench") as work:
        jobs = Jobs(args, work)
        for steps in (args.warmup, args.warmup + args.steps):
            for trainer in range(args.trainers):
                write_feeds(f"{work}/feeds{trainer}.{steps}.npz", args, trainer, steps)
        times = {kind: [] for kind in KINDS}
        for _ in range(args.rounds):
            for kind in KINDS:
                times[kind].append(jobs.step_ms(kind))
    best = {kind: round(min(all_), 3) for kind, all_ in times.items()}
    row = {"name": "hybrid_ctr", **{name: getattr(args, name) for name in ("servers", "trainers", "vocab", "batch", "hidden", "steps", "rounds")},
           "load_average": [round(x, 1) for x in os.getloadavg()], "ms_per_step": best}
    if not args.check:  # a few steps are too short to measure
        row["ratio"] = round(best["hybrid"] / max(best["servers"], best["collective"]), 3)
    print(json.dumps(row))


if __name__ == "__main__":
    main()
