#!/usr/bin/env python3
"""Synchronous jobs of the reference transpiler cases end with the same values as one process that gets the batches of
all trainers at once.

    ps_equal.py --bin-dir build/dev/tools --shared ../shared [--only SUBSTR] [--steps 3]

Parameters start with the same random numbers, optimizer state with the values of the startup program. Feeds are made up
as by ps_sweep.py, one batch per trainer, and joined for the one process. Parameters and all float state are compared,
within 1e-6 of the largest number of a var and of the change by the steps; if the difference is larger, the one process
also runs in float64 to show how much of it can be rounding. Cases that are compared in another way, or not at all, are
named below with the reason. Exit status: 0 all equal, 1 some not.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from each_case import run_cases, transpiler_cases  # noqa: E402
from ps_sweep import feeds_of  # noqa: E402

TOLERANCE = 1e-6
# The result depends on how a batch is split, so these get the same batch in every trainer, and one process gets it
# once: gradients, values derived from them and the statistics of a batch are then the same, and so is their mean.
ALIKE = {
    "clip_global_norm": "each trainer clips its own gradients, whose norm is not that of their mean",
    "net_cond": "which branch is taken depends on the batch",
    "net_lenet_momentum": "batch norm sees the rows of one trainer",
    "net_resnetish": "batch norm sees the rows of one trainer",
}
EXCEPT = {
    "dist_table_ctr": "the gradients of a table that is dealt by id are added up, not averaged, as by the original; ps_sync/dist_table_sgd_2s2t has its result",
    "dist_table_sync": "the same",
    "nce_sparse_off": "numbers are drawn for a trainer's rows (samples)",
    "net_transformer": "numbers are drawn for a trainer's rows (dropout)",
    "opt_dpsgd": "adds random numbers",
}
# A var may also differ by this multiple of the distance between the one process and its float64 run (--precision f64):
# rounding affects both alike. If a gradient is nearly zero, Adam and similar rules divide by its size, so that rounding
# becomes a large part of an update.
FARTHER = 4


# Clipping is recognized by the input of the update: either under the name scope of releases 1.2 to 1.5, whose role vars
# name the gradient before clipping, or without any scope.
OLD = {"clip_value": "clip_value.1_5", "clip_value_reg": "clip_value_reg.1_5", "clip_norm": "clip_norm.1_5", "clip_global_norm": "clip_global_norm.1_5",
       "reg_l2": "reg_l2.no_scopes"}


def rewritten(folder, work, name, checkers):
    """A copy of the case's programs in the form of the suffix of the name."""
    program = checkers[1].ProgramDesc()
    with open(f"{folder}/main.pb", "rb") as f:
        program.ParseFromString(f.read())
    block = program.blocks[0]
    raw = {pair.strings[0]: pair.strings[1] for op in block.ops for role in op.attrs if role.name == "op_role" and role.i == 1
           for pair in op.attrs if pair.name == "op_role_var" and pair.strings}
    changed = 0
    for op in block.ops:
        attrs = {attr.name: attr for attr in op.attrs}
        scope = attrs.get("op_namescope")
        if scope is None:
            continue
        if name.endswith(".no_scopes"):
            op.attrs.remove(scope)
            changed += 1
        elif "gradient_clip" in scope.s:
            scope.s = "/append_graident_clip/"
            pair = attrs["op_role_var"].strings
            pair[1] = raw[pair[0]]
            changed += 1
    assert changed, f"{name}: no op has a scope to change"
    os.makedirs(f"{work}/case")
    with open(f"{work}/case/main.pb", "wb") as f:
        f.write(program.SerializeToString())
    shutil.copy(f"{folder}/startup.pb", f"{work}/case/startup.pb")
    return f"{work}/case"


def is_synchronous(case):
    config = {**case["config"], **case.get("call", {})}
    return (case["outcome"] == "ok" and config.get("mode", "pserver") == "pserver" and config.get("sync_mode", True) is True and
            not any(config.get(name) for name in ("geo_sgd_mode", "runtime_split_send_recv", "half_async", "completely_not_async", "enable_dc_asgd")) and
            case["transpiler"] == "distribute")


def joined(batches):
    """One batch from several: rows are concatenated, LoD offsets are shifted."""
    whole = {}
    for name in batches[0]:
        parts = [batch[name] for batch in batches]
        if ".lod" in name:
            for part in parts[1:]:
                parts[0] = np.concatenate([parts[0], part[1:] + parts[0][-1]])
            whole[name] = parts[0]
        else:
            whole[name] = np.concatenate(parts)
    return whole


def first_params(program, rng):
    """Random numbers for the vars that optimizers update."""
    block = program.blocks[0]
    dims = {var.name: list(var.type.lod_tensor.tensor.dims) for var in block.vars if var.type.HasField("lod_tensor")}
    names = {a for op in block.ops for slot in op.inputs if slot.parameter == "Param" for a in slot.arguments}
    return {name: rng.uniform(-0.1, 0.1, dims[name]).astype("f4") for name in sorted(names)}


def run(command):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PADDLE_", "FLAGS_"))}
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, env=dict(env, CPU_NUM="1"))
    return "" if done.returncode == 0 else f"{os.path.basename(command[0])}: exit status {done.returncode}: {done.stderr.strip()[-500:]}"


def load(path):
    with np.load(path) as stored:
        return {name: stored[name] for name in stored.files}


def differences(want, have, begin, true=None):
    """Differences of the job from the one process; `true`: values of the latter in float64."""
    for name, value in sorted(want.items()):
        if value.dtype.kind != "f" or name not in have:
            continue
        if have[name].size != value.size:
            yield f"'{name}' has {have[name].shape}, expected {value.shape}"
            continue
        found = have[name].reshape(value.shape)
        moved = np.abs(value - begin[name]).max() if name in begin and value.size else 0
        bound = TOLERANCE * max(1.0, np.abs(value).max() if value.size else 0, moved)
        if true is not None and value.size:
            bound += FARTHER * np.abs(value - true[name].reshape(value.shape)).max()
        off = np.abs(found - value).max() if value.size else 0
        if not off <= bound:
            yield f"'{name}' is off by {off:.2e}, at most {bound:.2e}"


def check(args, folder, case, checkers, work):
    config = checkers[0].tool_config(case)
    config.pop("trainer_id", None)
    with open(f"{work}/config.json", "w", encoding="utf-8") as f:
        json.dump(config, f)
    program = checkers[1].ProgramDesc()
    with open(f"{folder}/main.pb", "rb") as f:
        program.ParseFromString(f.read())
    rng = np.random.default_rng(1)
    params = first_params(program, rng)
    np.savez(f"{work}/init.npz", **params)
    parts, whole = {}, {}
    for k in range(args.steps):
        batches = [feeds_of(program, rng) for _ in range(int(config.get("trainers", 1)))]
        if case["name"] in ALIKE:
            batches = batches[:1] * len(batches)
            parts.update({f"t{t}/step{k}/{n}": v for t, batch in enumerate(batches) for n, v in batch.items()})
            whole.update({f"step{k}/{n}": v for n, v in batches[0].items()})
            continue
        parts.update({f"t{t}/step{k}/{n}": v for t, batch in enumerate(batches) for n, v in batch.items()})
        whole.update({f"step{k}/{n}": v for n, v in joined(batches).items()})
    np.savez(f"{work}/parts.npz", **parts)
    np.savez(f"{work}/whole.npz", **whole)
    tool = lambda name: f"{args.bin_dir}/{name}"  # noqa: E731
    common = ["--params", f"{work}/init.npz", "--steps", str(args.steps), "-q"]

    # One thread, like a trainer: with two threads convolutions by Winograd's method round differently, which
    # net_resnetish amplifies to 6e-5 in three steps.
    def one(precision):
        return run([tool("run-program"), "--program", f"{folder}/main.pb", "--startup", f"{folder}/startup.pb", "--feed-steps", f"{work}/whole.npz", *common,
                    "--save-persistables", f"{work}/one_{precision}.npz", "--threads", "1", "--precision", precision])

    why = (run([tool("transpile-program"), "--program", f"{folder}/main.pb", "--startup", f"{folder}/startup.pb", "--config", f"{work}/config.json",
                "--trainer-id", "all", "-o", f"{work}/out", "-q"]) or
           run([tool("run-program"), "--cluster", "inproc", "--transpiled", f"{work}/out", "--feed-steps", f"{work}/parts.npz", *common,
                "--save-persistables", f"{work}/job.npz"]) or
           one("f32"))
    if why:
        return why
    want, have = load(f"{work}/one_f32.npz"), load(f"{work}/job.npz")
    lacks = sorted(set(params) - set(have))
    wrong = list(differences(want, have, params))
    if wrong and not lacks:
        # if an op has no kernel for float64, the limit stays unchanged
        wrong = wrong if one("f64") else list(differences(want, have, params, load(f"{work}/one_f64.npz")))
    return "\n".join([f"the job has no '{name}'" for name in lacks] + wrong)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--bin-dir", required=True)
    ap.add_argument("--shared", required=True)
    ap.add_argument("--only", default="")
    ap.add_argument("--steps", type=int, default=3)
    args = ap.parse_args()
    sys.path.insert(0, f"{args.shared}/tools")
    import check_transpiler
    import program_diff
    cases = transpiler_cases(args.shared, args.only, lambda name, case: name not in EXCEPT and is_synchronous(case))

    def one(name):
        with tempfile.TemporaryDirectory() as work:
            try:
                checkers, folder = (check_transpiler, program_diff), f"{args.shared}/goldens/transpiler/{name.split('.')[0]}"
                if "." in name:
                    folder = rewritten(folder, work, name, checkers)
                return check(args, folder, cases[name.split(".")[0]], checkers, work)
            except subprocess.TimeoutExpired as e:
                return f"not finished in {e.timeout} s"

    return run_cases([*cases, *(old for name, old in OLD.items() if name in cases)], one)


if __name__ == "__main__":
    sys.exit(main())
