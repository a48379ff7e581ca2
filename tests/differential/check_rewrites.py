#!/usr/bin/env python3
"""Random small programs run with and without the executor's passes, with several threads, with ops side by side and with
checks of the memory; every difference beyond rounding is a finding. Needs no original.

    check_rewrites.py --seeds 0:100              the programs of these seeds; --seed 7 for one
    check_rewrites.py --seeds 0:1000 --shrink FOLDER   stores each failing program after leaving out ops that do not matter
    check_rewrites.py --replay tests/differential/cases/rewrites   stored programs

Further: --bin-dir (build/ci/tools), --jobs N, --show (with one seed: prints the program). rewrite_programs.py says what
the programs contain. Needs numpy. Exit status: 0 nothing found, 1 findings.
"""
import argparse
import concurrent.futures
import glob
import json
import os
import re
import subprocess
import sys
import tempfile

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.dont_write_bytecode = True

import rewrite_programs  # noqa: E402

PLAIN = ("--optimize=false", "--threads", "1")
WAYS = {"one thread": ("--threads", "1"), "threads": ("--threads", "4"), "side by side": ("--threads", "4", "--inter-op"),
        "memory": ("--threads", "1", "--debug-memory"), "plain memory": ("--optimize=false", "--threads", "4", "--inter-op", "--debug-memory")}
RATE = 0.0625
# Fused ops refuse operands of which one has a single row; the message names the way out. Not a wrong result.
REFUSED = ("--optimize=false runs every op on its own", "run without passes (--optimize false)")


class Checker:
    def __init__(self, bin_dir):
        self.bin_dir = bin_dir

    def tool(self, name, *words):
        done = subprocess.run([f"{self.bin_dir}/{name}", *words], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, errors="replace")
        return done.returncode, done.stderr.strip() or done.stdout.strip()

    def write(self, program, work):
        """Files of the program; returns the vars to fetch, or None if it has no gradient."""
        with open(f"{work}/main.prog", "w") as f:
            f.write(rewrite_programs.text_of(program))
        words = rewrite_programs.used(program)
        fetches = [n for n in program["fetches"] if n in words]
        if program["train"]:
            fetches += self.append_updates(program, work) + ["loss"]
        write_values(program, work)
        return fetches

    def append_updates(self, program, work):
        """Appends the gradients of the loss, and updates of some parameters; returns the gradients that are fetched."""
        status, _ = self.tool("transpile-program", "--program", f"{work}/main.prog", "--passes", "append-backward{loss=loss}", "-o", f"{work}/back.prog")
        if status:
            return []
        text = open(f"{work}/back.prog").read()
        known = [p for p in rewrite_programs.PARAMS if re.search(rf'^  var "?{p}@GRAD"?:', text, re.M)]
        updates = []
        for name in known if program["train"] != "none" else ():
            if program["train"] == "sgd":
                updates.append(f'  sgd Param={name} Grad="{name}@GRAD" LearningRate=rate -> ParamOut={name}')
            else:
                updates.append(f'  momentum Param={name} Velocity={name}_velocity Grad="{name}@GRAD" LearningRate=rate -> ParamOut={name} VelocityOut={name}_velocity {{mu: 0.5}}')
        extra = ["  param rate: f32(1)"] + [f"  param {n}_velocity: f32{rewrite_programs.dims_text(rewrite_programs.PARAMS[n])}" for n in known]
        lines = text.split("\n")
        start, end = lines.index("block 0 {"), lines.index("}")
        with open(f"{work}/main.prog", "w") as f:
            f.write("\n".join([*lines[:start + 1], *extra, *lines[start + 1:end], *updates, *lines[end:]]))
        return [f"{n}@GRAD" for i, n in enumerate(known) if (program["seed"] + i) % 3 == 0]

    def run(self, work, fetches, name, how):
        words = ["--program", f"{work}/main.prog", "--params", f"{work}/params.npz", "--feed-steps", f"{work}/feeds.npz", "--steps", str(self.steps), "--fetch", ",".join(fetches)]
        status, said = self.tool("run-program", *words, *how, "--output", f"{work}/{name}.npz", "--save-persistables", f"{work}/{name}_after.npz", "--force", "-q")
        if status:
            return status, said, {}
        values = {}
        for part in ("", "_after"):
            with np.load(f"{work}/{name}{part}.npz") as stored:
                values.update({n + part: stored[n] for n in stored.files})
        return 0, "", values

    def check(self, program, ways=WAYS):
        """The finding as text; empty without one; None if the program does not run."""
        with tempfile.TemporaryDirectory() as work:
            self.steps = len(program["batches"])
            fetches = self.write(program, work)
            status, said, want = self.run(work, fetches, "plain", PLAIN)
            if status:
                return None if status in (3, 4) else f"plain: ends with status {status}: {said[-300:]}"
            exact = None
            for i, (way, how) in enumerate(ways.items()):
                status, said, got = self.run(work, fetches, f"way{i}", how)
                if status and any(text in said for text in REFUSED):
                    return None
                if status:
                    return f"{way}: ends with status {status}: {said[-300:]}"
                wrong = differences(got, want, None)
                if wrong and exact is None:
                    _, _, exact = self.run(work, fetches, "exact", (*PLAIN, "--precision", "f64"))
                wrong = wrong and differences(got, want, exact)
                if wrong:
                    return f"{way}: {wrong}"
        return ""


def write_values(program, work):
    rng = np.random.default_rng(program["seed"])
    params = {name: rng.normal(size=dims).astype("f4") * (0.5 if len(dims) > 1 else 1) for name, dims in rewrite_programs.PARAMS.items()}
    params["variance"] = np.abs(params["variance"]) + np.float32(0.5)
    params.update({f"{n}_velocity": np.zeros(dims, "f4") for n, dims in rewrite_programs.PARAMS.items()})
    params["rate"] = np.array([RATE], "f4")
    persist = {n: what for n, (kind, what) in program["vars"].items() if kind == "persist"}
    for name, what in sorted(persist.items()):
        dims = [int(d) for d in re.search(r"\((.*)\)", what)[1].split(",")]
        params[name] = rng.integers(-3, 4, size=dims).astype({"f32": "f4", "f64": "f8", "i32": "i4", "i64": "i8"}[what[:3]])
    np.savez(f"{work}/params.npz", **params)
    words, feeds = rewrite_programs.used(program) | set(program["fetches"]), {}
    for step, rows in enumerate(program["batches"]):
        for name, dims in rewrite_programs.FEEDS.items():
            value = rng.normal(size=(1 if name == "one_row" else rows, *dims[1:])).astype("f4")
            if name in words:
                feeds[f"step{step}/{name}"] = value
            if name in words and name in program.get("sequences", ()):
                cuts = np.sort(rng.integers(0, rows + 1, size=2))
                feeds[f"step{step}/{name}.lod0"] = np.array([0, *cuts, rows], "i8")
        for name in rewrite_programs.SEQUENCES:
            lengths = rng.integers(0, 4, size=rows)
            value = rng.integers(0, 16, size=(int(lengths.sum()), 1))
            if name in words:
                feeds[f"step{step}/{name}"] = value
                feeds[f"step{step}/{name}.lod0"] = np.concatenate([[0], np.cumsum(lengths)]).astype("i8")
    np.savez(f"{work}/feeds.npz", **feeds)


def differences(got, want, exact):
    """What differs by more than the rounding of the plain run, of which `exact` is the result in float64."""
    if set(got) != set(want):
        return f"other results: {sorted(set(got) ^ set(want))[:4]}"
    for name in sorted(want):
        a, b = got[name], want[name]
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"{name} is {a.dtype}{list(a.shape)}, expected {b.dtype}{list(b.shape)}"
        if b.dtype.kind != "f":
            if not np.array_equal(a, b):
                return f"{name} differs"
            continue
        if not np.array_equal(np.isfinite(a), np.isfinite(b)):
            if exact is None or np.array_equal(np.isfinite(b), np.isfinite(exact.get(name, b))):
                return f"{name} has other NaNs or infinities"
            continue
        a, b = (np.where(np.isfinite(v), v, 0).astype("f8") for v in (a, b))
        scale = max(np.abs(b).max(initial=0), 1e-3)
        allowed = 1e-5 * scale
        if exact is not None and name in exact and exact[name].shape == b.shape:
            allowed = max(1e-4 * scale, 50 * np.nanmax(np.abs(np.where(np.isfinite(exact[name]), exact[name], 0) - b), initial=0))
        if np.abs(a - b).max(initial=0) > allowed:
            return f"{name} differs by {np.abs(a - b).max():.3g} at a size of {scale:.3g}"
    return ""


def kind_of(finding):
    """Findings of one kind are equal except for names and numbers."""
    text = re.sub(r"'[^']*'|step\d+/\S+|\b[a-z_]+\d*(_after)? (?=differs|has|is)", "...", finding)
    return re.sub(r"[0-9][0-9.e+-]*", "#", text)[:120]


def smaller(program):
    """Programs with one element less, the largest reductions first."""
    ops, fetches = program["ops"], program["fetches"]
    for key, less in (("train", False), ("batches", program["batches"][:1])):
        if program[key] != less:
            yield dict(program, **{key: less})
    for size in (len(ops) // 2, len(ops) // 4, 2, 1):
        for at in range(0, len(ops), size) if size else ():
            yield dict(program, ops=ops[:at] + ops[at + size:])
    for name in fetches if len(fetches) > 1 else ():
        yield dict(program, fetches=[f for f in fetches if f != name])


def shrink(program, fails):
    for _ in range(200):
        less = next((p for p in smaller(program) if fails(p)), None)
        if less is None:
            break
        program = less
    words = rewrite_programs.used(program) | set(program["fetches"]) | {program.get("loss_of")}
    return dict(program, vars={n: v for n, v in program["vars"].items() if n in words})


def numbers(text):
    first, _, end = text.partition(":")
    return range(int(first), int(end or int(first) + 1))


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=numbers, default=range(0))
    parser.add_argument("--seed", type=int)
    parser.add_argument("--shrink")
    parser.add_argument("--replay")
    parser.add_argument("--bin-dir", default="build/ci/tools")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--show", action="store_true")
    return parser.parse_args()


def main():
    args = options()
    programs = {}
    for path in sorted(glob.glob(f"{args.replay}/*.json")) if args.replay else ():
        with open(path) as f:
            programs[os.path.basename(path)[:-5]] = json.load(f)
    seeds = [args.seed] if args.seed is not None else args.seeds
    programs.update({f"seed_{seed}": rewrite_programs.make(seed) for seed in seeds})
    stored = {n for n in programs if not n.startswith("seed_")}
    counts, failed = {"ran": 0, "refused": 0}, 0

    def one(item):
        name, program = item
        checker = Checker(args.bin_dir)
        finding = checker.check(program)
        if finding and args.shrink:
            wanted, way = kind_of(finding), finding.split(":")[0]
            ways = {way: WAYS[way]} if way in WAYS else WAYS

            def fails(less):
                other = checker.check(less, ways)
                return bool(other) and kind_of(other) == wanted
            small = shrink(program, fails)
            os.makedirs(args.shrink, exist_ok=True)
            with open(f"{args.shrink}/{name}.json", "w") as f:
                json.dump(small, f, indent=1)
            finding += "\n" + rewrite_programs.text_of(small)
        return name, finding
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for name, finding in pool.map(one, programs.items()):
            counts["refused" if finding is None else "ran"] += 1
            if finding is None and name in stored:
                finding = "the stored program does not run"
            if finding:
                failed += 1
                print(f"{name}: {finding}", flush=True)
    if args.show and args.seed is not None:
        print(rewrite_programs.text_of(rewrite_programs.make(args.seed)))
    if args.replay and not stored:
        print(f"{args.replay}: no stored program")
        failed += 1
    print(f"rewritten programs: {counts['ran']} ran, {counts['refused']} are refused without passes, {failed} differ")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
