#!/usr/bin/env python3
"""Runs random operator cases with the original; started by check_op.py with the original's interpreter.

    oracle_ops.py SHARED_TOOLS_FOLDER FOLDER...        FOLDER: stored operator cases

Reads lines of JSON on stdin, {"seeds": [...], "out": FILE}, writes a record per seed to FILE (pickle) and responds with a
line {"ok": true}. Seeds run in a process that is forked from this one; where it ends, the seed that it was at gets a
record that says so, and the next ones run in a new process.
"""
import json
import os
import pickle
import signal
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True
sys.path[:0] = [sys.argv[1], HERE, os.path.join(HERE, "..", "conformance")]

import numpy as np  # noqa: E402
import numpy.random  # noqa: E402, F401  before the original
import gen_op_goldens as gen  # noqa: E402
import op_changes  # noqa: E402
from paddle.base import core  # noqa: E402
from random_cases import references  # noqa: E402

SECONDS = 20
INFER_SHAPE = core.OpDesc.infer_shape


def defaults_of(op):
    """Attributes of the op that a program may set, with their defaults."""
    known = core.get_op_attrs_default_value(op.encode()) if op in gen.OPS else {}
    wanted = {a.name for a in gen.PROTO[op].attrs if not a.extra} if op in gen.PROTO else set()
    return {n: v for n, v in known.items() if n in wanted and not n.startswith(("op_", "with_quant"))}


class Maker:
    def __init__(self, folders):
        self.cases = {}
        for folder in folders:
            fresh = {}
            for r in references(folder, lambda name: name not in self.cases):
                fresh.setdefault(r.op, []).append(r)
            self.cases.update(fresh)
        self.ops = sorted(self.cases)
        self.pools = op_changes.Pools(r for rs in self.cases.values() for r in rs)

    def record(self, seed):
        """What a seed makes: the case in the layout of a stored one, and what the original says of it."""
        rng = np.random.default_rng([seed, 77])
        op = self.ops[int(rng.integers(len(self.ops)))]
        reference = self.cases[op][int(rng.integers(len(self.cases[op])))]
        out = dict(seed=seed, op=op, base=reference.index, notes=[])
        if not reference.plain_members():
            return dict(out, state="left out", why="tensor arrays")
        if not reference.meta["inputs"] and not reference.meta["outputs"] or reference.meta["n_forward_ops"] != 1 or reference.meta.get("blocks", 1) > 1:
            return self.whole_program(out, reference, seed, rng)
        if op not in gen.OPS:
            return dict(out, state="left out", why="unknown to the original")
        draft = op_changes.draft_of(reference, seed, rng, gen)
        if op in gen.PROTO:
            op_changes.change(rng, draft, self.pools, gen.PROTO[op], defaults_of(op), gen)
        out["notes"] = draft.notes
        made = gen.Gen(False)
        made.op, made.rng = op, np.random.RandomState(seed % (1 << 31))
        try:
            made._case(op, draft.ins, draft.attrs, draft.outs, draft.grad, draft.gout or None, "; ".join([f"seed {seed}"] + draft.notes), draft.inplace, draft.compare,
                       draft.tolerance, draft.drop, None)
        except Exception as e:
            return dict(out, state="refused", why=said(e), **refused(made, draft))
        program, arrays, meta = made.store[op][0]
        if rng.random() < 0.3:
            program = with_open_dims(program)
            meta["tag"] += "; first dims are unknown"
        return dict(out, state="made", program=program, arrays=arrays, meta=meta)

    def whole_program(self, out, reference, seed, rng):
        """A stored program with other extents and values."""
        variant = op_changes.Variant(reference, seed, int(rng.integers(op_changes.TRIES)))
        program = variant.program(gen.pb.ProgramDesc, False, False)
        feeds, mem = {}, gen.Member()
        meta = dict(reference.meta, feeds=[], expects=[], tag=f"seed {seed}; extents {variant.extents}")
        for e in reference.meta["feeds"]:
            if e["name"] not in variant.values:
                return dict(out, state="left out", why="gradients of a program are fed")
            a = variant.values[e["name"]]
            if e["name"] in variant.rows:
                v = gen.SR(*variant.rows[e["name"]][:1], a, variant.rows[e["name"]][1])
            else:
                v = gen.T(gen.to_bf16(a) if e["dtype"] == "bfloat16" else a.astype(e["dtype"]), variant.lods.get(e["name"]), e["dtype"])
            feeds[e["name"]] = v
            meta["feeds"].append(mem.add(e["member"], e["name"], e["slot"], v))
        try:
            scope = gen.run(gen.paddle.static.Program.parse_from_string(program), feeds)
            for e in reference.meta["expects"]:
                v = gen.grab(scope, e["name"], e["kind"])
                if v is None or e["compare"] != "values":
                    continue
                kept = {k: e[k] for k in ("compare", "rtol", "atol", "optional", "grad_of") if k in e}
                meta["expects"].append(dict(mem.add(e["member"], e["name"], e["slot"], v), **kept))
        except Exception as e:
            return dict(out, state="refused", why=said(e), program=program, arrays=mem.arrays, meta=dict(meta, expects=[]))
        return dict(out, state="made", program=program, arrays=mem.arrays, meta=meta)


def with_open_dims(program):
    """The program as it is saved where the batch is not known: first dims are -1."""
    desc = gen.pb.ProgramDesc.FromString(program)
    for var in desc.blocks[0].vars:
        dims = var.type.lod_tensor.tensor.dims if var.type.HasField("lod_tensor") else []
        if dims:
            dims[0] = -1
    return desc.SerializeToString()


def said(error):
    lines = [x for x in str(error).strip().splitlines() if x.strip()]
    wanted = [x.strip() for x in lines if "Error: " in x] or [x.strip() for x in lines if "[operator <" not in x and "[Hint" not in x]
    return (wanted[-1] if wanted else repr(error))[:300]


def refused(made, draft):
    """The program of a case that the original refuses, without what infers and checks shapes."""
    def infer_shape(desc, block):
        try:
            INFER_SHAPE(desc, block)
        except Exception:
            pass
    core.OpDesc.infer_shape = infer_shape
    try:
        ins = {s: [gen.wrap(x) for x in gen.as_list(v)] for s, v in draft.ins.items()}
        program, names_in, names_out, feeds = made._build(draft.op, ins, draft.attrs, draft.outs, draft.inplace, set())
    except Exception:
        return dict(program=None)
    finally:
        core.OpDesc.infer_shape = INFER_SHAPE
    mem, meta = gen.Member(), {"op": draft.op, "tag": "; ".join(draft.notes), "feeds": [], "expects": [], "has_grad": False}
    for slot, names in names_in.items():
        for k, name in enumerate(names):
            meta["feeds"].append(mem.add(f"in/{slot}/{k}", name, slot, feeds[name]))
    hidden = {o.name for o in gen.PROTO[draft.op].outputs if o.intermediate} if draft.op in gen.PROTO else set()
    fetch = [n for s, names in names_out.items() for n in names if s not in draft.drop and s not in hidden]
    return dict(program=gen.strip(program), arrays=mem.arrays, meta=meta, fetch=fetch)


def in_children(maker, seeds, path):
    todo, records = list(seeds), []
    while todo:
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read)
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.dup2(null, 2)
            with os.fdopen(write, "wb") as out:
                for seed in todo:
                    signal.alarm(SECONDS)
                    try:
                        record = maker.record(seed)
                    except Exception as e:
                        record = dict(seed=seed, op="?", notes=[], state="left out", why=f"not drawn: {e!r}"[:200])
                    pickle.dump(record, out, protocol=4)
                    out.flush()
            os._exit(0)
        os.close(write)
        got = 0
        with os.fdopen(read, "rb") as back:
            try:
                while got < len(todo):
                    records.append(pickle.load(back))
                    got += 1
            except (EOFError, pickle.UnpicklingError):
                pass
        _, status = os.waitpid(child, 0)
        todo = todo[got:]
        if todo:
            records.append(dict(seed=todo[0], op="?", notes=[], state="crash", why=f"the original ended with status {status}"))
            todo = todo[1:]
    with open(path, "wb") as f:
        pickle.dump(records, f, protocol=4)


def main():
    maker = Maker(sys.argv[2:])
    for line in sys.stdin:
        request = json.loads(line)
        in_children(maker, request["seeds"], request["out"])
        print(json.dumps(dict(ok=True)), flush=True)


if __name__ == "__main__":
    main()
