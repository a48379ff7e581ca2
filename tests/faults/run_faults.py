#!/usr/bin/env python3
"""Faults of processes and networks in a training job, and their expected outcomes.

    run_faults.py --bin-dir build/dev/tools [--case ../shared/goldens/ps_sync/linear_exact_3s4t] [--transport grpc,tcp] [--only F1,F5]
                  [--rounds N] [--seed S] [--json FILE]

The job's gradients are whole numbers, so its result has the same bits in any order of sums. A job that survives a fault
must end with exactly the result of a run without faults; otherwise every process must end within the deadline, with an
error that names the lost process. `--rounds 1` (default) is the short form; nightly runs use `--rounds 50`, which also
draws the times of faults at random. Prints a line per fault. Exit status: 0 all as expected, 1 some not, 2 nothing
could be run.
"""
import argparse
import json
import os
import random
import signal
import sys
import time

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from job import Etcd, Job, free_ports, merged  # noqa: E402

STEPS = 30
# A trainer that is silent for this time is lost. Long enough for a loaded machine, short enough for a test.
SILENCE = ["--silence-timeout-ms", "4000"]
QUICK = ["--deadline-ms", "8000", "--reconnect-timeout-ms", "2500"]
LIMIT = 40  # seconds within which every process must end in any case


class Failure(Exception):
    pass


def require(holds, what):
    if not holds:
        raise Failure(what)


def tails(job):
    return " | ".join(f"{p.label}: {p.lines[-1][:160] if p.lines else ''}" for p in job.processes[1:])


def require_same(job, reference):
    servers, trainers = job.wait_all(LIMIT)
    require(trainers == [0] * len(trainers) and servers == [0] * len(servers),
            f"exit codes of servers {servers}, trainers {trainers}: {tails(job)}")
    after = job.load("after.npz")
    for name, want in reference.items():
        require(name in after and np.array_equal(after[name], want), f"'{name}' differs from the run without faults")


def require_ended(job, codes, who):
    """All remaining processes have ended without being killed, with exit code 5 or the given one."""
    require(None not in codes, f"{who} still run after {LIMIT} s: {tails(job)}")
    require(all(c == 5 for c in codes), f"{who} ended with {codes}, expected 5: {tails(job)}")


class Suite:
    def __init__(self, args, transport):
        self.args, self.random, self.reference, self.total = args, random.Random(args.seed), None, 0
        self.transport, self.outcomes = ["--transport", transport], {}

    def job(self, server_flags=(), trainer_flags=(), steps=STEPS, proxies=True):
        return Job(self.args.bin_dir, self.args.case, steps, [*SILENCE, *self.transport, *server_flags],
                   merged(SILENCE, QUICK, self.transport, trainer_flags)).prepare(proxies)

    def note(self, outcome, seconds):
        """Counts an outcome if several are right."""
        count, longest = self.outcomes.get(outcome, (0, 0.0))
        self.outcomes[outcome] = (count + 1, max(longest, seconds))

    def result(self, job):
        if self.reference is None:
            self.reference = job.reference()
        return self.reference

    def slow(self, job, seconds=0.005):
        """Makes a job that has not started take longer, so that faults can hit the middle of it."""
        if self.total == 0:  # measured now: the job must not run meanwhile
            with self.job() as whole:
                require_same(whole.start_all(), self.result(whole))
                self.total = whole.passed_bytes()
        for proxy in job.proxies:
            proxy.delay = seconds

    def moment(self, job):
        """Waits until a fraction of the bytes of a whole run has been forwarded; call slow() before."""
        job.wait_for_bytes(self.total * self.random.uniform(0.2, 0.7))

    def f0_nothing(self):
        """No fault: the processes end with the values of a single process."""
        with self.job() as job:
            require_same(job.start_all(), self.result(job))

    # --- F1, F2: a process dies -------------------------------------------------------------------------------------

    def f1_server_killed(self):
        """kill -9 of a server: every trainer ends with the endpoint's name, and the other servers end as well."""
        with self.job() as job:
            self.slow(job)
            job.start_all()
            self.moment(job)
            victim = self.random.randrange(len(job.servers))
            job.servers[victim].signal(signal.SIGKILL)
            servers, trainers = job.wait_all(LIMIT)
            require_ended(job, trainers, "trainers")
            require_ended(job, [c for i, c in enumerate(servers) if i != victim], "servers")
            endpoint = job.proxies[victim].endpoint
            require(any(endpoint in t.text for t in job.trainers), f"no trainer names {endpoint}: {tails(job)}")

    def f1_server_restarted(self):
        """kill -9 of a server that saves every step, and another one in its place: the same result as without
        faults."""
        self.restart(["--snapshot-every", "1", "--snapshot-durable"])

    def f1_gone_back(self):
        """The same with a snapshot every seven steps: trainers and the other servers go back to it, and the result is the same."""
        self.restart(["--snapshot-every", "7"])

    def restart(self, flags):
        with self.job(trainer_flags=["--deadline-ms", "30000", "--reconnect-timeout-ms", "20000"]) as job:
            want = self.result(job)
            self.slow(job)
            folders = [["--snapshot-dir", os.path.join(job.dir, f"snapshots{i}"), *flags] for i in range(len(job.servers))]
            for i, folder in enumerate(folders):
                os.makedirs(folder[1])
                job.start_server(i, wait=False, flags=folder)
            for t in range(len(job.trainers)):
                job.start_trainer(t)
            self.moment(job)
            victim = self.random.randrange(len(job.servers))
            job.servers[victim].signal(signal.SIGKILL)
            job.servers[victim].wait(time.monotonic() + LIMIT)
            time.sleep(self.random.uniform(0, 1))
            job.start_server(victim, flags=folders[victim])
            require_same(job, want)

    def f1_job_restarted(self):
        """kill -9 of any process of a job that saves every five steps; all are restarted, and continue from the
        snapshots to the same result."""
        with self.job() as job:
            want = self.result(job)
            self.slow(job)
            folders = [["--snapshot-dir", os.path.join(job.dir, f"snapshots{i}"), "--snapshot-every", "5"] for i in range(len(job.servers))]
            for i, folder in enumerate(folders):
                os.makedirs(folder[1])
                job.start_server(i, wait=False, flags=folder)
            for t in range(len(job.trainers)):
                job.start_trainer(t)
            self.moment(job)
            victim = self.random.choice(job.servers + job.trainers)
            victim.signal(signal.SIGKILL)
            servers, trainers = job.wait_all(LIMIT)
            require_ended(job, [c for p, c in zip(job.servers + job.trainers, servers + trainers) if p is not victim], "the others")
            for i, folder in enumerate(folders):
                job.start_server(i, wait=False, flags=folder)
            for t in range(len(job.trainers)):
                job.start_trainer(t)
            require_same(job, want)

    def f1_server_moved(self):
        """kill -9 of a server that is registered in etcd, and a new one with its snapshots at another port: the
        trainers find it."""
        flags = ["--snapshot-every", "1", "--snapshot-durable"]
        with Etcd() as etcd, self.job(trainer_flags=["--deadline-ms", "30000", "--reconnect-timeout-ms", "20000", "--etcd", etcd.endpoint]) as job:
            want = self.result(job)
            self.slow(job)
            folders = []
            for i, proxy in enumerate(job.proxies):
                folders.append(["--snapshot-dir", os.path.join(job.dir, f"snapshots{i}"), *flags, "--etcd", etcd.endpoint, "--etcd-lease-s", "2"])
                os.makedirs(folders[i][1])
                job.start_server(i, wait=False, flags=[*folders[i], "--advertise", proxy.endpoint])
            for t in range(len(job.trainers)):
                job.start_trainer(t)
            self.moment(job)
            victim = self.random.randrange(len(job.servers))
            job.servers[victim].signal(signal.SIGKILL)
            job.servers[victim].wait(time.monotonic() + LIMIT)
            job.proxies[victim].close()
            port = free_ports(1)[0]
            job.start_server(victim, flags=[*folders[victim], "--endpoint", f"127.0.0.1:{port}", "--reconnect-timeout-ms", "20000"])
            require_same(job, want)

    def f2_trainer_killed(self):
        """kill -9 of a trainer: the servers notice its silence and name it, and all processes end."""
        with self.job() as job:
            self.slow(job)
            job.start_all()
            self.moment(job)
            victim = self.random.randrange(len(job.trainers))
            job.trainers[victim].signal(signal.SIGKILL)
            servers, trainers = job.wait_all(LIMIT)
            require_ended(job, servers, "servers")
            require_ended(job, [c for t, c in enumerate(trainers) if t != victim], "trainers")
            require(any(f"trainer {victim}" in s.text for s in job.servers), f"no server names trainer {victim}: {tails(job)}")

    def f2_elastic(self):
        """The same with --elastic: the others finish without it."""
        with self.job(server_flags=["--elastic"], trainer_flags=["--deadline-ms", "20000"]) as job:
            self.slow(job)
            job.start_all()
            self.moment(job)
            job.trainers[1].signal(signal.SIGKILL)
            servers, trainers = job.wait_all(LIMIT)
            codes = servers + [c for t, c in enumerate(trainers) if t != 1]
            require(codes == [0] * len(codes), f"servers {servers}, trainers {trainers}: {tails(job)}")

    def f2_replaced(self):
        """The same, and another process replaces the one that was lost: all finish, and the servers agree on its first
        step."""
        with self.job(server_flags=["--elastic"], trainer_flags=["--deadline-ms", "20000"], steps=300) as job:
            self.slow(job, 0.002)
            job.start_all()
            self.moment(job)
            job.trainers[1].signal(signal.SIGKILL)
            job.start_trainer(1)
            servers, trainers = job.wait_all(LIMIT)
            require(servers + trainers == [0] * len(servers + trainers), f"servers {servers}, trainers {trainers}: {tails(job)}")
            require("trainer 1 begins at step" in job.trainers[1].text, f"the replacement began anew: {job.trainers[1].text[-300:]}")

    # --- F3: any process, at any time -------------------------------------------------------------------------------

    def f3_any_killed(self):
        """kill -9 of any process at any time, in a job with or without snapshots; with them a server is restarted. The
        job either
        finishes with the result of a run without faults, or all remaining processes end with status 5 within the time
        limit."""
        with self.job(trainer_flags=["--deadline-ms", "20000", "--reconnect-timeout-ms", "8000"]) as job:
            want = self.result(job)
            self.slow(job)
            saves = self.random.random() < 0.6
            folders = [["--snapshot-dir", os.path.join(job.dir, f"snapshots{i}"), "--snapshot-every", "4"] if saves else [] for i in range(len(job.servers))]
            for i, folder in enumerate(folders):
                if saves:
                    os.makedirs(folder[1])
                job.start_server(i, wait=False, flags=folder)
            for t in range(len(job.trainers)):
                job.start_trainer(t)
            processes = job.servers + job.trainers
            number = self.random.randrange(len(processes))
            victim, is_server = processes[number], number < len(job.servers)
            time.sleep(self.random.uniform(0, 3.5))
            killed = victim.p.poll() is None
            victim.signal(signal.SIGKILL)
            victim.wait(time.monotonic() + LIMIT)
            if killed and is_server and saves:
                time.sleep(self.random.uniform(0, 1))
                processes[number] = job.start_server(number, wait=False, flags=folders[number])
            began = time.monotonic()
            servers, trainers = job.wait_all(LIMIT)
            codes = [c for i, c in enumerate(servers + trainers) if not killed or i != number or (is_server and saves)]
            require(None not in codes, f"{codes.count(None)} processes still run after {LIMIT} s: {tails(job)}")
            require(all(c in (0, 5) for c in codes), f"servers {servers}, trainers {trainers}: {tails(job)}")
            what = "" if killed else "over before; "
            if trainers[0] == 0:
                after = job.load("after.npz")
                require(all(np.array_equal(after[name], value) for name, value in want.items()), f"{what}another result: {tails(job)}")
            self.note(f"{what}{'finished exactly' if 5 not in codes else 'ended with status 5'}: "
                      f"{'server' if is_server else 'trainer'} killed{', snapshots' if saves else ''}", time.monotonic() - began)

    # --- F3: at named points (see POINTS) -----------------------------------------------------------------------------

    def start_with_point(self, job, folders, victim, point):
        """Starts all processes, one of which kills itself at the point, and waits until it has."""
        for i, folder in enumerate(folders):
            job.start_server(i, flags=[*folder, *(["--kill-point", point] if victim == ("server", i) else [])])
        for t in range(len(job.trainers)):
            job.start_trainer(t, flags=["--kill-point", point] if victim == ("trainer", t) else [])
        process = (job.servers if victim[0] == "server" else job.trainers)[victim[1]]
        code = process.wait(time.monotonic() + LIMIT)
        require(code == -signal.SIGKILL, f"{process.label} was not killed at {point}, exit status {code}: {tails(job)}")

    def snapshots(self, job, *flags):
        folders = [["--snapshot-dir", os.path.join(job.dir, f"snapshots{i}"), *flags] for i in range(len(job.servers))]
        for folder in folders:
            os.makedirs(folder[1])
        return folders

    def at_server_point(self, point, most):
        """A server that saves every step is lost there, and another one takes its place: the same result as without
        faults."""
        with self.job(trainer_flags=["--deadline-ms", "30000", "--reconnect-timeout-ms", "20000"]) as job:
            want, victim = self.result(job), self.random.randrange(len(job.servers))
            folders = self.snapshots(job, "--snapshot-every", "1", "--snapshot-durable")
            self.start_with_point(job, folders, ("server", victim), f"{point}:{self.random.randint(2, most)}")
            job.start_server(victim, flags=folders[victim])
            require_same(job, want)

    def at_going_back(self, point, _):
        """A server restarts with an old snapshot, and another one is lost there while it goes back to that step: the
        same result."""
        with self.job(trainer_flags=["--deadline-ms", "40000", "--reconnect-timeout-ms", "30000"]) as job:
            want, folders = self.result(job), self.snapshots(job, "--snapshot-every", "7")
            job.start_server(0, flags=[*folders[0], "--kill-point", f"server/after-apply:{self.random.randint(9, 13)}"])
            job.start_server(1, flags=[*folders[1], "--kill-point", point])
            job.start_server(2, flags=folders[2])
            for t in range(len(job.trainers)):
                job.start_trainer(t)
            for victim in (0, 1):
                code = job.servers[victim].wait(time.monotonic() + LIMIT)
                require(code == -signal.SIGKILL, f"server {victim} was not killed, exit status {code}: {tails(job)}")
                job.start_server(victim, flags=folders[victim])
            require_same(job, want)

    def at_trainer_point(self, point, most, case=None):
        """A trainer is lost there: the others end with an error that names it, or, if it had completed its part, with
        the result."""
        suite_case, self.args.case = self.args.case, case or self.args.case
        try:
            job = self.job()
        finally:
            self.args.case = suite_case
        with job:
            want = job.reference() if case else self.result(job)
            victim = self.random.randrange(1, len(job.trainers))
            self.start_with_point(job, [[] for _ in job.servers], ("trainer", victim), f"{point}:{self.random.randint(1, most)}")
            servers, trainers = job.wait_all(LIMIT)
            others = servers + [c for t, c in enumerate(trainers) if t != victim]
            if point == "trainer/after-complete" and set(others) == {0}:
                after = job.load("after.npz")
                require(all(np.array_equal(after[name], value) for name, value in want.items()), "another result")
                return
            require_ended(job, servers, "servers")
            # a trainer that has sent and fetched everything no longer waits for anything
            require(set(others) <= ({0, 5} if point.endswith("complete") else {5}), f"the others ended with {others}: {tails(job)}")
            require(any(f"trainer {victim}" in s.text for s in job.servers), f"no server names trainer {victim}: {tails(job)}")

    def f3_at_reshard(self):
        """The snapshots of a completed job are resharded, with a kill at each point: either nothing appears or the old
        folder stays; then it succeeds."""
        with self.job() as job:
            want, root = self.result(job), os.path.join(job.dir, "snapshots")
            folders = [["--snapshot-dir", root, "--snapshot-every", "1", "--snapshot-durable"]] * len(job.servers)
            for i, folder in enumerate(folders):
                job.start_server(i, flags=folder)
            for t in range(len(job.trainers)):
                job.start_trainer(t)
            require_same(job, want)
            slices, out = f"{job.dir}/out/slices.json", os.path.join(job.dir, "cut")
            words = ["reshard", root, "--slices", slices, "--to-slices", slices, "-o", out, "--force"]
            for again in (False, True):
                for point in ("begin:2", "data-written:2", "before-rename:3", "after-rename:2", "before-publish"):
                    process = job.start("reshard", "checkpoint", words + ["--kill-point", "reshard/" + point])
                    code = process.wait(time.monotonic() + LIMIT)
                    require(code == -signal.SIGKILL, f"not killed at {point}, exit status {code}: {process.text[-300:]}")
                    require(os.path.exists(out) == again, f"killed at {point}: {os.listdir(job.dir)}")
                    if again:
                        job.run("checkpoint", ["diff", root, out, "--slices", slices])
                job.run("checkpoint", words)
                job.run("checkpoint", ["diff", root, out, "--slices", slices])

    # --- F4: slow is not dead ---------------------------------------------------------------------------------------

    def f4_stopped(self):
        """SIGSTOP of a trainer and of a server for a second, shorter than the time-out: the same result as without
        faults."""
        with self.job() as job:
            want = self.result(job)
            self.slow(job)
            job.start_all()
            self.moment(job)
            for victim in (self.random.choice(job.trainers), self.random.choice(job.servers)):
                victim.signal(signal.SIGSTOP)
                time.sleep(self.random.uniform(0.5, 1.5))
                victim.signal(signal.SIGCONT)
            require_same(job, want)

    def f4_stopped_for_long(self):
        """SIGSTOP of a trainer longer than the time-out: the job ends, and the trainer ends with an error after
        SIGCONT."""
        with self.job() as job:
            self.slow(job)
            job.start_all()
            self.moment(job)
            job.trainers[2].signal(signal.SIGSTOP)
            until = time.monotonic() + LIMIT
            others = [p.wait(until) for p in job.servers + [t for i, t in enumerate(job.trainers) if i != 2]]
            require_ended(job, others, "the others")
            job.trainers[2].signal(signal.SIGCONT)
            require_ended(job, [job.trainers[2].wait(time.monotonic() + LIMIT)], "the one that was stopped")

    def paused(self, choose, flags=()):
        """SIGSTOP of some processes at once, for longer than the time-out for silence, and SIGCONT."""
        with self.job(server_flags=flags, trainer_flags=["--deadline-ms", "30000", "--reconnect-timeout-ms", "20000"]) as job:
            want = self.result(job)
            self.slow(job)
            job.start_all()
            self.moment(job)
            victims = choose(job)
            for victim in victims:
                victim.signal(signal.SIGSTOP)
            time.sleep(6)
            for victim in victims:
                victim.signal(signal.SIGCONT)
            require_same(job, want)

    def f4_paused_server(self):
        """A server is stopped for longer than the time-out: it does not take its trainers for lost, and the result is
        the same."""
        self.paused(lambda job: [self.random.choice(job.servers)], ["--elastic"])

    def f4_paused_all(self):
        """The same for all processes at once, as where a machine is suspended."""
        self.paused(lambda job: job.servers + job.trainers, ["--elastic"])

    def etcd_away(self, away, deadline_ms="30000"):
        """Servers are found through etcd, with leases of two seconds; `away` is called with the etcd in the middle of the
        job; it says whether the job must survive."""
        with Etcd() as etcd, self.job(trainer_flags=["--deadline-ms", deadline_ms, "--etcd", etcd.endpoint]) as job:
            want = self.result(job)
            self.slow(job)
            for i, proxy in enumerate(job.proxies):
                job.start_server(i, wait=False, flags=["--etcd", etcd.endpoint, "--etcd-lease-s", "2", "--advertise", proxy.endpoint])
            for t in range(len(job.trainers)):
                job.start_trainer(t)
            self.moment(job)
            if away(etcd):
                return require_same(job, want)
            servers, trainers = job.wait_all(LIMIT)
            require_ended(job, servers + trainers, "all processes")
            return require(any("etcd" in p.text for p in job.processes), f"no process names etcd: {tails(job)}")

    def f4_etcd_stopped(self):
        """etcd is stopped for longer than the leases: calls of servers wait for it, and the result is the same."""
        def away(etcd):
            etcd.process.signal(signal.SIGSTOP)
            time.sleep(5)
            etcd.process.signal(signal.SIGCONT)
            return True
        self.etcd_away(away)

    def f4_etcd_restarted(self):
        """etcd is killed, and started again after more time than the leases: the result is the same."""
        def away(etcd):
            etcd.process.stop()
            time.sleep(5)
            etcd.start()
            return True
        self.etcd_away(away)

    def f4_etcd_gone(self):
        """etcd is killed for good: no server knows whether it still has its name, so all processes end."""
        def away(etcd):
            etcd.process.stop()
            return False
        self.etcd_away(away, "8000")

    # --- F5: the network --------------------------------------------------------------------------------------------

    def f5_delay(self):
        """20 ms of delay in each direction."""
        with self.job() as job:
            want = self.result(job)
            self.slow(job, 0.02)
            require_same(job.start_all(), want)

    def f5_rate(self):
        """Connections with low bandwidth."""
        with self.job() as job:
            want = self.result(job)
            for proxy in job.proxies:
                proxy.rate = 400_000
            require_same(job.start_all(), want)

    def cut(self, reset):
        with self.job(trainer_flags=["--deadline-ms", "30000"]) as job:
            want = self.result(job)
            for proxy in job.proxies:
                proxy.cut_after, proxy.reset, proxy.jitter_cut = 150_000, reset, random.Random(self.random.random())
            job.start_all()
            require_same(job, want)
            require(sum(p.cuts for p in job.proxies) > 0, "no connection was cut")

    def f5_cut(self):
        """Every connection is closed after about 150 kB, two steps, in the middle of a message: nothing is lost or
        applied twice."""
        self.cut(False)

    def f5_reset(self):
        """The same with RST."""
        self.cut(True)

    def f5_all_cut_at_once(self):
        """All connections of a server are closed at once, several times."""
        with self.job() as job:
            want = self.result(job)
            self.slow(job, 0.002)
            job.start_all()
            self.moment(job)
            for _ in range(4):
                self.random.choice(job.proxies).cut_all()
                time.sleep(0.1)
            require_same(job, want)

    def f5_half_open(self):
        """A server becomes silent while its connections stay open: the trainers end within their deadline and name
        it."""
        with self.job() as job:
            self.slow(job)
            job.start_all()
            self.moment(job)
            job.proxies[1].silence()
            _, trainers = job.wait_all(LIMIT)
            require_ended(job, trainers, "trainers")
            require(any(job.proxies[1].endpoint in t.text for t in job.trainers), f"no trainer names {job.proxies[1].endpoint}: {tails(job)}")

    def f5_silence_heals(self):
        """The same for only a second: the same result as without faults."""
        with self.job() as job:
            want = self.result(job)
            self.slow(job)
            job.start_all()
            self.moment(job)
            job.proxies[0].silence()
            time.sleep(1)
            job.proxies[0].heal()
            require_same(job, want)

    # --- F12: the wrong peer ----------------------------------------------------------------------------------------

    def f12_other_job(self):
        """Servers of another job refuse the trainers, which report it."""
        with self.job(server_flags=["--job", "clicks"], trainer_flags=["--job", "views"]) as job:
            for i in range(len(job.servers)):
                job.start_server(i)
            trainer = job.start_trainer(0)
            code = trainer.wait(time.monotonic() + LIMIT)
            require(code not in (None, 0), f"exit code {code}: {trainer.text[-300:]}")
            require("clicks" in trainer.text and "views" in trainer.text, f"the jobs are not named: {trainer.text[-300:]}")

    # --- F13: at the start ------------------------------------------------------------------------------------------

    def f13_trainers_first(self):
        """Trainers start a second before the servers: the order does not matter."""
        with self.job() as job:
            want = self.result(job)
            for t in range(len(job.trainers)):
                job.start_trainer(t)
            time.sleep(1)
            for i in range(len(job.servers)):
                job.start_server(i, wait=False)
            require_same(job, want)

    def f13_port_in_use(self):
        """A second server at the same port names the port, and exits with 5."""
        with self.job(proxies=False) as job:
            job.start_server(0)
            first, second = job.servers[0], job.start_server(0, wait=False)
            code = second.wait(time.monotonic() + LIMIT)
            require(code == 5 and f"port {job.ports[0]}" in second.text, f"exit code {code}: {second.text[-300:]}")
            require(first.p.poll() is None, "the first server has ended, too")

    def f13_no_server(self):
        """A server never starts: the trainer ends within its deadline and names it."""
        with self.job(proxies=False) as job:
            began = time.monotonic()
            trainer = job.start_trainer(1)
            code = trainer.wait(time.monotonic() + LIMIT)
            took = time.monotonic() - began
            require(code == 5 and took < 25, f"exit code {code} after {took:.1f} s: {trainer.text[-300:]}")
            require(any(f"127.0.0.1:{p}" in trainer.text for p in job.ports), f"no endpoint in: {trainer.text[-300:]}")

    def f13_no_such_host(self):
        """A host name that cannot be resolved."""
        with self.job(proxies=False) as job:
            server = job.start_server(0, wait=False, flags=["--endpoint", f"no.such.host.invalid:{free_ports(1)[0]}"])
            code = server.wait(time.monotonic() + LIMIT)
            require(code == 5 and "no.such.host.invalid" in server.text, f"exit code {code}: {server.text[-300:]}")


# Named points (pserver and run-program --kill-point), the code at that point, and how many times it is reached before
# the process is killed.
POINTS = {
    "server/before-call": (Suite.at_server_point, 150), "server/before-answer": (Suite.at_server_point, 150),
    "server/in-barrier": (Suite.at_server_point, 40), "server/before-apply": (Suite.at_server_point, 25),
    "server/after-apply": (Suite.at_server_point, 25), "snapshot/begin": (Suite.at_server_point, 20),
    "snapshot/data-written": (Suite.at_server_point, 20), "snapshot/before-rename": (Suite.at_server_point, 20),
    "snapshot/after-rename": (Suite.at_server_point, 20), "server/before-go-back": (Suite.at_going_back, 1),
    "server/after-go-back": (Suite.at_going_back, 1), "trainer/before-fetch": (Suite.at_trainer_point, 60),
    "trainer/after-fetch": (Suite.at_trainer_point, 60), "trainer/before-send": (Suite.at_trainer_point, 60),
    "trainer/after-send": (Suite.at_trainer_point, 60), "trainer/before-complete": (Suite.at_trainer_point, 1),
    "trainer/after-complete": (Suite.at_trainer_point, 3),
}


def add_points():
    for point, (check, most) in POINTS.items():
        setattr(Suite, "f3_at_" + point.replace("/", "_").replace("-", "_"), lambda self, check=check, point=point, most=most: check(self, point, most))
    setattr(Suite, "f3_at_trainer_before_lookup", lambda self: self.at_trainer_point(
        "trainer/before-lookup", 20, os.path.join(os.path.dirname(self.args.case), "emb_prefetch_adagrad_2s2t")))


def run_fault(suite, transport, name, rounds):
    """A row of the result: how often one fault had the expected outcome."""
    passed, errors, worst = 0, [], 0.0
    for _ in range(rounds):
        began = time.monotonic()
        try:
            getattr(suite, name)()
            passed += 1
        except (Failure, RuntimeError, OSError) as e:
            errors.append(str(e))
        worst = max(worst, time.monotonic() - began)
    print(f"{'ok  ' if passed == rounds else 'FAIL'}  {transport:4s} {name:28s} {passed:4d} of {rounds:<4d} longest {worst:5.1f} s", flush=True)
    for outcome, (count, longest) in sorted(suite.outcomes.items()):
        print(f"      {count:4d} {outcome}, at most {longest:.1f} s after", flush=True)
    suite.outcomes = {}
    for e in errors[:3]:
        print("      " + e[:1500], flush=True)
    return {"transport": transport, "fault": name, "rounds": rounds, "passed": passed, "longest_s": round(worst, 1), "errors": errors}


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    here = os.path.dirname(os.path.abspath(__file__))
    ap.add_argument("--bin-dir", required=True, help="folder with transpile-program, pserver and run-program")
    ap.add_argument("--case", default=os.path.join(here, "../../../shared/goldens/ps_sync/linear_exact_3s4t"))
    ap.add_argument("--transport", default="grpc,tcp", help="grpc, tcp, auto; several after each other, separated by commas")
    ap.add_argument("--only", default="", help="comma-separated starts of names, for example F1,F5_cut")
    ap.add_argument("--rounds", type=int, default=1)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--json", default="", help="write the results there")
    args = ap.parse_args()
    add_points()
    only = [x.lower() for x in args.only.split(",") if x]
    names = sorted((n for n in dir(Suite) if n[0] == "f" and n[1].isdigit()), key=lambda n: (int(n[1:].split("_")[0]), n))
    names = [n for n in names if not only or any(n.startswith(o) if "_" in o else n.split("_")[0] == o for o in only)]
    if not names or not os.path.isdir(args.case):
        print("no such fault or case", file=sys.stderr)
        return 2
    rows = []
    for transport in args.transport.split(","):
        suite = Suite(args, transport)
        for name in names:
            rows.append(run_fault(suite, transport, name, args.rounds))
    if args.json:
        with open(args.json, "w", encoding="utf-8") as f:
            json.dump({"seed": args.seed, "faults": rows}, f, indent=1)
    good = sum(r["passed"] for r in rows)
    bad = sum(r["rounds"] for r in rows) - good
    print(f"{good} passed, {bad} failed")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
