#!/usr/bin/env python3
"""Repeatedly kills or pauses a random process of the job of `make demo PROCESSES=1` at a random time.

    tests/faults/kill_job.py --bin-dir build/release [--rounds 50] [--steps 200] [--batch 512] [--seed N] [--json FILE]
    tests/faults/kill_job.py --bin-dir build/release --each 200 --state kills.json [--minutes 60]
    tests/faults/kill_job.py --bin-dir build/release --each 40 --state kills.json --roles server,trainer --silence 4
    tests/faults/kill_job.py --bin-dir build/release --each 200 --state kills.json --rows 1000 --steps 20 --batch 16 --jobs all

The job is started like the demo: `launch` with two servers and two trainers; --rows gives its table fewer rows. Each
round has one of --jobs, drawn at random: sync; sync-restart, with snapshots and `--max_restart 1`; durable, the same
with durable snapshots of every step; async; async-restart, with snapshots every 100 ms. A round passes if, within the
time limit, no process is left, every file of results that is there is whole, and
  - the job finished: losses, parameters and optimizer state have the bits of an undisturbed job; those of an
    asynchronous job have its dims, are finite, and not zero where its are not; or
  - without restarts, `launch` names the process that was killed and ends with 128 + 9; or
  - `launch` itself was killed.
With --each, that many rounds kill (SIGKILL) and that many pause (SIGSTOP) each of --roles. A pause lasts 0.1 s to
--longest-pause, or up to twice --silence where that is given: the time after which a server takes a silent trainer for
lost. It must not change the result. Only a trainer that was paused for more than half of that time may be lost: then
the servers name it, and the job ends with status 5 or is restarted. --state keeps the outcome of each round, so that
the command continues where it was ended, by --minutes or by Ctrl-C. Each round has a seed of its own. A round whose job
is over before the fault is repeated.
Exit status: 0 all rounds passed, 1 not. Needs numpy.
"""
import argparse
import collections
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
sys.path.insert(0, os.path.join(ROOT, "tests/support"))
from ports import free_ports  # noqa: E402

SERVERS, TRAINERS = 2, 2
FAULTS, ROLES = ("kill", "pause"), ("launch", "server", "trainer")
JOBS = ("sync", "sync-restart", "durable", "async", "async-restart")
ROWS = 1000000  # of the table in tests/data/ctr_dnn
LOSS = "mean_0.tmp_0"
TAIL = 600  # number of characters of a log in an error message


class Wrong(Exception):
    pass


def children_of(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
            return [int(word) for word in f.read().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def role_of(pid):
    """server.0, trainer.1, ... from the environment that launch sets; None if the process is gone or is launch's copy
    before exec."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as f:
            env = dict(entry.split(b"=", 1) for entry in f.read().split(b"\0") if b"=" in entry)
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    role = {b"TRAINER": "trainer", b"PSERVER": "server"}.get(env.get(b"TRAINING_ROLE"))
    return role and f"{role}.{env[b'PADDLE_RANK'].decode()}"


def may_restart(job):
    return job not in ("sync", "async")


def is_async(job):
    return job.startswith("async")


def is_there(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as f:
            return f.read().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def processes_of(folder):
    """Numbers of the processes that have the folder in their command line."""
    found, word = [], os.fsencode(folder + "/")
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        with contextlib.suppress(OSError), open(f"/proc/{entry}/cmdline", "rb") as f:
            if word in f.read() and is_there(int(entry)):
                found.append(int(entry))
    return found


class Runs:
    def __init__(self, args, work):
        self.args, self.work, self.random = args, work, random.Random(args.seed)
        self.count, self.references = 0, {}
        self.run([self.program("bench/make_clicks"), "--trainers", str(TRAINERS), "--steps", str(args.steps), "--batch", str(args.batch), "--vocab",
                  str(args.rows), "-o", f"{work}/clicks"])
        for name in ("main", "startup"):
            text = f"{work}/{name}.txt"
            self.run([self.program("tools/transpile-program"), "--program", os.path.join(ROOT, f"tests/data/ctr_dnn/{name}.pb"), "--passes", "",
                      "--format", "text", "-o", text, "-q"])
            with open(text, "r+", encoding="utf-8") as f:
                smaller = f.read().replace(str(ROWS), str(args.rows))
                f.seek(0)
                f.truncate()
                f.write(smaller)

    def program(self, name):
        return os.path.join(os.path.abspath(self.args.bin_dir), name)

    @staticmethod
    def run(command):
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        if done.returncode != 0:
            sys.exit(f"{command[0]}: exit status {done.returncode}: {done.stderr[-TAIL:]}")

    def start(self, job):
        """Creates a new folder with the job. \\returns folder, process of launch"""
        self.count += 1
        folder = f"{self.work}/{self.count}"
        os.makedirs(f"{folder}/snapshots")
        endpoints = ",".join(f"127.0.0.1:{port}" for port in free_ports(SERVERS))
        self.run([self.program("tools/transpile-program"), "--program", f"{self.work}/main.txt", "--startup", f"{self.work}/startup.txt",
                  "--pservers", endpoints, "--trainers", str(TRAINERS), "--trainer-id", "all", "--sync-mode", str(not is_async(job)).lower(), "-o",
                  f"{folder}/job", "-q"])
        command = [self.program("tools/launch"), "--servers", endpoints, "--trainer_num", str(TRAINERS), "--log_dir", f"{folder}/log",
                   "--max_restart", str(int(may_restart(job))), "--grace", str(self.args.grace), "--"]
        command = [*command, self.program("tools/run-program"), "--role", "auto", "--transpiled", f"{folder}/job", "--threads", "1", "--seed", "3", "--feed-steps", f"{self.work}/clicks/feeds_{{rank}}.npz", "--steps", str(self.args.steps),
                   "--fetch", LOSS, "--stats", f"{folder}/stats_{{rank}}.json", "--save-persistables", f"{folder}/after_{{rank}}.npz", "--force"]
        if self.args.silence:
            command += ["--silence-timeout-ms", str(int(1000 * self.args.silence))]
        if may_restart(job):
            when = {"durable": ["--snapshot-every", "1", "--snapshot-durable"], "async-restart": ["--snapshot-interval-ms", "100"]}
            command += ["--snapshot-dir", f"{folder}/snapshots", *when.get(job, ["--snapshot-every", str(max(2, self.args.steps // 10))])]
        env = {k: v for k, v in os.environ.items() if not k.startswith(("PADDLE_", "FLAGS_"))}
        env.update(CPU_NUM="1", OMP_NUM_THREADS="1")
        with open(f"{folder}/launch.log", "w", encoding="utf-8") as log:
            return folder, subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=env)

    @staticmethod
    def result(folder):
        """Losses of both trainers, and the final values of the servers."""
        values = {}
        for t in range(TRAINERS):
            with open(f"{folder}/stats_{t}.json", encoding="utf-8") as f:
                values[f"losses {t}"] = np.array(json.load(f)["losses"])
        with np.load(f"{folder}/after_0.npz") as stored:
            values.update({k: stored[k] for k in stored.files})
        return values

    def undisturbed(self):
        """One job of each mode, whose result is that of all others; the second one says how long they take."""
        for job in ("sync", "async"):
            began = time.monotonic()
            folder, launch = self.start(job)
            code = launch.wait(300)
            if code != 0:
                raise Wrong(f"{job} without a fault: exit status {code}: {self.tail(folder)}")
            self.seconds = time.monotonic() - began
            self.references[is_async(job)] = self.result(folder)
            shutil.rmtree(folder)

    def length(self):
        """Seconds of a pause; with --silence, half of them are too short for a loss."""
        silence = self.args.silence
        if not silence:
            return self.random.uniform(0.1, self.args.longest_pause)
        return self.random.uniform(*self.random.choice([(0.1, 0.5 * silence), (0.5 * silence, 2 * silence)]))

    @staticmethod
    def strike(victim, length):
        """Kills a process, or pauses it for that many seconds. One that has ended in the meantime is not hit."""
        with contextlib.suppress(ProcessLookupError):
            if not length:
                return os.kill(victim, signal.SIGKILL)
            os.kill(victim, signal.SIGSTOP)
            try:
                time.sleep(length)
            finally:
                os.kill(victim, signal.SIGCONT)

    @staticmethod
    def text(folder):
        with open(f"{folder}/launch.log", encoding="utf-8", errors="replace") as f:
            return f.read()

    def tail(self, folder):
        return self.text(folder)[-TAIL:]

    def all_logs(self, folder):
        texts = [self.text(folder)]
        for name in sorted(os.listdir(f"{folder}/log")):
            with open(f"{folder}/log/{name}", encoding="utf-8", errors="replace") as f:
                texts.append(f.read())
        return "\n".join(texts)

    def check_files(self, folder):
        """The files of results that a job has left, finished or not, are whole."""
        for name in os.listdir(folder):
            if name.startswith("stats_") and name.endswith(".json"):
                with open(f"{folder}/{name}", encoding="utf-8") as f:
                    json.load(f)
            elif name.startswith("after_") and name.endswith(".npz"):
                with np.load(f"{folder}/{name}") as stored:
                    if not all(stored[key].size for key in stored.files):
                        raise Wrong(f"{name} has an empty value")

    def check_result(self, folder, job):
        found, reference = self.result(folder), self.references[is_async(job)]
        if sorted(found) != sorted(reference):
            raise Wrong(f"other results: {sorted(set(found) ^ set(reference))}")
        for name, want in reference.items():
            have = found[name]
            # trainers that were restarted have losses only of the steps after that, none if all steps were done
            if name.startswith("losses") and may_restart(job) and len(have) < len(want):
                want = want[len(want) - len(have):]
            if is_async(job):
                if have.shape != want.shape or not np.isfinite(have).all() or have.any() != want.any():
                    raise Wrong(f"'{name}' of an asynchronous job: {have.shape} instead of {want.shape}, or not finite, or zero")
            elif not np.array_equal(have, want):
                raise Wrong(f"'{name}' differs from the job that nobody disturbed")

    def wait_for_moment(self, launch, started):
        """Sleeps until a random time of the job. A job that was over before says how long later ones take."""
        until = time.monotonic() + self.random.uniform(0, 1.1 * self.seconds)
        while time.monotonic() < until:
            if launch.poll() is not None:
                self.seconds = 0.7 * self.seconds + 0.3 * (time.monotonic() - started)
                return
            time.sleep(0.005)

    def victim_of(self, launch, children, role):
        """A process of the role, of any role if it is empty; None if there is none."""
        if role == "launch":
            return launch.pid
        meant = children if not role else [pid for pid in children if (role_of(pid) or "").startswith(role)]
        choice = meant if role else [launch.pid] + meant
        return self.random.choice(choice) if choice else None

    def round(self, fault="kill", role=""):
        """\\returns the outcome, and the seconds from the kill to the end."""
        job = self.random.choice(self.args.jobs)
        restarts, started = may_restart(job), time.monotonic()
        folder, launch = self.start(job)
        self.wait_for_moment(launch, started)
        children = children_of(launch.pid)
        victim = self.victim_of(launch, children, role)
        name = "launch" if victim == launch.pid else victim and role_of(victim)
        over = launch.poll() is not None or victim is None
        length = self.length() if fault == "pause" else 0.0
        began = time.monotonic()
        if not over:
            self.strike(victim, length)
        try:
            code = launch.wait(self.args.limit)
            ended = time.monotonic()
            while processes_of(folder):
                if time.monotonic() > began + self.args.limit:
                    raise Wrong(f"{name} {fault}: processes are left after {self.args.limit:.0f} s")
                time.sleep(0.02)
                ended = time.monotonic()
        except subprocess.TimeoutExpired as e:
            raise Wrong(f"{name} {fault}, {job}: launch still runs after {self.args.limit:.0f} s: {self.tail(folder)}") from e
        finally:
            for pid in processes_of(folder):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if launch.poll() is None:
                launch.kill()
                launch.wait()
        took, kind = ended - began, job
        self.check_files(folder)
        if code == 0:
            self.check_result(folder, job)
            struck = "over before" if over else f"{(name or 'child').split('.')[0]} {fault}{'d' if fault == 'pause' else 'ed'}"
            outcome = f"{struck}, {kind}: finished{'' if is_async(job) else ' exactly'}"
        elif fault == "pause":
            rank = (name or "").removeprefix("trainer.")
            may_be_lost = self.args.silence and rank != name and length > self.args.silence / 2
            is_named = f"trainer {rank} (" in self.all_logs(folder) and "is lost: no call for" in self.all_logs(folder)
            if restarts or code != 5 or not may_be_lost or not is_named:
                raise Wrong(f"{name} paused for {length:.2f} s, {kind}: exit status {code}: {self.tail(folder)}")
            outcome = f"trainer paused, {kind}: it was lost and named, status 5"
        elif name == "launch" and code == -signal.SIGKILL:
            outcome = f"launch killed, {kind}: everybody ended"
        elif restarts == 0 and code == 128 + signal.SIGKILL:
            role, rank = (name or "child.").split(".")
            if name and f"role {role} rank {rank} " not in self.text(folder):
                raise Wrong(f"{name} killed: launch does not name it: {self.tail(folder)}")
            outcome = f"{role} killed, {kind}: launch names it, status 137"
        else:
            raise Wrong(f"{name} killed, {kind}: exit status {code}: {self.tail(folder)}")
        shutil.rmtree(folder)
        return outcome, took


class Campaign:
    """Rounds of each fault and role, whose outcomes are kept in a file."""

    def __init__(self, runs, args):
        self.runs, self.args, self.rounds = runs, args, []
        self.setup = {"seed": args.seed, "steps": args.steps, "batch": args.batch, "rows": args.rows, "jobs": args.jobs}
        if args.silence:
            self.setup["silence"] = args.silence
        if os.path.exists(args.state):
            with open(args.state, encoding="utf-8") as f:
                stored = json.load(f)
            if stored["setup"] != self.setup:
                sys.exit(f"{args.state} has rounds of {stored['setup']}, not of {self.setup}")
            self.rounds = stored["rounds"]

    def count(self, fault, role):
        return sum(r["counts"] for r in self.rounds if (r["fault"], r["role"]) == (fault, role))

    def save(self):
        with open(self.args.state + ".new", "w", encoding="utf-8") as f:
            json.dump({"setup": self.setup, "rounds": self.rounds}, f, indent=0)
        os.replace(self.args.state + ".new", self.args.state)

    def run(self):
        until = time.monotonic() + 60 * self.args.minutes
        pairs = [(fault, role) for fault in FAULTS for role in self.args.roles]
        while time.monotonic() < until:
            fault, role = min(pairs, key=lambda pair: self.count(*pair))
            if self.count(fault, role) >= self.args.each:
                break
            number = len(self.rounds)
            self.runs.random = random.Random(f"{self.args.seed} {number}")
            try:
                outcome, took = self.runs.round(fault, role)
            except Wrong as e:
                outcome, took = f"WRONG: {e}", 0.0
            row = {"fault": fault, "role": role, "outcome": outcome, "seconds": round(took, 1), "counts": not outcome.startswith("over before")}
            self.rounds.append(row)
            self.save()
            print(f"{number}: {fault} {role}: {outcome}, {took:.1f} s", flush=True)

    def report(self):
        """Prints how many rounds had which outcome. \\returns the exit status"""
        outcomes = collections.Counter(r["outcome"] if not r["outcome"].startswith("WRONG") else "WRONG" for r in self.rounds)
        for outcome, count in sorted(outcomes.items()):
            print(f"{count:4d} {outcome}")
        for fault in FAULTS:
            print(f"{fault}: " + ", ".join(f"{self.count(fault, role)} of {self.args.each} {role}" for role in self.args.roles))
        wrong = outcomes["WRONG"]
        print(f"{len(self.rounds) - wrong} passed, {wrong} failed")
        return int(wrong > 0)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--bin-dir", required=True, help="build folder with tools/ and bench/")
    ap.add_argument("--rounds", type=int, default=50)
    ap.add_argument("--steps", type=int, default=200)
    ap.add_argument("--batch", type=int, default=512)
    ap.add_argument("--rows", type=int, default=ROWS, help="of the table")
    ap.add_argument("--jobs", default="sync,sync-restart", help=f"some of {', '.join(JOBS)}, or all")
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--limit", type=float, default=180, help="seconds from the kill to the end of the last process")
    ap.add_argument("--grace", type=float, default=10, help="of launch: trainers that wait for a killed server end only after it")
    ap.add_argument("--json", default="", help="write the figures there")
    ap.add_argument("--each", type=int, default=0, help="rounds of each fault and role, instead of --rounds")
    ap.add_argument("--state", default="", help="with --each: file that keeps the outcomes")
    ap.add_argument("--minutes", type=float, default=1e6, help="with --each: no further round after that time")
    ap.add_argument("--longest-pause", type=float, default=3.0)
    ap.add_argument("--silence", type=float, default=0, help="seconds after which a server takes a silent trainer for lost; 0: as by default")
    ap.add_argument("--roles", default=",".join(ROLES), help="with --each: which processes")
    args = ap.parse_args()
    args.roles = args.roles.split(",")
    if not set(args.roles) <= set(ROLES):
        ap.error(f"--roles: expected some of {', '.join(ROLES)}")
    args.jobs = list(JOBS) if args.jobs == "all" else args.jobs.split(",")
    if not set(args.jobs) <= set(JOBS):
        ap.error(f"--jobs: expected some of {', '.join(JOBS)}, or all")
    if args.each and not args.state:
        ap.error("--each: expected --state FILE")
    outcomes, wrong = collections.defaultdict(list), []
    with tempfile.TemporaryDirectory(prefix="millrace_kills") as work:
        runs = Runs(args, work)
        runs.undisturbed()
        print(f"undisturbed: {runs.seconds:.1f} s", flush=True)
        if args.each:
            campaign = Campaign(runs, args)
            with contextlib.suppress(KeyboardInterrupt):
                campaign.run()
            return campaign.report()
        for number in range(args.rounds):
            try:
                outcome, took = runs.round()
                outcomes[outcome].append(took)
                print(f"{number}: {outcome}, {took:.1f} s", flush=True)
            except Wrong as e:
                wrong.append(str(e))
                print(f"{number}: WRONG: {e}", flush=True)
    for outcome, times in sorted(outcomes.items()):
        print(f"{len(times):4d} {outcome}, at most {max(times):.1f} s after")
    if args.json:
        with open(args.json, "w", encoding="utf-8") as f:
            json.dump({"seed": args.seed, "steps": args.steps, "batch": args.batch, "undisturbed_s": round(runs.seconds, 1), "wrong": wrong,
                       "outcomes": {k: {"rounds": len(v), "longest_s": round(max(v), 1)} for k, v in outcomes.items()}}, f, indent=1)
    good = sum(len(times) for times in outcomes.values())
    print(f"{good} passed, {len(wrong)} failed")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
