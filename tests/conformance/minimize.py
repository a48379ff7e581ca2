#!/usr/bin/env python3
"""transpile-program --minimize produces the reference's training program for every case: main and startup program.

    minimize.py --bin-dir TOOLS_FOLDER --dir REFERENCE_FOLDER [--write FOLDER] [--in-any-order]

Programs are compared by diff-program, including every attribute. The references were generated one after another in one
process, which counts name scopes over all of them; so each case gets the number of scopes that the previous ones
opened. --write writes a folder per case with the generated programs and the reference's data, for check_training.py.
--in-any-order is for references whose order of generation, or the order of whose sets, is unknown: then name scopes and
the order of names in a list are ignored. Exit status: 0 all equal, 1 some differ, 77 no references found.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

from each_case import run_cases

from backward import EXTRA

# the order in which the references were generated; cases that are not listed start without scopes
ORDER = """fit_a_line_sgd fit_a_line_l1_sgd_polynomial mnist_mlp_nesterov_l2_clip_value mnist_mlp_lamb_warmup lenet_bn_adam_exponential
word2vec_sparse_sgd_inverse_time ctr_wide_deep_lod_adam ctr_padded_adagrad_l2 ctr_logistic_ftrl text_lstm_adam_global_norm
text_gru_adamax_natural_exp resnet_momentum_l2_piecewise transformer_adam_noam while_array_rnn_rmsprop recurrent_rnn_adagrad_cosine
reused_variables_sgd_clip_norm stop_gradient_momentum_fused_l2 two_losses_sgd_momentum cond_error_clip_rmsprop_centered
resnet_lars_momentum""".split()


def read_config(folder, name):
    with open(os.path.join(folder, name, "config.json"), encoding="utf-8") as file:
        return dict(json.load(file), **EXTRA.get(name, {}))


def count_scopes(config, scopes):
    """Adds the name scopes that a case opens."""
    for optimizer, pairs in zip(config["optimizer"], config["param_grad_after_minimize"]):
        opened = {"gradient_clip": 1, "regularization": 1, "optimizer": len(pairs)}
        if optimizer["type"] == "adamax":
            opened["adamax"] = len(pairs)
        for prefix, count in opened.items():
            scopes[prefix] = scopes.get(prefix, 0) + count


def run(*words):
    done = subprocess.run(words, capture_output=True, text=True)
    return done.returncode, done.stdout.strip() or done.stderr.strip()


def counts_in_any_order(line):
    """True for a line of diff-program that reports more than another name scope or another order of the same names."""
    if line.split(": ")[0].endswith("attr op_namescope") or ": attr op_namescope: " in line:
        return False
    sides = line.rpartition(": ")[2].split(" -> ")
    return len(sides) != 2 or not sides[0].startswith("[") or sorted(sides[0].strip("[]").split(", ")) != sorted(sides[1].strip("[]").split(", "))


def check(bin_dir, reference, config, work, in_any_order=False):
    """Differences of a case, or ""."""
    path, out = os.path.join(work, "minimize.json"), os.path.join(work, "out")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(config, file)
    forward = ["--program", f"{reference}/main_forward.pb", "--startup", f"{reference}/startup_forward.pb"]
    for flags in ([], ["--backward-only"]):
        code, text = run(f"{bin_dir}/transpile-program", *forward, "--minimize", path, "-o", out, "--force", *flags)
        if code:
            return f"exit {code}: {text}"
    faults = []
    for wanted, made in (("main.pb", "main/__model__"), ("startup.pb", "main/__startup__")):
        code, text = run(f"{bin_dir}/diff-program", f"{reference}/{wanted}", f"{out}/{made}")
        if in_any_order and code == 1:
            text = "\n".join(filter(counts_in_any_order, text.splitlines()))
        if code and text:
            faults.append(f"{wanted}:\n{text}")
    return "\n".join(faults)


def keep(reference, work):
    """Turns a folder that check() filled into a case of check_training.py."""
    for made, name in (("main/__model__", "main.pb"), ("main/__startup__", "startup.pb"), ("backward/__model__", "backward.pb")):
        os.replace(f"{work}/out/{made}", f"{work}/{name}")
    for name in ("config.json", "init.npz", "feeds.npz", "expected.npz"):
        if not os.path.exists(f"{work}/{name}"):
            os.symlink(os.path.abspath(f"{reference}/{name}"), f"{work}/{name}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin-dir", required=True)
    parser.add_argument("--dir", required=True)
    parser.add_argument("--write", metavar="FOLDER")
    parser.add_argument("--in-any-order", action="store_true")
    args = parser.parse_args()
    if not os.path.isdir(args.dir):
        print(f"skipped: {args.dir} is not here")
        return 77
    names = sorted(n for n in os.listdir(args.dir) if os.path.exists(os.path.join(args.dir, n, "main_forward.pb")))
    scopes = {}

    def one(name):
        reference, config = os.path.join(args.dir, name), read_config(args.dir, name)
        if name in ORDER:
            config["name_scopes"] = dict(scopes)
            count_scopes(config, scopes)
        with tempfile.TemporaryDirectory() as folder:
            work = os.path.join(args.write, name) if args.write else folder
            os.makedirs(work, exist_ok=True)
            why = check(args.bin_dir, reference, config, work, args.in_any_order)
            if args.write and not why.startswith("exit"):
                keep(reference, work)
        return why

    return run_cases([n for n in ORDER if n in names] + [n for n in names if n not in ORDER], one)


if __name__ == "__main__":
    sys.exit(main())
