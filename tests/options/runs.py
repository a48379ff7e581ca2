"""The runs on which options are tried, and their observable results."""
import dataclasses
import json
import os
import re
import shutil
import subprocess
import tempfile
import threading

import numpy as np

SECONDS = 60
# Expected exit statuses of runs that do not end with 0.
ENDS = {"different": 1, "other names": 1, "server": 4, "nobody": 5, "failing children": 5}


@dataclasses.dataclass
class Seen:
    code: int
    said: str      # stdout and stderr
    results: dict  # file -> content; stdout without times


def content(path):
    """Arrays of an npz by name (its bytes vary), else the bytes."""
    with open(path, "rb") as file:
        found = file.read()
    if not found.startswith(b"PK"):
        return found
    with np.load(path, allow_pickle=False) as file:
        return {name: (str(file[name].dtype), file[name].shape, file[name].tobytes()) for name in file.files}


def without_times(text):
    text = re.sub(r"\d{4}-\d\d-\d\d[T ][\d:.]+Z?", "", text)
    return re.sub(r"\d+(\.\d+)?(?= ?(ms|s|us|MB|examples/s)\b)", "#", text)


class Bench:
    """Generates the input of the runs once, and runs them, each in a separate folder."""

    def __init__(self, root, tools, shared):
        self.root, self.tools, self.shared = root, tools, shared
        self.folder = tempfile.mkdtemp(prefix="millrace_options_")
        self.count, self.lock = 0, threading.Lock()
        self.known = {}
        self.make_inputs()
        self.bases = self.make_bases()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.folder, ignore_errors=True)

    def at(self, name):
        return os.path.join(self.folder, name)

    def make_inputs(self):
        x = np.linspace(-1, 1, 5 * 13, dtype=np.float32).reshape(5, 13)
        y = np.linspace(0, 1, 5, dtype=np.float32).reshape(5, 1)
        np.savez(self.at("feed.npz"), x=x, y=y)
        x = x.copy()
        x[0, 0] = np.nan
        np.savez(self.at("nan.npz"), x=x, y=y)
        with open(self.at("fleet.json"), "w", encoding="utf-8") as file:
            file.write('{"mode": "async", "pservers": "127.0.0.1:36011", "trainers": 1}')
        with open(self.at("unused.prog"), "w", encoding="utf-8") as file:
            file.write("# millrace program 1\nblock 0 {\n  var x: f32(-1, 2)\n  var y: f32(-1, 2)\n  var z: f32(-1, 2)\n"
                       "  scale X=x -> Out=y {scale: 2.0, op_callstack: [\"a.py\", \"line\"]}\n  scale X=x -> Out=z\n}\n")

        # input of --minimize, each with one member changed
        with open(os.path.join(self.shared, "goldens/training/mnist_mlp_lamb_warmup/config.json"), encoding="utf-8") as file:
            config = json.load(file)
        for name, more in {"lamb": {}, "lamb_always": {"always_adapt": True}, "adamw": {"type": "adamw"},
                           "adamw_decay": {"type": "adamw", "weight_decay": 0.5}}.items():
            optimizer = {"type": "lamb", "learning_rate": 0.1, "loss": config["loss"], **more}
            with open(self.at(name + ".json"), "w", encoding="utf-8") as file:
                json.dump({**config, "optimizer": [optimizer]}, file)
        with open(self.at("random.prog"), "w", encoding="utf-8") as file:
            file.write("# millrace program 1\nblock 0 {\n  var r: f32(2, 3)\n"
                       "  uniform_random -> Out=r {shape: [2l, 3l], min: -1.0, max: 1.0, seed: 0, dtype: 5}\n}\n")
        with open(self.at("untidy.prog"), "w", encoding="utf-8") as file:  # a var that no op uses
            file.write("# millrace program 1\nblock 0 {\n  var x: f32(2)\n  var y: f32(2)\n  var \"never used\": f32(2)\n"
                       "  scale X=x -> Out=y\n}\n")
        for name, text in {"a": "o X=x {k: 1}\n  p X=x {k: 1}", "b": "o X=x {k: 2}\n  p X=x {k: 2}",
                           "other": "scale X=x -> Out=w {scale: 2.0}", "same": "scale X=x -> Out=y {scale: 2.0}",
                           "full": "scale X=x -> Out=y {scale: 2.0, bias: 0.0}"}.items():
            with open(self.at(name + ".prog"), "w", encoding="utf-8") as file:
                file.write("# millrace program 1\nblock 0 {\n  var x: f32(-1, 2)\n  var y: f32(-1, 2)\n  var w: f32(-1, 2)\n"
                           f"  {text}\n}}\n")

    def make_bases(self):
        fit = os.path.join(self.root, "tests/data/fit_a_line/")
        net = os.path.join(self.shared, "goldens/parallel_executor/convbn_adam_allreduce_4dev/")
        train = ["run-program", "--program", fit + "main.pb", "--startup", fit + "startup.pb", "--seed", "3",
                 "--feed", self.at("feed.npz"), "--fetch", "mean_0.tmp_0,fc_0.tmp_1", "-o", "{out}/o.npz", "--threads", "1",
                 "--save-persistables", "{out}/p.npz"]
        devices = train + ["--devices", "cpu:2"]
        model = os.path.join(self.root, "tests/data/models/fit_a_line_2018")
        infer = ["run-program", "--model-dir", model, "--feed", "x=5x13xf32=random:1", "--threads", "1"]
        cut = ["transpile-program", "--program", os.path.join(self.root, "tests/data/ctr_dnn/main.pb"), "--startup",
               os.path.join(self.root, "tests/data/ctr_dnn/startup.pb"), "-o", "{out}/job", "--trainers", "2", "--pservers",
               "127.0.0.1:6174,127.0.0.1:6175", "--threads", "1"]
        among = cut[:-6] + ["--trainers", "127.0.0.1:6174,127.0.0.1:6175,127.0.0.1:6176,127.0.0.1:6177", "--threads", "1"]
        passes = ["transpile-program", "--program", self.at("unused.prog"), "--passes", "remove-dead-ops{keep=[y]}", "-o",
                  "{out}/p.prog"]
        clip = os.path.join(self.shared, "goldens/transpiler/clip_norm/")
        normed = ["run-program", "--program", net + "main.pb", "--startup", net + "startup.pb", "--params", net + "init.npz",
                  "--feed", "img=8x1x12x12xf32=random:1", "--feed", "label=8x1xi64=zeros", "--devices", "cpu:2", "--threads", "2",
                  "-o", "{out}/o.npz", "--save-persistables", "{out}/p.npz", "--fetch", "mean_0.tmp_0"]
        mlp = os.path.join(self.shared, "goldens/training/mnist_mlp_lamb_warmup/")
        minimize = ["transpile-program", "--program", mlp + "main_forward.pb", "--startup", mlp + "startup_forward.pb", "-o",
                    "{out}/job"]
        return {
            "train": train,
            "devices": devices,
            "devices plan": train + ["--devices", "cpu:2", "--print-plan"],
            "reduce plan": train + ["--devices", "cpu:2", "--reduce-strategy", "reduce", "--print-plan"],
            "plan": train + ["--print-plan"],
            "batch norm": normed,
            "batch norm plan": normed + ["--print-plan"],
            "random": ["run-program", "--program", self.at("random.prog"), "--fetch", "r", "-o", "{out}/o.npz"],
            "clipped": ["transpile-program", "--program", clip + "main.pb", "--startup", clip + "startup.pb", "-o",
                        "{out}/job", "--trainers", "2", "--trainer-id", "all", "--pservers", "127.0.0.1:6174"],
            "nan": [self.at("nan.npz") if word_ == self.at("feed.npz") else word_ for word_ in train],
            "shared": devices + ["--share-vars-program", fit + "main.pb", "--share-vars-feed", self.at("feed.npz"),
                                 "--share-vars-fetch", "mean_0.tmp_0", "--share-vars-output", "{out}/s.npz"],
            "infer": infer,
            "timed": infer + ["--benchmark", "2", "--warmup", "1"],
            "pserver mode": cut,
            "runtime split": cut + ["--sync-mode", "false", "--config-sync-mode", "false", "--runtime-split-send-recv", "true"],
            "asynchronous": cut + ["--sync-mode", "false", "--config-sync-mode", "false"],
            "geo": cut + ["--transpiler", "geo"],
            "whole vars": cut + ["--slice-var-up", "false"],
            "nccl2": among + ["--mode", "nccl2"],
            "collective": among + ["--mode", "collective", "--collective-mode", "grad_allreduce"],
            "threads of one process": among + ["--mode", "collective", "--collective-mode", "single_process_multi_thread"],
            "passes": passes,
            "inspect": ["inspect-program", self.at("unused.prog")],
            "verify": ["inspect-program", "--verify", self.at("untidy.prog")],
            "same": ["diff-program", fit + "main.pb", fit + "main.pb"],
            "different": ["diff-program", self.at("a.prog"), self.at("b.prog")],
            "other names": ["diff-program", self.at("same.prog"), self.at("other.prog")],
            "defaults": ["diff-program", self.at("same.prog"), self.at("full.prog")],
            "lamb": minimize + ["--minimize", self.at("lamb.json")],
            "adamw": minimize + ["--minimize", self.at("adamw.json")],
            "server": ["pserver", "--program", self.at("same.prog")],
            "nobody": ["status", "--pservers", "127.0.0.1:1", "--timeout-ms", "100"],
            "alone": ["launch", "--start_port", "6300", "--print-env", "--", "true"],
            "failing children": ["launch", "--nproc_per_node", "1", "--log_dir", "{out}/log", "--", "sh", "-c", "exit 5"],
            "show": ["checkpoint", "show", model, "--program", os.path.join(model, "__model__")],
            "convert": ["checkpoint", "convert", model, "--program", os.path.join(model, "__model__"), "--to", "safetensors",
                        "-o", "{out}/w.safetensors"],
            "environment of children": ["launch", "--server_num", "1", "--trainer_num", "1", "--start_port", "6300",
                                        "--print-env", "--", "true"],
            "children": ["launch", "--nproc_per_node", "1", "--log_dir", "{out}/log", "--", "sh", "-c", "echo one"],
            "manual": ["status", "--manual"],
        }

    def run(self, base, more=(), env=None):
        with self.lock:
            self.count += 1
            out = self.at(f"run{self.count}")
        os.mkdir(out)
        if base == "children":  # a log of an earlier run
            os.mkdir(os.path.join(out, "log"))
            with open(os.path.join(out, "log", "trainer.0.log"), "w", encoding="utf-8") as file:
                file.write("earlier\n")
        words = list(self.bases[base])
        # an option that is already given is replaced
        same = {word.replace("-", "_") for word in more if word.startswith("--")}
        for flag in [word for word in words[:words.index("--") if "--" in words else None] if word.startswith("--")]:
            if flag.replace("-", "_") not in same:
                continue
            at = words.index(flag)
            del words[at:at + (1 if words[at + 1:at + 2] == [] or words[at + 1].startswith("-") else 2)]
        # after -- comes a command
        end = words.index("--") if "--" in words else len(words)
        words = words[:end] + list(more) + words[end:]
        words = [word.replace("{out}", out).replace("{in}", self.folder).replace("{root}", self.root) for word in words]
        command = [os.path.join(self.tools, words[0])] + words[1:]
        clean = {name: value for name, value in os.environ.items()
                 if not name.startswith(("PADDLE_", "FLAGS_", "TRAINING_", "POD_", "CPU_NUM"))}
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=SECONDS, cwd=out,
                              env={**clean, **(env or {})})
        results = {"stdout": without_times(done.stdout.replace(out, "OUT"))}
        for folder, _, names in os.walk(out):
            for name in names:
                path = os.path.join(folder, name)
                results[os.path.relpath(path, out)] = content(path)
        shutil.rmtree(out, ignore_errors=True)
        return Seen(done.returncode, done.stdout + done.stderr, results)

    def plain(self, base):
        with self.lock:
            known = self.known.get(base)
        if known is None:
            known = self.run(base)
            with self.lock:
                self.known[base] = known
        return known
