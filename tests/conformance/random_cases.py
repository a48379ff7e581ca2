"""Cases of the operator references with other extents, LoD and values.

A Variant has the program of a reference case and different inputs: equal extents stay equal, ones and zeros stay, an
input keeps its range and its kind. The op decides whether such inputs are valid: if it refuses them, they are drawn
again, see Variant.
"""
import json
import os
import sys
import zlib

import numpy as np

EXTENTS = (2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 15, 16, 17, 24, 31, 32, 33, 47, 64, 65)
MOST_ELEMENTS = 6000
TRIES = 8  # how a case is drawn again, see Variant.draw_extents
FLOAT_KINDS = {4: "float16", 5: "float32", 6: "float64", 22: "bfloat16"}
DOUBLE = 6
# integers that are parameters, not data
SETTINGS = ("Shape", "ShapeTensor", "ShapeTensorList", "StartsTensor", "EndsTensor", "StridesTensor", "StartsTensorList", "EndsTensorList",
            "AxisTensor", "Axis", "K", "Num", "SectionsTensorList", "OutSize", "SizeTensor", "Offsets", "OffsetsTensor", "RepeatTimes",
            "ExpandTimes", "expand_times_tensor", "expand_shapes_tensor", "ImSize", "ImgSize", "Scale", "Size", "Paddings", "depth_tensor",
            "Start", "End", "Step", "Shift", "OutputSize", "Offset", "Seed", "Length0", "I")


def square(x):
    """Equal last dims, the smaller one."""
    n = min(x.shape[-2:])
    return x[..., :n, :n]


# inputs that must have a certain form: how drawn values are given this form
MADE = {
    ("inverse", "Input"): lambda x: square(x) + 2 * np.eye(min(x.shape[-2:])),
    ("cholesky", "X"): lambda x: square(x) @ np.swapaxes(square(x), -1, -2) + np.eye(min(x.shape[-2:])),
    ("segment_pool", "SegmentIds"): np.sort,
    ("lookup_table_dequant", "W"): lambda x: np.concatenate([np.full((len(x), 1), -1.0), np.ones((len(x), 1)), x[:, 2:]], axis=1),
    ("sample_logits", "CustomizedProbabilities"): lambda x: np.abs(x) + 0.01,
}


class Reference:
    """One case of a reference file."""

    def __init__(self, op, index, meta, arrays):
        self.op, self.index, self.meta, self.arrays = op, index, meta, arrays
        self.outer = {e["name"] for e in meta["feeds"] if e["member"].startswith("ograd/")} if self.plain_members() else set()

    def plain_members(self):
        return all(e["kind"] != "lod_tensor_array" for e in self.meta["feeds"])

    def attr(self, name):
        """The value that the case sets, or None."""
        return self.meta["attrs_set"].get(name)

    def inputs(self):
        return [e for e in self.meta["feeds"] if e["name"] not in self.outer]


def references(folder, wanted):
    """The cases of all ops whose names `wanted` accepts, in order."""
    for file in sorted(f for f in os.listdir(folder) if f.endswith(".npz") and wanted(f[:-4])):
        with np.load(os.path.join(folder, file), allow_pickle=False) as archive:
            raw = {n: archive[n] for n in archive.files}
        for index in range(sum(n.endswith("/meta") for n in raw)):
            prefix = f"case{index}/"
            arrays = {n[len(prefix):]: a for n, a in raw.items() if n.startswith(prefix)}
            yield Reference(file[:-4], index, json.loads(arrays["meta"].tobytes()), arrays)


def widened(array, kind):
    """An array of values that bfloat16 represents exactly."""
    if kind == "bfloat16" and array.dtype == np.uint16:
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array


def narrowed(array, kind):
    """Values as they are fed: rounded to `kind`, bfloat16 as its bits."""
    if kind != "bfloat16":
        return np.asarray(array).astype(kind)
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def low_spread(sums):
    """Whether all are 1."""
    return sums.size and np.abs(sums - 1).max() < 1e-3


class Variant:
    """Inputs for the program of a case. `values`: var -> array (bfloat16 as float32), `lods`: var -> offsets, `rows`: var -> rows,
    height. How extents are drawn depends on `attempt`: with sums and products of other extents kept or not, only some of them, none
    (the last one)."""

    def __init__(self, reference, seed, attempt):
        self.reference, self.attempt = reference, attempt
        self.rng = np.random.default_rng(zlib.crc32(f"{seed} {reference.op} {reference.index} {attempt}".encode()))
        self.values, self.lods, self.rows = {}, {}, {}
        self.drawn_lods = {}
        self.extents = self.draw_extents()
        for entry in reference.inputs():
            self.draw_input(entry)

    def old_extents(self):
        found = set()
        for entry in self.reference.inputs():
            found.update(self.reference.arrays[entry["member"]].shape)
            for level in entry.get("lod") or []:
                found.add(len(level) - 1)
            if entry["kind"] == "selected_rows":
                found.add(entry["height"])
        return sorted(e for e in found if e > 1)

    def draw_extents(self):
        """old extent -> new extent; draws smaller ones again until no input is too large."""
        old = self.old_extents()
        if self.attempt == TRIES - 1 or not old:
            return {}
        free = old
        if self.attempt >= 4:  # only some extents
            free = [e for e in old if self.rng.random() < 0.5] or [old[self.rng.integers(len(old))]]
        for most in (65, 65, 33, 17, 9, 5, 3):
            choice = [e for e in EXTENTS if e <= most]
            new = {}
            for e in free:
                new[e] = int(self.rng.choice(choice)) if self.rng.random() < 0.6 else int(self.rng.integers(2, min(most, 10) + 1))
            if self.attempt % 2 == 0:
                self.keep_relations(free, new)
            if self.attempt == 0 and self.rng.random() < 0.04:
                new[free[int(self.rng.integers(len(free)))]] = 0
            if self.largest(new) <= MOST_ELEMENTS:
                return new
        return {}

    def keep_relations(self, free, new):
        """An extent that is a product of two others, a small multiple or a neighbour of another keeps this relation."""
        for e in free:
            smaller = [s for s in free if s < e]
            product = next(((a, b) for a in smaller for b in smaller if a <= b and a * b == e), None)
            multiple = next((s for s in smaller if e % s == 0), None)
            near = next((s for s in smaller if e - s <= 2), None)
            if product and self.attempt % 4 == 0:
                new[e] = new[product[0]] * new[product[1]]
            elif multiple:
                new[e] = new[multiple] * (e // multiple)
            elif near and self.attempt % 4 == 2:
                new[e] = new[near] + e - near

    def largest(self, new):
        return max(int(np.prod([new.get(d, d) for d in self.reference.arrays[e["member"]].shape])) for e in self.reference.inputs())

    def mapped(self, extent):
        return self.extents.get(int(extent), int(extent))

    def draw_input(self, entry):
        name, kind = entry["name"], entry["dtype"]
        old = widened(self.reference.arrays[entry["member"]], kind)
        shape = tuple(self.mapped(d) for d in old.shape)
        if entry["kind"] == "selected_rows":
            height = self.mapped(entry["height"])
            unique = len(set(entry["rows"])) == len(entry["rows"]) and shape[0] <= height
            rows = self.rng.choice(height, shape[0], replace=not unique) if height else np.zeros(0, int)
            shape = (len(rows), *shape[1:])
            self.rows[name] = ([int(r) for r in rows], height)
        if entry.get("lod"):
            self.lods[name] = self.draw_lod(entry["lod"], shape[0])
        drawn = self.draw_values(entry, old, shape)
        made = MADE.get((self.reference.op, entry["slot"]))
        self.values[name] = widened(narrowed(made(drawn) if made else drawn, kind), kind)

    def draw_lod(self, lod, rows):
        key = json.dumps(lod)
        if key not in self.drawn_lods:
            counts = [self.mapped(len(level) - 1) for level in lod] + [rows]
            levels = []
            for old, parts, total in zip(lod, counts, counts[1:]):
                if not self.extents:
                    levels.append(list(old))
                    continue
                empty = any(a == b for a, b in zip(old, old[1:])) or parts > total
                inner = range(0, total + 1) if empty else range(1, total)
                cuts = self.rng.choice(np.array(inner, int), max(parts - 1, 0), replace=empty) if len(inner) else []
                levels.append([0, *sorted(int(c) for c in cuts), total] if parts else [0])
            self.drawn_lods[key] = levels
        return self.drawn_lods[key]

    def draw_values(self, entry, old, shape):
        rng = self.rng
        if old.size == 0:
            return np.zeros(shape, old.dtype)
        if old.dtype == bool:
            return rng.random(shape) < (old.mean() if 0 < old.mean() < 1 else 0.5)
        if old.dtype.kind in "iu":
            return self.draw_integers(entry, old, shape)
        known = np.unique(old)
        finite = old[np.isfinite(old)]
        if len(known) <= 3 or finite.size < old.size or np.array_equal(old, np.round(old)):
            return rng.choice(old.ravel(), shape).astype(old.dtype)
        if rng.random() < 0.4 and old.ndim > 1 and old.shape[1:] == shape[1:]:  # rows that belong together, such as corners of boxes
            return old[rng.integers(0, len(old), shape[0])] if self.attempt % 2 else old[np.arange(shape[0]) % len(old)]
        new = rng.uniform(finite.min(), finite.max(), shape)
        for axis in range(old.ndim):  # fractions stay fractions
            if old.shape[axis] > 1 and low_spread(old.sum(axis=axis)):
                new = new / np.maximum(new.sum(axis=axis, keepdims=True), 1e-6)
                break
        return new.astype(old.dtype)

    def draw_integers(self, entry, old, shape):
        low, high = int(old.min()), int(old.max())
        if entry["slot"] in SETTINGS and shape == old.shape:
            return np.array([self.mapped(v) for v in old.ravel()], old.dtype).reshape(shape) if self.attempt % 2 else old
        if shape == old.shape and old.ndim == 1 and sorted(old.tolist()) == list(range(old.size)):
            return self.rng.permutation(old)
        limit = next((e for e in self.old_extents() if e > high), None)
        if limit is not None and limit in self.extents and low >= 0:
            new = self.mapped(limit)
            high = new - 1 if self.attempt % 2 == 0 else min(high, new - 1)
        if high < low:
            return np.full(shape, low, old.dtype)
        return self.rng.integers(low, high + 1, shape).astype(old.dtype)

    def members(self, names, double, changes=None):
        """npz members for the feeds in `names`, in float64 if `double`; `changes`: replacement values for some of
        them."""
        kinds = {e["name"]: e["dtype"] for e in self.reference.meta["feeds"]}
        out = {}
        for name in names:
            array, kind = (changes or {}).get(name, self.values[name]), kinds[name]
            if double and kind in FLOAT_KINDS.values():
                kind = "float64"
            out[name] = narrowed(array, kind)
            if kind == "bfloat16":
                out[name + ".dtype"] = np.frombuffer(b"bfloat16", np.uint8)
            for level, offsets in enumerate(self.lods.get(name, [])):
                out[f"{name}.lod{level}"] = np.asarray(offsets, np.int64)
            if name in self.rows:
                out[name + ".rows"] = np.asarray(self.rows[name][0], np.int64)
                out[name + ".height"] = np.asarray(self.rows[name][1], np.int64)
        return out

    def program(self, message, forward, double):
        """The program of the case with the dims of this variant; computed vars have unknown dims. `message`: class of
        programs."""
        program = message()
        program.ParseFromString(self.reference.arrays["program"].tobytes())
        for block in program.blocks:
            for var in block.vars:
                self.set_type(var, double)
            for op in block.ops:
                for attr in op.attrs:
                    self.set_attr(attr, double)
        if forward:
            del program.blocks[0].ops[self.reference.meta["n_forward_ops"]:]
        return program.SerializeToString()

    def set_type(self, var, double):
        for field in ("lod_tensor", "selected_rows", "tensor_array"):
            if not var.type.HasField(field):
                continue
            tensor = getattr(var.type, field)
            tensor = tensor if field == "selected_rows" else tensor.tensor
            if double and tensor.data_type in FLOAT_KINDS:
                tensor.data_type = DOUBLE
            shape = self.values[var.name].shape if var.name in self.values else [-1] * len(tensor.dims)
            tensor.dims[:] = shape

    def set_attr(self, attr, double):
        if double and attr.name in ("dtype", "in_dtype", "out_dtype") and attr.type == 0 and attr.i in FLOAT_KINDS:
            attr.i = DOUBLE
        if self.attempt % 2 or not self.extents:
            return
        if attr.name in ("shape", "sections", "target_shape", "expand_times", "output_size", "new_dim"):
            attr.ints[:] = [self.extents.get(v, v) for v in attr.ints]
            attr.longs[:] = [self.extents.get(v, v) for v in attr.longs]
        elif attr.name in ("num", "depth", "new_dim", "hidden_size", "size", "num_classes", "x_num"):
            attr.i = self.extents.get(attr.i, attr.i) if attr.type == 0 else attr.i


def program_class(tools):
    sys.path.insert(0, tools)
    import program_diff
    return program_diff.ProgramDesc
