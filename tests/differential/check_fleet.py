"""Random fleet jobs (make_fleet.py), compared with one process that gets the batches of all workers joined, and with the
same job saved half-way and continued by another number of servers. Needs no original."""
import collections
import concurrent.futures
import json
import os
import shutil
import tempfile

import make_fleet
import numpy as np
from calls import REFUSED, Finding, Tools, load, off

BOUND = 2e-5
# Refusals that docs/fleet.md lists: a job gets one of them, or right values.
REFUSALS = ["lars_momentum", "dpsgd", "by norm", "lamb", "on servers a table has one", "on servers they must be of one type", "embedx_dim is 0", "of a table, which is only on servers", "Grad must be dense, found selected rows"]
# One process moves the rows of all embeddings in every step (docs/fleet.md, "Rows"), and adam's rows count their own steps.
# Geo workers send only the rows that were looked up, so a saved geo job lacks what moved in the others.
EVERY_ROW = ["momentum", "decayed_adagrad", "adadelta", "rmsprop"]
OWN_STEPS = ["adam", "adamw", "adamax", "lamb"]


def with_tables(plan):
    return [k["table"] for k in plan["lookups"] if k["sparse"]]


def comparable(plan):
    """Whether rows that no batch reads stay as they are in one process, too."""
    method = plan["method"]
    if "clip" in method and plan["workers"] > 1:        # every worker clips its own gradients
        return False
    if not with_tables(plan):
        return True
    if method["type"] in OWN_STEPS:
        return False
    covered = all(any(k["table"] == t and k["lod"] and plan["all_rows"] and k["padding"] < 0 for k in plan["lookups"]) for t in with_tables(plan))
    return covered or method["type"] not in EVERY_ROW and "regularization" not in method


class Refused(Exception):
    """A listed refusal by the tool that runs the job."""


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
        if status in REFUSED and any(r in said for r in REFUSALS):
            return said
        raise Finding("transpile", f"status {status}: {said[-500:].replace(self.work, '')}")

    def run(self, check, servers, begin, end, *more):
        """Parameters and losses of steps [begin, end)."""
        np.savez(self.at("parts.npz"), **{f"t{t}/step{k - begin}/{n}": v for k in range(begin, end) for t, feeds in enumerate(self.feeds[k]) for n, v in feeds.items()})
        status, said = self.tools.call(check, "run-program", "--cluster", "inproc", "--transpiled", self.at(f"job_{servers}"), "--feed-steps", self.at("parts.npz"), "--steps", end - begin, "--fetch", "loss",
                        "--output", self.at("out.npz"), "--save-persistables", self.at("end.npz"), "--threads", "1", "--deadline-ms", "20000", "--force", "-q", *more)
        if status and any(r in said for r in REFUSALS):
            raise Refused
        if status:
            raise Finding(check, f"run-program refuses with status {status}: {said[-600:]}")
        return load(self.at("end.npz")), load(self.at("out.npz"))

    def one_process(self, params, precision="f32"):
        self.tools.must("one process", "transpile-program", *self.inputs, "-o", self.at("one"), "--force", "-q")
        np.savez(self.at("whole.npz"), **{f"step{k}/{n}": v for k, feeds in enumerate(self.feeds) for n, v in make_fleet.joined(feeds).items()})
        np.savez(self.at("one_init.npz"), **params)
        self.tools.must("one process", "run-program", "--program", self.at("one/main/__model__"), "--startup", self.at("one/main/__startup__"), "--feed-steps", self.at("whole.npz"),
                        "--params", self.at("one_init.npz"), "--steps", self.plan["steps"], "--fetch", "loss", "--output", self.at("one_out.npz"), "--save-persistables",
                        self.at("one_end.npz"), "--threads", "1", "--precision", precision, "--force", "-q")
        return load(self.at("one_end.npz")), load(self.at("one_out.npz"))


def close(check, name, got, want, bound):
    if got is None:
        raise Finding(check, f"'{name}' is missing")
    error = off(got, want, 1e-2)
    if isinstance(error, str) or not error <= bound:
        raise Finding(check, f"'{name}' {error if isinstance(error, str) else f'is off by {error:.1e}, at most {bound:.0e}'}")


def read_rows(plan, name):
    """All rows but the padding, which no lookup reads and only one process trains."""
    tables = {t["name"]: i for i, t in enumerate(plan["tables"])}
    if name not in tables:
        return slice(None)
    padding = {k["padding"] for k in plan["lookups"] if k["table"] == tables[name]}
    return [r for r in range(plan["tables"][tables[name]]["rows"]) if padding != {r}]


def compare(job, end, out):
    """The job against one process."""
    plan, names = job.plan, list(job.params)
    want, want_out = job.one_process(job.params)
    noise = np.random.default_rng(7)
    moved, _ = job.one_process({n: (v * (1 + 1.2e-7 * noise.choice([-1, 1], v.shape))).astype("f4") for n, v in job.params.items()})
    bound = max(BOUND, 50 * max(off(moved[n], want[n], 1e-2) for n in names))
    if bound > 2e-2:
        return "chaotic"
    for name in names:
        kept = read_rows(plan, name)
        close("job against one process", name, end[name][kept], want[name][kept], bound)
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
    for name, begin in job.params.items():
        if name not in end or not np.isfinite(end[name]).all():
            raise Finding("job", f"'{name}' is missing or not finite")
    if plan["mode"] == "async":
        return ["asynchronous"]
    again, _ = job.run("job again", plan["servers"], 0, plan["steps"], "--params", job.at("init.npz"))
    for name in job.params:
        if not np.array_equal(again[name], end[name]):
            raise Finding("job again", f"'{name}' has other bits")
    result = [compare(job, end, out) if comparable(plan) else "own rule for rows"]
    moves_more = plan["mode"] == "geo" and with_tables(plan) and not (comparable(plan) and plan["method"]["type"] not in EVERY_ROW)
    if "schedule" not in plan["method"] and not moves_more:   # a worker counts the steps of a schedule from 0 again
        result.append(continued(job, end, out))
    return result


def one(tools, plan):
    try:
        with tempfile.TemporaryDirectory() as work:
            return check(tools, plan, work), None
    except Refused:
        return ["refused when run"], None
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


def shrink(tools, plan, finding):
    again = True
    while again:
        again = False
        for less in smaller(plan):
            other = one(tools, less)[1]
            if other is not None and other.check == finding.check:
                plan, again = less, True
                break
    return plan


def run(args, seeds):
    """Checks new seeds; returns how many failed."""
    tools, counts, kinds = Tools(args.bin_dir, args.timeout), collections.Counter(), collections.Counter()
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for seed, (result, finding) in zip(seeds, pool.map(lambda seed: one(tools, make_fleet.make(seed)), seeds)):
            counts.update(result if finding is None else ["failed"])
            if finding is None:
                continue
            kinds[finding.kind()] += 1
            print(f"fleet_{seed}: {finding}", flush=True)
            if args.shrink:
                os.makedirs(f"{args.shrink}/fleet", exist_ok=True)
                with open(f"{args.shrink}/fleet/fleet_{seed}.json", "w", encoding="utf-8") as f:
                    json.dump(shrink(tools, make_fleet.make(seed), finding), f)
    for kind, n in kinds.most_common():
        print(f"{n:5d}  {kind}")
    print(", ".join(f"{n} {what}" for what, n in counts.most_common()))
    return counts["failed"]


def replay(args, folder):
    """(findings by name, number) of the stored plans of a folder."""
    tools, wrong, names = Tools(args.bin_dir, args.timeout), {}, sorted(n for n in os.listdir(folder) if n.endswith(".json"))

    def stored(name):
        with open(os.path.join(folder, name), encoding="utf-8") as f:
            return one(tools, json.load(f))
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for name, (_, finding) in zip(names, pool.map(stored, names)):
            if finding:
                wrong[name[:-5]] = str(finding)
    return wrong, len(names)
