#!/usr/bin/env python3
"""Runs all fuzz targets in turn, keeps what they find, and counts their executions. Can be ended and started again.

    cmake --preset fuzz && cmake --build --preset fuzz --target millrace_fuzz_targets
    tests/fuzz/campaign.py --bin-dir build/fuzz/fuzz --folder fuzzing [--executions 100000000] [--seconds 3600] [--only npz,text]

The folder has corpus/TARGET with the inputs that reach new code, found/TARGET with those that fail or hang, and
campaign.json with the executions, seconds and findings of each target. Each turn goes to the target with the fewest
executions, for --turn seconds, with the seeds of the repository and the corpus so far. Ends when all targets together
have --executions, after --seconds, or by Ctrl-C; what a turn has counted until then is kept.

Exit status: 0 no findings, 1 findings, 2 no targets.
"""
import argparse
import glob
import json
import os
import re
import subprocess
import sys
import time

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
EXECUTED = re.compile(r"^stat::number_of_executed_units:\s*(\d+)", re.M)
PROGRESS = re.compile(r"^#(\d+)\s", re.M)  # of a run that failed, which prints no statistics


class Campaign:
    def __init__(self, args, targets):
        self.args, self.targets, self.path = args, targets, os.path.join(args.folder, "campaign.json")
        self.rows = {}
        if os.path.exists(self.path):
            with open(self.path, encoding="utf-8") as file:
                self.rows = json.load(file)["targets"]
        for name in targets:
            self.rows.setdefault(name, {"executions": 0, "seconds": 0.0, "findings": []})

    def total(self):
        return sum(row["executions"] for row in self.rows.values())

    def save(self):
        with open(self.path + ".new", "w", encoding="utf-8") as file:
            json.dump({"executions": self.total(), "targets": self.rows}, file, indent=1)
        os.replace(self.path + ".new", self.path)

    def turn(self, name, seconds):
        program, seeds = self.targets[name]
        corpus, found = (os.path.join(self.args.folder, part, name) for part in ("corpus", "found"))
        for folder in (corpus, found):
            os.makedirs(folder, exist_ok=True)
        before, began = set(os.listdir(found)), time.monotonic()
        command = [program, f"-max_total_time={max(1, int(seconds))}", "-timeout=10", "-rss_limit_mb=2048", "-print_final_stats=1",
                   f"-artifact_prefix={found}/", corpus, seeds]
        log = os.path.join(self.args.folder, f"{name}.log")
        interrupted = False
        with open(log, "w", encoding="utf-8") as file:
            process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, cwd=ROOT)
            try:
                code = process.wait(seconds + 120)
            except (KeyboardInterrupt, subprocess.TimeoutExpired) as problem:
                interrupted = isinstance(problem, KeyboardInterrupt)
                process.kill()
                code = process.wait() if interrupted else "no end"
        with open(log, encoding="utf-8", errors="replace") as file:
            text = file.read()
        row, new = self.rows[name], sorted(set(os.listdir(found)) - before)
        counted = EXECUTED.findall(text) or PROGRESS.findall(text) or ["0"]
        row["executions"] += int(counted[-1])
        row["seconds"] = round(row["seconds"] + time.monotonic() - began, 1)
        if new or (code != 0 and not interrupted):
            row["findings"] += new or [f"exit status {code}, see {name}.log"]
            os.replace(log, os.path.join(self.args.folder, f"{name}.{len(row['findings'])}.log"))
        self.save()
        print(f"{name}: {int(counted[-1])} executions, {len(new)} findings; {self.total()} in all", flush=True)
        if interrupted:
            raise KeyboardInterrupt

    def run(self):
        until = time.monotonic() + self.args.seconds
        while self.total() < self.args.executions and time.monotonic() < until:
            name = min(self.targets, key=lambda each: (self.rows[each]["executions"], each))
            self.turn(name, min(self.args.turn, until - time.monotonic()))


def targets_of(bin_dir, only):
    """Program and folder of seeds of each target."""
    found = {}
    for path in sorted(glob.glob(os.path.join(bin_dir, "*_fuzz.corpus"))):
        program = os.path.abspath(path.removesuffix(".corpus"))
        name = os.path.basename(program).removesuffix("_fuzz")
        with open(path, encoding="utf-8") as file:
            seeds = os.path.join(ROOT, file.read().strip())
        if os.access(program, os.X_OK) and (not only or name in only):
            found[name] = (program, seeds)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin-dir", required=True)
    parser.add_argument("--folder", required=True, help="where corpus, findings and counts are kept")
    parser.add_argument("--executions", type=int, default=100_000_000)
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--turn", type=float, default=60)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    targets = targets_of(args.bin_dir, [name for name in args.only.split(",") if name])
    if not targets:
        print(f"no fuzz targets in {args.bin_dir}", file=sys.stderr)
        return 2
    args.folder = os.path.abspath(args.folder)
    os.makedirs(args.folder, exist_ok=True)
    campaign = Campaign(args, targets)
    try:
        campaign.run()
    except KeyboardInterrupt:
        print("interrupted; start it again to continue")
    findings = sum(len(row["findings"]) for row in campaign.rows.values())
    print(f"{campaign.total()} executions, {findings} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
