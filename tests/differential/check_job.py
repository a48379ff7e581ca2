"""A job of a random cluster: compares the transpiled programs with the original's, and trains with all roles in one
process."""
import glob
import json
import os
import random
import re

import numpy as np

from calls import REFUSED, Finding, load, off, text_form_returns

STEP_BOUND = 2e-5


class Job:
    def __init__(self, tools, folder, work, judge):
        self.tools, self.folder, self.work, self.judge = tools, folder, work, judge
        with open(f"{folder}/config.json", encoding="utf-8") as f:
            self.config = json.load(f)
        with open(f"{folder}/meta.json", encoding="utf-8") as f:
            self.plan = json.load(f)["plan"]
        self.out, self.servers = f"{work}/out", "pservers" in self.config["call"]

    def transpile(self):
        """Every role's programs; status and message if the job is refused."""
        config = self.judge.tool_config(self.config)
        which = ["--trainer-id", str(config.pop("trainer_id", 0)) if not self.servers else "all"]
        with open(f"{self.work}/config.json", "w", encoding="utf-8") as f:
            json.dump(config, f)
        return self.tools.call("transpile", "transpile-program", "--program", f"{self.folder}/main.pb", "--startup", f"{self.folder}/startup.pb", "--config", f"{self.work}/config.json",
                               *which, "-o", self.out, "--force", "-q")

    def emitted(self):
        return sorted(glob.glob(f"{self.out}/*/__model__") + glob.glob(f"{self.out}/*/__startup__"))

    def corrected(self):
        """The original's programs of clipped gradients use vars that no op writes; they are not the expected ones."""
        return self.servers and "clip" in self.plan["optimizers"][0]

    def pushed_steps(self):
        """Steps whose changes have been pushed at the end: geo trainers push those of several steps together."""
        together = self.config["config"].get("geo_sgd_need_push_nums", 1)
        return self.config["steps"] // together * together

    def equal_programs(self):
        """The original's programs, one by one."""
        outputs = self.judge.reference_outputs(self.folder, self.config["call"].get("trainer_id", 0))
        for want, made in outputs.items():
            if "io_" in want or want in ("trainer_recv.pb", "trainer_send.pb"):
                continue
            path = f"{self.out}/{made}"
            if not os.path.exists(path):
                raise Finding("programs", f"{made} is not written")
            load = self.trainer_program if "trainer" in made else self.server_program
            lines = self.judge.program_diff.diff_programs(load(f"{self.folder}/{want}"), load(path))
            if lines:
                raise Finding("programs", f"{made}: " + " | ".join(lines[:3])[:500])

    def trainer_program(self, path):
        """A trainer's program without the ids of geo tables that lookup_table_v2 reads: in release 2.6.2 that op's `is_sparse` is not among
        all_attrs(), so the original sends none of them, and rows that are trained never reach the servers (known_differences.py)."""
        message = self.judge.program_diff.ProgramDesc()
        with open(path, "rb") as f:
            message.ParseFromString(f.read())
        if self.plan["cluster"]["transpiler"] == "geo":
            ops = message.blocks[0].ops
            left_out = {slot.arguments[0] for op in ops if op.type == "lookup_table_v2" for slot in op.inputs if slot.parameter == "W"}
            for op in ops:
                tables = next((a.strings for a in op.attrs if op.type == "send" and a.name == "send_varnames"), [])
                ids = next((slot.arguments for slot in op.inputs if slot.parameter == "X"), [])
                for i in reversed(range(min(len(tables), len(ids)))):
                    if tables[i] in left_out:
                        del tables[i], ids[i]
        return self.judge.program_diff.Program(message)

    def server_program(self, path):
        """A server's program without the id of the trainer as which the original ran; those of millrace serve all
        trainers."""
        program = self.judge.program_diff.load(path)
        for block in program.blocks:
            for op in block.ops:
                if "op_role_var" in op.attrs:
                    kind, names = op.attrs["op_role_var"]
                    op.attrs["op_role_var"] = (kind, type(names)(re.sub(r"\.trainer_[0-9]+$", "", n) for n in names))
        return program

    def waits_alone(self):
        """Whether the only trainer of an asynchronous job has its last update before its next step. One with a Communicator may not."""
        config = self.config["config"]
        waits = config["geo_sgd_need_push_nums"] == 1 if config.get("geo_sgd_mode") else config.get("half_async") or not config.get("runtime_split_send_recv")
        return self.config["call"]["trainers"] == 1 and waits

    def comparable(self, params):
        """Whether the job must end with the values of one process."""
        config, kind, cluster = self.config["config"], self.plan["optimizers"][0]["type"], self.plan["cluster"]
        asynchronous = ("geo_sgd_mode", "runtime_split_send_recv", "half_async", "completely_not_async", "enable_dc_asgd")
        if (not self.config["call"]["sync_mode"] or any(config.get(k) for k in asynchronous)) and not self.waits_alone():
            return False
        tables = [v for n, v in params.items() if n.endswith(".emb")]
        if cluster["distributed"] and tables and (self.config["call"]["trainers"] > 1 or kind != "sgd"):
            return False                                         # a table that is distributed by id is updated by sgd, with summed gradients, as by the original
        if not config.get("slice_var_up", True):
            return True
        # The norms of a slice differ from those of a parameter; a slice of a table that gets no rows in a step keeps
        # its state.
        return kind != "lars_momentum" and (kind in ("sgd", "adagrad") or not any(len(v) > 100 for v in tables))


# integers of a feed: lower and upper bound
RANGES = {"ragged_ids_0": (0, 12), "ragged_ids_1": (0, 12), "ids_0": (0, 12), "ids_1": (0, 12), "label3": (0, 3), "branch": (0, 3), "trips": (1, 4), "click": (0, 2)}


def batches(config, numbers):
    """One batch: rows or sequences of a trainer."""
    count, feeds = config["batch"], {}
    lengths = [int(n) for n in numbers.integers(1, 4, count)]
    for name, feed in sorted(config["feeds"].items()):
        rows = sum(lengths) if feed["lod_level"] else count
        shape = [rows if d < 0 else d for d in feed["shape"]]
        if name == "index_distinct":
            feeds[name] = numbers.permutation(count)
        elif name in RANGES:
            feeds[name] = numbers.integers(*RANGES[name], shape)
        elif feed["dtype"] == "float32":
            feeds[name] = numbers.uniform(-1, 1, shape)
        else:
            feeds[name] = numbers.integers(0, count, shape)
        feeds[name] = feeds[name].astype(feed["dtype"])
        if feed["lod_level"]:
            feeds[f"{name}.lod0"] = np.concatenate([[0], np.cumsum(lengths)]).astype("i8")
    return feeds


def read_program(program_diff, path):
    message = program_diff.ProgramDesc()
    with open(path, "rb") as f:
        message.ParseFromString(f.read())
    return message


def parameters(program_diff, path, numbers):
    """Random numbers for the vars that optimizers update, and for the tables that ops read: one without an update is on no server, and trainers have
    no value for it."""
    message = read_program(program_diff, path)
    block = message.blocks[0]
    dims = {v.name: list(v.type.lod_tensor.tensor.dims) for v in block.vars if v.type.HasField("lod_tensor")}
    names = {a for op in block.ops for slot in op.inputs if slot.parameter == "Param" or op.type.startswith("lookup_table") and slot.parameter == "W" for a in slot.arguments}
    return {n: numbers.uniform(-0.3, 0.3, dims[n]).astype("f4") for n in sorted(names)}


def train_job(job):
    """All roles in one process; and one process that gets the same batch as every trainer, if the job is
    synchronous."""
    tools, config, work = job.tools, job.config, job.work
    numbers = np.random.default_rng(job.plan["seed"])
    params = parameters(job.judge.program_diff, f"{job.folder}/main.pb", numbers)
    np.savez(f"{work}/init.npz", **params)
    steps = [batches(config, numbers) for _ in range(config["steps"])]
    np.savez(f"{work}/whole.npz", **{f"step{k}/{n}": v for k, feeds in enumerate(steps) for n, v in feeds.items()})
    np.savez(f"{work}/parts.npz", **{f"t{t}/step{k}/{n}": v for t in range(config["call"]["trainers"]) for k, feeds in enumerate(steps) for n, v in feeds.items()})
    have = run_job(job, params)
    if have is None:
        return "refused by its servers"
    for name in infinite(params, have):
        if not job.config["config"].get("enable_dc_asgd"):
            raise Finding("job", f"'{name}' is not finite")
        return diverges(job, params)
    comparable = job.comparable(params)
    steps_of_one = config["steps"] if comparable else job.pushed_steps()
    if steps_of_one == 0:
        return "ran"
    one = ["--program", f"{job.folder}/main.pb", "--startup", f"{job.folder}/startup.pb", "--feed-steps", f"{work}/whole.npz", *options(work, config, steps_of_one),
           "--threads", "1"]
    tools.must("one process", "run-program", *one, "--output", f"{work}/one_out.npz", "--save-persistables", f"{work}/one.npz")
    if not comparable:
        check_moved(job, params, load(f"{work}/one.npz"), have)
        return "ran"
    compare(job, params, load(f"{work}/one.npz"), have, load(f"{work}/one_out.npz"), load(f"{work}/job_out.npz"), bound_of(job, one, params))
    if config["call"]["trainers"] > 1 and not job.corrected():
        train_apart(job, params, numbers, one)
    return "equal"


def joined(parts):
    """The batches of several trainers as one, which devices split into the same parts again."""
    whole = {}
    for name in parts[0]:
        values = [part[name] for part in parts]
        if name.endswith(".lod0"):
            ends = np.cumsum([0] + [v[-1] for v in values])
            values = [values[0][:1]] + [v[1:] + end for v, end in zip(values, ends)]
        whole[name] = np.concatenate(values)
    return whole


def train_apart(job, params, numbers, one):
    """Every trainer gets a batch of its own; a process with a device for each trainer averages gradients as servers do."""
    work, config, trainers = job.work, job.config, job.config["call"]["trainers"]
    steps = [[batches(config, numbers) for _ in range(trainers)] for _ in range(config["steps"])]
    np.savez(f"{work}/parts.npz", **{f"t{t}/step{k}/{n}": v for k, parts in enumerate(steps) for t in range(trainers) for n, v in parts[t].items()})
    np.savez(f"{work}/whole.npz", **{f"step{k}/{n}": v for k, parts in enumerate(steps) for n, v in joined(parts).items()})
    one = [*one, "--devices", f"cpu:{trainers}"]
    job.tools.must("a device for each trainer", "run-program", *one, "--output", f"{work}/one_out.npz", "--save-persistables", f"{work}/one.npz")
    want, have, bound = load(f"{work}/one.npz"), run_job(job, params), bound_of(job, one, params)
    compare_values("job with other batches against devices", want, have, bound)


def options(work, config, steps):
    return ["--params", f"{work}/init.npz", "--steps", str(steps), "--fetch", config["loss"], "-q", "--force"]


def run_job(job, params):
    """All roles in one process; the parameters at the end. None where the servers of the original's program would drop rows."""
    work, common = job.work, options(job.work, job.config, job.config["steps"])
    status, said = job.tools.call("job", "run-program", "--cluster", "inproc", "--transpiled", job.out, "--feed-steps", f"{work}/parts.npz", *common, "--output", f"{work}/job_out.npz",
                                  "--save-persistables", f"{work}/job.npz", "--deadline-ms", "20000")
    if status == 7 and "it would keep those of one trainer" in said:
        return None
    if status:
        raise Finding("job", f"was transpiled, but ends with status {status}: {said[-500:]}")
    have = load(f"{work}/job.npz")
    for name in params:
        if name not in have:
            raise Finding("job", f"has no '{name}' at the end")
    return have


def infinite(params, have):
    return [name for name in params if not np.isfinite(have[name]).all()]


def diverges(job, params):
    """Delay compensation adds the square of a gradient times what other trainers have changed, so large gradients grow beyond all bounds in a few
    steps (seed 34831, also in float64). With small parameters and feeds the job has to end with numbers and has to train."""
    small = {n: v * np.float32(0.1) for n, v in params.items()}
    np.savez(f"{job.work}/init.npz", **small)
    feeds = load(f"{job.work}/parts.npz")
    np.savez(f"{job.work}/parts.npz", **{n: v * np.float32(0.1) if v.dtype.kind == "f" else v for n, v in feeds.items()})
    have = run_job(job, params)
    for name in infinite(params, have):
        raise Finding("job", f"'{name}' is not finite, not even with small parameters and feeds")
    if all(np.array_equal(have[n], v) for n, v in small.items()):
        raise Finding("job", "trains nothing with small parameters and feeds")
    return "diverges"


def read_in_branches(job):
    """Names that ops of branches read, blocks within them included: older parameters can decide for another branch (seed 35012)."""
    message = read_program(job.judge.program_diff, f"{job.folder}/main.pb")
    branches = {attr.block_idx for block in message.blocks for op in block.ops if op.type == "conditional_block" for attr in op.attrs if attr.name == "sub_block"}
    for block in message.blocks:                                     # a block follows its parent
        if block.parent_idx in branches:
            branches.add(block.idx)
    return {a for i in branches for op in message.blocks[i].ops for slot in op.inputs for a in slot.arguments}


def check_moved(job, params, want, have):
    """What one process trains, the job trains as well, in whatever order."""
    branches = read_in_branches(job)
    for name, start in params.items():
        if name not in branches and np.any(want[name] != start) and not np.any(have[name] != start):
            raise Finding("job", f"did not train '{name}', which one process trains")


def bound_of(job, one, params):
    """Fifty times the effect of initial values that differ by one part in ten million."""
    noise = np.random.default_rng(7)
    np.savez(f"{job.work}/moved.npz", **{n: (v * (1 + 1.2e-7 * noise.choice([-1, 1], v.shape))).astype("f4") for n, v in params.items()})
    moved = [f"{job.work}/moved.npz" if w == f"{job.work}/init.npz" else w for w in one]
    job.tools.must("one process", "run-program", *moved, "--output", f"{job.work}/noise_out.npz", "--save-persistables", f"{job.work}/noise.npz")
    start, other = load(f"{job.work}/one.npz"), load(f"{job.work}/noise.npz")
    grown = [off(other[n], v, 1e-2) for n, v in start.items() if v.dtype.kind == "f"]
    return max(STEP_BOUND, 50 * max((g for g in grown if isinstance(g, float)), default=0.0))


def compare_values(kind, want, have, bound):
    for name, value in sorted(want.items()):
        if value.dtype.kind != "f" or name not in have or bound > 2e-2:
            continue
        error = off(have[name], value, 1e-2)
        if isinstance(error, str) or not error <= bound:
            raise Finding(kind, f"'{name}' {error if isinstance(error, str) else f'is off by {error:.1e}, at most {bound:.0e}'}")


def compare(job, params, want, have, want_out, have_out, bound):
    if bound > 2e-2:
        return
    compare_values("job against one process", want, have, bound)
    for k in range(job.config["steps"]):
        name = f"step{k}/{job.config['loss']}"
        for t in range(job.config["call"]["trainers"]):
            error = off(have_out[f"t{t}/{name}"], want_out[name], 1e-2)
            if isinstance(error, str) or not error <= bound:
                raise Finding("job against one process", f"loss 't{t}/{name}' {error if isinstance(error, str) else f'is off by {error:.1e}, at most {bound:.0e}'}")


def check(tools, folder, work, judge, train=True):
    """Runs every check of a job, but trains it only if requested; raises the first finding. Returns the counts."""
    job = Job(tools, folder, work, judge)
    original = job.config["outcome"]
    status, said = job.transpile()
    if status:
        if status not in REFUSED or not said:
            raise Finding("transpile", f"status {status}: {said[-300:]}")
        if original == "ok":
            return {"refused, taken by the original": 1, "differences": [said[-300:]]}
        return {"refused by both": 1, "differences": []}
    if original == "ok" and not job.corrected():
        job.equal_programs()
    emitted = job.emitted()
    random.Random(job.plan["seed"]).shuffle(emitted)
    for program in emitted[:4]:                                  # transpile-program verifies all of them
        tools.must("verifier", "inspect-program", program, "--verify", "-q")
    text_form_returns(tools, "text form", emitted[0], work)
    programs = "taken, refused by the original" if original != "ok" else "corrected programs" if job.corrected() else "equal programs"
    trained = "without servers" if not job.servers else train_job(job) if train else "not run"
    return {f"{programs}, job {trained}": 1,
            "differences": [] if original == "ok" else [job.config["error"]["message"][:200]]}
