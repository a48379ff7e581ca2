#!/usr/bin/env python3
"""Training through parameter servers in separate processes, compared with Paddle in the same run.

    bench/ps.py --bin-dir build/release [--mode async|geo|sync] [--servers 2] [--trainers 2] [--vocab 1000000] [--batch 512] [--hidden 400]
                [--steps 100] [--warmup 10] [--peer "PYTHON .../paddle_ps_bench.py"]

The net and the options are those of the peer's script: 26 slots are looked up in one sparse table of width 16, 13
numbers, three layers, SGD. A job of `warmup` and one of `warmup + steps` steps are run; the difference of their times
counts, so that start-up and first pulls are excluded. With --peer the script is run with the same options and the ratio
is printed. One line of JSON. With --check one short run of a small net. Needs numpy.
"""
import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tests/support"))
from ports import free_ports  # noqa: E402

SLOTS, NUMBERS = 26, 13


def run(command, **more):
    done = subprocess.run(command, capture_output=True, text=True, **more)
    if done.returncode:
        sys.exit(f"{command[0]}: exit status {done.returncode}: {(done.stderr or done.stdout).strip()[-800:]}")
    return done.stdout


def write_feeds(path, args, trainer, steps):
    """Sixteen batches that repeat, drawn as the peer draws them."""
    random = np.random.RandomState(100 + trainer)
    batches = [{"ids": random.randint(0, args.vocab, (args.batch, SLOTS)).astype("i8").reshape(args.batch, SLOTS, 1),
                "dense": random.rand(args.batch, NUMBERS).astype("f4"),
                "label": random.randint(0, 2, (args.batch, 1)).astype("i8")} for _ in range(16)]
    np.savez(path, **{f"step{s}/{name}": value for s in range(steps) for name, value in batches[s % 16].items()})


def settings(args, endpoints):
    """Fields of transpile-program for the mode."""
    sync = args.mode == "sync"
    fields = {"pservers": ",".join(endpoints), "trainers": args.trainers, "sync_mode": sync, "config_sync_mode": sync}
    if args.mode == "geo":
        fields.update(transpiler="geo", geo_sgd_mode=True, geo_sgd_need_push_nums=args.k_steps)
    elif args.mode == "async":
        fields.update(runtime_split_send_recv=True)
    return fields


def job(args, work, loss, steps):
    """Seconds and examples of all steps of the slowest trainer, and of all trainers."""
    tool = lambda name: os.path.join(args.bin_dir, "tools", name)  # noqa: E731
    folder = os.path.join(work, f"job{steps}")
    os.makedirs(folder)
    ports = free_ports(args.servers)
    with open(f"{folder}/config.json", "w", encoding="utf-8") as file:
        json.dump(settings(args, [f"127.0.0.1:{p}" for p in ports]), file)
    run([tool("transpile-program"), "--program", f"{work}/main.pb", "--startup", f"{work}/startup.pb", "--config", f"{folder}/config.json",
         "--trainer-id", "all", "-o", f"{folder}/out", "-q"])
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PADDLE_", "FLAGS_"))}
    env.update(CPU_NUM="1", OMP_NUM_THREADS="1")
    processes = []

    def start(name, tool_name, command):
        with open(f"{folder}/{name}.log", "w", encoding="utf-8") as log:
            processes.append((name, subprocess.Popen([tool(tool_name)] + command + shlex.split(args.flags), stdout=log, stderr=subprocess.STDOUT,
                                                     env=env)))

    try:
        for i in range(args.servers):
            start(f"server{i}", "pserver", ["--program", f"{folder}/out/pserver_{i}/__model__", "--startup", f"{folder}/out/pserver_{i}/__startup__",
                                            "--endpoint", f"127.0.0.1:{ports[i]}"])
        for t in range(args.trainers):
            write_feeds(f"{folder}/feeds{t}.npz", args, t, steps)
            start(f"trainer{t}", "run-program", [
                "--role", "trainer", "--trainer-id", str(t), "--program", f"{folder}/out/trainer_{t}/__model__", "--startup",
                f"{folder}/out/trainer_{t}/__startup__", "--feed-steps", f"{folder}/feeds{t}.npz", "--steps", str(steps), "--fetch", loss,
                "--output", f"{folder}/out{t}.npz", "--threads", "1", "--stats", f"{folder}/stats{t}.json"])
        until = time.monotonic() + args.timeout
        while any(process.poll() is None for _, process in processes):
            failed = [(name, process.returncode) for name, process in processes if process.poll()]
            if failed or time.monotonic() > until:
                name, code = failed[0] if failed else (next(n for n, p in processes if p.poll() is None), "time-out")
                with open(f"{folder}/{name}.log", encoding="utf-8", errors="replace") as log:
                    sys.exit(f"{name}: {code}: {log.read()[-800:]}")
            time.sleep(0.02)
    finally:
        for _, process in processes:
            if process.poll() is None:
                process.kill()
                process.wait()
    stats = []
    for t in range(args.trainers):
        with open(f"{folder}/stats{t}.json", encoding="utf-8") as file:
            stats.append(json.load(file))
    return stats


def local_step(args, work):
    """Milliseconds of a step of the untranspiled net, in one process with one thread, on the first batch of a job's
    feeds."""
    loss = run([os.path.join(args.bin_dir, "bench/make_ctr_net"), work, "--vocab", str(args.vocab), "--hidden", str(args.hidden)]).strip()
    write_feeds(f"{work}/local.npz", args, 0, 1)
    with np.load(f"{work}/local.npz") as batch:
        np.savez(f"{work}/local_batch.npz", **{name.split("/")[1]: batch[name] for name in batch.files})
    line = run([os.path.join(args.bin_dir, "tools/run-program"), "--program", f"{work}/main.pb", "--startup", f"{work}/startup.pb", "--feed",
                f"{work}/local_batch.npz", "--benchmark", str(args.steps), "--warmup", str(args.warmup), "--fetch", loss, "--threads", "1"],
               env=dict(os.environ, OMP_NUM_THREADS="1"))
    return json.loads(line)["ms"]["p50"]


def measure(args, work):
    net = run([os.path.join(args.bin_dir, "bench/make_ctr_net"), work, "--vocab", str(args.vocab), "--hidden", str(args.hidden)])
    loss = net.strip()
    short, long = job(args, work, loss, args.warmup), job(args, work, loss, args.warmup + args.steps)
    seconds = [b["seconds"]["all"] - a["seconds"]["all"] for a, b in zip(short, long)]
    row = {"ms_per_step": round(1e3 * max(seconds) / args.steps, 3)}
    if min(seconds) <= 0:  # too few steps to measure, as with --check
        return {**row, "examples_per_s_total": None}
    rate = sum(args.batch * args.steps / s for s in seconds)
    return {**row, "examples_per_s_total": round(rate, 1), "sparse_rows_pulled_per_s_total": round(rate * SLOTS, 1) if args.mode != "geo" else 0.0,
            "sparse_rows_pushed_per_s_total": round(rate * SLOTS, 1)}


def peer(args):
    command = shlex.split(args.peer) + ["--mode", args.mode, "--loop", "exe"]
    for name in ("servers", "trainers", "vocab", "batch", "steps", "warmup", "hidden"):
        command += [f"--{name}", str(getattr(args, name))]
    return json.loads(run(command + ["--k-steps", str(args.k_steps)], timeout=args.timeout + 60).strip().splitlines()[-1])


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--bin-dir", required=True)
    ap.add_argument("--mode", choices=["async", "geo", "sync"], default="async")
    ap.add_argument("--servers", type=int, default=2)
    ap.add_argument("--trainers", type=int, default=2)
    ap.add_argument("--vocab", type=int, default=1000000)
    ap.add_argument("--batch", type=int, default=512)
    ap.add_argument("--hidden", type=int, default=400)
    ap.add_argument("--steps", type=int, default=100)
    ap.add_argument("--warmup", type=int, default=10)
    ap.add_argument("--k-steps", type=int, default=10)
    ap.add_argument("--timeout", type=float, default=240)
    ap.add_argument("--flags", default="", help="more flags for servers and trainers")
    ap.add_argument("--peer", default="", help="command of the peer's script")
    ap.add_argument("--local", action="store_true", help="also time the net in one process, and print the ratio of a step of the job to it")
    ap.add_argument("--check", action="store_true")
    args = ap.parse_args()
    if args.check:
        args.vocab, args.batch, args.hidden, args.steps, args.warmup = 1000, 32, 8, 2, 1
    with tempfile.TemporaryDirectory(prefix="millrace_ps_bench") as work:
        ours = measure(args, work)
        if args.local:
            step = local_step(args, work)
            ours.update(local_ms_per_step=round(step, 3), of_local=round(ours["ms_per_step"] / step, 3))
    row = {"name": "ps_ctr", "mode": args.mode, "servers": args.servers, "trainers": args.trainers, "vocab": args.vocab, "batch": args.batch,
           "hidden": args.hidden, "steps": args.steps, "load_average": [round(x, 1) for x in os.getloadavg()], **ours}
    if args.peer:
        theirs = peer(args)
        row["peer_examples_per_s_total"] = theirs.get("examples_per_s_total")
        if row["peer_examples_per_s_total"] and ours["examples_per_s_total"]:
            row["ratio"] = round(ours["examples_per_s_total"] / row["peer_examples_per_s_total"], 2)
    print(json.dumps(row))


if __name__ == "__main__":
    main()
