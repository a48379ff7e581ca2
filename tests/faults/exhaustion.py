#!/usr/bin/env python3
"""Processes whose memory, descriptors or time runs out, and peers that try to exhaust a server.

    tests/faults/exhaustion.py --bin-dir build/dev/tools [--case ../shared/goldens/ps_sync/linear_exact_3s4t] [--only NAME,...]

    peers            hundreds of connections that say nothing, announce gigabytes, or send noise: the servers' memory stays
                     within the budget of unknown callers and 64 MiB, and the job ends with the same bits
    peers_grpc       the same with servers and trainers that use gRPC
    descriptors      the same for servers that may open few descriptors
    message_limit    --max-message-bytes refuses larger messages and is named
    grace            a server ends within --grace after SIGTERM, with status 143
    launch_killed    what the children of launch have started ends, too, when launch is killed by SIGKILL
    address_space    servers with little address space: the job passes, or ends with an error; no process ends by a signal

Exit status: 0 all passed, 1 not. Needs numpy.
"""
import argparse
import contextlib
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
import time

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from job import Job, Process  # noqa: E402

STEPS = 6
TRAINER_FLAGS = ["--deadline-ms", "120000"]
SERVER_FLAGS = ["--start-timeout-ms", "120000", "--silence-timeout-ms", "60000"]
MIB = 1 << 20
BUDGET = 16 * MIB + 64 * MIB  # of unknown callers (docs/reliability.md), and what else a job may take
USUAL = ("peers", "peers_grpc", "descriptors", "message_limit", "grace", "launch_killed")


def varint(number):
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def announcement(method, trainer, text_bytes):
    """The head of a call (proto/ps_service.proto), whose text never comes."""
    head = b"".join(bytes([field << 3]) + varint(value) for field, value in ((1, 1), (2, method), (4, trainer), (5, 77), (10, text_bytes)))
    return b"MLR1" + len(head).to_bytes(4, "little") + head


SEND, HELLO = 2, 1
HOSTILE = (b"", announcement(SEND, 0, 4_000_000_000), announcement(HELLO, 0, 4_000_000_000), announcement(HELLO, 1, 1_000_000),
           b"MLR1" + (1 << 20).to_bytes(4, "little"), os.urandom(4096), b"GET / HTTP/1.1\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")


class Peers(threading.Thread):
    """Keeps many connections to a port open, and opens those again that are closed. Use in a `with` statement."""

    def __init__(self, port, count):
        super().__init__(daemon=True)
        self.port, self.count, self.opened, self.ended = port, count, 0, threading.Event()

    def connect(self):
        one = socket.socket()
        one.setblocking(False)
        with contextlib.suppress(OSError):
            one.connect_ex(("127.0.0.1", self.port))
        self.opened += 1
        return one, HOSTILE[self.opened % len(HOSTILE)]

    def run(self):
        waiting = {}  # by descriptor: socket and bytes to be sent
        while not self.ended.is_set():
            while len(waiting) < self.count:
                one, text = self.connect()
                waiting[one.fileno()] = (one, text)
            poll = select.poll()
            for number, (_, text) in waiting.items():
                poll.register(number, select.POLLIN | (select.POLLOUT if text else 0))
            for number, _ in poll.poll(50):
                one, text = waiting[number]
                try:
                    if text:
                        one.send(text)
                        waiting[number] = (one, b"")
                        continue
                    if one.recv(65536):
                        continue
                except BlockingIOError:
                    continue
                except OSError:
                    pass
                one.close()
                del waiting[number]
            time.sleep(0.01)
        for one, _ in waiting.values():
            one.close()

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.join()


def require(holds, message):
    if not holds:
        raise RuntimeError(message)


def memory_of(process, name):
    """A number of /proc/PID/status, in bytes."""
    with open(f"/proc/{process.p.pid}/status", encoding="utf-8") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(name + ":"))


class Checks:
    def __init__(self, args):
        self.bin, self.case = args.bin_dir, args.case

    def job(self, flags=()):
        return Job(self.bin, self.case, STEPS, [*SERVER_FLAGS, *flags], [*TRAINER_FLAGS, *flags])

    def under_attack(self, count, flags=(), limits=()):
        """A job with that many hostile connections to each server."""
        with self.job(flags) as job, contextlib.ExitStack() as peers:
            job.prepare(with_proxies=False)
            want = job.reference()
            for i, _ in enumerate(job.servers):
                server = job.start_server(i)
                for what, limit in limits:
                    resource.prlimit(server.p.pid, what, (limit, limit))
            before = [memory_of(server, "VmRSS") for server in job.servers]
            attacks = [peers.enter_context(Peers(port, count)) for port in job.ports]
            time.sleep(2)
            for t, _ in enumerate(job.trainers):
                job.start_trainer(t)
            grown = [0] * len(job.servers)
            until = time.monotonic() + 120
            while time.monotonic() < until and any(trainer.p.poll() is None for trainer in job.trainers):
                for i, server in enumerate(job.servers):
                    with contextlib.suppress(OSError, StopIteration):  # it has ended
                        grown[i] = max(grown[i], memory_of(server, "VmHWM") - before[i])
                time.sleep(0.05)
            peers.close()
            codes = job.wait_all()
            said = "\n".join(process.text[-400:] for process in job.processes)
            require(set(codes[0]) == {0} and set(codes[1]) == {0}, f"servers and trainers end with {codes}: {said}")
            require(max(grown) < BUDGET, f"memory of the servers grew by {[g // MIB for g in grown]} MiB")
            require(all(attack.opened >= count for attack in attacks), "the peers did not connect")
            got = job.load("after.npz")
            require(set(got) == set(want), f"{sorted(got)} instead of {sorted(want)}")
            for name, value in want.items():
                require(np.array_equal(got[name], value), f"'{name}' differs")

    def peers(self):
        self.under_attack(150)

    def peers_grpc(self):
        self.under_attack(60, ["--transport", "grpc"])

    def descriptors(self):
        # the limit is set after the start, so the server counts on more than it gets
        self.under_attack(150, limits=[(resource.RLIMIT_NOFILE, 110)])

    def message_limit(self):
        with self.job() as job:
            job.prepare(with_proxies=False)
            for i, _ in enumerate(job.servers):
                job.start_server(i)
            trainer = job.start_trainer(0, ["--max-message-bytes", "1"])
            require(trainer.wait(time.monotonic() + 60) not in (0, None), f"the trainer was not refused: {trainer.text[-400:]}")
            require("the limit is --max-message-bytes" in trainer.text, f"the limit is not named: {trainer.text[-400:]}")

    def grace(self):
        for seconds in ("0", "30"):
            with self.job() as job:
                job.prepare(with_proxies=False)
                server = job.start_server(0, flags=["--grace", seconds])
                server.signal(signal.SIGTERM)
                code = server.wait(time.monotonic() + 25)
                require(code == 143, f"--grace {seconds}: status {code} after SIGTERM: {server.text[-400:]}")

    def launch_killed(self):
        with self.job() as job:
            told = os.path.join(job.dir, "pid")
            script = f"sleep 300 & echo $! > {told}.new; mv {told}.new {told}; wait"
            launch = Process("launch", [os.path.join(self.bin, "launch"), "--nproc_per_node", "1", "--log_dir", job.dir, "--grace", "1", "--",
                                        "sh", "-c", script], job.env)
            job.processes.append(launch)
            until = time.monotonic() + 60
            while not os.path.exists(told):
                require(time.monotonic() < until, f"the child did not start: {launch.text[-400:]}")
                time.sleep(0.02)
            with open(told, encoding="utf-8") as file:
                grandchild = int(file.read())
            launch.signal(signal.SIGKILL)
            while time.monotonic() < until:
                try:
                    with open(f"/proc/{grandchild}/stat", encoding="utf-8") as file:
                        if file.read().rsplit(")", 1)[1].split()[0] == "Z":
                            return
                except OSError:
                    return
                time.sleep(0.05)
            os.kill(grandchild, signal.SIGKILL)
            raise RuntimeError("a process that the child had started was left")

    def address_space(self):
        with self.job(["--transport", "tcp"]) as job:
            job.prepare(with_proxies=False)
            size = memory_of(job.start_server(0), "VmSize")
        for more in (1, 16, 64, 256):
            with self.job(["--transport", "tcp", "--deadline-ms", "5000"]) as job:
                job.prepare(with_proxies=False)
                for i, _ in enumerate(job.servers):
                    server = job.start_server(i, flags=["--silence-timeout-ms", "4000", "--start-timeout-ms", "4000"])
                    resource.prlimit(server.p.pid, resource.RLIMIT_AS, (size + more * MIB,) * 2)
                for t, _ in enumerate(job.trainers):
                    job.start_trainer(t)
                codes = [code for side in job.wait_all() for code in side]
                said = "\n".join(process.text[-400:] for process in job.processes)
                require(all(code in (0, 5, 6) for code in codes), f"{more} MiB: processes end with {codes}: {said}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin-dir", required=True)
    parser.add_argument("--case", default=os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                                       "../../../shared/goldens/ps_sync/linear_exact_3s4t"))
    parser.add_argument("--only", default=",".join(USUAL))
    args = parser.parse_args()
    failed = 0
    for name in args.only.split(","):
        begin = time.monotonic()
        try:
            getattr(Checks(args), name)()
            result = "ok"
        except (RuntimeError, OSError, subprocess.SubprocessError) as error:
            failed, result = failed + 1, f"FAILED: {error}"
        print(f"{name}: {result} ({time.monotonic() - begin:.1f} s)", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
