#!/usr/bin/env python3
"""Jobs whose embedding is a typed table on the servers, by every transport.

    ps_typed.py --bin-dir build/dev/tools --shared ../shared [--only NAME]

The program is that of `ps_sync/emb_shared_sgd_2s2t`, which transpile-program cuts with `sparse_tables`. Checked are: parameters and rows after the
steps against what the original leaves; the same bits where a server is killed and another one takes up its snapshot, or all go back to an
older one; which keys a count filter admits, exactly; statistics and shrinking; what asynchronous pushes reach. Prints a line a check.
Exit status: 0 all as expected, 1 some not.
"""
import argparse
import os
import signal
import sys
import time

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../faults"))
from job import Job  # noqa: E402

TABLE, STEPS, LIMIT = "shared_emb", 12, 90
# A table as one of the original's jobs may have it: click statistics, adagrad, rows that fade every fourth step.
RICH = {"accessor_class": "CtrCommonAccessor", "embedx_threshold": 0.15, "entry": "count_filter_entry:2", "shrink_every": 4, "delete_threshold": 0.12,
        "embed_sgd_param": {"name": "SparseAdaGradSGDRule", "learning_rate": 0.05, "weight_bounds": [-10, 10]},
        "embedx_sgd_param": {"name": "SparseAdaGradSGDRule", "learning_rate": 0.05}}


def require(holds, what):
    if not holds:
        raise RuntimeError(what)


def tails(job):
    return " | ".join(f"{p.label}: {p.lines[-1][:200] if p.lines else ''}" for p in job.processes[1:])


def finish(job):
    servers, trainers = job.wait_all(LIMIT)
    require(set(servers + trainers) == {0}, f"servers {servers}, trainers {trainers}: {tails(job)}")
    return job.load("after.npz")


def same(job, have, want):
    require(set(have) == set(want), f"there is {sorted(have)}, expected {sorted(want)}")
    for name, value in want.items():
        require(np.array_equal(have[name], value), f"'{name}' differs by {np.abs(have[name] - value).max():.2e}")


class Checks:
    def __init__(self, args):
        self.bin, self.case = args.bin_dir, f"{args.shared}/goldens/ps_sync/emb_shared_sgd_2s2t"
        self.transport = "inproc"

    def job(self, settings, steps=STEPS, fresh=False, **config):
        flags = [] if self.transport == "inproc" else ["--transport", self.transport]
        job = Job(self.bin, self.case, steps, flags, ["--deadline-ms", "60000", "--reconnect-timeout-ms", "30000", *flags])
        job.more_config = {"sparse_tables": {TABLE: settings}, **config}
        if fresh:  # rows begin as the table says
            job.params = f"{job.dir}/init.npz"
            with np.load(f"{self.case}/init.npz") as stored:
                np.savez(job.params, **{k: stored[k] for k in stored.files if k != TABLE})
        return job.prepare(with_proxies=self.transport != "inproc")

    def result(self, job):
        if self.transport == "inproc":
            return job.reference()
        return finish(job.start_all())

    def accesses(self, steps=STEPS):
        counts = np.zeros(1400, "i8")
        with np.load(f"{self.case}/feeds.npz") as feeds:
            for name in feeds.files:
                if "/word_" in name:
                    step = int(name.split("/")[1][4:])
                    np.add.at(counts, feeds[name].ravel(), len(range(step, steps, 6)))
        return counts

    # --- every transport

    def equals_the_original(self):
        """Parameters and rows are those that the original's optimize blocks leave."""
        with self.job({}, steps=6) as job, np.load(f"{self.case}/expected.npz") as expected:
            have = self.result(job)
            for name in expected.files:
                if name.startswith("final/") and not name.endswith("learning_rate_0"):
                    want = expected[name]
                    off = np.abs(have[name[6:]].reshape(want.shape) - want).max()
                    require(off <= 2e-6 * max(1, np.abs(want).max()), f"'{name}' is off by {off:.2e}")

    def admits_by_count(self):
        """Rows are there of exactly the keys that were looked up three times; the others read as zeros."""
        with self.job({"entry": "count_filter_entry:3"}, fresh=True) as job:
            rows = self.result(job)[TABLE]
            admitted = np.abs(rows).max(axis=1) > 0
            want = self.accesses() >= 3
            require(0 < want.sum() < 1400 and np.array_equal(admitted, want),
                    f"{admitted.sum()} keys are admitted, expected {want.sum()}; {(admitted != want).sum()} differ")

    def keeps_statistics(self):
        """Every transport leaves the same bits of a table with statistics, whose rows fade and go."""
        with self.job(RICH, fresh=True) as job:
            rows = self.result(job)[TABLE]
            shown = rows[:, 0]
            require(0 < (shown > 0).sum() < (self.accesses() >= 2).sum() and (shown <= self.accesses()).all(),
                    f"{(shown > 0).sum()} rows have shows: some have to be left, some to have gone, and none to have more than look-ups")
            require(self.transport == "inproc" or np.array_equal(rows, self.rich), "the rows differ from those of one process")
            self.rich = rows

    def asynchronous(self):
        """Pushes reach the rows that were looked up, and no others."""
        with self.job({}, sync_mode=False) as job:
            rows = self.result(job)[TABLE]
            with np.load(f"{self.case}/init.npz") as stored:
                changed = (rows != stored[TABLE]).any(axis=1)
            require(np.array_equal(changed, self.accesses() > 0), f"{changed.sum()} rows changed, {(self.accesses() > 0).sum()} were looked up")

    # --- processes

    def restarted(self, settings, flags, fresh):
        with self.job(settings, steps=60, fresh=fresh) as job:
            want = job.reference()
            for proxy in job.proxies:
                proxy.delay = 0.004
            folders = [["--snapshot-dir", f"{job.dir}/snapshots{i}", *flags] for i in range(2)]
            for i, folder in enumerate(folders):
                os.makedirs(folder[1])
                job.start_server(i, flags=folder)
            for t in range(2):
                job.start_trainer(t)
            job.wait_for_bytes(250_000)
            job.servers[1].signal(signal.SIGKILL)
            job.servers[1].wait(time.monotonic() + 10)
            require(all(t.p.poll() is None for t in job.trainers), "the job was over before the server was killed")
            job.start_server(1, flags=folders[1])
            have = finish(job)
            require("took up snapshot" in job.servers[1].text, f"no snapshot was taken up: {job.servers[1].text[-300:]}")
            same(job, have, want)

    def server_killed(self):
        """kill -9 of a server that saves every step, and another one in its place: same bits."""
        self.restarted({}, ["--snapshot-every", "1", "--snapshot-durable"], False)

    def gone_back(self):
        """The same with a snapshot every five steps, statistics and a count filter: all go back, and leave the same bits."""
        self.restarted(RICH, ["--snapshot-every", "5"], True)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--bin-dir", required=True)
    ap.add_argument("--shared", required=True)
    ap.add_argument("--only", default="")
    args = ap.parse_args()
    checks, failed = Checks(args), 0
    names = [(transport, name) for name in ("equals_the_original", "admits_by_count", "keeps_statistics", "asynchronous")
             for transport in ("inproc", "tcp", "grpc")]
    names += [(transport, name) for name in ("server_killed", "gone_back") for transport in ("tcp", "grpc")]
    for checks.transport, name in names:
        if args.only not in name:
            continue
        why, began = "", time.monotonic()
        try:
            getattr(checks, name)()
        except (RuntimeError, OSError) as e:
            why, failed = f": {e}", failed + 1
        print(f"{'FAIL' if why else 'ok  '} {checks.transport:6s} {name} {time.monotonic() - began:.1f} s{why}", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
