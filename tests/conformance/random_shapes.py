#!/usr/bin/env python3
"""Every op with other extents, LoD and values than its references, compared with computations that share no code with
its kernel.

    random_shapes.py --bin build/ci/tools/run-program --shared ../shared [--seed N] [--rounds N] [--only op,op] [--json FILE] [-v]

The cases of the operator references, and those of tests/data/ops, are drawn again (random_cases.py) and run. Their
results are compared
 - with the op in float64, whose kernels are plain loops (cases of integers only: with one thread and with two),
 - with a reference in numpy where plain_ops.py has one,
 - their gradients, in float64, with finite differences through the forward op along random directions.
Draws that the op refuses are repeated, up to random_cases.TRIES times; the last one changes only values. The same seed
produces the same draws. The last line is "N passed, M failed"; a case passes if it ran and nothing differs. Needs numpy
and protobuf.
"""
import argparse
import collections
import concurrent.futures
import itertools
import json
import os
import subprocess
import sys
import tempfile

import numpy as np

import plain_ops
from random_cases import TRIES, Variant, program_class, references, widened

CHUNK = 100  # jobs per process
GROUP = 500  # cases in memory at a time
STEP = 1e-5
FLOAT_MAX = float(np.finfo("f4").max)
# not compared with finite differences: gradients that are not derivatives, always or for some cases; those of the
# original are the same
NO_DERIVATIVE = {
    # the gradient of the rounding is the identity
    "fake_quantize_dequantize_abs_max": lambda c: True,
    "fake_channel_wise_quantize_dequantize_abs_max": lambda c: True,
    # the gradient of the first columns is the fed CVM
    "cvm": lambda c: True,
    # the result is clipped, not the operand
    "soft_relu": lambda c: True,
    # the gradient shuffles in the forward direction again
    "shuffle_channel": lambda c: True,
    # only the gradient treats regions as at least one pixel large
    "roi_align": lambda c: c.attr("aligned"),
    # statistics of the batch in the forward pass, the given ones in the backward pass
    "batch_norm": lambda c: c.attr("trainable_statistics"),
    # without Scale the mean of the gradient is missing
    "group_norm": lambda c: "Scale" not in c.meta["inputs"],
    # clipped at 64 below the largest
    "log_softmax": lambda c: "large" in c.meta["tag"],
    # sparse gradients include rows of the padding index
    "lookup_table": lambda c: c.attr("is_sparse") and c.attr("padding_idx") != -1,
    "lookup_table_v2": lambda c: c.attr("is_sparse") and c.attr("padding_idx") != -1,
    # rows that are overwritten later also get a gradient
    "scatter": lambda c: c.attr("overwrite") is not False,
    # the weight scales another part of the gradient than of the loss
    "sigmoid_cross_entropy_with_logits": lambda c: "pos_weight" in c.meta["inputs"],
    # the forward pass uses the last of several elements at one position
    "unpool": lambda c: True,
    "warpctc": lambda c: c.attr("norm_by_times"),
    # the sigmoid is clipped above 13, its derivative is not
    "gru": lambda c: "large" in c.meta["tag"],
    "lstm": lambda c: "large" in c.meta["tag"],
    # one triangle is read, but both get half of the gradient
    "cholesky": lambda c: True,
}


class Runner:
    """run-program --batch over jobs, several processes at a time."""

    def __init__(self, args, folder):
        self.args, self.folder, self.count = args, folder, 0

    def write(self, program, feeds, fetch):
        """A job for run()."""
        self.count += 1
        base = os.path.join(self.folder, str(self.count))
        with open(base + ".pb", "wb") as file:
            file.write(program)
        with open(base + ".npz", "wb") as file:
            np.savez(file, **feeds)
        return {"program": base + ".pb", "feed": base + ".npz", "fetch": fetch, "output": base + ".out.npz"}

    def run(self, jobs, threads=None):
        """For each job its members, or a text with the reason why there are none."""
        chunks = [jobs[k:k + CHUNK] for k in range(0, len(jobs), CHUNK)]
        with concurrent.futures.ThreadPoolExecutor(self.args.jobs) as pool:
            answers = [a for chunk in pool.map(lambda c: self.run_chunk(c, threads), chunks) for a in chunk]
        results = []
        for job, answer in zip(jobs, answers):
            if answer is None:
                with np.load(job["output"], allow_pickle=False) as archive:
                    answer = {n: archive[n] for n in archive.files}
                os.unlink(job["output"])
            os.unlink(job["program"])
            os.unlink(job["feed"])
            results.append(answer)
        return results

    def run_chunk(self, jobs, threads):
        answers = []
        while len(answers) < len(jobs):
            with tempfile.NamedTemporaryFile("w", suffix=".jsonl", dir=self.folder) as file:
                file.writelines(json.dumps(job) + "\n" for job in jobs[len(answers):])
                file.flush()
                command = [self.args.bin, "--batch", file.name] + (["--threads", str(threads)] if threads else [])
                try:
                    done = subprocess.run(command, capture_output=True, text=True, timeout=60 + 2 * len(jobs))
                    text, end = done.stdout, f"ended with {done.returncode}: {done.stderr.strip()[-200:]}"
                except subprocess.TimeoutExpired as late:
                    text, end = (late.stdout or b"").decode(), "no answer in time"
            for line in text.splitlines():
                if line.startswith("{"):
                    answer = json.loads(line)
                    answers.append(None if answer["ok"] else str(answer.get("error")))
            if len(answers) < len(jobs):  # the first job without a result ended the process
                answers.append("CRASH: " + end)
        return answers


def value_of(out, name, kind):
    """A fetched value as an array; rows of selected rows are added up."""
    array = widened(out[name], kind).astype("f8") if out[name].dtype.kind in "fu" and kind in ("bfloat16", "float16", "float32", "float64") else out[name]
    if name + ".rows" in out:
        rows = out[name + ".rows"].ravel()
        # a padding row may be outside of the table
        dense = np.zeros((max(int(out[name + ".height"]), rows.max(initial=-1) + 1), *array.shape[1:]))
        np.add.at(dense, rows, array)
        return dense
    return array


def lod_of(out, name):
    levels = []
    while f"{name}.lod{len(levels)}" in out:
        levels.append([int(v) for v in out[f"{name}.lod{len(levels)}"].ravel()])
    return levels


def difference(got, want, rtol, atol):
    """How `got` differs, or None. Values beyond the range of float32 are treated as equal."""
    if got.shape != want.shape:
        return f"shape {list(got.shape)} instead of {list(want.shape)}"
    if got.size == 0:
        return None
    if want.dtype.kind != "f" or got.dtype.kind != "f":
        bad = got != want
    else:
        got, want = (np.where(np.abs(v) >= FLOAT_MAX, np.sign(v) * FLOAT_MAX, v) for v in (got, want))
        finite = want[np.abs(want) < FLOAT_MAX]
        scale = max(1.0, float(np.abs(finite).max(initial=0)))
        with np.errstate(all="ignore"):
            bad = ~((np.abs(got - want) <= atol * scale + rtol * np.abs(want)) | (got == want) | (np.isnan(got) & np.isnan(want)))
    if not bad.any():
        return None
    at = tuple(int(v) for v in np.argwhere(bad)[0])
    return f"{bad.sum()} of {bad.size} differ, first at {list(at)}: {got[at]!r} instead of {want[at]!r}"


class Check:
    """One drawn case and its state in the stages."""

    def __init__(self, variant):
        self.variant, self.reference = variant, variant.reference
        self.faults, self.notes = [], []
        self.plain = self.double = None

    def outputs(self):
        """Entries that are compared by value."""
        return [e for e in self.reference.meta["expects"] if not e.get("optional") and e["compare"] == "values"]

    def fetch(self, forward):
        return [e["name"] for e in self.reference.meta["expects"] if not e.get("optional") and not (forward and "grad_of" in e)]

    def forward_names(self):
        """Outputs whose gradients are fed, after those that are compared."""
        return list(dict.fromkeys([*self.fetch(True), *(n[:-len("@GRAD")] for n in sorted(self.reference.outer))]))

    def feed_names(self, forward):
        return [e["name"] for e in (self.reference.inputs() if forward else self.reference.meta["feeds"])]

    def draw_outer(self, forward):
        """Gradients of the outputs, with the shapes of the actual outputs."""
        for name in sorted(self.reference.outer):
            out = name[:-len("@GRAD")]
            entry = next(e for e in self.reference.meta["feeds"] if e["name"] == name)
            self.variant.values[name] = self.variant.rng.uniform(-1, 1, forward[out].shape).astype("f4")
            if entry.get("lod"):
                self.variant.lods[name] = lod_of(forward, out)

    def tolerance(self, entry):
        fed = max((v.size for v in self.variant.values.values()), default=1)
        more = max(1.0, (fed / max(1, self.plain[entry["name"]].size)) ** 0.5)
        return 2 * entry["rtol"], 2 * entry["atol"] * more

    def compare_runs(self, other, what):
        for entry in self.outputs():
            name = entry["name"]
            if name not in self.plain or name not in other:
                if entry["kind"] != "lod_tensor_array":
                    self.faults.append(f"{name} was not fetched")
                continue
            wrong = difference(value_of(self.plain, name, entry["dtype"]), value_of(other, name, entry["dtype"]), *self.tolerance(entry))
            if not wrong and lod_of(self.plain, name) != lod_of(other, name):
                wrong = f"LoD {lod_of(self.plain, name)} instead of {lod_of(other, name)}"
            if wrong:
                self.faults.append(f"{name}: {wrong} ({what})")

    def compare_plain(self, message):
        """Compares with the op in numpy. Returns whether there is one for this case."""
        try:
            found = plain_ops.compute(self, message.FromString(self.variant.program(message, True, False)))
        except (ValueError, IndexError, KeyError, TypeError) as error:
            self.faults.append(f"what the reference in numpy cannot do: {type(error).__name__} {error}")
            return False
        if found is None:
            return False
        for entry in self.outputs():
            if "grad_of" in entry or entry["slot"] not in found:
                continue
            position = self.reference.meta["outputs"][entry["slot"]].index(entry["name"])
            want = np.asarray(found[entry["slot"]][position])
            got = value_of(self.plain, entry["name"], entry["dtype"])
            want = want.astype("f8") if got.dtype.kind == "f" else want.astype(got.dtype)
            wrong = difference(got, want, *self.tolerance(entry))
            if wrong:
                self.faults.append(f"{entry['name']}: {wrong} (numpy)")
        return True

    def gradients(self):
        """Entries of gradients that can be checked by finite differences."""
        if not self.reference.outer or self.double is None or NO_DERIVATIVE.get(self.reference.op, lambda c: False)(self.reference):
            return []
        kinds = {e["name"]: e["dtype"] for e in self.reference.inputs()}
        return [e for e in self.outputs() if "grad_of" in e and e["kind"] != "lod_tensor_array" and e["name"] in self.double and
                kinds.get(e["grad_of"]) in ("float32", "float64") and e["grad_of"] not in self.variant.rows]

    def slope_jobs(self, runner, message, entry, step):
        """Jobs on both sides of the input along a direction, which is drawn first."""
        at = self.variant.values[entry["grad_of"]].astype("f8")
        along = self.variant.rng.uniform(-1, 1, at.shape)
        program = self.variant.program(message, True, True)
        fetch = self.forward_names()
        return along, [runner.write(program, self.variant.members(self.feed_names(True), True, {entry["grad_of"]: at + side * step * along}), fetch)
                       for side in (1, -1)]

    def slope_fault(self, entry, along, sides, step):
        """Compares the gradient with the results on both sides."""
        if any(isinstance(s, str) for s in sides):
            return None
        total = 0.0
        for name in sorted(self.reference.outer):
            out = name[:-len("@GRAD")]
            if any(s[out].shape != self.variant.values[name].shape for s in sides):
                return None
            with np.errstate(all="ignore"):
                total += float(((sides[0][out].astype("f8") - sides[1][out].astype("f8")) * self.variant.values[name].astype("f8")).sum()) / (2 * step)
        gradient = value_of(self.double, entry["name"], "float64")
        if gradient.shape != along.shape:
            return f"{entry['name']}: shape {list(gradient.shape)} instead of {list(along.shape)}"
        found = float((gradient * along).sum())
        scale = float(np.abs(gradient * along).sum())
        if not np.isfinite(total) or not np.isfinite(found) or abs(total - found) <= 1e-4 * max(scale, abs(total)) + 1e-6:
            return None
        return f"{entry['name']}: {found:.9g} along a direction, finite differences give {total:.9g}"


def draw(cases, seed, runner, message, counts):
    """Checks of all cases that have inputs which the op accepts."""
    pending, ready = [(c, 0) for c in cases], []
    while pending:
        checks = [Check(Variant(c, seed, attempt)) for c, attempt in pending]
        jobs = [runner.write(k.variant.program(message, True, False), k.variant.members(k.feed_names(True), False), k.forward_names()) for k in checks]
        again = []
        for check, (case, attempt), out in zip(checks, pending, runner.run(jobs)):
            if isinstance(out, str) and out.startswith("CRASH"):
                check.faults.append(out)
                ready.append(check)
            elif isinstance(out, str):
                counts["refused draws"] += 1
                if attempt + 1 < TRIES:
                    again.append((case, attempt + 1))
                else:
                    counts["refused cases"] += 1
                    if runner.args.verbose:
                        print(f"refused  {case.op} #{case.index}: {shapes(check.variant)}\n      {out}")
            else:
                counts["values only"] += not check.variant.extents
                check.draw_outer(out)
                ready.append(check)
        pending = again
    return ready


def run_all(checks, runner, message, counts):
    """Runs them unchanged, and in float64 or with another number of threads."""
    jobs = [runner.write(c.variant.program(message, False, False), c.variant.members(c.feed_names(False), False), c.fetch(False)) for c in checks]
    for check, out in zip(checks, runner.run(jobs)):
        if isinstance(out, str):
            check.faults.append("the gradient ops: " + out)
        else:
            check.plain = out
    able = [c for c in checks if c.plain is not None]
    jobs = [runner.write(c.variant.program(message, False, True), c.variant.members(c.feed_names(False), True), c.fetch(False)) for c in able]
    alone = []
    for check, out in zip(able, runner.run(jobs)):
        if isinstance(out, str):
            (check.faults if out.startswith("CRASH") else check.notes).append("float64: " + out)
            counts["without float64"] += 1
            alone.append(check)
        else:
            check.double = out
            check.compare_runs(out, "float64")
    jobs = [runner.write(c.variant.program(message, False, False), c.variant.members(c.feed_names(False), False), c.fetch(False)) for c in alone]
    for check, out in zip(alone, runner.run(jobs, 2)):
        if isinstance(out, str):
            check.faults.append("with two threads: " + out)
        else:
            check.compare_runs(out, "two threads")
    for check in able:
        counts["with numpy"] += check.compare_plain(message)


def slopes(checks, runner, message, counts):
    """Gradients against finite differences; those that may be at a kink are checked again, with a smaller step and at
    another point."""
    pending = [(c, e) for c in checks for e in c.gradients()]
    for step in (STEP, STEP / 100):
        plans = [(c, e, *c.slope_jobs(runner, message, e, step)) for c, e in pending]
        outs = iter(runner.run([job for plan in plans for job in plan[3]]))
        again = []
        for check, entry, along, _ in plans:
            fault = check.slope_fault(entry, along, (next(outs), next(outs)), step)
            if step == STEP:
                counts["gradients"] += 1
            if fault and step == STEP:
                again.append((check, entry))
            elif fault:
                check.faults.append(fault)
        pending = again


def examine(cases, args, seed, message, counts):
    """All stages for some cases. Returns their checks."""
    with tempfile.TemporaryDirectory() as folder:
        runner = Runner(args, folder)
        checks = draw(cases, seed, runner, message, counts)
        run_all([c for c in checks if not c.faults], runner, message, counts)
        slopes([c for c in checks if not c.faults], runner, message, counts)
    return checks


def shapes(variant):
    return ", ".join(f"{n}{list(v.shape)}" + (f" lod {variant.lods[n]}" if n in variant.lods else "") for n, v in variant.values.items() if "@GRAD" not in n)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--shared", required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", default="")
    parser.add_argument("-v", "--verbose", action="store_true", help="say what was refused")
    args = parser.parse_args()
    only = set(args.only.split(",")) if args.only else None
    message = program_class(os.path.join(args.shared, "tools"))
    folders = (os.path.join(args.shared, "goldens/ops"), os.path.join(os.path.dirname(os.path.abspath(__file__)), "../data/ops"))
    cases = [c for folder in folders for c in references(folder, lambda op: only is None or op in only)]
    counts, passed, failed = collections.Counter(), 0, 0
    able = [c for c in cases if c.plain_members()]
    counts["with arrays"] = len(cases) - len(able)
    for k, at in itertools.product(range(args.rounds), range(0, len(able), GROUP)):
        checks = examine(able[at:at + GROUP], args, f"{args.seed}.{k}", message, counts)
        for check in checks:
            where = f"{check.reference.op} #{check.reference.index} (seed {args.seed}, round {k}): {shapes(check.variant)}"
            for fault in check.faults:
                print(f"FAIL  {where}\n      {fault}", flush=True)
            if args.verbose:
                for note in check.notes:
                    print(f"note  {where}\n      {note}")
            passed, failed = passed + (not check.faults), failed + bool(check.faults)
    print(", ".join(f"{n}: {counts[n]}" for n in counts))
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"passed": passed, "failed": failed, **counts}, file)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
