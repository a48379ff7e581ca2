#!/usr/bin/env python3
"""Repeatedly kills a training run with SIGKILL at random moments while it saves checkpoints.

    tests/faults/kill_saves.py --bin-dir build/dev/tools [--rounds 100] [--seed N] [--json FILE]

A run saves after every step and is restarted with --resume auto each time; after a completed run a new one starts.
After every kill all complete checkpoints of the folder must verify, and the newest must not be older than the one
before. In the end the run is not disturbed: its values must equal, bit by bit, those of a run that was never killed.
Then its checkpoint is resharded, with a kill at each point of that. Exit status: 0 all passed, 1 not.
"""
import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

EPOCHS, ROWS, BATCH = 40, 400, 10


def reshard_points(tool, at, wrong):
    """Kills `checkpoint reshard` at each of its points: it must leave no checkpoint or an intact one, and repeating it
    must complete it."""
    kills = 0
    for point in ("begin", "begin:2", "data-written", "before-rename", "after-rename"):
        words = [tool("checkpoint"), "reshard", at("ck"), "--ranks", "3", "--cut-whole", "-o", at("cut"), "--force"]
        killed = subprocess.run(words + ["--kill-point", "reshard/" + point], capture_output=True, text=True)
        if killed.returncode != -signal.SIGKILL:
            wrong.append(f"not killed at reshard/{point}: {killed.returncode} {killed.stderr.strip()}")
            continue
        kills += 1
        done = subprocess.run([tool("checkpoint"), "diff", at("ck"), at("cut")], capture_output=True, text=True)
        # after the rename there is a checkpoint; before it only if there was one, with the same contents
        expected = point in ("before-rename", "after-rename")
        if os.path.exists(at("cut/manifest.json")) != expected or (expected and done.returncode != 0):
            wrong.append(f"after a kill at reshard/{point}: {done.stdout.strip()} {done.stderr.strip()}")
        subprocess.run(words, check=True, capture_output=True)
        done = subprocess.run([tool("checkpoint"), "diff", at("ck"), at("cut")], capture_output=True, text=True)
        if done.returncode != 0:
            wrong.append(f"cut again after a kill at reshard/{point}: {done.stdout.strip()} {done.stderr.strip()}")
        if point != "data-written":
            shutil.rmtree(at("cut"))
    return kills


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin-dir", required=True)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", help="write the figures to this file")
    args = parser.parse_args()
    draw = random.Random(args.seed)
    tool = lambda name: os.path.join(args.bin_dir, name)
    at_root = lambda path: os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..", path)
    wrong, kills, incomplete, last, begin = [], 0, 0, -1, time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        at = lambda name: os.path.join(folder, name)
        with open(at("d.csv"), "w", encoding="ascii") as f:
            for i in range(ROWS):
                f.write(",".join(str((i * 31 + k * 17) % 23 * 0.05) for k in range(14)) + "\n")
        train = [tool("run-program"), "--program", at_root("tests/data/fit_a_line/main.pb"), "--startup",
                 at_root("tests/data/fit_a_line/startup.pb"), "--columns", "x=0:12,y=13", "--batch-size", str(BATCH), "--seed", "3",
                 "--data", at("d.csv"), "--epochs", str(EPOCHS), "-q"]
        saving = train + ["--save-every", "1", "--checkpoint-dir", at("ck"), "--keep-last", "3", "--resume", "auto"]
        subprocess.run(train + ["--save-persistables", at("whole.npz")], check=True)
        for _ in range(20 * args.rounds):
            if kills == args.rounds:
                break
            process = subprocess.Popen(saving, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            time.sleep(draw.uniform(0.02, 0.4))
            process.send_signal(signal.SIGKILL)
            process.wait()
            if process.returncode != -signal.SIGKILL:
                if process.returncode != 0:
                    wrong.append(process.stderr.read().decode().strip())
                shutil.rmtree(at("ck"))  # completed before: starts from the beginning
                last = -1
                continue
            kills += 1
            listed = subprocess.run([tool("checkpoint"), "list", at("ck"), "--json"], capture_output=True, text=True)
            rows = json.loads(listed.stdout)["checkpoints"] if listed.returncode == 0 else []
            complete = [row["step"] for row in rows if row["complete"]]
            incomplete += len(rows) - len(complete)
            if complete and max(complete) < last:
                wrong.append(f"step {last} was there, now the newest is {max(complete)}")
            last = max(complete, default=last)
            if complete:
                done = subprocess.run([tool("checkpoint"), "verify", at("ck"), "-q"], capture_output=True, text=True)
                if done.returncode != 0:
                    wrong.append(done.stderr.strip())
        subprocess.run(saving + ["--save-persistables", at("again.npz")], check=True)
        done = subprocess.run([tool("checkpoint"), "diff", at("whole.npz"), at("again.npz")], capture_output=True, text=True)
        if done.returncode != 0:
            wrong.append("the end differs: " + done.stdout.strip())
        points = reshard_points(tool, at, wrong)
    figures = {"rounds": args.rounds, "kills": kills, "incomplete_folders_seen": incomplete, "newest_step_at_last_kill": last,
               "killed_in_reshard": points,
               "wrong": len(wrong), "seconds": round(time.monotonic() - begin, 1)}
    print("\n".join(wrong[:10]))
    print(json.dumps(figures))
    if args.json:
        with open(args.json, "w", encoding="utf-8") as f:
            json.dump(figures, f)
    return int(bool(wrong) or kills < args.rounds or points == 0)


if __name__ == "__main__":
    sys.exit(main())
