#!/usr/bin/env python3
"""The gradients of whole training programs against central differences in float64, by run-program --check-gradients.

    gradients.py --bin RUN_PROGRAM --shared FOLDER [--nets WRITE_TRAINING_NETS] [--samples N] [--only TEXT]

Checks every training reference, every program in goldens/found, every network that the C++ front end builds (--nets)
with the feeds of its reference, and the networks in tests/data/frontend with feeds generated here. Exit status: 0 all
right, 1 some wrong, 77 no references found.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

from each_case import run_cases

# Settings with which a program was made but that it does not contain.
NO_GRAD = {"stop_gradient_momentum_fused_l2": "config"}
# Parameters whose gradients are wrong in the original as well, and so must be reported as wrong.
WRONG = {
    # a state that is an output without readers: the gradient through time is lost (docs/gradients.md)
    "recurrent_unused_output": {"p1", "p2", "p3", "p4", "p5", "p6"},
    # sparse lookups produce a gradient for the row padding_idx, although they read zeros for it
    "ctr_padded_adagrad_l2": {"emb_0"},
}
HERE = os.path.dirname(os.path.abspath(__file__))
FRONTEND = os.path.join(HERE, "..", "data", "frontend")


def check(words, wrong=frozenset()):
    """An error text, or ""."""
    done = subprocess.run([*words, "--json"], capture_output=True, text=True, timeout=300)
    if done.returncode not in (0, 1) or not done.stdout:
        return f"exit {done.returncode}: {done.stderr.strip()[-1500:]}"
    report = json.loads(done.stdout)
    failed = {param["name"]: param["worst"] for param in report["parameters"] if not param["ok"]}
    lines = [f"{name}: {failed[name]}" for name in sorted(failed.keys() - wrong)]
    lines += [f"{name}: expected to be wrong as in the original" for name in sorted(wrong - failed.keys())]
    if not report["parameters"]:
        lines.append("no parameter was checked")
    return "\n".join(lines)


def no_grad_of(folder, name):
    if name not in NO_GRAD:
        return []
    with open(f"{folder}/config.json", encoding="utf-8") as file:
        names = json.load(file).get("no_grad_set", [])
    return ["--check-no-grad", ",".join(names)] if names else []


def made_step(inspect, path):
    """Arguments that feed a forward program and name its loss: two sequences if a var has LoD, else four rows; labels
    are 0 or 1."""
    shown = subprocess.run([inspect, path, "--format", "json"], capture_output=True, text=True, check=True)
    block = json.loads(shown.stdout)["blocks"][0]
    written, read = set(), []
    for op in block["ops"]:
        read += [name for slot in op["inputs"] for name in slot["args"] if name not in written and name not in read]
        written |= {name for slot in op["outputs"] for name in slot["args"]}
    words = ["--loss", block["ops"][-1]["outputs"][0]["args"][0]]
    fed = [var for var in block["vars"]
           if var["name"] in read and var["name"] not in written and not var["persistable"] and "dims" in var]
    sequences = any(var["lod_level"] for var in fed)
    for var in fed:
        rows = 2 if sequences and not var["lod_level"] else 4
        dims = "x".join(str(rows if dim < 0 else dim) for dim in var["dims"])
        words += ["--feed", f"{var['name']}={dims}x{var['dtype']}=random:3"]
        if var["lod_level"]:
            words += ["--lod", f"{var['name']}=0,1,4"]
    return words


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--shared", required=True)
    parser.add_argument("--nets", default="")
    parser.add_argument("--samples", default="6")
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    training, found = f"{args.shared}/goldens/training", f"{args.shared}/goldens/found"
    if not os.path.isdir(training):
        print(f"skipped: {training} is not here")
        return 77
    cases, inspect = {}, os.path.join(os.path.dirname(args.bin), "inspect-program")

    def command(program, *more):
        return [args.bin, "--program", program, "--check-gradients", "--check-samples", args.samples, *more]

    def of_reference(folder, name, program):
        data = ["--params", f"{folder}/init.npz", "--feed-steps", f"{folder}/feeds.npz"]
        return lambda: check(command(program, *data, *no_grad_of(folder, name)), WRONG.get(name, frozenset()))

    for root in (training, found):
        for name in sorted(os.listdir(root)) if os.path.isdir(root) else []:
            if os.path.exists(f"{root}/{name}/main.pb"):
                cases[f"{os.path.basename(root)}/{name}"] = of_reference(f"{root}/{name}", name, f"{root}/{name}/main.pb")
    with tempfile.TemporaryDirectory() as work:
        for name in subprocess.run([args.nets], capture_output=True, text=True).stdout.split() if args.nets else []:
            folder = f"{work}/{name}"
            os.makedirs(folder)
            with open(f"{training}/{name}/config.json", encoding="utf-8") as file:
                seed = json.load(file)["random_seed"]
            subprocess.run([args.nets, folder, name, str(seed)], check=True, capture_output=True)
            cases[f"built/{name}"] = of_reference(f"{training}/{name}", name, f"{folder}/main.pb")
        for file in sorted(os.listdir(FRONTEND)):
            if file.endswith(".main.pb"):
                program = f"{FRONTEND}/{file}"
                cases[f"frontend/{file[:-8]}"] = lambda p=program: check(
                    command(p, "--startup", p.replace(".main.pb", ".startup.pb"), "--seed", "5", *made_step(inspect, p)))
        return run_cases([name for name in cases if args.only in name], lambda name: cases[name]())


if __name__ == "__main__":
    sys.exit(main())
