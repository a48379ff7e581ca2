#!/usr/bin/env python3
"""Training on N CPU devices of one thread each, compared with one device of one thread: the same program in one run.

    bench/data_parallel.py --bin-dir build/release --net ../shared/bench/programs/mlp [--devices 2] [--batch 64] [--steps 60]
        [--rounds 5] [--peer "PYTHON ../shared/bench/paddle_pe_bench.py"]

Every device gets `batch` rows. Goal G8 is a ratio of samples per second: 1.85 for resnet18_64, 1.7 for mlp. Rounds
alternate between one device, several devices, and the same number of independent processes with one device each, which
show the limit of the machine. The best round of each counts (minimum and median of its steps are both printed).
processor_ratio is the processor time of a step on several devices, divided by that of the same number of steps on one:
1 if nothing waits and nothing is done twice. With --peer the original's ParallelExecutor is timed in the same run on
its net of that name (mlp or lenet). Prints one JSON line each. With --check one short round. Needs numpy.
"""
import argparse
import json
import os
import shlex
import subprocess
import tempfile

import numpy as np

from run_step import batch


def command(args, net, devices, feeds):
    words = [os.path.join(args.bin_dir, "tools/run-program"), "--program", os.path.join(args.net, "main.pb"), "--startup",
             os.path.join(args.net, "startup.pb"), "--feed", feeds, "--fetch", net["loss"], "--devices", f"cpu:{devices}",
             "--threads", str(devices), "--benchmark", str(args.steps), "--warmup", "5", "-q"]
    return words + [word for flag in args.flag for word in shlex.split(flag)] if devices > 1 else words


def run_together(commands):
    """Starts all commands at once; returns the results of all."""
    running = [subprocess.Popen(c, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for c in commands]
    results = []
    for process in running:
        out, err = process.communicate(timeout=600)
        if process.returncode:
            raise SystemExit(f"{' '.join(process.args)} exited with {process.returncode}:\n{err}")
        results.append(json.loads(out))
    return results


def summary(rounds, key):
    return min(r["ms"][key] for r in rounds)


def run_peer(args, name):
    words = shlex.split(args.peer) + ["--net", name, "--batch", str(args.batch * args.devices), "--devices", f"1,{args.devices}",
                                      "--engines", "executor,pe_allreduce,pe_reduce", "--rounds", str(args.rounds)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=1800)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)} exited with {done.returncode}:\n{done.stderr[-2000:]}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def measure(args, net, work):
    feeds = []
    for rows in (args.batch, args.batch * args.devices):
        feeds.append(os.path.join(work, f"feeds{rows}.npz"))
        np.savez(feeds[-1], **batch(net, rows, False))
    one, several, apart = [], [], []
    for _ in range(args.rounds):
        one += run_together([command(args, net, 1, feeds[0])])
        several += run_together([command(args, net, args.devices, feeds[1])])
        # a job must wait for its slowest process
        apart.append(max(run_together([command(args, net, 1, feeds[0])] * args.devices), key=lambda r: r["ms"]["p50"]))
    return one, several, apart


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--bin-dir", required=True)
    ap.add_argument("--net", required=True)
    ap.add_argument("--devices", type=int, default=2)
    ap.add_argument("--batch", type=int, default=64)
    ap.add_argument("--steps", type=int, default=60)
    ap.add_argument("--rounds", type=int, default=5)
    ap.add_argument("--flag", action="append", default=[], help="additional argument of run-program for several devices")
    ap.add_argument("--peer")
    ap.add_argument("--check", action="store_true")
    args = ap.parse_args()
    if args.check:
        args.steps = args.rounds = 1
    with open(os.path.join(args.net, "net.json"), encoding="utf-8") as file:
        net = json.load(file)
    name = os.path.basename(os.path.normpath(args.net))
    with tempfile.TemporaryDirectory() as work:
        one, several, apart = measure(args, net, work)
    cpu = [min(r["cpu_ms"] for r in rounds) for rounds in (one, several)]
    line = {"name": name, "devices": args.devices, "batch_per_device": args.batch}
    for key, word in (("min", ""), ("p50", "_median")):
        times = [summary(rounds, key) for rounds in (one, several, apart)]
        line |= {f"ms_one{word}": round(times[0], 4), f"ms_several{word}": round(times[1], 4),
                 f"ms_apart{word}": round(times[2], 4), f"ratio{word}": round(args.devices * times[0] / times[1], 3),
                 f"ratio_apart{word}": round(args.devices * times[0] / times[2], 3)}
    line |= {"cpu_ms_one": cpu[0], "cpu_ms_several": cpu[1], "processor_ratio": round(cpu[1] / (args.devices * cpu[0]), 3),
             "load": round(os.getloadavg()[0], 2), "runs": args.rounds}
    print(json.dumps(line), flush=True)
    if not args.peer or name not in ("mlp", "lenet"):
        return
    peers = run_peer(args, name)
    for peer in peers:
        print(json.dumps(peer))
    times = {(p["engine"], p["devices"]): p["ms_min"] for p in peers if "ms_min" in p}
    alone = times.get(("ParallelExecutor AllReduce", 1))
    for (engine, devices), ms in times.items():
        if devices == args.devices and devices > 1 and alone:
            print(json.dumps({"name": f"peer {engine}", "devices": devices, "ratio_of_whole_batch": round(alone / ms, 3)}))


if __name__ == "__main__":
    main()
