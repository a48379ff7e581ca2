#!/usr/bin/env python3
"""Cold start: time and memory from process start until the first result, with program and parameters from files. Peers in the same run.

    startup.py --bin-dir build/release [--net resnet50_64] [--shared ../shared] [--reps 5] [--threads 1]
               [--ort PYTHON] [--paddle PYTHON] [--write docs/performance.md]

--ort and --paddle: interpreters that have ONNX Runtime (with torch and onnx, to export the net) and Paddle; the script
of ../shared/bench times them. Each repetition is a new process with a warm page cache, after one unmeasured repetition.
Prints one JSON line per program; --write puts the table between the markers of the document. Exit status: 0, or 1 if a
limit of performance_goals.md (G6) is missed: 0.25 of ONNX Runtime's time, 0.12 of Paddle's, parameters x 1.2 + 60 MB
resident, 20 ms for --version.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from run_step import batch

import numpy as np

from page import write_table

SHARE = {"ort": 0.25, "paddle_predictor": 0.12}


def run(command):
    """Seconds and peak resident MB of one process."""
    begin = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{command[0]}: exit {process.returncode}")
    return seconds, usage.ru_maxrss / 1000


def repeat(command, reps):
    run(command)
    rows = [run(command) for _ in range(reps)]
    return statistics.median(s for s, _ in rows), statistics.median(m for _, m in rows)


def ours(args, folder, work):
    tool = os.path.join(args.bin_dir, "tools/run-program")
    with open(os.path.join(folder, "net.json"), encoding="utf-8") as file:
        net = json.load(file)
    feeds = os.path.join(work, "feeds.npz")
    np.savez(feeds, **batch(net, 1, True))
    shutil.copy(os.path.join(folder, "infer.pb"), os.path.join(work, "__model__"))
    subprocess.run([tool, "--program", os.path.join(folder, "infer.pb"), "--startup", os.path.join(folder, "startup.pb"),
                    "--feed", feeds, "--save-params", os.path.join(work, "params"), "-q"], check=True, stdout=subprocess.DEVNULL)
    seconds, peak = repeat([tool, "--model-dir", work, "--params-filename", "params", "--feed", feeds, "--threads",
                            str(args.threads), "--output", os.path.join(work, "out.npz"), "--force", "-q"], args.reps)
    version, _ = repeat([tool, "--version"], args.reps)
    size = os.path.getsize(os.path.join(work, "params")) / 1e6
    return {"peer": "millrace", "net": args.net, "seconds": round(seconds, 3), "peak_mb": round(peak), "parameters_mb": round(size),
            "version_ms": round(version * 1000, 1)}


def peer(args, name, python):
    script = os.path.join(args.shared, "bench/peer_startup.py")
    done = subprocess.run([python, script, "--peer", name, "--net", args.net, "--reps", str(args.reps), "--threads",
                           str(args.threads)], capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        sys.exit(f"{name}: {done.stderr.strip()[-500:]}")
    row = json.loads(lines[-1])
    return {"peer": name, "net": args.net, "seconds": row["first_run"], "peak_mb": round(row["peak_mb"])}


def table(rows):
    lines = ["| program | first result s | ratio | limit | peak MB | limit |", "|---|---|---|---|---|---|"]
    mine = rows[0]
    for row in rows:
        ratio = "" if row is mine else f"{mine['seconds'] / row['seconds']:.2f}"
        limit = "" if row is mine else SHARE[row["peer"]]
        most = f"{mine['parameters_mb'] * 1.2 + 60:.0f}" if row is mine else ""
        lines.append(f"| {row['peer']} | {row['seconds']:.3f} | {ratio} | {limit} | {row['peak_mb']} | {most} |")
    return "\n".join(lines)


def missed(rows):
    mine = rows[0]
    found = [f"{row['peer']}: {mine['seconds'] / row['seconds']:.2f} of its time, limit {SHARE[row['peer']]}"
             for row in rows[1:] if mine["seconds"] > SHARE[row["peer"]] * row["seconds"]]
    if mine["peak_mb"] > mine["parameters_mb"] * 1.2 + 60:
        found.append(f"{mine['peak_mb']} MB resident")
    if mine["version_ms"] > 20:
        found.append(f"--version takes {mine['version_ms']} ms")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin-dir", default="build/release")
    parser.add_argument("--net", default="resnet50_64")
    parser.add_argument("--shared", default="../shared")
    parser.add_argument("--reps", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--ort")
    parser.add_argument("--paddle")
    parser.add_argument("--write")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        rows = [ours(args, os.path.join(args.shared, "bench/programs", args.net), work)]
    for name, python in (("ort", args.ort), ("paddle_predictor", args.paddle)):
        if python:
            rows.append(peer(args, name, python))
    for row in rows:
        print(json.dumps(row))
    text = table(rows)
    if args.write:
        write_table(args.write, "startup", text)
    else:
        print(text)
    failures = missed(rows)
    for line in failures:
        print(f"missed: {line}", file=sys.stderr)
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
