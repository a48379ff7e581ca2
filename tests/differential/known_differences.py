#!/usr/bin/env python3
"""Intended differences between millrace and the original: this script computes the update in float64, and decides which
is right.

    known_differences.py --bin-dir build/ci/tools [--cases tests/differential/cases/known]

momentum and rmsprop of the original find the rows of a sparse gradient by binary search, but do not sort them if no row
occurs twice, so rows are missed. Both cases sum embeddings over sequences, so the gradient of every row is easy to
compute. The original's expand_as_v2_grad takes the batch from an attribute, where it is -1, and returns zero; here
differences of the loss are computed. The original's geo trainer sends no ids of a table that lookup_table_v2 reads; a geo
job of one trainer that pushes every step must end like one process in float64. Exit status: 0 millrace has the float64 numbers and the original does not, 1
otherwise.
"""
import argparse
import json
import os
import shutil
import sys
import tempfile

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True

import cases  # noqa: E402
from calls import Tools, load  # noqa: E402


def gradient_of_mean(pooled):
    """Gradient of the mean of all elements."""
    return np.full(pooled.shape, 1 / pooled.size)


def gradient_of_squares(pooled):
    """Gradient of the sum of squares of three copies side by side."""
    return 6 * pooled


def clipped_momentum(state, grad, rate):
    grad = grad * 0.2 / max(0.2, np.sqrt((grad**2).sum()))
    state["velocity"] = 0.9 * state.get("velocity", 0) + grad
    return rate * state["velocity"]


def rmsprop(state, grad, rate):
    state["square"] = 0.9 * state.get("square", 0) + 0.1 * grad**2
    return rate * grad / np.sqrt(state["square"] + 1e-3)


# case -> table, ids, gradient of the pooled value, update
KNOWN = {"sparse_momentum": ("p1.emb", "ragged_ids_0", gradient_of_mean, clipped_momentum),
         "sparse_rmsprop": ("p1.emb", "ragged_ids_1", gradient_of_squares, rmsprop)}


def trained(folder, config, table, ids, gradient, update):
    """The table after all steps, in float64."""
    feeds, start = load(f"{folder}/feeds.npz"), load(f"{folder}/init.npz")
    w, rate, state = start[table].astype("f8"), float(start["learning_rate_0"]), {}
    for step in range(config["steps"]):
        rows, offsets = feeds[f"step{step}/{ids}"][:, 0], feeds[f"step{step}/{ids}.lod0"]
        pooled = np.array([w[rows[a:b]].sum(0) for a, b in zip(offsets, offsets[1:])])
        grad = np.zeros_like(w)
        np.add.at(grad, rows, np.repeat(gradient(pooled), np.diff(offsets), axis=0))
        w = w - update(state, grad, rate)
    return w


def check(tools, path, name):
    with tempfile.TemporaryDirectory() as work:
        cases.unpack(path, work)
        with open(f"{work}/config.json", encoding="utf-8") as f:
            config = json.load(f)
        table = KNOWN[name][0]
        want = trained(work, config, *KNOWN[name])
        tools.must(name, "run-program", "--program", f"{work}/main.pb", "--params", f"{work}/init.npz", "--feed-steps", f"{work}/feeds.npz", "--fetch", config["loss"],
                   "--steps", config["steps"], "--output", f"{work}/out.npz", "--save-persistables", f"{work}/after.npz", "-q")
        ours = np.abs(load(f"{work}/after.npz")[table] - want).max()
        original = np.abs(load(f"{work}/expected.npz")[f"final/{table}"] - want).max()
        good = ours < 1e-6 < 1e-4 < original
        print(f"{'ok  ' if good else 'FAIL'} {name}: millrace is off by {ours:.1e}, the original by {original:.1e}")
        return good


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def loss_of(params, x, reference):
    """The net of expand_as_gradient."""
    h = np.tanh(x @ params["p1.w_0"] + params["p1.b_0"]) + x
    part = h[:, : len(params["p2.w_0"])]
    mixed = softmax(part @ part.T) @ part
    logits = (np.tanh(part @ params["p2.w_0"] + params["p2.b_0"]) + mixed) @ params["p3.w_0"] + params["p3.b_0"]
    want = softmax(reference)
    return (want * (np.log(want) - np.log(softmax(logits)))).mean()


def check_expand_as(tools, path):
    """The gradient of the bias whose layer is expanded, by a central difference."""
    with tempfile.TemporaryDirectory() as work:
        cases.unpack(path, work)
        feeds, params = load(f"{work}/feeds.npz"), {n: v.astype("f8") for n, v in load(f"{work}/init.npz").items()}
        sides = [loss_of(dict(params, **{"p2.b_0": params["p2.b_0"] + by}), feeds["step0/x"].astype("f8"), feeds["step0/reference"].astype("f8")) for by in (1e-5, -1e-5)]
        want = (sides[0] - sides[1]) / 2e-5
        tools.must("expand_as_gradient", "run-program", "--program", f"{work}/backward.pb", "--params", f"{work}/init.npz", "--feed-steps", f"{work}/feeds.npz",
                   "--fetch", "p2.b_0@GRAD", "--output", f"{work}/grad.npz", "-q")
        ours = abs(float(load(f"{work}/grad.npz")["step0/p2.b_0@GRAD"][0]) - want)
        original = abs(float(load(f"{work}/expected.npz")["grad/p2.b_0@GRAD"][0]) - want)
        good = ours < 1e-6 < 1e-2 < original
        print(f"{'ok  ' if good else 'FAIL'} expand_as_gradient: {want:.6f}; millrace is off by {ours:.1e}, the original by {original:.1e}")
        return good


def check_geo_rows(tools, path):
    """Tables of a geo job with one trainer, by our trainer program and by the original's, against one process in float64."""
    with tempfile.TemporaryDirectory() as work:
        cases.unpack(path, work)
        with open(f"{work}/config.json", encoding="utf-8") as f:
            config = json.load(f)
        with open(f"{work}/transpile.json", "w", encoding="utf-8") as f:
            json.dump(config["transpile"], f)
        feeds = load(f"{work}/feeds.npz")
        np.savez(f"{work}/parts.npz", **{f"t0/{n}": v for n, v in feeds.items()})
        tools.must("geo_rows", "transpile-program", "--program", f"{work}/main.pb", "--startup", f"{work}/startup.pb", "--config", f"{work}/transpile.json",
                   "-o", f"{work}/out", "-q")
        data = ["--params", f"{work}/init.npz", "--steps", config["steps"], "--fetch", config["loss"], "--force", "-q", "--output", f"{work}/out.npz"]
        tools.must("geo_rows", "run-program", "--program", f"{work}/main.pb", "--startup", f"{work}/startup.pb", "--feed-steps", f"{work}/feeds.npz", *data,
                   "--precision", "f64", "--save-persistables", f"{work}/one.npz")
        want, off = load(f"{work}/one.npz"), []
        for trainer in (f"{work}/out/trainer_0/__model__", f"{work}/trainer.pb"):
            shutil.copy(trainer, f"{work}/model")
            shutil.copy(f"{work}/model", f"{work}/out/trainer_0/__model__")
            tools.must("geo_rows", "run-program", "--cluster", "inproc", "--transpiled", f"{work}/out", "--feed-steps", f"{work}/parts.npz", *data,
                       "--save-persistables", f"{work}/job.npz")
            have = load(f"{work}/job.npz")
            off.append(max(np.abs(have[table] - want[table]).max() for table in config["tables"]))
        good = off[0] < 1e-6 < 1e-3 < off[1]
        print(f"{'ok  ' if good else 'FAIL'} geo_rows: millrace is off by {off[0]:.1e}, the original's trainer program by {off[1]:.1e}")
        return good


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--bin-dir", default="build/ci/tools")
    ap.add_argument("--cases", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "cases/known"))
    args = ap.parse_args()
    tools = Tools(os.path.abspath(args.bin_dir))
    good = [check(tools, f"{args.cases}/{name}.tar.xz", name) for name in sorted(KNOWN)]
    good.append(check_expand_as(tools, f"{args.cases}/expand_as_gradient.tar.xz"))
    good.append(check_geo_rows(tools, f"{args.cases}/geo_rows.tar.xz"))
    print(f"{sum(good)} passed, {len(good) - sum(good)} failed")
    return int(not all(good))


if __name__ == "__main__":
    sys.exit(main())
