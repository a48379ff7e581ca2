#!/usr/bin/env python3
"""Stops a job of parameter servers, reshards their snapshots, and continues with another number of servers and
trainers.

    reshard_servers.py --bin DIR --case GOLDEN [--servers 2 --then 3] [--trainers 2 --then-trainers 1 --batches same]

GOLDEN is a case of the ps_sync references. Half of its steps run with the first number of servers, which write
snapshots; `checkpoint reshard --slices --to-slices` makes snapshots for the second number, with which the other half
starts (--by convert: `checkpoint convert` joins them into parameters instead). The final values on the servers must
equal, bit by bit, those of a run that never stopped.

With another number of trainers the whole batch of a step stays the same. With --batches same, all trainers of the first
half have one batch, which is also the batch of the trainers of the second half. With --batches joined, the one trainer
of the second half gets the rows of all trainers of the first. The mean of n equal gradients is exactly that gradient.
For joined rows the case must have sums that are exact in any order, and its loss must be a sum over rows; --divide
FEED,... scales its gradient to the mean over the trainers. Exit status: 0 equal, 1 not, 77 no case.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from ports import free_ports  # noqa: E402

SECONDS = 90


def watch(processes, logs):
    """Waits until all have ended; the first that fails is reported at once, since the others would wait for it."""
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

    def __init__(self, tools, case, folder, servers, trainers):
        with open(os.path.join(case, "config.json"), encoding="utf-8") as f:
            facts = json.load(f)
        self.tools, self.folder, self.loss, self.trainers = tools, folder, facts["loss"], trainers
        self.endpoints = [f"127.0.0.1:{port}" for port in free_ports(servers)]
        config = {**facts["config"], **facts["call"], "pservers": ",".join(self.endpoints), "trainers": trainers}
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

    def run(self, params, feeds, steps, save, *server_flags, servers_too=True):
        """Trains; params are for the trainers, and for the servers unless they have snapshots."""
        tool = lambda name: os.path.join(self.tools, name)
        params = ["--params", params]
        commands = [[tool("pserver"), *self.role("pserver", i), "--endpoint", endpoint, *(params if servers_too else []),
                     *server_flags]
                    for i, endpoint in enumerate(self.endpoints)]
        for t in range(self.trainers):
            commands.append([tool("run-program"), "--role", "trainer", "--trainer-id", str(t), *self.role("trainer", t),
                             *params, "--feed-steps", feeds.format(t), "--steps", str(steps), "--fetch",
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


def joined(np, parts, divided):
    """The rows of one feed of all trainers, concatenated."""
    return np.concatenate(parts) / np.asarray(len(parts), parts[0].dtype) if divided else np.concatenate(parts)


def write_feeds(np, args, folder, trainers, then_trainers, steps):
    """Files <part>_<trainer>.npz: all and head for the trainers of the first half, tail for those of the second."""
    feeds = np.load(os.path.join(args.case, "feeds.npz"))
    names = sorted({m.split("/", 2)[2] for m in feeds.files})
    divided = args.divide.split(",") if args.divide else []
    half = steps // 2

    def batch(trainer, step):
        return {n: feeds[f"t{trainer}/step{step}/{n}"] for n in names}

    def batch_then(trainer, step):
        if then_trainers == trainers or args.batches == "same":
            return batch(0 if args.batches == "same" else trainer, step)
        all_of_them = [batch(t, step) for t in range(trainers)]
        return {n: joined(np, [b[n] for b in all_of_them], n in divided) for n in names}

    first = lambda trainer, step: batch(0 if args.batches == "same" else trainer, step)
    for part, count, low, high, of in (("all", trainers, 0, steps, first), ("head", trainers, 0, half, first),
                                       ("tail", then_trainers, half, steps, batch_then)):
        for t in range(count):
            members = {f"step{k - low}/{n}": v for k in range(low, high) for n, v in of(t, k).items()}
            np.savez(os.path.join(folder, f"{part}_{t}.npz"), **members)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default="build/dev/tools")
    parser.add_argument("--case", required=True)
    parser.add_argument("--servers", type=int, default=2)
    parser.add_argument("--then", type=int, default=3)
    parser.add_argument("--trainers", type=int, default=0, help="default: as many as the case has")
    parser.add_argument("--then-trainers", type=int, default=0, help="default: as many as before")
    parser.add_argument("--batches", choices=("own", "same", "joined"), default="own")
    parser.add_argument("--divide", default="", help="feeds whose joined rows are divided by the trainers of the first half")
    parser.add_argument("--by", choices=("reshard", "convert"), default="reshard")
    args = parser.parse_args()
    if not os.path.exists(os.path.join(args.case, "config.json")):
        print("no such case")
        return 77
    import numpy as np
    with open(os.path.join(args.case, "config.json"), encoding="utf-8") as f:
        facts = json.load(f)
    steps, trainers = facts["steps"], args.trainers or facts["trainers"]
    then_trainers = args.then_trainers or trainers
    if then_trainers != trainers and (args.batches == "own" or args.batches == "joined" and then_trainers != 1):
        parser.error("another number of trainers: --batches same, or joined for one trainer")
    checkpoint = os.path.join(args.bin, "checkpoint")
    with tempfile.TemporaryDirectory() as folder:
        at = lambda name: os.path.join(folder, name)
        init = os.path.join(args.case, "init.npz")
        write_feeds(np, args, folder, trainers, then_trainers, steps)
        whole = Job(args.bin, args.case, at("whole"), args.servers, trainers)
        whole.run(init, at("all_{}.npz"), steps, at("whole.npz"))
        first = Job(args.bin, args.case, at("first"), args.servers, trainers)
        first.run(init, at("head_{}.npz"), steps // 2, at("half.npz"), "--snapshot-dir", at("snap"), "--snapshot-every", "1",
                  "--snapshot-durable")
        then = Job(args.bin, args.case, at("then"), args.then, then_trainers)
        old, new = at("first/slices.json"), at("then/slices.json")
        if args.by == "convert":
            subprocess.run([checkpoint, "convert", at("snap"), "--slices", old, "--to", "npz", "-o", at("joined.npz"), "-q"],
                           check=True)
            then.run(at("joined.npz"), at("tail_{}.npz"), steps - steps // 2, at("after.npz"))
        else:
            subprocess.run([checkpoint, "reshard", at("snap"), "--slices", old, "--to-slices", new, "-o", at("anew"), "-q"],
                           check=True)
            # Values that only a trainer holds, such as batch statistics and local tables, are not on servers.
            subprocess.run([checkpoint, "convert", at("anew"), "--slices", new, "--to", "npz", "-o", at("joined.npz"), "-q"],
                           check=True)
            then.run(at("joined.npz"), at("tail_{}.npz"), steps - steps // 2, at("after.npz"), "--snapshot-dir", at("anew"),
                     servers_too=False)
        done = subprocess.run([checkpoint, "diff", at("whole.npz"), at("after.npz")], capture_output=True, text=True)
        print(done.stdout + done.stderr, end="")
        print(f"{args.servers} servers x {trainers} trainers -> {args.then} x {then_trainers} after step {steps // 2} of "
              f"{steps}: {'equal' if done.returncode == 0 else 'DIFFERENT'}")
        print("1 passed, 0 failed" if done.returncode == 0 else "0 passed, 1 failed")
        return 0 if done.returncode == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
