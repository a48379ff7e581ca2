"""Random fleet jobs (make_fleet.py), compared with one process that gets the batches of all workers joined, and with the
same job saved half-way and continued by another number of servers. Needs no original."""
import json
import os
import re
import shutil
import tempfile

import make_fleet
import numpy as np
import plan_runs
from calls import REFUSED, Finding, load, off

BOUND = 2e-5
# What transpile-program may refuse (docs/fleet.md). A job that it writes must run.
TYPES = "sgd, momentum, adagrad, decayed_adagrad, adadelta, rmsprop, adam, adamw, adamax, ftrl, lamb"
REFUSALS = [re.compile(text) for text in (
    rf"'\w+' is updated by '(lars_momentum|dpsgd)', but tables of servers have {TYPES} only",
    r"'emb_\d' is updated by 'lamb', which needs all rows at once, but the rows of an embedding are updated one by one on several servers",
    r"'\w+' is updated by lamb, which needs the whole parameter, but \d servers share the dense parameters so that it is split",
    r"'emb_\d' is updated by '(lars_momentum|dpsgd)' on the workers: Grad must be dense, found selected rows",
    r"the lookups of table 'emb_\d' have padding_idx -?\d and -?\d; on servers a table has one",
    r"the lookups of table 'emb_\d' are lookup_table(_v2)? and lookup_table(_v2)?; on servers they must be of one type",
    r"dense_gradients is all_reduce, but no embedding of the program is looked up on servers",
    r"'\w+' changes '\w+' by '[\w@]+', which differs from worker to worker")]
# One process moves the rows of all embeddings in every step (docs/fleet.md, "Rows"), and adam's rows count their own steps.
# Geo workers send only the rows that were looked up, so the servers lack what moved in the others.
EVERY_ROW = ["momentum", "decayed_adagrad", "adadelta", "rmsprop"]
OWN_STEPS = ["adam", "adamw", "adamax", "lamb"]


def with_tables(plan):
    return [k["table"] for k in plan["lookups"] if k["sparse"]]


def is_covered(plan):
    """Whether every worker reads every row of its tables in every step."""
    return all(any(k["table"] == t and k["lod"] and plan["all_rows"] and k["padding"] < 0 for k in plan["lookups"]) for t in with_tables(plan))


def reference(plan):
    """The lookups of the one process that does the same: as in the plan, or dense; None: no such process does."""
    method, kept = plan["method"], plan["mode"] == "geo"
    if "clip" in method and plan["workers"] > 1:        # every worker clips its own gradients, those of rows at least
        return None
    if not with_tables(plan):
        return "planned"
    if method["type"] in OWN_STEPS and not kept:        # with sparse gradients one process uses the powers of the next step
        return "dense" if is_covered(plan) else None
    moves_all = method["type"] in EVERY_ROW + OWN_STEPS or "regularization" in method
    return "planned" if is_covered(plan) or not moves_all else None


class Job:
    def __init__(self, tools, plan, work):
        self.tools, self.plan, self.work = tools, plan, work
        numbers = np.random.default_rng(plan["seed"])
        self.params = {n: numbers.uniform(-0.3, 0.3, d).astype("f4") for n, d in make_fleet.parameters(plan).items()}
        self.feeds = [[make_fleet.batch(plan, numbers) for _ in range(plan["workers"])] for _ in range(plan["steps"])]
        np.savez(self.at("init.npz"), **self.params)
        for name, text in (("main.prog", make_fleet.main_text(plan)), ("startup.prog", make_fleet.startup_text(plan)), ("min.json", json.dumps(make_fleet.minimize_config(plan)))):
            with open(self.at(name), "w", encoding="utf-8") as f:
                f.write(text)
        dense = dict(plan, lookups=[dict(k, sparse=False) for k in plan["lookups"]])
        with open(self.at("dense.prog"), "w", encoding="utf-8") as f:
            f.write(make_fleet.main_text(dense))
        self.inputs = ["--program", self.at("main.prog"), "--startup", self.at("startup.prog"), "--minimize", self.at("min.json")]

    def at(self, name):
        return os.path.join(self.work, name)

    def transpile(self, servers):
        """The job for a number of servers; the refusal, if it is one that is listed."""
        with open(self.at("fleet.json"), "w", encoding="utf-8") as f:
            json.dump(make_fleet.fleet_config(self.plan, servers), f)
        status, said = self.tools.call("transpile", "transpile-program", *self.inputs, "--fleet", self.at("fleet.json"), "-o", self.at(f"job_{servers}"), "--force", "-q")
        if not status:
            return ""
        if status in REFUSED and any(r.search(said) for r in REFUSALS):
            return said
        raise Finding("transpile", f"status {status}: {said[-500:].replace(self.work, '')}")

    def run(self, check, servers, begin, end, *more):
        """Parameters and losses of steps [begin, end)."""
        np.savez(self.at("parts.npz"), **{f"t{t}/step{k - begin}/{n}": v for k in range(begin, end) for t, feeds in enumerate(self.feeds[k]) for n, v in feeds.items()})
        status, said = self.tools.call(check, "run-program", "--cluster", "inproc", "--transpiled", self.at(f"job_{servers}"), "--feed-steps", self.at("parts.npz"), "--steps", end - begin, "--fetch", "loss",
                        "--output", self.at("out.npz"), "--save-persistables", self.at("end.npz"), "--threads", "1", "--deadline-ms", "20000", "--force", "-q", *more)
        if status:
            raise Finding(check, f"run-program refuses with status {status}: {said[-600:]}")
        return load(self.at("end.npz")), load(self.at("out.npz"))

    def one_process(self, params, lookups):
        inputs = [self.at("dense.prog") if lookups == "dense" and w == self.at("main.prog") else w for w in self.inputs]
        self.tools.must("one process", "transpile-program", *inputs, "-o", self.at("one"), "--force", "-q")
        np.savez(self.at("whole.npz"), **{f"step{k}/{n}": v for k, feeds in enumerate(self.feeds) for n, v in make_fleet.joined(feeds).items()})
        np.savez(self.at("one_init.npz"), **params)
        self.tools.must("one process", "run-program", "--program", self.at("one/main/__model__"), "--startup", self.at("one/main/__startup__"), "--feed-steps", self.at("whole.npz"),
                        "--params", self.at("one_init.npz"), "--steps", self.plan["steps"], "--fetch", "loss", "--output", self.at("one_out.npz"), "--save-persistables",
                        self.at("one_end.npz"), "--threads", "1", "--force", "-q")
        return load(self.at("one_end.npz")), load(self.at("one_out.npz"))


def close(check, name, got, want, bound):
    if got is None:
        raise Finding(check, f"'{name}' is missing")
    error = off(got, want, 1e-2)
    if isinstance(error, str) or not error <= bound:
        raise Finding(check, f"'{name}' {error if isinstance(error, str) else f'is off by {error:.1e}, at most {bound:.0e}'}")


def padding_rows(plan, name):
    """The rows that servers do not have: padding of all lookups of a table. One process trains them."""
    tables = {t["name"]: i for i, t in enumerate(plan["tables"])}
    paddings = {k["padding"] for k in plan["lookups"] if k["sparse"] and k["table"] == tables.get(name)}
    return [r for r in paddings if r >= 0] if len(paddings) == 1 and plan["mode"] != "geo" else []


def compare(job, end, out):
    """The job against one process."""
    plan, names, lookups = job.plan, list(job.params), reference(job.plan)
    if lookups is None:
        return "own rule for rows"
    want, want_out = job.one_process(job.params, lookups)
    noise = np.random.default_rng(7)
    moved, _ = job.one_process({n: (v * (1 + 1.2e-7 * noise.choice([-1, 1], v.shape))).astype("f4") for n, v in job.params.items()}, lookups)
    bound = max(BOUND, 50 * max(off(moved[n], want[n], 1e-2) for n in names))
    if bound > 2e-2:
        return "chaotic"
    for name in names:
        trained = np.delete(end[name], padding_rows(plan, name), 0)
        close("job against one process", name, trained, np.delete(want[name], padding_rows(plan, name), 0), bound)
    for k in range(plan["steps"]):
        mean = np.mean([out[f"t{t}/step{k}/loss"] for t in range(plan["workers"])])
        close("job against one process", f"step{k}/loss", mean, want_out[f"step{k}/loss"], bound)
    return "equal"


def continued(job, end, out):
    """Saved after some steps and continued by other servers, the job ends as if it had never stopped."""
    plan, half = job.plan, max(1, job.plan["steps"] // 2)
    if job.transpile(plan["servers_after"]):
        return "refused with other servers"
    shutil.rmtree(job.at("saved"), ignore_errors=True)
    job.run("first half", plan["servers"], 0, half, "--params", job.at("init.npz"), "--save-params", job.at("saved"), "--allow-dir", job.work)
    have, have_out = job.run("second half", plan["servers_after"], half, plan["steps"], "--params", job.at("saved"), "--allow-dir", job.work)
    for name in job.params:
        close("continued job", name, have.get(name), end[name], 1e-6)
    for k in range(half, plan["steps"]):
        for t in range(plan["workers"]):
            close("continued job", f"t{t}/step{k}/loss", have_out.get(f"t{t}/step{k - half}/loss"), out[f"t{t}/step{k}/loss"], 1e-6)
    return "continued"


def check(tools, plan, work):
    """What became of a plan; raises a finding."""
    job = Job(tools, plan, work)
    if job.transpile(plan["servers"]):
        return ["refused"]
    end, out = job.run("job", plan["servers"], 0, plan["steps"], "--params", job.at("init.npz"))
    for name in job.params:
        if name not in end or not np.isfinite(end[name]).all():
            raise Finding("job", f"'{name}' is missing or not finite")
        for row in padding_rows(plan, name):
            if end[name][row].any():
                raise Finding("job", f"the padding row {row} of '{name}' is not 0")
    if plan["mode"] == "async":
        return ["asynchronous"]
    again, _ = job.run("job again", plan["servers"], 0, plan["steps"], "--params", job.at("init.npz"))
    for name in job.params:
        if not np.array_equal(again[name], end[name]):
            raise Finding("job again", f"'{name}' has other bits")
    result = [compare(job, end, out)]
    lacks = plan["mode"] == "geo" and with_tables(plan) and reference(plan) is None
    if not lacks:
        result.append(continued(job, end, out))
    return result


def one(tools, plan):
    try:
        with tempfile.TemporaryDirectory() as work:
            return check(tools, plan, work), None
    except Finding as e:
        return [], e


def smaller(plan):
    """Plans with less in them."""
    for i in range(len(plan["lookups"])):
        lookups = plan["lookups"][:i] + plan["lookups"][i + 1:]
        if plan["tables"] and {k["table"] for k in lookups} == set(range(len(plan["tables"]))):
            yield dict(plan, lookups=lookups)
    if plan["tables"]:
        last = len(plan["tables"]) - 1
        yield dict(plan, tables=plan["tables"][:-1], lookups=[k for k in plan["lookups"] if k["table"] != last])
    for key, value in (("workers", 1), ("servers", 1), ("servers_after", 1), ("steps", 2), ("hidden", 1), ("batch", 2), ("dense", 1), ("bias_rate", 1.0)):
        if plan[key] != value:
            yield dict(plan, **{key: value})
    for key in ("regularization", "clip"):
        if key in plan["method"]:
            yield dict(plan, method={k: v for k, v in plan["method"].items() if k != key})


PLANS = plan_runs.Plans("fleet", make_fleet.make, one, smaller)
