#!/usr/bin/env python3
"""Every option of an optimizer reaches the servers: jobs of one trainer and two servers end with the values of one
process, or are refused by name.

    server_options.py --bin-dir build/ci/tools

A small net with an embedding whose gradient is in rows, a matrix and a bias, both sliced over the servers, runs three
steps with each option. Parameters and all state of the optimizer are compared, within 2e-6 of the largest number of a
var. (tests/fleet/equal_test.cc does the same for fleet jobs.) Exit status: 0 all as expected, 1 some not.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

import numpy as np

TOLERANCE = 2e-6
LAYER = """  mul X={x} Y=w -> Out=h {{x_num_col_dims: 1, y_num_col_dims: 1}}
  elementwise_add X=h Y=b -> Out=o {{axis: 1}}
  square X=o -> Out=q
  mean X=q -> Out=loss
}}
"""
VARS = """  param w: f32(4, 6000)
  param b: f32(6000)
  var h: f32(-1, 6000)
  var o: f32(-1, 6000)
  var q: f32(-1, 6000)
  var loss: f32(1)
"""
HEAD = "# millrace program 1\n\nblock 0 {\n"
NETS = {
    "rows": HEAD + "  param emb: f32(12, 4)\n  var ids: i64(-1, 1) need_check_feed\n  var e: f32(-1, 4)\n" + VARS
            + "  lookup_table Ids=ids W=emb -> Out=e {is_sparse: true, padding_idx: -1l}\n" + LAYER.format(x="e"),
    "dense": HEAD + "  var x: f32(-1, 4) need_check_feed\n" + VARS + LAYER.format(x="x"),
}
PARAMS = {"emb": (12, 4), "w": (4, 6000), "b": (6000,)}


def case(optimizer, net="rows", parameters=None, config=None, refused=None, **more):
    return {"optimizer": {"type": optimizer, "learning_rate": 0.1, **more}, "net": net, "parameters": parameters, "config": config or {},
            "refused": refused}


GLOBAL = {"type": "global_norm", "clip_norm": 0.01}
CASES = {
    "sgd": case("sgd"),
    "momentum": case("momentum", momentum=0.9),
    "nesterov": case("momentum", momentum=0.9, use_nesterov=True),
    "rescaled gradients": case("momentum", momentum=0.9, rescale_grad=0.5),
    "decay inside the update": case("momentum_fused", momentum=0.9, regularization={"type": "l2", "coeff": 0.1}),
    "lars": case("lars_momentum", net="dense", config={"slice_var_up": False}),
    "lars without decay of some": case("lars_momentum", net="dense", config={"slice_var_up": False}, lars_weight_decay=0.5, exclude_from_weight_decay=["b"]),
    "accumulators that do not begin with 0": case("adagrad", initial_accumulator_value=0.5),
    "decayed adagrad": case("decayed_adagrad", decay=0.5),
    "adadelta": case("adadelta", rho=0.5),
    "rmsprop": case("rmsprop", momentum=0.5),
    "rmsprop, centered": case("rmsprop", centered=True, momentum=0.5),
    "adam": case("adam"),
    "betas and epsilon": case("adam", beta1=0.5, beta2=0.7, epsilon=0.1),
    "lazy adam": case("adam", lazy_mode=True),
    "adamw": case("adamw", weight_decay=0.5),
    "adamw without decay of some": case("adamw", weight_decay=0.5, exclude_from_weight_decay=["b"]),
    "lazy adamw": case("adamw", weight_decay=0.5, lazy_mode=True),
    "adamax": case("adamax"),
    "lamb": case("lamb", net="dense", config={"slice_var_up": False}),
    "lamb without decay of some": case("lamb", net="dense", config={"slice_var_up": False}, lamb_weight_decay=0.5, exclude_from_weight_decay=["b"]),
    "lamb on slices": case("lamb", refused="scales by the norm of the whole param 'w'"),
    "ftrl": case("ftrl", l1=0.01, l2=0.02),
    "L1": case("sgd", regularization={"type": "l1", "coeff": 0.1}),
    "L2": case("adam", regularization={"type": "l2", "coeff": 0.1}),
    "clip by value": case("sgd", clip={"type": "value", "max": 1e-5}),
    "clip by norm": case("sgd", clip={"type": "norm", "clip_norm": 0.001}),
    "clip by global norm": case("adam", clip=GLOBAL),
    "own rate": case("sgd", parameters=[{"name": "w", "learning_rate": 0.5}, {"name": "emb", "learning_rate": 2.0}, {"name": "b"}]),
    "own rate, adam": case("adam", parameters=[{"name": "w", "learning_rate": 0.5}, {"name": "emb"}, {"name": "b"}]),
    "own regularization": case("adam", parameters=[{"name": "w", "regularizer": {"type": "l1", "coeff": 0.2}},
                                                   {"name": "emb", "regularizer": {"type": "l2", "coeff": 0.2}}, {"name": "b"}]),
    "not clipped": case("sgd", clip=GLOBAL, parameters=[{"name": "w", "need_clip": False}, {"name": "emb"}, {"name": "b"}]),
    "not trained": case("adam", parameters=[{"name": "w"}, {"name": "emb"}, {"name": "b", "trainable": False}]),
}


def run(*words):
    done = subprocess.run(words, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def must(*words):
    code, text = run(*words)
    if code != 0:
        raise AssertionError(f"{os.path.basename(words[0])} ended with {code}: {text.strip()}")


def write_inputs(work):
    numbers = np.random.RandomState(3)
    np.savez(f"{work}/init.npz", **{name: numbers.uniform(-0.5, 0.5, dims).astype("f") for name, dims in PARAMS.items()})
    own, job = {}, {}
    for step in range(3):
        for name, value in (("ids", np.array([[step * 3 + i * 2] for i in (0, 1, 2, 3, 0)], "i8") % 12), ("x", numbers.uniform(-1, 1, (5, 4)).astype("f"))):
            own[f"step{step}/{name}"] = job[f"t0/step{step}/{name}"] = value
    np.savez(f"{work}/own.npz", **own)
    np.savez(f"{work}/job.npz", **job)


def check(bins, work, wanted):
    net = wanted["net"]
    with open(f"{work}/net", "w", encoding="utf-8") as f:
        f.write(NETS[net])
    with open(f"{work}/startup", "w", encoding="utf-8") as f:
        names = [name for name in PARAMS if f"param {name}:" in NETS[net]]
        f.write(HEAD + "".join(f"  persist {name}: f32({', '.join(map(str, PARAMS[name]))})\n" for name in names)
                + "".join(f"  fill_constant -> Out={name} {{shape: [{', '.join(f'{d}l' for d in PARAMS[name])}], value: 0.0, dtype: 5}}\n" for name in names) + "}\n")
    config = {"losses": ["loss"], "optimizer": [wanted["optimizer"]]}
    if wanted["parameters"]:
        config["parameters"] = wanted["parameters"]
    with open(f"{work}/min.json", "w", encoding="utf-8") as f:
        json.dump(config, f)
    with open(f"{work}/job.json", "w", encoding="utf-8") as f:
        json.dump({"pservers": "127.0.0.1:7001,127.0.0.1:7002", "trainers": 1, "sync_mode": True, **wanted["config"]}, f)
    must(f"{bins}/transpile-program", "--program", f"{work}/net", "--startup", f"{work}/startup", "--minimize", f"{work}/min.json", "-o", work, "--force", "-q")
    main, startup = f"{work}/main/__model__", f"{work}/main/__startup__"
    code, text = run(f"{bins}/transpile-program", "--program", main, "--startup", startup, "--config", f"{work}/job.json", "--trainer-id", "all", "-o", f"{work}/job",
                     "--force", "-q")
    if wanted["refused"]:
        assert code == 7 and wanted["refused"] in text, f"expected a refusal with \"{wanted['refused']}\", found {code}: {text.strip()}"
        return
    assert code == 0, text.strip()
    common = ["--params", f"{work}/init.npz", "--steps", "3", "--fetch", "loss", "--output", f"{work}/out.npz", "--force", "-q"]
    must(f"{bins}/run-program", "--program", main, "--startup", startup, "--feed-steps", f"{work}/own.npz", "--save-persistables", f"{work}/one.npz", *common)
    must(f"{bins}/run-program", "--cluster", "inproc", "--transpiled", f"{work}/job", "--feed-steps", f"{work}/job.npz", "--save-persistables", f"{work}/after.npz", *common)
    one, after = dict(np.load(f"{work}/one.npz")), dict(np.load(f"{work}/after.npz"))
    untrained = {parameter["name"] for parameter in wanted["parameters"] or () if not parameter.get("trainable", True)}
    missing = {name for name in one if name not in after and not name.startswith("learning_rate")} - untrained
    assert not missing, f"the job has left no {sorted(missing)}"
    for name, value in after.items():
        alone = one[name].astype("d").ravel()
        far = np.abs(alone - value.astype("d").ravel()).max()
        assert far <= TOLERANCE * max(1.0, np.abs(alone).max()), f"'{name}' differs by {far}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin-dir", required=True)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    failed = 0
    chosen = {name: wanted for name, wanted in CASES.items() if arguments.only in name}
    with tempfile.TemporaryDirectory() as work:
        write_inputs(work)
        for name, wanted in chosen.items():
            try:
                check(arguments.bin_dir, work, wanted)
            except AssertionError as error:
                failed += 1
                print(f"{name}: {error}")
    print(f"{len(chosen) - failed} of {len(chosen)} options as one process has them, or refused")
    return 1 if failed or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
