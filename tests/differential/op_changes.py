"""Random changes of stored operator cases: attributes, shapes, dtypes, optional slots and values.

A Draft is one op with its inputs and attributes. draft_of() takes a stored case with other extents and LoD
(tests/conformance/random_cases.py), change() then changes it further; `notes` says how. All numbers come from one
generator, so a seed makes the same draft again. Runs in the original's interpreter.
"""
import numpy as np

from random_cases import TRIES, Variant

DTYPES = (0, 2, 3, 4, 5, 6, 20, 21, 22)
MOST_BYTES = 1 << 20
TEXTS = {"data_format": ("NCHW", "NHWC", "AnyLayout", "NCDHW", "NDHWC", "NCL"), "data_layout": ("NCHW", "NHWC"), "padding_algorithm": ("EXPLICIT", "SAME", "VALID"),
         "pooltype": ("SUM", "MAX", "MIN", "AVERAGE", "SQRT", "LAST", "FIRST"), "pooling_type": ("max", "avg"), "mode": ("constant", "reflect", "replicate", "edge", "circular"),
         "interp_method": ("nearest", "bilinear", "bicubic", "linear", "trilinear"), "padding_mode": ("zeros", "border", "reflection"), "reduction": ("none", "mean", "sum", "batchmean")}
DIFFERENT = {"float32": ("float64", "float64", "float64", "int32", "int64", "float16", "bfloat16", "bool", "uint8"), "float64": ("float32", "int64"),
             "int64": ("int32", "int32", "float32", "int16", "uint8", "bool"), "int32": ("int64", "int64", "float32"), "bool": ("int32", "uint8", "float32")}
SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1e30, -1e30, 1e-30, 88.0, -88.0, 0.5, 1.0, -1.0, 2.5)


class Draft:
    """One op: `ins` slot -> tensors, `attrs` name -> value, `outs` slot -> (count, dtype, kind of var)."""

    def __init__(self, reference):
        self.op, self.reference, self.notes = reference.op, reference, []
        self.ins, self.attrs, self.outs, self.inplace, self.drop = {}, dict(reference.meta["attrs_set"]), {}, {}, ()
        self.grad, self.gout, self.compare, self.tolerance = set(), [], "values", (1e-5, 1e-6)

    def floats(self):
        return [t for ts in self.ins.values() for t in ts if t.dtype in ("float32", "float64") and t.a.size]

    def rank(self):
        return max([t.a.ndim for ts in self.ins.values() for t in ts] or [1])

    def note(self, text):
        self.notes.append(text)


def draft_of(reference, seed, rng, gen):
    """The case with other extents, LoD and values; `gen`: module gen_op_goldens."""
    draft, meta = Draft(reference), reference.meta
    variant = Variant(reference, seed, int(rng.integers(TRIES)))
    if variant.extents:
        draft.note(f"extents {variant.extents}")
    for slot, names in meta["inputs"].items():
        draft.ins[slot] = []
        for name in names:
            entry = next(e for e in meta["feeds"] if e["name"] == name)
            array, kind = variant.values[name], entry["dtype"]
            if name in variant.rows:
                draft.ins[slot].append(gen.SR(variant.rows[name][0], array, variant.rows[name][1]))
            else:
                stored = gen.to_bf16(array) if kind == "bfloat16" else array.astype(kind)
                draft.ins[slot].append(gen.T(stored, variant.lods.get(name), kind))
    take_outputs(draft, gen)
    return draft


def take_outputs(draft, gen):
    meta, arrays = draft.reference.meta, draft.reference.arrays
    program = gen.pb.ProgramDesc.FromString(arrays["program"].tobytes())
    declared = {v.name: v for v in program.blocks[0].vars}
    expects = {e["name"]: e for e in meta["expects"]}
    for slot, names in meta["outputs"].items():
        source = next((s for s, ins in meta["inputs"].items() if ins == names), None)
        if source:
            draft.inplace[slot] = source
        var = declared[names[0]]
        tensor = var.type.selected_rows if var.type.HasField("selected_rows") else var.type.tensor_array.tensor if var.type.HasField("tensor_array") else var.type.lod_tensor.tensor
        kind = gen.KIND.get(gen.VT(var.type.type), "lod_tensor")
        draft.outs[slot] = (len(names), gen.PD2NP.get(tensor.data_type, "float32"), kind)
    draft.drop = tuple(s for s, names in meta["outputs"].items() if not any(n in expects for n in names))
    draft.grad = {e["slot"] if e["slot"] in meta["inputs"] else s for e in meta["expects"] if "grad_of" in e
                  for s, names in meta["inputs"].items() if e["grad_of"] in names}
    draft.gout = sorted({e["member"].split("/")[1] for e in meta["feeds"] if e["member"].startswith("ograd/")})
    forward = [e for e in meta["expects"] if "grad_of" not in e]
    draft.compare = next((e["compare"] for e in forward if e["compare"] != "values" and not e.get("optional")), "values")
    bounds = [(e["rtol"], e["atol"]) for e in forward if e["compare"] == "values" and e["dtype"] == "float32"]
    draft.tolerance = max(bounds, default=(1e-5, 1e-6))


class Pools:
    """Values of attributes in the stored cases, of the op and of all ops."""

    def __init__(self, references):
        self.own, self.all = {}, {}
        for r in references:
            for name, value in r.meta["attrs_set"].items():
                for pool, key in ((self.own, (r.op, name)), (self.all, (name, type(value).__name__))):
                    if value not in pool.setdefault(key, []):
                        pool[key].append(value)


def pick(rng, values):
    return values[int(rng.integers(len(values)))]


def other_integer(rng, name, old, draft):
    rank = draft.rank()
    if "axis" in name or name in ("dim", "dim1", "dim2", "offset"):
        return int(rng.integers(-rank, rank + 1 if rng.random() < 0.1 else max(rank, 1)))
    if "dtype" in name:
        return int(pick(rng, DTYPES))
    if name == "groups":
        return int(rng.integers(1, 5))
    return int(pick(rng, (old + 1, old - 1, old * 2, 0, 1, 2, 3, -1, 5)))


def other_integers(rng, name, old, draft):
    rank, size = draft.rank(), len(old)
    if name in ("axis", "dim", "axes", "perm"):
        if name == "axis" and sorted(a % max(size, 1) for a in old) == list(range(size)) and size > 1 and rng.random() < 0.7:
            return [int(a) - (size if rng.random() < 0.2 else 0) for a in rng.permutation(size)]
        chosen = rng.permutation(rank)[: int(rng.integers(1, rank + 1)) if rng.random() < 0.7 or not size else size]
        return [int(a) - (rank if rng.random() < 0.3 else 0) for a in chosen]
    ranges = {"strides": (1, 4), "stride": (1, 4), "dilations": (1, 3), "dilation": (1, 3), "paddings": (0, 3), "padding": (0, 3), "ksize": (1, 4), "kernel_sizes": (1, 4),
              "starts": (-4, 5), "ends": (-4, 6), "repeat_times": (1, 4), "expand_times": (1, 4), "kernels": (1, 4)}
    if name in ranges:
        low, high = ranges[name]
        size = pick(rng, (size, size, size, size * 2, 1))
        new = [int(rng.integers(low, high)) for _ in range(size)]
        return [-v if draft.op == "strided_slice" and name == "strides" and rng.random() < 0.4 else v for v in new]
    if name in ("shape", "target_shape") and rng.random() < 0.6 and size:
        new = [int(old[i]) for i in rng.permutation(size)]
        new[int(rng.integers(size))] = int(pick(rng, (-1, 0, 1, new[0])))
        return new
    new = [int(v) for v in old]
    if new:
        new[int(rng.integers(len(new)))] += int(pick(rng, (-1, 1, 2)))
    return new


def other_value(rng, name, old, draft, pools):
    """Another value of an attribute, of the same type."""
    pool = pools.own.get((draft.op, name), []) if rng.random() < 0.4 else pools.all.get((name, type(old).__name__), [])
    if pool and rng.random() < 0.35:
        return pick(rng, pool)
    if isinstance(old, bool):
        return not old
    if isinstance(old, int):
        return other_integer(rng, name, old, draft)
    if isinstance(old, float):
        return float(pick(rng, (old * 0.5, old * 2, -old, 0.0, 1.0, old + 0.1, 0.3, 1e-3)))
    if isinstance(old, str):
        return pick(rng, TEXTS.get(name, ()) + tuple(pools.all.get((name, "str"), [old])))
    if isinstance(old, list) and old and isinstance(old[0], float):
        return [float(v * pick(rng, (0.5, 1, 2))) for v in old]
    if isinstance(old, list) and all(isinstance(v, int) for v in old):
        return other_integers(rng, name, old, draft)
    return old


def change_attr(rng, draft, pools, defaults):
    """`defaults`: all attributes that are not extra, with their default values."""
    names = sorted(set(draft.attrs) | set(defaults))
    if not names:
        return
    name = pick(rng, sorted(draft.attrs)) if draft.attrs and rng.random() < 0.6 else pick(rng, names)
    if name in draft.attrs and rng.random() < 0.1:
        draft.note(f"without {name}")
        del draft.attrs[name]
        return
    old = draft.attrs.get(name, defaults.get(name))
    if old is None:
        return
    new = other_value(rng, name, old, draft, pools)
    if new != old:
        draft.note(f"{name} = {new}")
        draft.attrs[name] = new


def cast(tensor, kind, gen):
    a = tensor.a
    if tensor.dtype == "bfloat16":
        a = (a.astype(np.uint32) << 16).view(np.float32)
    with np.errstate(all="ignore"):
        tensor.a = gen.to_bf16(a.astype("float32")) if kind == "bfloat16" else (a * 3 if kind.startswith("int") and a.dtype.kind == "f" else a).astype(kind)
    tensor.dtype = kind


def change_dtype(rng, draft, gen):
    kinds = sorted({t.dtype for ts in draft.ins.values() for t in ts if t.kind != "lod_tensor_array"} & set(DIFFERENT))
    if not kinds:
        return
    old = pick(rng, kinds)
    new = pick(rng, DIFFERENT[old])
    slots = sorted(s for s, ts in draft.ins.items() if any(t.dtype == old for t in ts))
    if rng.random() < 0.15:
        slots = [pick(rng, slots)]
    for slot in slots:
        for t in draft.ins[slot]:
            if t.dtype == old:
                cast(t, new, gen)
    draft.outs = {s: (n, new if d == old else d, k) for s, (n, d, k) in draft.outs.items()}
    draft.note(f"{old} is {new} in {' '.join(slots)}")


def resized(tensor, shape):
    if int(np.prod(shape)) * tensor.a.itemsize > MOST_BYTES:
        return
    tensor.a = np.resize(tensor.a, shape) if tensor.a.size else np.zeros(shape, tensor.a.dtype)
    if tensor.kind == "lod_tensor" and tensor.lod and (not shape or tensor.lod[-1][-1] != shape[0]):
        tensor.lod = []


def change_shape(rng, draft):
    """One dim of one input, or a dim more or less of all inputs of one shape."""
    tensors = [(s, t) for s in sorted(draft.ins) for t in draft.ins[s] if t.kind == "lod_tensor"]
    if not tensors:
        return
    slot, first = tensors[int(rng.integers(len(tensors)))]
    shape, way = list(first.a.shape), rng.random()
    group = [t for _, t in tensors if list(t.a.shape) == shape] if rng.random() < 0.7 else [first]
    if way < 0.45 and shape:
        shape[int(rng.integers(len(shape)))] = int(pick(rng, (1, 1, 1, 0, 2, 3, 5)))
    elif way < 0.75:
        shape.insert(int(rng.integers(len(shape) + 1)), int(pick(rng, (1, 1, 2, 3))))
    elif shape:
        del shape[int(rng.integers(len(shape)))]
    for t in group:
        resized(t, shape)
    draft.note(f"{slot} has shape {shape}")


def change_slots(rng, draft, proto):
    optional = [i.name for i in proto.inputs if i.dispensable and i.name in draft.ins]
    several = [i.name for i in proto.inputs if i.duplicable and i.name in draft.ins]
    outs = [o.name for o in proto.outputs if o.dispensable]
    way = pick(rng, ["optional"] * bool(optional) + ["several"] * bool(several) + ["outs"] * bool(outs) or ["none"])
    if way == "optional":
        slot = pick(rng, optional)
        del draft.ins[slot]
        draft.inplace = {o: i for o, i in draft.inplace.items() if i != slot}
        draft.grad.discard(slot)
        draft.note(f"without input {slot}")
    elif way == "several":
        slot = pick(rng, several)
        ts = draft.ins[slot]
        draft.ins[slot] = ts[: int(rng.integers(1, len(ts) + 1))] if rng.random() < 0.7 and ts else ts + ts[:1]
        draft.note(f"{len(draft.ins[slot])} in {slot}")
    elif way == "outs":
        slot = pick(rng, outs)
        if slot in draft.outs:
            draft.outs[slot] = None
            draft.note(f"without output {slot}")
        else:
            draft.outs[slot] = (1, "float32", "lod_tensor")
            draft.note(f"with output {slot}")


def change_values(rng, draft):
    tensors = draft.floats()
    whole = [t for ts in draft.ins.values() for t in ts if t.dtype in ("int32", "int64") and t.a.size > 1]
    if tensors and (rng.random() < 0.7 or not whole):
        t, way = pick(rng, tensors), rng.random()
        a = t.a.copy()
        if way < 0.6:
            for _ in range(int(rng.integers(1, 4))):
                value = pick(rng, SPECIAL)
                a.reshape(-1)[int(rng.integers(a.size))] = value
            draft.note(f"special values, last {value}")
        elif way < 0.8:
            a = np.round(a * 2) / 2
            draft.note("rounded values")
        else:
            a = np.full_like(a, a.reshape(-1)[0])
            draft.note("equal values")
        t.a = a
    elif whole:
        t = pick(rng, whole)
        t.a = rng.choice(t.a.reshape(-1)[:2], t.a.shape).astype(t.a.dtype)
        draft.note("repeated integers")


def change_lod(rng, draft):
    tensors = [t for ts in draft.ins.values() for t in ts if t.kind == "lod_tensor" and t.a.ndim]
    if not tensors:
        return
    t = pick(rng, tensors)
    way, rows = rng.random(), t.a.shape[0]
    if way < 0.25 and t.lod:
        t.lod = []
    elif way < 0.4 and t.lod:
        parts = len(t.lod[0]) - 1
        t.lod = [[0, *sorted(int(c) for c in rng.integers(0, parts + 1, 1)), parts], *t.lod]
    else:
        cuts = sorted(int(c) for c in rng.integers(0, rows + 1, int(rng.integers(0, 4))))
        t.lod = [[0, *cuts, rows]]
    draft.note(f"lod {t.lod}")


def change_grad(rng, draft, gen):
    """Which inputs take gradients, which outputs give them."""
    if draft.grad and len(draft.grad) > 1 and rng.random() < 0.5:
        draft.grad.discard(pick(rng, sorted(draft.grad)))
        draft.note(f"gradients of {' '.join(sorted(draft.grad))}")
    elif draft.gout and len(draft.outs) > 1:
        slots = sorted(s for s, spec in draft.outs.items() if spec)
        draft.gout = [pick(rng, slots)] if rng.random() < 0.5 else slots
        draft.note(f"gradients from {' '.join(draft.gout)}")


def change(rng, draft, pools, proto, defaults, gen):
    """One to four changes."""
    ways = {"attr": 0.46, "dtype": 0.1, "shape": 0.14, "slots": 0.08, "values": 0.12, "lod": 0.04, "grad": 0.06}
    for _ in range(int(rng.choice((0, 1, 2, 3), p=(0.08, 0.47, 0.3, 0.15)))):
        way = rng.choice(list(ways), p=list(ways.values()))
        if way == "attr":
            change_attr(rng, draft, pools, defaults)
        elif way == "dtype":
            change_dtype(rng, draft, gen)
        elif way == "shape":
            change_shape(rng, draft)
        elif way == "slots":
            change_slots(rng, draft, proto)
        elif way == "values":
            change_values(rng, draft)
        elif way == "lod":
            change_lod(rng, draft)
        else:
            change_grad(rng, draft, gen)
