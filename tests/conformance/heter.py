#!/usr/bin/env python3
"""Training references as jobs with a heter worker that runs some of their forward and backward ops.

    heter.py --bin-dir build/dev/tools --shared ../shared [--only NAME] [--seed N]

Each reference runs in one process, and as a synchronous job of one trainer, one server and one heter worker: once with
ops of another device in long stretches, once with single ops here and there, which makes many calls in a step. The
parameters and the state of the optimizers at the end are the same, within rounding.
Prints a line per job. Exit status: 0 all as expected, 1 some not.
"""
import argparse
import os
import random
import re
import subprocess
import sys
import tempfile

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from each_case import run_checks  # noqa: E402

LIMIT = 120
TOLERANCE = 1e-3  # of an element, or of a thousandth of the largest one: executors of both runs fuse other ops
# Servers update a parameter by one op.
REFUSED = {"two_losses_sgd_momentum"}
DEVICE = 'op_device: "gpu"'


def require(holds, what):
    if not holds:
        raise RuntimeError(what)


def run(*words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=LIMIT)
    require(done.returncode == 0, f"{os.path.basename(words[0])} ended with {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


def statements(lines):
    """(first line, last line) of each op of block 0 in the text form of a program."""
    begin = next(i for i, line in enumerate(lines) if line.startswith("block 0"))
    end = lines.index("}", begin)
    found, at = [], begin + 1
    while at < end:
        if lines[at].strip() and not re.match(r"  (var|param|persist) ", lines[at]):
            first = at
            while lines[at].endswith("{") or (at > first and lines[at] != "  }"):
                at += 1
            found.append((first, at))
        at += 1
    return found


def names_in(text):
    """Names of vars in the slots of an op, without those of the slots."""
    return set(re.findall(r"[\w@.]+", re.sub(r"[\w@.]+=", " ", text.split("{")[0])))


def candidates(lines, ops):
    """Numbers of forward and backward ops that have no blocks and use neither arrays nor what an op with blocks writes,
    which may have no value."""
    texts = [" ".join(lines[first:last + 1]) for first, last in ops]
    kept = {name for line in lines for name in re.findall(r"^  var (\S+): (?:lod_tensor_array|step_scopes|lod_rank_table)", line)}
    for text in texts:
        if "^" in text and " -> " in text:
            kept |= names_in(text[text.index(" -> "):])
    found = []
    for number, text in enumerate(texts):
        role = re.search(r"op_role: (\d+)", text)
        if int(role.group(1) if role else 0) in (0, 1, 256) and "^" not in text and not names_in(text) & kept:
            found.append(number)
    return found


def choose(found, rng, in_stretches):
    if not in_stretches:
        return {number for number in found if rng.random() < 0.4}
    chosen, inside = set(), True
    for number in found:
        if rng.random() < 0.15:
            inside = not inside
        if inside:
            chosen.add(number)
    return chosen


def marked(lines, ops, chosen):
    out = list(lines)
    for number in chosen:
        first, last = ops[number]
        text = "\n".join(out[first:last + 1])
        text = text.replace('op_device: ""', DEVICE) if 'op_device: ""' in text else text.replace("{", "{" + DEVICE + ", ", 1)
        out[first:last + 1] = text.split("\n")
    return "\n".join(out)


def compare(alone, job):
    for name in alone.files:
        want = alone[name]
        if want.dtype.kind != "f" or want.size == 0:
            continue
        if name not in job.files:
            require(name.startswith("learning_rate"), f"the job has no '{name}'")
            continue
        off = np.abs(job[name].reshape(want.shape).astype("f8") - want)
        bound = TOLERANCE * (np.abs(want) + 1e-3 * np.abs(want).max() + 1e-6)
        require((off <= bound).all(), f"'{name}' is off by {off.max():.2e}")


def check(args, name, in_stretches):
    folder = f"{args.shared}/goldens/training/{name}"
    tool = lambda word: f"{args.bin_dir}/{word}"  # noqa: E731
    with tempfile.TemporaryDirectory() as work:
        lines = run(tool("transpile-program"), "--program", f"{folder}/main.pb", "--passes", "", "--format", "text", "-o", "-").split("\n")
        ops = statements(lines)
        chosen = choose(candidates(lines, ops), random.Random(f"{args.seed} {name}"), in_stretches)
        with open(f"{work}/main", "w", encoding="utf-8") as file:
            file.write(marked(lines, ops, chosen))
        run(tool("transpile-program"), "--program", f"{work}/main", "--startup", f"{folder}/startup.pb", "--pservers", "s:1", "--trainers",
            1, "--trainer-id", "all", "--heter-workers", "h:1", "-o", f"{work}/job", "-q")
        feeds = np.load(f"{folder}/feeds.npz")
        np.savez(f"{work}/feeds.npz", **{f"t0/{key}": feeds[key] for key in feeds.files})
        steps = 1 + max(int(re.match(r"step(\d+)/", key).group(1)) for key in feeds.files)
        common = ["--params", f"{folder}/init.npz", "--steps", steps, "-q", "--save-persistables"]
        run(tool("run-program"), "--program", f"{folder}/main.pb", "--startup", f"{folder}/startup.pb", "--feed-steps",
            f"{folder}/feeds.npz", *common, f"{work}/alone.npz")
        run(tool("run-program"), "--cluster", "inproc", "--transpiled", f"{work}/job", "--feed-steps", f"{work}/feeds.npz", *common,
            f"{work}/after.npz")
        compare(np.load(f"{work}/alone.npz"), np.load(f"{work}/after.npz"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin-dir", required=True)
    parser.add_argument("--shared", required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    checks = []
    for name in sorted(os.listdir(f"{args.shared}/goldens/training")):
        if name in REFUSED or not os.path.exists(f"{args.shared}/goldens/training/{name}/config.json"):
            continue
        for label, in_stretches in (("stretches", True), ("single ops", False)):
            checks.append((f"{name}, {label}", lambda name=name, s=in_stretches: check(args, name, s)))
    return run_checks(checks, args.only)


if __name__ == "__main__":
    sys.exit(main())
