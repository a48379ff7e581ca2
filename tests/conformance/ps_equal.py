#!/usr/bin/env python3
"""Synchronous jobs of the reference transpiler cases leave what one process leaves that is given the batches of all trainers at once.

    ps_equal.py --bin-dir build/dev/tools --shared ../shared [--only SUBSTR] [--steps 3]

Parameters begin with the same random numbers, optimizer state with what the startup program says; feeds are made up as by ps_sweep.py, a batch a
trainer, and joined for the one process. Compared are parameters and all float state, within 1e-6 of the largest number of a var and of what
the steps changed. Cases that are compared in another way, or not, are named below with the reason. Exit status: 0 all equal, 1 some not.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from each_case import run_cases, transpiler_cases  # noqa: E402
from ps_sweep import feeds_of  # noqa: E402

TOLERANCE = 1e-6
# The result depends on how a batch is cut, so these get the same batch in every trainer, and one process gets it once: gradients, what is made of
# them and the statistics of a batch are then alike, and so is their mean.
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
# Where a gradient is nearly zero, these divide by its size: rounding of sums becomes a share of a step. How much is measured with one process
# that gets the rows of the trainers in the other order, which changes nothing but the order of sums (2.5e-5, 4.7e-5, 1.5e-6 and 1.8e-6); the job may be off by four
# times as much, but not by more than this.
AMPLIFIED = {"opt_adam": 2e-4, "opt_adamax": 2e-4, "opt_decayed_adagrad": 1e-5, "net_ctr": 1e-5}


def is_synchronous(case):
    config = {**case["config"], **case.get("call", {})}
    return (case["outcome"] == "ok" and config.get("mode", "pserver") == "pserver" and config.get("sync_mode", True) is True and
            not any(config.get(name) for name in ("geo_sgd_mode", "runtime_split_send_recv", "half_async", "completely_not_async", "enable_dc_asgd")) and
            case["transpiler"] == "distribute")


def joined(batches):
    """One batch of several: rows behind each other, LoD offsets moved on."""
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
    """Random numbers for what optimizers update."""
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


def differences(want, have, begin, tolerance):
    for name, value in sorted(want.items()):
        if value.dtype.kind != "f" or name not in have:
            continue
        if have[name].size != value.size:
            yield f"'{name}' has {have[name].shape}, expected {value.shape}"
            continue
        found = have[name].reshape(value.shape)
        moved = np.abs(value - begin[name]).max() if name in begin and value.size else 0
        bound = tolerance * max(1.0, np.abs(value).max() if value.size else 0, moved)
        off = np.abs(found - value).max() if value.size else 0
        if not off <= bound:
            yield f"'{name}' is off by {off:.2e}, at most {bound:.2e}"


def largest_difference(one, other):
    """Of float values, as a share of the largest number of a var if that is above 1."""
    return max(float(np.abs(other[name] - value).max() / max(1.0, np.abs(value).max())) for name, value in one.items() if value.dtype.kind == "f" and value.size)


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
    parts, whole, turned = {}, {}, {}
    for k in range(args.steps):
        batches = [feeds_of(program, rng) for _ in range(int(config.get("trainers", 1)))]
        if case["name"] in ALIKE:
            batches = batches[:1] * len(batches)
            parts.update({f"t{t}/step{k}/{n}": v for t, batch in enumerate(batches) for n, v in batch.items()})
            whole.update({f"step{k}/{n}": v for n, v in batches[0].items()})
            continue
        parts.update({f"t{t}/step{k}/{n}": v for t, batch in enumerate(batches) for n, v in batch.items()})
        whole.update({f"step{k}/{n}": v for n, v in joined(batches).items()})
        turned.update({f"step{k}/{n}": v for n, v in joined(batches[::-1]).items()})
    np.savez(f"{work}/parts.npz", **parts)
    np.savez(f"{work}/whole.npz", **whole)
    tool = lambda name: f"{args.bin_dir}/{name}"  # noqa: E731
    np.savez(f"{work}/turned.npz", **turned)
    common = ["--params", f"{work}/init.npz", "--steps", str(args.steps), "-q"]

    # One thread, as a trainer has: convolutions by Winograd's method round in another way with two, which net_resnetish amplifies to 6e-5 in
    # three steps.
    def one(feeds):
        return run([tool("run-program"), "--program", f"{folder}/main.pb", "--startup", f"{folder}/startup.pb", "--feed-steps", f"{work}/{feeds}.npz", *common,
                    "--save-persistables", f"{work}/one_{feeds}.npz", "--threads", "1"])

    why = (run([tool("transpile-program"), "--program", f"{folder}/main.pb", "--startup", f"{folder}/startup.pb", "--config", f"{work}/config.json",
                "--trainer-id", "all", "-o", f"{work}/out", "-q"]) or
           run([tool("run-program"), "--cluster", "inproc", "--transpiled", f"{work}/out", "--feed-steps", f"{work}/parts.npz", *common,
                "--save-persistables", f"{work}/job.npz"]) or
           one("whole"))
    tolerance = TOLERANCE
    if not why and case["name"] in AMPLIFIED:
        why = one("turned")
        if not why:
            tolerance = min(max(TOLERANCE, 4 * largest_difference(load(f"{work}/one_whole.npz"), load(f"{work}/one_turned.npz"))), AMPLIFIED[case["name"]])
    if why:
        return why
    want, have = load(f"{work}/one_whole.npz"), load(f"{work}/job.npz")
    lacks = sorted(set(params) - set(have))
    return "\n".join([f"the job has no '{name}'" for name in lacks] + list(differences(want, have, params, tolerance)))


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
                return check(args, f"{args.shared}/goldens/transpiler/{name}", cases[name], (check_transpiler, program_diff), work)
            except subprocess.TimeoutExpired as e:
                return f"not finished in {e.timeout} s"

    return run_cases(list(cases), one)


if __name__ == "__main__":
    sys.exit(main())
