#!/usr/bin/env python3
"""Runs the programs that save and load distributed jobs (io_* of the transpiler references) against live servers.

    io_programs.py --bin-dir build/dev/tools --shared ../shared [--only SUBSTR]

For each case with such programs, a job of several processes is trained for some steps, both trainers on the same
batches. Then trainer 0 runs the reference's io_save programs. The files must equal, byte for byte,

- those that a single process with the values of the servers saves, and
- without a distributed table: those of a single process that was trained on the same batches.

An inference model of the job must equal, file by file, that of a process with these values, including the whole table.

New servers run the reference's io_load programs, or read the folder, and continue: they must end with the same values
as a single process that continues from the files it saved. Exit status: 0 all equal, 1 some not.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from ports import free_ports  # noqa: E402

STEPS = 3
SECONDS = 90
ROWS = 8


def run(command, **more):
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, **more)
    if done.returncode != 0:
        raise RuntimeError(f"{os.path.basename(command[0])} ended with {done.returncode}: {done.stderr.strip()[-1500:]}")
    return done.stdout


def run_all(commands):
    """Runs processes concurrently; the first that fails ends all."""
    logs = [tempfile.TemporaryFile() for _ in commands]
    started = [subprocess.Popen(c, stdout=subprocess.DEVNULL, stderr=log) for c, log in zip(commands, logs)]
    try:
        end = time.monotonic() + SECONDS
        while any(p.poll() is None for p in started):
            bad = [i for i, p in enumerate(started) if p.poll()]
            if bad or time.monotonic() > end:
                break
            time.sleep(0.02)
        for p, log, command in zip(started, logs, commands):
            if p.poll() != 0 and (p.poll() is not None or time.monotonic() > end):
                log.seek(0)
                words = log.read().decode(errors="replace")[-1500:].strip()
                raise RuntimeError(f"{os.path.basename(command[0])} ended with {p.poll()}: {words}")
    finally:
        for p, log in zip(started, logs):
            p.kill()
            p.wait()
            log.close()


class Case:
    """One reference case in a working folder."""

    def __init__(self, a, name, work, checkers):
        self.a, self.work = a, work
        self.folder = f"{a.shared}/goldens/transpiler/{name}"
        self.pb = checkers[1]
        with open(f"{self.folder}/config.json") as f:
            self.case = json.load(f)
        self.config = checkers[0].tool_config(self.case)
        self.config.pop("trainer_id", None)
        self.table = self.case["overview"]["distributed_lookup_table"]
        self.named = self.case["overview"]["endpoints"]
        self.main, self.startup = self.read("main.pb"), self.read("startup.pb")
        self.rng = np.random.default_rng(7)

    def at(self, *names):
        return os.path.join(self.work, *names)

    def read(self, name):
        program = self.pb.ProgramDesc()
        with open(f"{self.folder}/{name}", "rb") as f:
            program.ParseFromString(f.read())
        return program

    def write(self, program, name):
        with open(self.at(name), "wb") as f:
            f.write(program.SerializeToString())
        return self.at(name)

    def with_endpoints(self, name, endpoints):
        """A program of the reference with other endpoints of the servers."""
        program = self.read(name)
        places = dict(zip(self.named, endpoints))
        for block in program.blocks:
            for op in block.ops:
                for attr in op.attrs:
                    attr.strings[:] = [places.get(s, s) for s in attr.strings]
        return self.write(program, name)

    def stored(self):
        """Vars that a single process saves."""
        return [v for v in self.main.blocks[0].vars if v.persistable and v.type.type in (7, 8)]

    def make_init(self):
        """Initial values: random parameters, and the values that the startup program fills in."""
        constants = {}
        for op in self.startup.blocks[0].ops:
            if op.type == "fill_constant":
                name = op.outputs[0].arguments[0]
                constants[name] = next(x.f for x in op.attrs if x.name == "value")
        values = {}
        for var in self.stored():
            dims = [max(d, 1) for d in var.type.lod_tensor.tensor.dims]
            if var.name in constants:
                values[var.name] = np.full(dims, constants[var.name], "float32")
            else:
                values[var.name] = self.rng.uniform(-0.1, 0.1, dims).astype("float32")
        np.savez(self.at("init.npz"), **values)

    def make_feeds(self):
        """Batches in which no id occurs twice: sums of repeated rows would depend on their order."""
        written = {x for op in self.main.blocks[0].ops for s in op.outputs for x in s.arguments}
        read = {x for op in self.main.blocks[0].ops for s in op.inputs for x in s.arguments}
        single = {}
        for step in range(2 * STEPS):
            ids = self.rng.permutation(900)[:200]
            for var in self.main.blocks[0].vars:
                if var.name in written or var.persistable or var.name not in read:
                    continue
                desc = var.type.lod_tensor
                dims = [ROWS if d < 0 else d for d in desc.tensor.dims]
                if desc.tensor.data_type == 5:
                    value = self.rng.uniform(-1, 1, dims).astype("float32")
                elif var.name in self.labels():
                    value = self.rng.integers(0, 2, dims).astype("int64")
                else:
                    count = int(np.prod(dims))
                    value, ids = ids[:count].reshape(dims).astype("int64"), ids[count:]
                at = {f"step{step}/{var.name}": value}
                if desc.lod_level:
                    at[f"step{step}/{var.name}.lod0"] = np.arange(ROWS + 1).astype("int64")
                single.update(at)
        head = {k: v for k, v in single.items() if int(k[4:k.index("/")]) < STEPS}
        tail = {f"step{int(k[4:k.index('/')]) - STEPS}{k[k.index('/'):]}": v for k, v in single.items() if k not in head}
        np.savez(self.at("head.npz"), **head)
        np.savez(self.at("tail.npz"), **tail)

    def labels(self):
        return {x for op in self.main.blocks[0].ops for s in op.inputs if s.parameter == "Label" for x in s.arguments}

    def tool(self, name):
        return os.path.join(self.a.bin_dir, name)

    def single(self, feeds, params, save):
        """Trains a single process, which saves one file per var."""
        run([self.tool("run-program"), "--program", f"{self.folder}/main.pb", "--startup", f"{self.folder}/startup.pb",
             "--params", params, "--feed-steps", self.at(feeds), "--steps", str(STEPS), "--optimize", "false", "--save-params",
             self.at(save) + "/", "-o", self.at(save + ".npz"), "-q"])

    def model_flags(self):
        """Inputs and outputs of the inference model: from all fed vars except labels to the input of the cost."""
        costs = {"cross_entropy": "X", "cross_entropy2": "X", "square_error_cost": "X", "softmax_with_cross_entropy": "Logits"}
        ops = self.main.blocks[0].ops
        fetch = next((s.arguments[0] for op in ops for s in op.inputs if s.parameter == costs.get(op.type)), None)
        if fetch is None:  # the mean of the output
            fetch = next(s.arguments[0] for op in ops if op.type in ("mean", "reduce_mean") for s in op.inputs if s.arguments)
        written = {x for op in ops for s in op.outputs for x in s.arguments}
        needed, before = {fetch}, set()
        while needed != before:
            before = set(needed)
            for op in ops:
                if any(x in needed for s in op.outputs for x in s.arguments) and not any(
                        "@GRAD" in x for s in op.outputs for x in s.arguments) and not any(s.parameter == "Param" for s in op.inputs):
                    needed |= {x for s in op.inputs for x in s.arguments}
        feeds = [v.name for v in self.main.blocks[0].vars if v.name in needed and v.name not in written and not v.persistable]
        return ["--model-program", f"{self.folder}/main.pb", "--model-feeds", ",".join(feeds), "--model-fetches", fetch]

    def save_values(self, values, save):
        """Lets a single process with these values save them."""
        program = self.read("main.pb")
        for block in program.blocks:
            del block.ops[:]
        model = self.write(program, "no_ops.pb")
        run([self.tool("run-program"), "--program", model, "--params", values, "--save-params", self.at(save) + "/",
             "--save-model", self.at(save + "_model"), *self.model_flags(), "-o", self.at(save + ".out.npz"), "-q"])

    def job(self, feeds, params, name, server_flags, trainer_flags):
        """Trains with server processes; flags(i) are those of one server or of trainer 0."""
        endpoints = [f"127.0.0.1:{p}" for p in free_ports(len(self.named))]
        out = self.at(name)
        with open(out + ".json", "w") as f:
            json.dump({**self.config, "pservers": ",".join(endpoints)}, f)
        run([self.tool("transpile-program"), "--program", f"{self.folder}/main.pb", "--startup",
             f"{self.folder}/startup.pb", "--config", out + ".json", "--trainer-id", "all", "-o", out, "-q"])
        role = lambda kind, i: ["--program", f"{out}/{kind}_{i}/__model__", "--startup", f"{out}/{kind}_{i}/__startup__",
                                "--slices", f"{out}/slices.json"]
        commands = [[self.tool("pserver"), *role("pserver", i), *server_flags(i, endpoints)] for i in range(len(endpoints))]
        for t in range(int(self.config.get("trainers", 1))):
            commands.append([self.tool("run-program"), "--role", "trainer", "--trainer-id", str(t), *role("trainer", t),
                             *params, "--feed-steps", self.at(feeds), "--steps", str(STEPS), "--optimize", "false", "-q",
                             "-o", f"{out}.out{t}.npz", *(trainer_flags(endpoints) if t == 0 else [])])
        run_all(commands)


def files_of(folder):
    found = {}
    for root, _, names in os.walk(folder):
        for name in names:
            with open(os.path.join(root, name), "rb") as f:
                found[os.path.relpath(os.path.join(root, name), folder)] = f.read()
    return found


def without_rates(files):
    """Learning rates are on servers and are in no save of a job (spec/distributed_io.md, exclusion rules)."""
    return {n: b for n, b in files.items() if not n.startswith("learning_rate_")}


def compare(label, left, right):
    """Differences of two sets of files."""
    wrong = [f"{label}: only in the first: {n}" for n in sorted(left.keys() - right.keys())]
    wrong += [f"{label}: only in the second: {n}" for n in sorted(right.keys() - left.keys())]
    wrong += [f"{label}: {n} differs" for n in sorted(left.keys() & right.keys()) if left[n] != right[n]]
    return wrong


def table_rows(name, parts):
    """The table of files <name>_<server> as the file of a single process."""
    rows, tensor = {}, None
    for n in range(len(parts)):
        data = parts[f"__lookup_table__/{name}_{n}"]
        count = int.from_bytes(data[4:12], "little")
        numbers = np.frombuffer(data, "int64", count, 12)
        at = 12 + 8 * count + 8 + 4  # after rows, height and the tensor's version
        size = int.from_bytes(data[at:at + 4], "little")
        values = np.frombuffer(data, "float32", offset=at + 4 + size).reshape(count, -1)
        rows.update(zip(numbers.tolist(), values))
        tensor = values
    assert sorted(rows) == list(range(len(rows))), "rows are missing"
    return np.stack([rows[i] for i in range(len(rows))]) if tensor is not None else None


def check(case):
    a_save = sorted(n for n in os.listdir(case.folder) if n.startswith("io_save"))
    case.make_init()
    case.make_feeds()
    init = ["--params", case.at("init.npz")]
    model, values = case.at("disk", "model"), case.at("values.npz")
    os.makedirs(case.at("disk"))
    allow = ["--allow-dir", case.at("disk")]
    save = lambda ends: [*allow, "--save-params", model, "--save-persistables", values, "--save-model",
                         case.at("disk", "infer"), *case.model_flags()] + (
        ["--save-programs", ",".join(case.with_endpoints(n, ends) for n in a_save)] if a_save else [])
    case.job("head.npz", init, "first", lambda i, ends: [*init, *allow], save)
    saved = files_of(model)
    table = {n: b for n, b in saved.items() if n.startswith("__lookup_table__/")}
    dense = {n: b for n, b in saved.items() if n not in table}
    # Values that the servers do not hold, such as the learning rate, keep their initial values.
    with np.load(case.at("init.npz")) as f, np.load(values) as g:
        np.savez(case.at("all.npz"), **{**{n: f[n] for n in f.files}, **{n: g[n] for n in g.files}})
    case.save_values(case.at("all.npz"), "alone")
    alone = without_rates(files_of(case.at("alone")))
    wrong = compare("inference models of the job and of a process", files_of(case.at("disk", "infer")),
                    files_of(case.at("alone_model")))
    if not os.path.exists(case.at("disk", "infer", "__model__")):
        wrong.append("there is no inference model")
    if table:
        whole = table_rows(case.table, table)
        header = alone[case.table][:-whole.nbytes]
        dense[case.table] = header + whole.tobytes()
        # Servers train the table by plain sgd, whatever the optimizer of the other parameters is.
        state = [n for n in alone if n.startswith(case.table + "_")]
        for n in state:
            alone.pop(n)
    wrong += compare("saved by the job, saved by a process with its values", dense, alone)
    if not table:
        case.single("head.npz", case.at("init.npz"), "trained")
        wrong += compare("saved by the job, trained by one process", dense, without_rates(files_of(case.at("trained"))))
    # The same files are loaded by the programs of the reference, and by new servers that read the folder.
    load = lambda i, ends: [*allow, "--load-program", f"{case.folder}/io_load_pserver{i}.pb"] + (
        ["--params", case.at("all.npz")] if table else [])
    folder = lambda i, ends: [*allow, "--params", model]
    ends = {}
    # Parameters that fake_init creates are not fetched by a trainer before its first step.
    fakes = any(op.type == "fake_init" for op in case.read("trainer_startup.pb").blocks[0].ops)
    for name, flags, params in (("by_programs", load, ["--params", model] if fakes else []), ("by_folder", folder, ["--params", model])):
        if not table or name == "by_folder":
            case.job("tail.npz", params, name, flags, lambda e, n=name: ["--save-persistables", case.at(n + ".npz")])
            with np.load(case.at(name + ".npz")) as f:
                ends[name] = {n: f[n] for n in f.files}
    if table:
        case.job("tail.npz", ["--params", case.at("all.npz")], "by_values", lambda i, e: ["--params", case.at("all.npz")],
                 lambda e: ["--save-persistables", case.at("by_values.npz")])
        with np.load(case.at("by_values.npz")) as f:
            expected = {n: f[n] for n in f.files}
    else:
        case.single("tail.npz", case.at("trained"), "tail_trained")
        expected = None
    for name, got in ends.items():
        if expected is not None:
            wrong += [f"{name}: {n} differs after more steps" for n in sorted(expected)
                      if n not in got or got[n].tobytes() != expected[n].tobytes()]
            continue
        trained = files_of(case.at("tail_trained"))
        wrong += [f"{name}: {n} differs after more steps" for n in sorted(got)
                  if not trained[n].endswith(got[n].tobytes())]
    return wrong


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--bin-dir", required=True)
    ap.add_argument("--shared", required=True)
    ap.add_argument("--only", default="")
    a = ap.parse_args()
    sys.path.insert(0, f"{a.shared}/tools")
    import check_transpiler
    import program_diff
    root = f"{a.shared}/goldens/transpiler"
    passed = failed = 0
    for name in sorted(os.listdir(root)):
        if a.only not in name or not os.path.exists(f"{root}/{name}/io_load_pserver0.pb"):
            continue
        with tempfile.TemporaryDirectory() as work:
            try:
                wrong = check(Case(a, name, work, (check_transpiler, program_diff)))
            except (RuntimeError, subprocess.TimeoutExpired, AssertionError, KeyError) as error:
                wrong = [f"{type(error).__name__}: {error}"]
        print(f"{name}: {'equal' if not wrong else ''}{'; '.join(wrong)}", flush=True)
        passed, failed = passed + (not wrong), failed + bool(wrong)
    print(f"{passed} passed, {failed} failed")
    return int(failed > 0 or passed == 0)


if __name__ == "__main__":
    sys.exit(main())
