#!/usr/bin/env python3
"""The n-th allocation, thread, descriptor, fsync, write or rename of a tool fails.

    tests/faults/failing_tools.py --bin-dir build/dev/tools [--most 1000] [--only run,launch_shm] [--calls allocation]
    tests/faults/failing_tools.py --bin-dir build/dev/tools --only run --calls allocation --at 4711    # repeats one, with its stack

Each of the commands below runs once for each n that is tried. It passes if it succeeds with the results of a run in which
no call fails, or if it ends with an exit status below 128 and an error that has the system's text or says what is missing.
After an error, every output file has the bytes it had before or the right results, and no other file is left. A checkpoint
verifies after success, and after an error if there was one before.

--most: that many n for each command and call (8), drawn by --seed from the parts of equal size, 0: every n. --row: that many
calls fail, one after the other (1).

Exit status: 0 all passed, 1 not. Needs numpy and a C compiler.
"""
import argparse
import concurrent.futures
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, "../.."))
CALLS = {"allocation": ("memory",), "thread": ("thread", "Resource temporarily unavailable"),
         "descriptor": ("Too many open files", "descriptor"), "fsync": ("Input/output error",),
         "write": ("No space left on device",), "rename": ("Input/output error",)}
LIMIT = 60  # seconds until a command counts as hanging
DATA = "tests/data/"


class Wrong(Exception):
    pass


def compile_shim(folder):
    shim = os.path.join(folder, "failing_calls.so")
    subprocess.run(["cc", "-O1", "-fexceptions", "-shared", "-fPIC", "-o", shim, os.path.join(HERE, "failing_calls.c"), "-ldl"], check=True)
    return shim


def spread(count, most, seed):
    """Numbers from 1 to count, one of each of `most` parts of equal size; 0: all of them."""
    if most <= 0 or count <= most:
        return list(range(1, count + 1))
    draw = random.Random(seed)
    edges = [i * count // most for i in range(most + 1)]
    return [draw.randint(low + 1, high) for low, high in zip(edges, edges[1:])]


class Command:
    """A command that is repeated in a new copy of a folder with its inputs and with older outputs.

    words: its command line, relative to the folder; {root} is the root of the repository. program: the one that counts
    calls. outputs: files and folders that it may write. checks: commands that must succeed afterwards, also after an error.
    rank: of that one the calls count. reports: with an error, the output says what is missing.
    """

    def __init__(self, words, outputs, program=None, checks=(), rank=None, reports=False):
        self.words, self.outputs, self.checks, self.rank, self.reports = words, outputs, checks, rank, reports
        self.program = program or words[0]


def training(*more):
    return ["run-program", "--program", "{root}/" + DATA + "fit_a_line/main.pb", "--startup", "{root}/" + DATA + "fit_a_line/startup.pb",
            "--columns", "x=0:12,y=13", "--batch-size", "8", "--seed", "3", "--data", "d.csv", "--epochs", "1", "-q", "--force", *more]


CLICKS = "{root}/" + DATA + "ctr_dnn/"
MODEL = "{root}/" + DATA + "models/fit_a_line_2018"
COMMANDS = {
    "run": Command(training("--threads", "2", "--save-persistables", "after.npz"), ["after.npz"]),
    "run_cpu2": Command(training("--devices", "cpu:2", "--threads", "2", "--save-persistables", "after.npz"), ["after.npz"]),
    "run_saving": Command(training("--save-every", "1", "--checkpoint-dir", "ck", "--keep-last", "3", "--resume", "auto",
                                   "--save-persistables", "after.npz"), ["ck", "after.npz"], checks=[["checkpoint", "verify", "ck", "-q"]]),
    "infer": Command(["run-program", "--model-dir", MODEL, "--feed", "x=2x13xf32=random:7", "--output", "out.npz", "--force"], ["out.npz"]),
    "transpile": Command(["transpile-program", "--program", CLICKS + "main.pb", "--startup", CLICKS + "startup.pb", "--pservers",
                          "127.0.0.1:6174,127.0.0.1:6175", "--trainers", "2", "--trainer-id", "all", "--threads", "2", "-o", "job", "--force", "-q"],
                         ["job"]),
    "passes": Command(["transpile-program", "--program", "{root}/tests/data/programs/divide.txt", "--passes", "remove-dead-ops{keep=[quarter]}", "-o", "out.pb",
                         "--force", "-q"], ["out.pb"]),
    "convert": Command(["checkpoint", "convert", "state.npz", "--to", "safetensors", "-o", "state.safetensors", "--force", "-q"],
                       ["state.safetensors"]),
    "reshard": Command(["checkpoint", "reshard", "saved", "--ranks", "3", "--cut-whole", "-o", "cut", "--force", "-q"], ["cut"],
                       checks=[["checkpoint", "verify", "cut", "-q"], ["checkpoint", "diff", "cut", "saved", "-q"]]),
    "verify": Command(["checkpoint", "verify", "saved", "-q"], []),
    "onnx": Command(["migrate", "--to", "onnx", MODEL, "-o", "model.onnx", "--force", "-q"], ["model.onnx"]),
    "pir": Command(["migrate", "--to", "pir", MODEL, "-o", "model", "--force", "-q"], ["model.json", "model.pdiparams"]),
    "report": Command(["migrate", "{root}/" + DATA + "models", "-q", "-o", "report.txt", "--force"], ["report.txt"], reports=True),
}
OWN_BYTES = ("log", "ck", "cut")  # folders whose files differ from run to run; their checks must succeed
RANKS = {"launch": None, "run-program": "0"}  # the processes of a collective job that are tried


class Runs:
    def __init__(self, args, work):
        self.args, self.work, self.bin = args, work, os.path.abspath(args.bin_dir)
        self.shim, self.inputs = compile_shim(work), os.path.join(work, "inputs")
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("PADDLE_", "FLAGS_"))}
        self.env.update(CPU_NUM="1", OMP_NUM_THREADS="1")
        self.commands = dict(COMMANDS)
        os.makedirs(self.inputs)
        self.prepare()

    def prepare(self):
        draw = random.Random(1)
        with open(f"{self.inputs}/d.csv", "w", encoding="utf-8") as file:
            for _ in range(24):
                file.write(",".join(f"{draw.random():.3f}" for _ in range(14)) + "\n")
        self.run_plainly(training("--save-every", "1", "--checkpoint-dir", "saved", "--save-persistables", "state.npz"), self.inputs)
        self.add_collective("collective_grad_allreduce")

    def add_collective(self, case):
        """Two ranks, by shared memory and by Gloo; the calls of launch and those of rank 0 are counted."""
        folder = os.path.join(self.args.shared, "goldens/transpiler", case)
        if not os.path.isdir(folder):
            return
        with open(f"{folder}/config.json", encoding="utf-8") as file:
            config = json.load(file)
        endpoints = ["127.0.0.1:7000", "127.0.0.1:7001"]
        for rank in range(2):
            fields = dict(config["config"], trainers=",".join(endpoints), trainer_id=rank, current_endpoint=endpoints[rank],
                          parameter_order=config["parameter_order"])
            fields.pop("wait_port", None)
            with open(f"{self.inputs}/config{rank}.json", "w", encoding="utf-8") as file:
                json.dump(fields, file)
            self.run_plainly(["transpile-program", "--program", f"{folder}/main.pb", "--startup", f"{folder}/startup.pb", "--config",
                              f"config{rank}.json", "-o", f"rank{rank}"], self.inputs)
        text = self.run_plainly(["inspect-program", f"{folder}/main.pb", "--format", "text"], self.inputs)
        for rank in range(2):
            np.savez(f"{self.inputs}/feeds{rank}.npz", **feeds_of(text, rank))
        for engine in ("shm", "gloo"):
            words = ["launch", "--nproc_per_node", "2", "--log_dir", "log", "--", f"{self.bin}/run-program", "--program",
                     "rank{rank}/trainer_{rank}/__model__", "--startup", "rank{rank}/trainer_{rank}/__startup__", "--feed-steps",
                     "feeds{rank}.npz", "--steps", "2", "--seed", "3", "--save-persistables", "after{rank}.npz", "--engine", engine, "--wait-ms",
                     "5000", "--threads", "1", "--force"]
            for program, rank in RANKS.items():
                name = f"launch_{engine}" if program == "launch" else f"rank_{engine}"
                if engine == "gloo" and program == "launch":
                    continue  # launch does the same for each engine
                self.commands[name] = Command(words, ["after0.npz", "after1.npz", "log"], program, rank=rank)

    def words(self, words):
        """With the tool's path; {rank} of other tools stays."""
        return [os.path.join(self.bin, words[0])] + [word.replace("{root}", ROOT) for word in words[1:]]

    def run_plainly(self, words, folder):
        done = subprocess.run(self.words(words), cwd=folder, capture_output=True, text=True, timeout=LIMIT, env=self.env)
        if done.returncode != 0:
            raise Wrong(f"{' '.join(words[:8])}: exit status {done.returncode}: {done.stderr[-400:]}")
        return done.stdout

    def run(self, command, folder, call, at):
        """Runs it with a failing call. Returns status, errors and how many calls were made."""
        env = {**self.env, "LD_PRELOAD": self.shim, "FAILING_CALL": call, "FAILING_AT": str(at), "FAILING_ROW": str(self.args.row),
               "FAILING_COUNT": f"{folder}.count", "FAILING_NAME": command.program}
        if command.rank is not None:
            env["FAILING_RANK"] = command.rank
        if self.args.at:
            env["FAILING_SHOW"] = "1"
        process = subprocess.Popen(self.words(command.words), cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env,
                                   start_new_session=True)
        try:
            text = process.communicate(timeout=LIMIT)[0].decode(errors="replace")
        except subprocess.TimeoutExpired as error:
            os.killpg(process.pid, 9)
            process.communicate()
            raise Wrong(f"hangs: {logs_of(folder)}") from error
        count = int.from_bytes(open(f"{folder}.count", "rb").read(8), "little") if os.path.exists(f"{folder}.count") else 0
        return process.returncode, text + logs_of(folder), count

    def check(self, name, call, at, earlier):
        """Returns how many calls the command made, and whether it failed. earlier: an empty folder, or one of a run before, to
        start with its outputs."""
        command, folder = self.commands[name], tempfile.mkdtemp(prefix=name, dir=self.work)
        try:
            shutil.copytree(earlier or self.inputs, folder, dirs_exist_ok=True)
            before = contents(folder)
            code, text, count = self.run(command, folder, call, at)
            if self.args.at:
                print(text)
            if code < 0 or code >= 128:
                raise Wrong(f"ends with {code}: {text[-700:]}")
            self.check_files(command, folder, before, code, name, call)
            if code != 0 and not any(word in text for word in CALLS[call]):
                raise Wrong(f"ends with {code}, and says nothing of it: {text[-700:]}")
            return count, code != 0
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def check_files(self, command, folder, before, code, name, call):
        after, want = contents(folder), self.wanted[name]
        for path in sorted(set(before) | set(after) | set(want)):
            kind = next((out for out in command.outputs if path == out or path.startswith(out + "/")), None)
            if kind in OWN_BYTES:
                continue
            if kind is None and path not in before:
                raise Wrong(f"status {code}: '{path}' is left")
            allowed = [want.get(path)] + ([before.get(path)] if code != 0 else [])
            if command.reports and code != 0 and any(word.encode() in after.get(path, b"") for word in CALLS[call]):
                continue
            if after.get(path) not in allowed:
                raise Wrong(f"status {code}: '{path}' is {'missing' if path not in after else 'another'}")
        for words in command.checks:
            made = next(word for word in words[2:] if not word.startswith("-"))
            # an error may leave an unfinished checkpoint where none was, which no tool takes for one
            if code == 0 or any(path.startswith(made + "/") for path in before):
                self.run_plainly(words, folder)

    def reference(self, name):
        """Contents after the command without a failing call."""
        folder = tempfile.mkdtemp(prefix=name, dir=self.work)
        shutil.copytree(self.inputs, folder, dirs_exist_ok=True)
        self.run_plainly(self.commands[name].words, folder)
        self.wanted = {**getattr(self, "wanted", {}), name: contents(folder)}
        return folder

    def try_command(self, name, call):
        begin, wrong, refused = time.monotonic(), [], 0
        earlier = self.reference(name)
        count = self.check(name, call, 0, earlier)[0]
        tried = [self.args.at] if self.args.at else spread(count, self.args.most, f"{self.args.seed} {name} {call}")

        def one(at):
            try:
                # half of them find outputs of an earlier run
                return at, self.check(name, call, at, earlier if at % 2 else None)[1], None
            except (Wrong, OSError) as problem:
                return at, False, problem

        with concurrent.futures.ThreadPoolExecutor(self.args.jobs) as pool:
            for at, failed, problem in pool.map(one, tried):
                refused += failed
                if problem is not None:
                    wrong.append(f"number {at}: {problem}")
        shutil.rmtree(earlier)
        print(f"{name} {call}: {len(tried)} of {count} calls, {refused} end with an error, {len(wrong)} wrong "
              f"({time.monotonic() - begin:.0f} s)", *wrong[:self.args.show], sep="\n  ", flush=True)
        return len(tried), len(wrong)


def logs_of(folder):
    texts = []
    for path, bytes_of in contents(folder).items():
        if path.startswith("log/"):
            texts.append(f"\n{path}: {bytes_of[-400:].decode(errors='replace')}")
    return "".join(texts)


def contents(folder):
    """Bytes of all files, by their path. Of npz files the values, as their bytes may have a time."""
    found = {}
    for at, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(at, name)
            with open(path, "rb") as file:
                found[os.path.relpath(path, folder)] = file.read()
    return found


def feeds_of(text, rank):
    """Two steps of values for the vars that the program is fed with."""
    draw, feeds = np.random.RandomState(7 + rank), {}
    for step in range(2):
        for name, dtype, dims in re.findall(r"^  var (\S+): (\w+)\(([^)]*)\).*need_check_feed", text, re.M):
            shape = [4 if d.strip() == "-1" else int(d) for d in dims.split(",") if d.strip()]
            value = draw.randint(0, 10, shape).astype("int64") if dtype.startswith("i") else draw.uniform(-1, 1, shape).astype("float32")
            feeds[f"step{step}/{name}"] = value
    return feeds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin-dir", required=True)
    parser.add_argument("--most", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--row", type=int, default=1)
    parser.add_argument("--only", default="", help="commands, separated by commas")
    parser.add_argument("--calls", default=",".join(CALLS))
    parser.add_argument("--at", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--show", type=int, default=5, help="that many findings of each command and call are printed")
    parser.add_argument("--shared", default=os.path.join(ROOT, "../shared"))
    args = parser.parse_args()
    tried = wrong = 0
    with tempfile.TemporaryDirectory(prefix="millrace_failing") as work:
        runs = Runs(args, work)
        for name in args.only.split(",") if args.only else runs.commands:
            for call in args.calls.split(","):
                counts = runs.try_command(name, call)
                tried, wrong = tried + counts[0], wrong + counts[1]
    print(f"{tried - wrong} passed, {wrong} failed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
