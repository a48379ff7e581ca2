"""Random operator cases: the original's results (oracle_ops.py) compared with those of run-program."""
import collections
import json
import os
import pickle
import re
import shlex
import shutil
import subprocess
import tempfile
import types

import numpy as np

import op_known

HERE = os.path.dirname(os.path.abspath(__file__))
CHUNK = 200
# Results of such values are sums of many numbers in another order: the bound grows with the largest one.
LOOSE = {"inverse": 1e-2, "recurrent": 1e-3, "warpctc": 1e-3, "while": 1e-3}
ROUNDING = {"float32": 1e-5, "float64": 1e-12, "float16": 4e-3, "bfloat16": 2e-2}
# What the original says of a case that it cannot run for a reason of its own.
NOT_THERE = re.compile(r"kernel|not registered|Unimplemented|unimplemented|not support|only support|GPU|not implemented", re.I)


class Oracle:
    """The process of the original. `poison`: memory that it has not written holds other numbers than usual."""

    def __init__(self, args, poison=False):
        env = dict(os.environ, PYTHONHASHSEED="0", OMP_NUM_THREADS="1", GLOG_minloglevel="3", PYTHONDONTWRITEBYTECODE="1")
        if poison:
            env.update(FLAGS_allocator_strategy="naive_best_fit", FLAGS_init_allocated_mem="true", MALLOC_PERTURB_="90")
        words = [args.oracle, "-W", "ignore", f"{HERE}/oracle_ops.py", f"{args.shared}/tools", f"{args.shared}/goldens/ops", f"{HERE}/../data/ops"]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)

    def records(self, seeds, path):
        self.process.stdin.write(json.dumps(dict(seeds=list(seeds), out=path)) + "\n")
        self.process.stdin.flush()
        if not self.process.stdout.readline():
            raise RuntimeError(f"the original's process has ended with status {self.process.wait()}")
        with open(path, "rb") as f:
            return pickle.load(f)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def widen_bounds(record, judge):
    """Bounds grow with the size of the result; the statistics of few numbers say nothing."""
    for e in record["meta"]["expects"]:
        if e["compare"] == "statistics" and np.prod(e["shape"]) < 500:
            e["compare"] = "shape"
        if e["compare"] != "values" or e["kind"] == "lod_tensor_array" or e["dtype"] not in ROUNDING:
            continue
        want = judge.wide(record["arrays"][e["member"]], e["dtype"])
        finite = np.abs(want[np.isfinite(want)])
        if finite.size:
            e["atol"] += max(ROUNDING[e["dtype"]], LOOSE.get(record["op"], 0) if e["dtype"] == "float32" else 0) * float(finite.max())


def run_ours(args, judge, records, work, name):
    """seed -> list of what is wrong, from check_ops."""
    chunk = []
    for record in records:
        meta = record["meta"]
        if record["state"] == "refused":
            meta = dict(meta, expects=[dict(name=n, kind="lod_tensor", compare="shape", shape=[]) for n in record.get("fetch", [])])
        chunk.append((record["op"], record["seed"], meta, dict(record["arrays"], program=np.frombuffer(record["program"], np.uint8))))
    # check_ops expects the tool as the last word
    command = shlex.join(["sh", "-c", f'exec "$0" --devices {args.devices} "$@"', f"{args.bin_dir}/run-program"])
    settings = types.SimpleNamespace(bin=command, optional=False, single=False, timeout=max(1.0, args.timeout / 30), keep=work)
    found = {seed: why for (_, seed), why in judge.run_chunk(settings, chunk, work, name).items()}
    for op, seed, meta, arrays in chunk:
        if not found[seed] and meta["expects"]:
            found[seed] = infinite(f"{work}/{name}/{op}_{seed}.out.npz", meta, arrays, judge)
    shutil.rmtree(f"{work}/{name}")
    return found


def infinite(path, meta, arrays, judge):
    """Values that are infinite on one side only: check_ops takes every number for infinity."""
    why = []
    with np.load(path) as out:
        for e in meta["expects"]:
            if e["compare"] != "values" or "member" not in e or e["kind"] != "lod_tensor" or e["name"] not in out.files or e["dtype"] not in ROUNDING:
                continue
            got, want = judge.wide(out[e["name"]], e["dtype"]), judge.wide(arrays[e["member"]], e["dtype"])
            bad = (np.isinf(want) & (got != want)).reshape(-1)
            if bad.any():
                at = int(np.argmax(bad))
                why.append(f"{e['name']}{' (gradient)' if 'grad_of' in e else ''}: {bad.sum()} of {bad.size} differ: {got.reshape(-1)[at]}, expected {want.reshape(-1)[at]}")
    return why


def normal(text):
    """A message without its place, names and numbers."""
    text = re.sub(r"^error: .*?block \d+, op \d+ \(\w+\)(, attr \w+)?: ", "", text)
    text = re.sub(r"'[^']*'", "'...'", text)
    return re.sub(r"-?[0-9][0-9.e+-]*", "#", text)[:110]


def outcome(record, why):
    """(class, text) of a record that ran."""
    stopped = why and why[0].startswith(("error:", "process ended", "no readable"))
    if record["state"] == "refused":
        if not stopped:
            return ("more", record["why"]) if NOT_THERE.search(record["why"]) else ("runs what the original refuses", record["why"])
        return ("crash", why[0]) if not why[0].startswith("error:") or "internal error" in why[0] else ("both refuse", "")
    if not why:
        return "equal", ""
    if stopped:
        return ("refuses", why[0]) if why[0].startswith("error:") and "internal error" not in why[0] else ("crash", why[0])
    kinds = [k for k in ("shape", "dtype", "lod") if any(f": {k} " in w for w in why)]
    grads = all("(gradient)" in w for w in why)
    return (kinds[0] if kinds else "gradient" if grads else "value"), "; ".join(why)


class Checker:
    def __init__(self, args, judge):
        self.args, self.judge = args, judge
        self.oracle, self.poisoned = Oracle(args), None

    def chunk(self, seeds, work):
        records = self.oracle.records(seeds, f"{work}/records")
        ran = [r for r in records if r["state"] in ("made", "refused") and r.get("program")]
        for r in ran:
            r["exact"] = [dict(e) for e in r["meta"]["expects"]]
            widen_bounds(r, self.judge)
        found = run_ours(self.args, self.judge, ran, work, f"chunk{seeds[0]}")
        results = []
        for r in records:
            kind, text = outcome(r, found[r["seed"]]) if r["seed"] in found else ({"crash": "the original crashes", "refused": "not built"}.get(r["state"], r["state"]), r["why"])
            results.append(dict(seed=r["seed"], op=r["op"], kind=kind, text=text, notes=r["notes"], record=r))
        self.recheck([r for r in results if r["kind"] in ("value", "gradient", "shape", "lod", "dtype")], work)
        return results

    def recheck(self, results, work):
        """A result of the original that depends on memory that it never wrote is no reference."""
        if not results:
            return
        self.poisoned = self.poisoned or Oracle(self.args, True)
        again = {r["seed"]: r for r in self.poisoned.records([r["seed"] for r in results], f"{work}/again")}
        for r in results:
            first, second = r["record"], again[r["seed"]]
            if second["state"] != first["state"] or not same(first, second):
                r["kind"] = "undefined in the original"
            elif op_known.reason(r):
                r["kind"], r["text"] = "known", op_known.reason(r)

    def close(self):
        for oracle in (self.oracle, self.poisoned):
            if oracle:
                oracle.close()


def same(a, b):
    """Whether two records of a seed have the same results up to rounding."""
    if [e["name"] for e in a["exact"]] != [e["name"] for e in b["meta"]["expects"]]:
        return False
    for member, array in a["arrays"].items():
        other = b["arrays"].get(member)
        if other is None or other.shape != array.shape or other.dtype != array.dtype:
            return False
        if array.dtype.kind == "f" and not np.allclose(array.astype("f8"), other.astype("f8"), rtol=1e-3, atol=1e-5, equal_nan=True):
            return False
        if array.dtype.kind != "f" and not np.array_equal(array, other):
            return False
    return True


FINDINGS = ("value", "gradient", "shape", "dtype", "lod", "crash")


def store(root, result):
    """Adds the case to the file of its op in `root`, in the layout of the operator references."""
    record = result["record"]
    path = f"{root}/{record['op']}.npz"
    members = {}
    if os.path.exists(path):
        with np.load(path) as old:
            members = {n: old[n] for n in old.files}
    k = sum(n.endswith("/meta") for n in members)
    meta = dict(record["meta"], case=k, held_out=False, expects=record["exact"])
    members[f"case{k}/meta"] = np.frombuffer(json.dumps(meta, separators=(",", ":"), sort_keys=True, default=lambda o: o.item() if isinstance(o, np.generic) else str(o)).encode(), np.uint8)
    members[f"case{k}/program"] = np.frombuffer(record["program"], np.uint8)
    members.update({f"case{k}/{m}": a for m, a in record["arrays"].items()})
    os.makedirs(root, exist_ok=True)
    np.savez_compressed(path, **members)


def replay(args, judge, folder):
    """Names of stored cases that fail, with what is wrong, and how many there are."""
    settings, chunk = types.SimpleNamespace(bin=f"{args.bin_dir}/run-program", optional=False, single=False, timeout=10.0, keep=""), []
    for file in sorted(os.listdir(folder)):
        chunk += [(file[:-4], k, meta, arrays) for k, (meta, arrays) in enumerate(judge.load(f"{folder}/{file}"))]
    with tempfile.TemporaryDirectory() as work:
        found = judge.run_chunk(settings, chunk, work, "stored")
    return {f"{op}_{k}": why for (op, k), why in found.items() if why}, len(chunk)


def run(args, seeds, judge):
    """All seeds; prints every finding, then how many cases ended how, and the findings by op and kind."""
    checker, results = Checker(args, judge), []
    with tempfile.TemporaryDirectory() as work:
        for first in range(0, len(seeds), CHUNK):
            for r in checker.chunk(seeds[first:first + CHUNK], work):
                if r["kind"] in FINDINGS:
                    print(f"op_{r['seed']} {r['op']} {r['kind']}: {r['text'][:300]} [{'; '.join(r['notes'])}]", flush=True)
                if args.store and r["kind"] in ("equal", *FINDINGS) and len(seeds) == 1:
                    store(f"{args.store}/ops", r)
                del r["record"]
                results.append(r)
    checker.close()
    if args.json:
        with open(args.json, "w", encoding="utf-8") as f:
            json.dump(results, f, indent=1)
    return summary(results)


def summary(results):
    counts = collections.Counter(r["kind"] for r in results)
    groups = collections.Counter((r["kind"], r["op"], normal(r["text"])) for r in results if r["kind"] in ("refuses", "runs what the original refuses"))
    for (kind, op, text), n in sorted(groups.items()):
        print(f"{n:5d}  {kind}: {op}: {text}")
    print(", ".join(f"{n} {kind}" for kind, n in counts.most_common()))
    bad = sum(counts[k] for k in FINDINGS)
    print(f"{counts['equal']} passed, {bad} failed")
    return bad
