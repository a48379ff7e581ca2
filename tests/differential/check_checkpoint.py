"""Random chains of training: jobs of some servers and trainers and runs of one process, between which the state is handed
on by resharded snapshots, saved parameters, checkpoints or conversions. The end is compared with one process that never
stopped. Needs no original."""
import json
import os
import random
import subprocess
import sys
import tempfile
import time

import make_fleet
import numpy as np
import plan_runs
from calls import Finding, Tools, load, off

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from ports import free_ports  # noqa: E402

BOUND = 1e-6
# Norms over a whole parameter are not those of its slices, as in the original (docs/fidelity.md).
NORMS = ["lars_momentum", "lamb"]
FORMATS = ["npz", "safetensors", "fluid-separate", "fluid-combined", "checkpoint"]


def stage_of(rng, steps):
    """A part of the training: one process, or a job."""
    if rng.random() < 0.25:
        return dict(kind="one", steps=steps, leave=rng.choice(["persistables", "params", "checkpoint"]))
    config = dict(slice_var_up=rng.random() < 0.8, min_block_size=rng.choice([8192, 8192, 10007, 20000]), split_method=rng.choice(["RoundRobin", "RoundRobin", "HashName"]))
    return dict(kind="job", steps=steps, servers=rng.choice([1, 2, 2, 3, 5]), trainers=rng.choice([1, 1, 2]), config=config,
                leave=rng.choice(["snapshots", "snapshots", "reshard", "params", "persistables"]))


def make(seed):
    """The plan of a seed: that of a fleet job, and the parts of its training."""
    rng = random.Random(f"checkpoint {seed}")
    plan = make_fleet.make(seed)
    while plan["method"]["type"] in NORMS or "clip" in plan["method"]:
        plan["method"] = dict(rng.choice(make_fleet.METHODS), **({"schedule": rng.choice(make_fleet.SCHEDULES)} if rng.random() < 0.35 else {"learning_rate": 0.1}))
    if plan["tables"] and rng.random() < 0.3:
        plan["method"] = dict(type="sgd", learning_rate=0.1)
    # parameters of less than two times 8192 elements are not sliced
    plan.update(dense=rng.choice([4, 97, 230]), hidden=rng.choice([3, 150, 331]), all_rows=False, workers=1)
    for table in plan["tables"]:
        table["rows"] = rng.choice([table["rows"], 2500, 4001])
    first = {k["table"]: k for k in reversed(plan["lookups"])}    # servers look a table up in one way
    for lookup in plan["lookups"]:
        lookup.update({key: first[lookup["table"]][key] for key in ("kind", "padding", "lod")})
    # slices of sparse tables whose rows have state differ from one process, as in the original
    for lookup in plan["lookups"]:
        lookup["sparse"] = lookup["sparse"] and plan["method"]["type"] == "sgd"
    stages = [stage_of(rng, rng.choice([1, 2, 3])) for _ in range(rng.choice([2, 2, 3]))]
    plain = plan["method"]["type"] == "sgd" and "regularization" not in plan["method"] and "schedule" not in plan["method"]
    typed = [plan["tables"][k["table"]]["name"] for k in plan["lookups"] if k["sparse"] and plan["tables"][k["table"]]["rate"] == 1.0] if plain and rng.random() < 0.5 else []
    for stage in stages:
        if typed and stage["kind"] == "job":
            stage["config"]["sparse_tables"] = {name: {} for name in typed}
        stage["formats"] = [rng.choice(FORMATS) for _ in range(rng.choice([0, 0, 1, 2]))]
    return dict(plan, stages=stages, steps=sum(s["steps"] for s in stages))


class Chain:
    def __init__(self, tools, plan, work):
        self.tools, self.plan, self.work, self.count, self.names = tools, plan, work, 0, set()
        numbers = np.random.default_rng(plan["seed"])
        self.params = {n: numbers.uniform(-0.3, 0.3, d).astype("f4") for n, d in make_fleet.parameters(plan).items()}
        self.feeds = [make_fleet.batch(plan, numbers) for _ in range(plan["steps"])]
        np.savez(self.at("init.npz"), **self.params)
        for name, text in (("main.prog", make_fleet.main_text(plan)), ("startup.prog", make_fleet.startup_text(plan)), ("min.json", json.dumps(make_fleet.minimize_config(plan)))):
            with open(self.at(name), "w", encoding="utf-8") as f:
                f.write(text)
        tools.must("minimize", "transpile-program", "--program", self.at("main.prog"), "--startup", self.at("startup.prog"), "--minimize", self.at("min.json"), "-o", self.at("one"), "-q")
        self.main, self.startup = self.at("one/main/__model__"), self.at("one/main/__startup__")

    def at(self, name):
        return os.path.join(self.work, name)

    def new(self, name):
        self.count += 1
        return self.at(f"{self.count}_{name}")

    def feed_file(self, begin, end):
        path = self.new("feeds.npz")
        np.savez(path, **{f"step{k - begin}/{n}": v for k in range(begin, end) for n, v in self.feeds[k].items()})
        return path

    def one_process(self, check, params, begin, end, *more):
        """Trains in one process; returns the file of its persistable values."""
        after = self.new("after.npz")
        self.tools.must(check, "run-program", "--program", self.main, "--startup", self.startup, "--feed-steps", self.feed_file(begin, end), "--params", params, "--steps", end - begin,
                        "--fetch", "loss", "-o", self.new("out.npz"), "--save-persistables", after, "--threads", "1", "--allow-dir", self.work, "-q", *more)
        return after

    def transpile(self, stage):
        folder, endpoints = self.new("job"), [f"127.0.0.1:{port}" for port in free_ports(stage["servers"])]
        with open(folder + ".json", "w", encoding="utf-8") as f:
            json.dump(dict(stage["config"], pservers=",".join(endpoints), trainers=stage["trainers"], sync_mode=True), f)
        self.tools.must("transpile", "transpile-program", "--program", self.main, "--startup", self.startup, "--config", folder + ".json", "--trainer-id", "all", "-o", folder, "-q")
        return folder, endpoints

    def processes(self, check, commands):
        """Runs the processes of a job until all have ended."""
        logs = [tempfile.TemporaryFile() for _ in commands]
        running = [subprocess.Popen([os.path.join(self.tools.folder, c[0]), *map(str, c[1:])], stdin=subprocess.DEVNULL, stdout=log, stderr=log) for c, log in zip(commands, logs)]
        limit = time.monotonic() + self.tools.seconds
        try:
            while any(process.poll() is None for process in running):
                if any(process.poll() for process in running) or time.monotonic() > limit:
                    break
                time.sleep(0.02)
            for command, process, log in zip(commands, running, logs):
                log.seek(0)
                said = log.read().decode(errors="replace")[-500:].replace(self.work, "")
                if process.poll() is None and time.monotonic() > limit:
                    raise Finding(check, f"{command[0]} has not ended after {self.tools.seconds} s: {said}")
                if process.poll():
                    raise Finding(check, f"{command[0]} ended with status {process.returncode}: {said}")
        finally:
            for process, log in zip(running, logs):
                process.kill()
                process.wait()
                log.close()

    def job(self, check, stage, made, state, begin):
        """Trains in a job of processes; returns what it leaves."""
        folder, endpoints = made
        feeds, after, saved, snapshots = self.feed_file(begin, begin + stage["steps"]), self.new("after.npz"), self.new("saved"), state.get("snapshots") or self.new("snapshots")
        takes = stage["leave"] in ("snapshots", "reshard") or "snapshots" in state
        slices = ["--slices", f"{folder}/slices.json"]
        commands = []
        for i, endpoint in enumerate(endpoints):
            at = f"{folder}/pserver_{i}"
            commands.append(["pserver", "--program", f"{at}/__model__", "--startup", f"{at}/__startup__", *slices, "--endpoint", endpoint, "--allow-dir", self.work,
                             *([] if "snapshots" in state else ["--params", state["params"]]), *(["--snapshot-dir", snapshots, "--snapshot-every", "1", "--snapshot-durable"] if takes else [])])
        for t in range(stage["trainers"]):
            at = f"{folder}/trainer_{t}"
            commands.append(["run-program", "--role", "trainer", "--trainer-id", t, "--program", f"{at}/__model__", "--startup", f"{at}/__startup__", *slices, "--params", state["params"],
                             "--feed-steps", feeds, "--steps", stage["steps"], "--fetch", "loss", "-o", self.new("out.npz"), "--threads", "1", "--deadline-ms", "20000", "-q",
                             *(["--save-persistables", after, "--save-params", saved, "--allow-dir", self.work] if t == 0 else [])])
        self.processes(check, commands)
        left = dict(params=after, made=made, after=after)
        if stage["leave"] == "params":
            left["params"] = saved
        elif stage["leave"] in ("snapshots", "reshard"):
            joined = self.new("joined.npz")
            self.tools.must(check, "checkpoint", "convert", snapshots, *slices, "--to", "npz", "-o", joined, "-q")
            # a trainer has values that no server has, such as those of a schedule in its program
            got, want = load(after), load(joined)
            same(f"{check}: snapshots", got, {n: v for n, v in want.items() if n in got or n in self.params})
            left.update(params=joined, folder=snapshots)
        return left

    def convert(self, path, formats):
        """The same values after some conversions, as npz or as it was."""
        before = path
        if not path.endswith(".npz") or set(load(path)) != self.names:
            formats = [form for form in formats if form != "fluid-combined"]   # has all vars of a program, without names
        for form in formats + (["npz"] if formats else []):
            after = self.new(form + (".npz" if form == "npz" else ""))
            program = ["--program", self.main] if os.path.isfile(before) and not before.endswith((".npz", "safetensors")) else []
            self.tools.must("convert", "checkpoint", "convert", before, *program, "--to", form, "-o", after, "-q")
            before = after
        return before

    def hand_on(self, stage, following, left):
        """What the next part of the training begins with."""
        if stage["leave"] == "reshard" and following["kind"] == "job":
            made, resharded = self.transpile(following), self.new("resharded")
            self.tools.must("reshard", "checkpoint", "reshard", left["folder"], "--slices", f"{left['made'][0]}/slices.json", "--to-slices", f"{made[0]}/slices.json", "-o", resharded, "-q")
            return dict(params=self.convert(left["params"], stage["formats"]), snapshots=resharded, made=made)
        # as in the original, a job saves no learning rates, without which one process does not start from a folder
        path = left["after"] if stage["leave"] == "params" and following["kind"] == "one" else left["params"]
        return dict(params=self.convert(path, stage["formats"]))

    def run(self):
        """Persistable values after the last part."""
        state, begin, stages = dict(params=self.at("init.npz")), 0, self.plan["stages"]
        for i, stage in enumerate(stages):
            check, end = f"part {i + 1} ({stage['kind']})", begin + stage["steps"]
            if stage["kind"] == "one":
                folder, saved = self.new("checkpoints"), self.new("saved") + "/"
                after = self.one_process(check, state["params"], begin, end, "--save-every", stage["steps"], "--checkpoint-dir", folder, "--save-params", saved)
                left = dict(params=after, after=after)
                if stage["leave"] != "persistables":
                    left["params"] = saved if stage["leave"] == "params" else self.convert(f"{folder}/step-{stage['steps']}", ["npz"])
            else:
                left = self.job(check, stage, state.get("made") or self.transpile(stage), state, begin)
            begin = end
            if i + 1 < len(stages):
                state = self.hand_on(stage, stages[i + 1], left)
        return load(left["after"])


def without_padding(plan, values):
    """Typed tables have zeros in the row of their padding, which one process keeps as it was."""
    typed = {name for stage in plan["stages"] for name in stage.get("config", {}).get("sparse_tables", {})}
    padding = {plan["tables"][k["table"]]["name"]: k["padding"] for k in plan["lookups"] if k["padding"] >= 0}
    return {n: np.delete(v, padding[n], 0) if n in typed and n in padding else v for n, v in values.items()}


def same(check, got, want):
    """Raises a finding unless all values are within their bound; returns whether they are equal."""
    if set(want) - set(got):
        raise Finding(check, f"'{sorted(set(want) - set(got))[0]}' is missing")
    for name, value in want.items():
        error = off(got[name], value, 1e-2)
        if isinstance(error, str) or not error <= BOUND:
            raise Finding(check, f"'{name}' {error if isinstance(error, str) else f'is off by {error:.1e}, at most {BOUND:.0e}'}")
    return all(np.array_equal(got[n], v) for n, v in want.items())


def one(tools, plan):
    try:
        with tempfile.TemporaryDirectory() as work:
            chain = Chain(tools, plan, work)
            want = load(chain.one_process("one process", chain.at("init.npz"), 0, plan["steps"]))
            chain.names = set(want)
            if not all(np.isfinite(value).all() for value in want.values()):
                return ["not finite"], None
            want = {name: value for name, value in want.items() if not name.startswith("learning_rate_")}
            return ["equal" if same("chain against one process", without_padding(plan, chain.run()), without_padding(plan, want)) else "near"], None
    except Finding as e:
        return [], e


def smaller(plan):
    """Plans with less in them."""
    stages = plan["stages"]
    for i in range(len(stages)):
        if len(stages) > 1:
            left = stages[:i] + stages[i + 1:]
            yield dict(plan, stages=left, steps=sum(s["steps"] for s in left))
    for i, stage in enumerate(stages):
        for key, value in (("formats", []), ("trainers", 1), ("servers", 1), ("leave", "persistables"), ("steps", 1)):
            if stage.get(key, value) != value:
                left = stages[:i] + [dict(stage, **{key: value})] + stages[i + 1:]
                yield dict(plan, stages=left, steps=sum(s["steps"] for s in left))
    for i in range(len(plan["lookups"])):
        lookups = plan["lookups"][:i] + plan["lookups"][i + 1:]
        if {k["table"] for k in lookups} == set(range(len(plan["tables"]))):
            yield dict(plan, lookups=lookups)
    if plan["tables"]:
        last = len(plan["tables"]) - 1
        yield dict(plan, tables=plan["tables"][:-1], lookups=[k for k in plan["lookups"] if k["table"] != last])
    if "regularization" in plan["method"]:
        yield dict(plan, method={k: v for k, v in plan["method"].items() if k != "regularization"})


PLANS = plan_runs.Plans("checkpoint", make, one, smaller)
