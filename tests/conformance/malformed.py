#!/usr/bin/env python3
"""Runs the malformed-input corpus.

    malformed.py --bin DIR [--corpus DIR] [--only WORD]

DIR of --bin has inspect-program, run-program and checkpoint. Each case of the corpus' index.json has files, an action
and a verdict. Models are run with their parameters and feeds; if the error is in the program or in a parameter file,
inspect-program must find it as well. Checkpoints are verified. Cases with another action are listed as not covered.
Checked for each judged case: the verdict, the words that the message must contain, 5 s, 1 GiB, no signal, no internal
error. Exit status: 0 all judged cases pass, 1 some fail, 77 no corpus.
"""
import argparse
import collections
import json
import os
import resource
import subprocess
import sys

SECONDS, RSS_MIB = 5, 1024
REFUSED = {3, 6, 7}  # bad input, above a limit, not supported


def commands_of(case, tools, corpus):
    """The commands that must each return the verdict; empty if there is no command for the action yet."""
    if case["action"] == "checkpoint_verify":
        return [[os.path.join(tools, "checkpoint"), "verify", os.path.join(corpus, case["files"]["checkpoint"])]]
    if "model" not in case["files"] or case["action"] not in ("infer", "train", "transpile"):
        return []
    path = {name: os.path.join(corpus, file) for name, file in case["files"].items()}
    inspect = os.path.join(tools, "inspect-program")
    commands = []
    if case["action"] == "infer":
        run_it = [os.path.join(tools, "run-program"), "--program", path["model"], "--params", path["params"]]
        for name, file in case["feeds"].items():
            run_it += ["--feed", f"{name}={os.path.join(corpus, file)}"]
        commands.append(run_it)
    if case["area"] == "params":
        commands.append([inspect, path["model"], "--params", path["params"]])
    elif case["area"] == "control" or not case["files"]["model"].startswith("base/"):
        commands.append([inspect, "--verify", path["model"]])
    return commands


def limits():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS + 1, SECONDS + 1))


def run(command):
    """(exit status or None on time-out, text, peak MiB so far of all children)."""
    try:
        done = subprocess.run(command, capture_output=True, timeout=SECONDS, preexec_fn=limits)
    except subprocess.TimeoutExpired:
        return None, "", 0
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024
    return done.returncode, (done.stdout + done.stderr).decode("utf-8", "replace"), peak


def fault(case, status, text, peak):
    """An error text for the outcome; None if it is right."""
    if status is None:
        return f"no answer in {SECONDS} s"
    if status < 0:
        return f"ended by signal {-status}"
    if peak > RSS_MIB:
        return f"took {peak} MiB"
    refused = REFUSED | ({1} if case["action"] == "checkpoint_verify" else set())  # 1: verification failed
    if status not in refused | {0}:
        return f"exit {status}"
    if case["verdict"] == "accept":
        return None if status == 0 else "refused: " + text.strip().split("\n")[0][:200]
    if case["verdict"] == "reject_or_accept" and status == 0:
        return None
    if status == 0:
        return "accepted"
    for words in case.get("error_must_mention", []):
        if not any(word.lower() in text.lower() for word in words):
            return f"message holds none of {words}: " + text.strip().split("\n")[0][:200]
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    here = os.path.dirname(os.path.abspath(__file__))
    parser.add_argument("--bin", default=os.environ.get("MILLRACE_BIN_DIR", "build/dev/tools"))
    parser.add_argument("--corpus", default=os.path.join(here, "..", "..", "..", "shared", "goldens", "malformed"))
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    index = os.path.join(args.corpus, "index.json")
    if not os.path.exists(index):
        print(f"no corpus at {args.corpus}")
        return 77
    for tool in ("inspect-program", "run-program", "checkpoint"):
        if not os.access(os.path.join(args.bin, tool), os.X_OK):
            print(f"no {tool} in {args.bin}")
            return 1
    with open(index, encoding="utf-8") as f:
        cases = [c for c in json.load(f)["cases"] if args.only in c["id"]]
    failed, passed, left = 0, 0, collections.defaultdict(list)
    for case in cases:
        commands = commands_of(case, args.bin, args.corpus)
        if not commands:
            left[f"{case['action']}, {case['area']}"].append(case["id"])
            continue
        wrong = next((w for w in (fault(case, *run(command)) for command in commands) if w), None)
        passed, failed = passed + (wrong is None), failed + (wrong is not None)
        print(f"{'ok  ' if wrong is None else 'FAIL'} {case['id']}: {case['what']}" + (f": {wrong}" if wrong else ""))
    for action, ids in sorted(left.items()):
        print(f"not covered ({action}): {', '.join(ids)}")
    print(f"{passed} passed, {failed} failed, {sum(map(len, left.values()))} not covered at this stage")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
