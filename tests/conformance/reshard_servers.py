#!/usr/bin/env python3
"""Stops a job of parameter servers, joins their snapshots, and goes on with another number of servers.

    reshard_servers.py --bin DIR --case GOLDEN [--servers 2 --then 3]

GOLDEN is a case of the ps_sync references. Half of its steps run with the first number of servers, which write
snapshots; `checkpoint convert --slices` joins them; the other half runs with the second number. What the servers hold in
the end must equal, bit by bit, what they hold after a run that never stopped. Exit status: 0 equal, 1 not, 77 no case.
"""
import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time

SECONDS = 90


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def watch(processes, logs):
    """Waits for the end of all; the first that fails is named at once, since the others would wait for it."""
    def words(role):
        logs[role].seek(0)
        return logs[role].read().decode(errors="replace")[-2000:].strip()

    end = time.monotonic() + SECONDS
    while any(process.poll() is None for process in processes.values()):
        for role, process in processes.items():
            if process.poll():
                raise RuntimeError(f"{role} ended with {process.returncode}: {words(role)}")
        if time.monotonic() > end:
            running = [role for role, process in processes.items() if process.poll() is None]
            raise RuntimeError(f"after {SECONDS} s there still run: " + "; ".join(f"{r}: {words(r)}" for r in running))
        time.sleep(0.02)
    for role, process in processes.items():
        if process.returncode != 0:
            raise RuntimeError(f"{role} ended with {process.returncode}: {words(role)}")


class Job:
    """A transpiled job in a folder."""

    def __init__(self, tools, case, folder, servers):
        with open(os.path.join(case, "config.json"), encoding="utf-8") as f:
            facts = json.load(f)
        self.tools, self.folder, self.loss, self.trainers = tools, folder, facts["loss"], facts["trainers"]
        self.endpoints = [f"127.0.0.1:{port}" for port in free_ports(servers)]
        config = {**facts["config"], **facts["call"], "pservers": ",".join(self.endpoints)}
        if "parameter_order" in facts:
            config["parameter_order"] = facts["parameter_order"]
        with open(folder + ".json", "w", encoding="utf-8") as f:
            json.dump(config, f)
        subprocess.run([os.path.join(tools, "transpile-program"), "--program", os.path.join(case, "main.pb"), "--startup",
                        os.path.join(case, "startup.pb"), "--config", folder + ".json", "--trainer-id", "all", "-o", folder,
                        "-q"], check=True)

    def role(self, kind, i):
        at = os.path.join(self.folder, f"{kind}_{i}")
        return ["--program", os.path.join(at, "__model__"), "--startup", os.path.join(at, "__startup__"),
                "--slices", os.path.join(self.folder, "slices.json")]

    def run(self, params, feeds, steps, save, *server_flags):
        tool = lambda name: os.path.join(self.tools, name)
        commands = [[tool("pserver"), *self.role("pserver", i), "--endpoint", endpoint, "--params", params, *server_flags]
                    for i, endpoint in enumerate(self.endpoints)]
        for t in range(self.trainers):
            commands.append([tool("run-program"), "--role", "trainer", "--trainer-id", str(t), *self.role("trainer", t),
                             "--params", params, "--feed-steps", feeds.format(t), "--steps", str(steps), "--fetch",
                             self.loss, "-o", f"{save}.out{t}.npz", "-q"] +
                            (["--save-persistables", save] if t == 0 else []))
        roles = [f"server {i}" for i in range(len(self.endpoints))] + [f"trainer {t}" for t in range(self.trainers)]
        logs = [tempfile.TemporaryFile() for _ in commands]
        started = [subprocess.Popen(c, stdout=subprocess.DEVNULL, stderr=log) for c, log in zip(commands, logs)]
        try:
            watch(dict(zip(roles, started)), dict(zip(roles, logs)))
        finally:
            for process, log in zip(started, logs):
                process.kill()
                process.wait()
                log.close()


def split_feeds(np, case, folder, trainers, steps):
    """Files <part>_<trainer>.npz for all steps and for each half."""
    feeds = np.load(os.path.join(case, "feeds.npz"))
    for t in range(trainers):
        for part, low, high in (("all", 0, steps), ("head", 0, steps // 2), ("tail", steps // 2, steps)):
            members = {f"step{k - low}/{m.split('/', 2)[2]}": feeds[m] for k in range(low, high) for m in feeds.files
                       if m.startswith(f"t{t}/step{k}/")}
            np.savez(os.path.join(folder, f"{part}_{t}.npz"), **members)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bin", default="build/dev/tools")
    parser.add_argument("--case", required=True)
    parser.add_argument("--servers", type=int, default=2)
    parser.add_argument("--then", type=int, default=3)
    args = parser.parse_args()
    if not os.path.exists(os.path.join(args.case, "config.json")):
        print("no such case")
        return 77
    import numpy as np
    with open(os.path.join(args.case, "config.json"), encoding="utf-8") as f:
        steps = json.load(f)["steps"]
    checkpoint = os.path.join(args.bin, "checkpoint")
    with tempfile.TemporaryDirectory() as folder:
        at = lambda name: os.path.join(folder, name)
        init = os.path.join(args.case, "init.npz")
        whole = Job(args.bin, args.case, at("whole"), args.servers)
        split_feeds(np, args.case, folder, whole.trainers, steps)
        whole.run(init, at("all_{}.npz"), steps, at("whole.npz"))
        first = Job(args.bin, args.case, at("first"), args.servers)
        first.run(init, at("head_{}.npz"), steps // 2, at("half.npz"), "--snapshot-dir", at("snap"), "--snapshot-every", "1",
                  "--snapshot-durable")
        subprocess.run([checkpoint, "convert", at("snap"), "--slices", at("first/slices.json"), "--to", "npz", "-o",
                        at("joined.npz"), "-q"], check=True)
        then = Job(args.bin, args.case, at("then"), args.then)
        then.run(at("joined.npz"), at("tail_{}.npz"), steps - steps // 2, at("after.npz"))
        done = subprocess.run([checkpoint, "diff", at("whole.npz"), at("after.npz")], capture_output=True, text=True)
        print(done.stdout + done.stderr, end="")
        print(f"{args.servers} -> {args.then} servers after step {steps // 2} of {steps}: "
              f"{'equal' if done.returncode == 0 else 'DIFFERENT'}")
        print("1 passed, 0 failed" if done.returncode == 0 else "0 passed, 1 failed")
        return 0 if done.returncode == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
