#!/usr/bin/env python3
"""Jobs whose embedding is a typed table on the servers, over every transport.

    ps_typed.py --bin-dir build/dev/tools --shared ../shared [--only NAME]

The program is that of `ps_sync/emb_shared_sgd_2s2t`, which transpile-program transpiles with `sparse_tables`. Checked
are: parameters and rows after the steps, compared with the results of the original; the same bits if a server is killed
and another one loads its snapshot, or all go back to an older one, or snapshots are resharded for other servers; files
and models that are saved; rows on disk; which keys a count filter admits, exactly; statistics and shrinking; the effect
of asynchronous pushes. Prints a line per check. Exit status: 0 all as expected, 1 some not.
"""
import argparse
import os
import signal
import sys
import time

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../faults"))
from job import Job, free_ports  # noqa: E402
from each_case import run_checks  # noqa: E402

TABLE, STEPS, LIMIT = "shared_emb", 12, 90
# A table as in a job of the original: click statistics, adagrad, rows that decay every fourth step.
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
        if settings.get("disk_path"):
            settings = {**settings, "disk_path": f"{job.dir}/disk"}
        job.more_config = {"sparse_tables": {TABLE: settings}, **config}
        if fresh:  # rows start with the initial values of the table
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
        """Parameters and rows equal those of the original's optimize blocks."""
        with self.job({}, steps=6) as job, np.load(f"{self.case}/expected.npz") as expected:
            have = self.result(job)
            for name in expected.files:
                if name.startswith("final/") and not name.endswith("learning_rate_0"):
                    want = expected[name]
                    off = np.abs(have[name[6:]].reshape(want.shape) - want).max()
                    require(off <= 2e-6 * max(1, np.abs(want).max()), f"'{name}' is off by {off:.2e}")

    def admits_by_count(self):
        """Rows exist for exactly the keys that were looked up three times; the others read as zeros."""
        with self.job({"entry": "count_filter_entry:3"}, fresh=True) as job:
            rows = self.result(job)[TABLE]
            admitted = np.abs(rows).max(axis=1) > 0
            want = self.accesses() >= 3
            require(0 < want.sum() < 1400 and np.array_equal(admitted, want),
                    f"{admitted.sum()} keys are admitted, expected {want.sum()}; {(admitted != want).sum()} differ")

    def keeps_statistics(self):
        """Every transport produces the same bits of a table with statistics, whose rows decay and are removed."""
        with self.job(RICH, fresh=True) as job:
            rows = self.result(job)[TABLE]
            shown = rows[:, 0]
            require(0 < (shown > 0).sum() < (self.accesses() >= 2).sum() and (shown <= self.accesses()).all(),
                    f"{(shown > 0).sum()} rows have shows: some have to be left, some to have gone, and none to have more than lookups")
            require(self.transport == "inproc" or np.array_equal(rows, self.rich), "the rows differ from those of one process")
            self.rich = rows

    def asynchronous(self):
        """Pushes change only the rows that were looked up."""
        with self.job({}, sync_mode=False) as job:
            rows = self.result(job)[TABLE]
            with np.load(f"{self.case}/init.npz") as stored:
                changed = (rows != stored[TABLE]).any(axis=1)
            require(np.array_equal(changed, self.accesses() > 0), f"{changed.sum()} rows changed, {(self.accesses() > 0).sum()} were looked up")

    def beyond_memory(self):
        """Rows that do not fit into memory are moved to disk and back: the same bits as in memory."""
        rows = {}
        for where in ("memory", "disk"):
            with self.job({**RICH, "table_class": "SSDSparseTable", "disk_path": "@", "memory_rows": 64} if where == "disk" else RICH,
                          fresh=True) as job:
                rows[where] = self.result(job)[TABLE]
                if where == "disk":
                    found = [name for _, _, names in os.walk(f"{job.dir}/disk") for name in names]
                    require(any(name.endswith(".log") or name.endswith(".sst") for name in found), f"nothing lies on the disk: {found}")
        require(np.array_equal(rows["memory"], rows["disk"]), f"{(rows['memory'] != rows['disk']).any(axis=1).sum()} rows differ")

    # --- processes

    def saved(self):
        """--save-params and --save-model write the table besides all other values, with the rows that
        --save-persistables gathers; the model runs."""
        with self.job({}) as job:
            feeds = sorted({name.split("/", 1)[1] for name in np.load(f"{job.dir}/feeds_0.npz").files})
            for i in range(2):
                job.start_server(i, flags=["--allow-dir", f"{job.dir}/saved"])
            os.makedirs(f"{job.dir}/saved", exist_ok=True)
            job.start_trainer(0, flags=["--allow-dir", f"{job.dir}/saved", "--save-params", f"{job.dir}/saved/params", "--save-model",
                                        f"{job.dir}/saved/model", "--model-program", f"{self.case}/main.pb", "--model-feeds", ",".join(feeds),
                                        "--model-fetches", job.cfg["loss"]])
            job.start_trainer(1, flags=["--allow-dir", f"{job.dir}/saved"])
            want = finish(job)
            for form in ("params", "model"):
                job.run("checkpoint", ["convert", f"{job.dir}/saved/{form}", "--to", "npz", "--vars", TABLE, "-o", f"{job.dir}/{form}.npz"])
                have = job.load(f"{form}.npz")[TABLE]
                require(np.array_equal(have, want[TABLE]), f"{form}: the table differs by {np.abs(have - want[TABLE]).max():.2e}")
            with np.load(f"{job.dir}/feeds_0.npz") as steps:
                np.savez(f"{job.dir}/one.npz", **{name: steps[f"step0/{name}"] for name in feeds})
            job.run("run-program", ["--model-dir", f"{job.dir}/saved/model", "--feed", f"{job.dir}/one.npz", "--output", f"{job.dir}/loss.npz"])
            require(np.isfinite(job.load("loss.npz")[job.cfg["loss"]]).all(), "the model computes no loss")

    def resharded(self):
        """A job of two servers stops after its eighth step; three, then two again, continue for two steps each: same
        bits as without a stop."""
        half, steps = 8, 2
        rich = {**RICH, "shrink_every": 3}  # days continue
        with self.job(rich, fresh=True) as whole:
            want, params = whole.reference(), whole.load("init.npz")
            snapshots, slices, done, parts = None, None, 0, []
            try:
                for servers, count in ((2, half), (3, steps), (2, steps)):
                    job = Job(self.bin, self.case, count, whole.server_flags, whole.trainer_flags)
                    parts.append(job)
                    job.cfg["servers"], job.ports, job.servers = servers, free_ports(servers), [None] * servers
                    job.more_config, job.params = whole.more_config, f"{job.dir}/init.npz"
                    np.savez(job.params, **params)
                    job.prepare(with_proxies=False)
                    for t in range(2):
                        with np.load(f"{whole.dir}/feeds_{t}.npz") as stored:
                            later = {n.split("/", 1)[1]: None for n in stored.files}
                            np.savez(f"{job.dir}/feeds_{t}.npz", **{f"step{k}/{n}": stored[f"step{done + k}/{n}"] for k in range(count) for n in later})
                    root = f"{job.dir}/snapshots"
                    if snapshots:
                        job.run("checkpoint", ["reshard", snapshots, "--slices", slices, "--to-slices", f"{job.dir}/out/slices.json", "-o", root])
                    for i in range(servers):
                        job.start_server(i, flags=["--snapshot-dir", root, "--snapshot-every", str(count), "--snapshot-durable"])
                    for t in range(2):
                        job.start_trainer(t)
                    have, done = finish(job), done + count
                    params = {name: value for name, value in have.items() if name != TABLE}  # initial values of the trainers
                    snapshots, slices = root, f"{job.dir}/out/slices.json"
            finally:
                for job in parts:
                    job.__exit__()
            same(whole, have, want)

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
            require("loaded snapshot" in job.servers[1].text, f"no snapshot was loaded: {job.servers[1].text[-300:]}")
            same(job, have, want)

    def server_killed(self):
        """kill -9 of a server that saves every step, and another one in its place: same bits."""
        self.restarted({}, ["--snapshot-every", "1", "--snapshot-durable"], False)

    def gone_back(self):
        """The same with a snapshot every five steps, statistics and a count filter: all go back, with the same bits at
        the end."""
        self.restarted(RICH, ["--snapshot-every", "5"], True)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--bin-dir", required=True)
    ap.add_argument("--shared", required=True)
    ap.add_argument("--only", default="")
    args = ap.parse_args()
    checks = Checks(args)
    names = [(transport, name) for name in ("equals_the_original", "admits_by_count", "keeps_statistics", "asynchronous", "beyond_memory")
             for transport in ("inproc", "tcp", "grpc")]
    names += [("tcp", "saved"), ("tcp", "resharded")]
    names += [(transport, name) for name in ("server_killed", "gone_back") for transport in ("tcp", "grpc")]

    def check(transport, name):
        checks.transport = transport
        getattr(checks, name)()

    return run_checks([(f"{transport:6s} {name}", lambda transport=transport, name=name: check(transport, name)) for transport, name in names], args.only)


if __name__ == "__main__":
    sys.exit(main())
