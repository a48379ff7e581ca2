#!/usr/bin/env python3
"""A job whose processes are on separate emulated hosts: network namespaces, connected to a router, that are cut off for
a while or permanently.

    tests/faults/namespaces.py --bin-dir build/dev/tools [--shared ../shared] [--only NAME]

- Undisturbed, the job ends with the bits of a job in one process; also when one trainer, one server or half of all
  hosts are cut off for a while, shorter than the time-outs.
- A server that is cut off permanently: every trainer ends with status 5 within the deadline and names it; the server
  ends as well.
- A server refuses to listen beyond loopback without TLS or --insecure-listen.
Exit status: 0 all passed, 1 not, 77 if namespaces cannot be created. Needs numpy.
"""
import argparse
import os
import subprocess
import sys
import time

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from job import Job, Process  # noqa: E402

SKIPPED = 77
LIMIT = 60
FLAGS = ["--silence-timeout-ms", "8000"]
PATIENT = ["--deadline-ms", "30000", "--reconnect-timeout-ms", "15000"]
HASTY = ["--deadline-ms", "8000", "--reconnect-timeout-ms", "2500"]


def ip(*words):
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


class Hosts:
    """Namespaces by name, each with a cable to a router. Use in a `with` statement."""

    def __init__(self, names):
        self.space = {name: f"mr{os.getpid()}h{i}" for i, name in enumerate(names)}
        self.router = f"mr{os.getpid()}r"
        self.address = {name: f"10.212.{i}.2" for i, name in enumerate(names)}

    def __enter__(self):
        try:
            ip("netns", "add", self.router)
            ip("netns", "exec", self.router, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
            for i, (name, space) in enumerate(self.space.items()):
                ip("netns", "add", space)
                ip("link", "add", "eth0", "netns", space, "type", "veth", "peer", "name", f"d{i}", "netns", self.router)
                for where, device, address in ((space, "eth0", self.address[name]), (self.router, f"d{i}", f"10.212.{i}.1")):
                    ip("-n", where, "addr", "add", f"{address}/24", "dev", device)
                    ip("-n", where, "link", "set", device, "up")
                ip("-n", space, "link", "set", "lo", "up")
                ip("-n", space, "route", "add", "default", "via", f"10.212.{i}.1")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for space in [*self.space.values(), self.router]:
            subprocess.run(["ip", "netns", "del", space], check=False, capture_output=True)

    def cut(self, name, is_cut=True):
        """The cable at the router's side: the host does not notice."""
        ip("-n", self.router, "link", "set", f"d{list(self.space).index(name)}", "down" if is_cut else "up")


class SpreadJob(Job):
    """A job whose servers and trainers are on those hosts, named server0, trainer0 and so on."""

    def __init__(self, hosts, *args):
        super().__init__(*args)
        self.hosts = hosts

    def start(self, label, tool, args):
        host = label.replace(" ", "")
        if host not in self.hosts.space:
            return super().start(label, tool, args)
        process = Process(label, ["ip", "netns", "exec", self.hosts.space[host], os.path.join(self.bin, tool), *args], self.env)
        self.processes.append(process)
        return process

    def endpoint(self, i):
        return f"{self.hosts.address[f'server{i}']}:{self.ports[i]}"


def require(holds, what):
    if not holds:
        raise AssertionError(what)


def tails(job):
    return " | ".join(f"{p.label}: {p.lines[-1][:250] if p.lines else ''}" for p in job.processes[1:])


class Suite:
    def __init__(self, args, hosts):
        self.args, self.hosts, self.want = args, hosts, None

    def job(self, trainer_flags, steps=400):
        job = SpreadJob(self.hosts, self.args.bin_dir, f"{self.args.shared}/goldens/ps_sync/adam_noam_2s2t", steps, [*FLAGS, "--insecure-listen"],
                        [*FLAGS, "--insecure-listen", *trainer_flags])
        return job.prepare(with_proxies=False, endpoints=[job.endpoint(i) for i in range(len(job.servers))])

    def start(self, job):
        for i in range(len(job.servers)):
            job.start_server(i, wait=True, flags=["--endpoint", job.endpoint(i)])
        for t in range(len(job.trainers)):
            job.start_trainer(t)

    def finish(self, job):
        if self.want is None:
            self.want = job.reference()
        servers, trainers = job.wait_all(LIMIT)
        require(servers + trainers == [0] * len(servers + trainers), f"servers {servers}, trainers {trainers}: {tails(job)}")
        after = job.load("after.npz")
        require(all(np.array_equal(after[name], value) for name, value in self.want.items()), "another result")

    def cut_for_a_while(self, names, seconds):
        with self.job(PATIENT) as job:
            self.start(job)
            time.sleep(0.5)
            for name in names:
                self.hosts.cut(name)
            time.sleep(seconds)
            running = [p.label for p in job.servers + job.trainers if p.p.poll() is None]
            for name in names:
                self.hosts.cut(name, False)
            self.finish(job)
            require(len(running) == len(job.servers + job.trainers), f"the job was over before the cut: {running}")

    def undisturbed(self):
        with self.job(PATIENT) as job:
            self.start(job)
            self.finish(job)

    def one_trainer_is_cut_off(self):
        self.cut_for_a_while(["trainer1"], 2)

    def one_server_is_cut_off(self):
        self.cut_for_a_while(["server0"], 2)

    def half_is_cut_off(self):
        self.cut_for_a_while(["server1", "trainer0"], 1)

    def a_server_is_gone(self):
        with self.job(HASTY, 4000) as job:
            self.start(job)
            time.sleep(1)
            began = time.monotonic()
            self.hosts.cut("server1")
            try:
                servers, trainers = job.wait_all(LIMIT)
            finally:
                self.hosts.cut("server1", False)
            took = time.monotonic() - began
            require(trainers == [5, 5] and servers == [5, 5] and took < 45, f"servers {servers}, trainers {trainers} after {took:.0f} s: {tails(job)}")
            require(any(job.endpoint(1) in p.text for p in job.trainers), f"nobody names {job.endpoint(1)}: {tails(job)}")

    def listening_needs_leave(self):
        with self.job(HASTY, 3) as job:
            job.server_flags = [flag for flag in job.server_flags if flag != "--insecure-listen"]
            server = job.start_server(0, wait=False, flags=["--endpoint", job.endpoint(0)])
            code = server.wait(time.monotonic() + LIMIT)
            require(code not in (0, None) and "insecure-listen" in server.text, f"exit code {code}: {server.text[-300:]}")


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--bin-dir", required=True)
    ap.add_argument("--shared", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../shared"))
    ap.add_argument("--only", default="")
    args = ap.parse_args()
    good = bad = 0
    try:
        with Hosts(["server0", "server1", "trainer0", "trainer1"]) as hosts:
            suite = Suite(args, hosts)
            for name in ("undisturbed", "one_trainer_is_cut_off", "one_server_is_cut_off", "half_is_cut_off", "a_server_is_gone",
                         "listening_needs_leave"):
                if args.only not in ("", name):
                    continue
                began = time.monotonic()
                try:
                    getattr(suite, name)()
                    good, said = good + 1, "ok  "
                except (AssertionError, RuntimeError) as e:
                    bad, said = bad + 1, f"FAIL {e}"
                print(f"{name}: {said} {time.monotonic() - began:.1f} s", flush=True)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"skipped: no network namespaces here: {getattr(error, 'stderr', error)}")
        return SKIPPED
    print(f"{good} passed, {bad} failed")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
