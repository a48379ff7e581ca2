#!/usr/bin/env python3
"""Every job of the reference transpiler cases starts and trains for some steps, all roles in one process.

    ps_sweep.py --bin-dir build/dev/tools --shared ../shared [--only SUBSTR] [--steps 3] [--json]

A case is transpiled as check_transpiler.py does it, its feeds are made up (small integers, uniform floats), and
`run-program --cluster inproc` has to end with status 0. Cases without servers (collective, nccl2) are left out.
Results are not compared; check_ps.py does that for other jobs. Exit status: 0 all ran, 1 some failed.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

import numpy as np

from each_case import transpiler_cases

BATCH = 4
LENGTHS = [3, 1, 4, 2]


def feeds_of(program, rng):
    """Vars that the forward ops of block 0 read and no op writes, with values and LoD."""
    block = program.blocks[0]
    written = {a for op in block.ops for s in op.outputs for a in s.arguments}
    read = [a for op in block.ops for s in op.inputs for a in s.arguments]
    feeds = {}
    for var in block.vars:
        if var.name in written or var.persistable or var.name not in read or not var.type.HasField("lod_tensor"):
            continue
        desc = var.type.lod_tensor
        rows = sum(LENGTHS) if desc.lod_level else BATCH
        dims = [rows if d < 0 else d for d in desc.tensor.dims]
        if desc.tensor.data_type == 5:
            feeds[var.name] = rng.uniform(-1, 1, dims).astype("float32")
        else:
            feeds[var.name] = rng.integers(0, 2, dims).astype({2: "int32", 3: "int64"}[desc.tensor.data_type])
        for level in range(desc.lod_level):
            last = level == desc.lod_level - 1
            offsets = np.cumsum([0] + LENGTHS) if last else np.arange(len(LENGTHS) + 1)
            feeds[f"{var.name}.lod{level}"] = offsets.astype("int64")
    return feeds


def run_case(a, folder, case, work, checkers):
    config = checkers[0].tool_config(case)
    config.pop("trainer_id", None)
    with open(f"{work}/config.json", "w") as f:
        json.dump(config, f)
    out = f"{work}/transpiled"
    done = subprocess.run([f"{a.bin_dir}/transpile-program", "--program", f"{folder}/main.pb", "--startup", f"{folder}/startup.pb",
                           "--config", f"{work}/config.json", "--trainer-id", "all", "-o", out, "-q"],
                          capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        return "transpile: " + done.stderr.strip()
    rng = np.random.default_rng(0)
    program = checkers[1].ProgramDesc()
    with open(f"{folder}/main.pb", "rb") as f:
        program.ParseFromString(f.read())
    members = {}
    for t in range(int(config.get("trainers", 1))):
        for k in range(a.steps):
            members.update({f"t{t}/step{k}/{n}": v for n, v in feeds_of(program, rng).items()})
    np.savez(f"{work}/feeds.npz", **members)
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PADDLE_", "FLAGS_"))}
    try:
        done = subprocess.run([f"{a.bin_dir}/run-program", "--cluster", "inproc", "--transpiled", out, "--feed-steps", f"{work}/feeds.npz",
                               "--steps", str(a.steps), "--deadline-ms", "15000", "--save-persistables", f"{work}/after.npz"],
                              capture_output=True, text=True, timeout=60, env=dict(env, CPU_NUM="1"))
    except subprocess.TimeoutExpired:
        return "not finished in 60 s"
    if done.returncode != 0:
        return f"exit status {done.returncode}: {done.stderr.strip()}"
    with np.load(f"{work}/after.npz") as after:
        bad = [n for n in after.files if after[n].dtype.kind == "f" and not np.isfinite(after[n]).all()]
    return f"not finite: {', '.join(bad)}" if bad else ""


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--bin-dir", required=True)
    ap.add_argument("--shared", required=True)
    ap.add_argument("--only", default="")
    ap.add_argument("--steps", type=int, default=3)
    ap.add_argument("--json", action="store_true")
    a = ap.parse_args()
    sys.path.insert(0, f"{a.shared}/tools")
    import check_transpiler
    import program_diff
    failed = total = 0
    wanted = lambda name, case: case["outcome"] == "ok" and case["config"].get("mode", "pserver") == "pserver"
    for name, case in transpiler_cases(a.shared, a.only, wanted).items():
        total += 1
        with tempfile.TemporaryDirectory() as work:
            error = run_case(a, f"{a.shared}/goldens/transpiler/{name}", case, work, (check_transpiler, program_diff))
        failed += bool(error)
        if not a.json and error:
            print(f"{name}: {error[:600]}", flush=True)
    if a.json:
        print(json.dumps({"passed": total - failed, "failed": failed, "total": total}))
    else:
        print(f"{total - failed} passed, {failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
