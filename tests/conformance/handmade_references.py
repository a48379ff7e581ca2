"""References of operators that the original can no longer run (or not on a CPU): handwritten programs, values from the
numpy computations of plain_newer.py, gradients by their central differences. Used by make_op_references.py."""
import types

import numpy as np

import plain_newer

KINDS = {"float32": 5, "float64": 6, "int64": 3, "int32": 2}
STEP = 1e-6


def add_attr(op, name, value):
    attr = op.attrs.add(name=name)
    if isinstance(value, bool):
        attr.type, attr.b = 6, value
    elif isinstance(value, int):
        attr.type, attr.i = 0, value
    elif isinstance(value, float):
        attr.type, attr.f = 1, value
    else:
        raise ValueError(f"attribute {name} is {value!r}")


def add_op(block, kind, inputs, outputs, attrs):
    op = block.ops.add(type=kind)
    for slots, given in ((op.inputs, inputs), (op.outputs, outputs)):
        for slot, names in given.items():
            slots.add(parameter=slot, arguments=names)
    for name, value in attrs.items():
        add_attr(op, name, value)


class Case:
    """One operator with one var per slot, and its gradient operator.

    grad: (inputs of the gradient operator besides the gradients of the outputs, slots whose gradient is computed)
    """

    def __init__(self, op, inputs, attrs, outputs, grad=None, tag=""):
        self.op, self.inputs, self.attrs, self.outputs, self.grad, self.tag = op, inputs, attrs, outputs, grad, tag

    def values(self, inputs):
        shown = types.SimpleNamespace(name=self.op, attrs=self.attrs, has=lambda slot: slot in inputs)
        kind = type("Shown", (), {"__getitem__": lambda _, slot: inputs[slot], **{k: staticmethod(v) if callable(v) else v for k, v in vars(shown).items()}})
        return {slot: np.asarray(value) for slot, value in plain_newer.OPS[self.op](kind()).items()}

    def name(self, slot):
        return f"{self.op}_{slot}0"

    def entry(self, arrays, member, name, slot, array, **more):
        arrays[member] = array
        return {"name": name, "slot": slot, "kind": "lod_tensor", "dtype": str(array.dtype), "member": member, **more}

    def slopes(self, slot, outer):
        """Gradient of sum(outer * outputs) for an input, element by element."""
        wide = {k: v.astype("f8") if v.dtype.kind == "f" else v for k, v in self.inputs.items()}
        out = np.zeros(wide[slot].shape)
        for at in np.ndindex(out.shape):
            sides = []
            for side in (STEP, -STEP):
                moved = dict(wide, **{slot: wide[slot].copy()})
                moved[slot][at] += side
                found = self.values(moved)
                sides.append(sum(float((found[k].astype("f8") * v).sum()) for k, v in outer.items()))
            out[at] = (sides[0] - sides[1]) / (2 * STEP)
        return out

    def make(self, message, rng):
        """(program, arrays, meta) in the form of the corpus generator."""
        program = message()
        block = program.blocks.add(idx=0, parent_idx=-1)
        found = self.values(self.inputs)
        arrays, feeds, expects = {}, [], []

        def declare(name, dtype, shape):
            var = block.vars.add(name=name)
            var.type.type = 7
            var.type.lod_tensor.tensor.data_type = KINDS[dtype]
            var.type.lod_tensor.tensor.dims[:] = shape

        for slot, array in self.inputs.items():
            declare(self.name(slot), str(array.dtype), array.shape)
            feeds.append(self.entry(arrays, f"in/{slot}/0", self.name(slot), slot, array))
        for slot, dtype in self.outputs.items():
            declare(self.name(slot), dtype, ())
            if slot in found:
                tight = {"rtol": 1e-5, "atol": 1e-6} if dtype == "float32" else {"rtol": 0.0, "atol": 0.0}
                expects.append(self.entry(arrays, f"out/{slot}/0", self.name(slot), slot, found[slot].astype(dtype), compare="values", **tight))
        names = lambda slots: {s: [self.name(s)] for s in slots}
        add_op(block, self.op, names(self.inputs), names(self.outputs), self.attrs)
        if self.grad:
            outer = {s: rng.uniform(-1, 1, found[s].shape).astype("f4") for s in self.outputs if s in found and found[s].dtype.kind == "f"}
            for slot, array in outer.items():
                declare(self.name(slot) + "@GRAD", "float32", array.shape)
                feeds.append(self.entry(arrays, f"ograd/{slot}/0", self.name(slot) + "@GRAD", slot, array))
            for slot in self.grad[1]:
                declare(self.name(slot) + "@GRAD", "float32", self.inputs[slot].shape)
                expects.append(self.entry(arrays, f"grad/{slot}/0", self.name(slot) + "@GRAD", slot, self.slopes(slot, outer).astype("f4"), compare="values",
                                          grad_of=self.name(slot), rtol=1e-3, atol=1e-4))
            add_op(block, self.op + "_grad", {**names(self.grad[0]), **{s + "@GRAD": [self.name(s) + "@GRAD"] for s in outer}},
                   {s + "@GRAD": [self.name(s) + "@GRAD"] for s in self.grad[1]}, self.attrs)
        meta = {"op": self.op, "tag": self.tag, "attrs_set": self.attrs, "n_forward_ops": 1, "program_ops": [o.type for o in block.ops],
                "inputs": names(self.inputs), "outputs": names(self.outputs), "feeds": feeds, "expects": expects, "has_grad": bool(self.grad)}
        return program.SerializeToString(), arrays, meta


def cases(rng):
    def f(*shape, lo=-1.0, hi=1.0):
        return rng.uniform(lo, hi, shape).astype("f4")

    for offset in (False, True):
        for size in ((5, 6), (3, 2)):
            yield Case("bilateral_slice", {"X": f(2, 3, *size), "Grid": f(2, 2 * (3 + offset), 4, 3, 2), "Guide": f(2, *size, lo=0.05, hi=0.95)}, {"has_offset": offset},
                       {"Out": "float32"}, (["X", "Grid", "Guide"], ["X", "Grid", "Guide"]), f"offset {offset} {size}")
    for block, shape in ((2, (2, 4, 4, 6)), (3, (1, 9, 3, 6)), (2, (1, 8, 2, 2))):
        yield Case("space_to_depth", {"X": f(*shape)}, {"blocksize": block}, {"Out": "float32"}, (["X"], ["X"]), f"{block} {shape}")
    for hits in (False, True):
        labels = rng.integers(0, 9, (4, 2))
        samples = np.concatenate([labels, rng.permutation(9)[None, :5].repeat(4, 0)], axis=1)
        yield Case("sample_logits", {"Logits": f(4, 9), "Labels": labels, "CustomizedSamples": samples, "CustomizedProbabilities": f(4, 7, lo=0.1)},
                   {"use_customized_samples": True, "remove_accidental_hits": hits, "num_samples": 5},
                   {"Samples": "int64", "Probabilities": "float32", "LogitsDim": "float32", "LabelsDim": "int64", "SampledLogits": "float32", "SampledLabels": "int64"},
                   None if hits else (["LogitsDim", "LabelsDim", "Samples"], ["Logits"]), f"given, hits removed {hits}")
