"""Ops in numpy, in float64, each as short as its formula: the references of random_shapes.py.

A function takes an Op and returns {output slot: array, or list of arrays}; None if it does not support the attributes.
"""
import numpy as np

import plain_detection
import plain_fused
import plain_layers
import plain_newer
import plain_sequences
import plain_updates

FIELDS = {0: "i", 1: "f", 2: "s", 3: "ints", 4: "floats", 5: "strings", 6: "b", 7: "bools", 9: "l", 11: "longs", 12: "float64s", 15: "float64"}


class Op:
    """The forward op of a case with its inputs."""

    def __init__(self, check, program):
        desc = program.blocks[0].ops[0]
        self.name = desc.type
        self.attrs = {a.name: getattr(a, FIELDS[a.type]) for a in desc.attrs if a.type in FIELDS}
        self.slots = {s.parameter: list(s.arguments) for s in desc.inputs if s.arguments}
        self.outs = {s.parameter: list(s.arguments) for s in desc.outputs if s.arguments}
        self.variant = check.variant

    def has(self, slot):
        return slot in self.slots

    def all(self, slot):
        arrays = [self.variant.values[n] for n in self.slots[slot]]
        return [a.astype("f8") if a.dtype.kind == "f" else a for a in arrays]

    def __getitem__(self, slot):
        return self.all(slot)[0]

    def get(self, slot):
        return self[slot] if self.has(slot) else None

    def lod(self, slot, k=0):
        return self.variant.lods.get(self.slots[slot][k], [])

    def rows(self, slot):
        """(rows, height) of selected rows, or None."""
        return self.variant.rows.get(self.slots[slot][0])

    def dense(self, slot):
        """Selected rows as a matrix of all rows."""
        if self.rows(slot) is None:
            return self[slot]
        rows, height = self.rows(slot)
        out = np.zeros((height, *self[slot].shape[1:]))
        np.add.at(out, rows, self[slot])
        return out


def sigmoid(x):
    return np.where(x >= 0, 1 / (1 + np.exp(-np.abs(x))), np.exp(-np.abs(x)) / (1 + np.exp(-np.abs(x))))


def softplus(x):
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def scaled(x, scale, bias, after):
    return x * scale + bias if after else (x + bias) * scale


# functions of one element and the attributes
POINTWISE = {
    "sigmoid": lambda x, a: sigmoid(x), "tanh": lambda x, a: np.tanh(x), "softsign": lambda x, a: x / (1 + np.abs(x)),
    "silu": lambda x, a: x * sigmoid(x), "logsigmoid": lambda x, a: -softplus(-x), "tanh_shrink": lambda x, a: x - np.tanh(x),
    "swish": lambda x, a: x * sigmoid(a.get("beta", 1.0) * x), "exp": lambda x, a: np.exp(x), "sin": lambda x, a: np.sin(x),
    "cos": lambda x, a: np.cos(x), "tan": lambda x, a: np.tan(x), "relu": lambda x, a: np.maximum(x, 0),
    "relu6": lambda x, a: np.clip(x, 0, a.get("threshold", 6.0)), "leaky_relu": lambda x, a: np.where(x > 0, x, a["alpha"] * x),
    "elu": lambda x, a: np.where(x > 0, x, a["alpha"] * np.expm1(np.minimum(x, 0))),
    "selu": lambda x, a: a["scale"] * np.where(x > 0, x, a["alpha"] * np.expm1(np.minimum(x, 0))),
    "celu": lambda x, a: np.maximum(x, 0) + np.minimum(0, a["alpha"] * np.expm1(x / a["alpha"])),
    "hard_swish": lambda x, a: x * np.clip(x + a["offset"], 0, a["threshold"]) / a["scale"],
    "hard_sigmoid": lambda x, a: np.clip(a["slope"] * x + a["offset"], 0, 1),
    "softplus": lambda x, a: np.where(x * a["beta"] > a["threshold"], x, softplus(x * a["beta"]) / a["beta"]),
    "mish": lambda x, a: x * np.tanh(np.where(x > a["threshold"], x, softplus(x))),
    "log": lambda x, a: np.log(x), "log2": lambda x, a: np.log2(x), "log10": lambda x, a: np.log10(x), "log1p": lambda x, a: np.log1p(x),
    "expm1": lambda x, a: np.expm1(x), "sinh": lambda x, a: np.sinh(x), "cosh": lambda x, a: np.cosh(x), "asin": lambda x, a: np.arcsin(x),
    "acos": lambda x, a: np.arccos(x), "atan": lambda x, a: np.arctan(x), "asinh": lambda x, a: np.arcsinh(x),
    "acosh": lambda x, a: np.arccosh(x), "atanh": lambda x, a: np.arctanh(x), "sqrt": lambda x, a: np.sqrt(x),
    "rsqrt": lambda x, a: 1 / np.sqrt(x), "reciprocal": lambda x, a: 1 / x, "abs": lambda x, a: np.abs(x), "square": lambda x, a: x * x,
    "ceil": lambda x, a: np.ceil(x), "floor": lambda x, a: np.floor(x), "trunc": lambda x, a: np.trunc(x), "sign": lambda x, a: np.sign(x),
    "round": lambda x, a: np.where(x >= 0, np.floor(x + 0.5), np.ceil(x - 0.5)), "brelu": lambda x, a: np.clip(x, a["t_min"], a["t_max"]),
    "soft_relu": lambda x, a: np.log1p(np.exp(np.clip(x, -a["threshold"], a["threshold"]))),
    "stanh": lambda x, a: a["scale_b"] * np.tanh(a["scale_a"] * x),
    "softshrink": lambda x, a: np.sign(x) * np.maximum(np.abs(x) - a["lambda"], 0),
    "hard_shrink": lambda x, a: np.where(np.abs(x) > a["threshold"], x, 0),
    "thresholded_relu": lambda x, a: np.where(x > a["threshold"], x, 0), "pow": lambda x, a: x ** a["factor"],
    "clip": lambda x, a: np.clip(x, a["min"], a["max"]),
    "logit": lambda x, a: np.log(np.clip(x, a["eps"], 1 - a["eps"]) / (1 - np.clip(x, a["eps"], 1 - a["eps"]))),
    "scale": lambda x, a: scaled(x, *(v if x.dtype.kind == "f" else int(v) for v in (a["scale"], a["bias"])), a["bias_after_scale"]), "assign": lambda x, a: x,
    "fill_zeros_like": lambda x, a: np.zeros_like(x), "mean": lambda x, a: np.mean(x), "logical_not": lambda x, a: ~x,
    "isfinite_v2": lambda x, a: np.isfinite(x), "isnan_v2": lambda x, a: np.isnan(x), "isinf_v2": lambda x, a: np.isinf(x),
    "squared_l2_norm": lambda x, a: np.array([np.sum(x * x)]), "l1_norm": lambda x, a: np.sum(np.abs(x)),
}
# functions of two operands
PAIRS = {
    "elementwise_add": np.add, "elementwise_sub": np.subtract, "elementwise_mul": np.multiply, "elementwise_max": np.maximum,
    "elementwise_min": np.minimum, "elementwise_pow": np.power, "elementwise_fmax": np.fmax, "elementwise_fmin": np.fmin, "minus": np.subtract,
    "elementwise_mod": np.mod, "elementwise_floordiv": np.floor_divide, "equal": np.equal, "not_equal": np.not_equal, "less_than": np.less,
    "less_equal": np.less_equal, "greater_than": np.greater, "greater_equal": np.greater_equal, "logical_and": np.logical_and,
    "logical_or": np.logical_or, "logical_xor": np.logical_xor, "bitwise_and": np.bitwise_and, "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor, "atan2": np.arctan2,
    "elementwise_div": lambda x, y: np.divide(x, y) if x.dtype.kind == "f" else np.trunc(x / y).astype(x.dtype),
}
REDUCTIONS = {"reduce_sum": np.sum, "reduce_mean": np.mean, "reduce_max": np.max, "reduce_min": np.min, "reduce_prod": np.prod,
              "reduce_any": np.any, "reduce_all": np.all, "reduce_amax": np.max, "reduce_amin": np.min}


def aligned(x, y, axis):
    """Both operands, shaped so that numpy broadcasts them: the smaller one begins at dim `axis`."""
    if axis < 0 or x.ndim == y.ndim:
        return x, y
    if x.ndim < y.ndim:
        y, x = aligned(y, x, axis)
        return x, y
    shape = list(y.shape)
    while shape and shape[-1] == 1 and axis + len(shape) > x.ndim:
        shape.pop()
    return x, y.reshape(shape + [1] * (x.ndim - axis - len(shape)))


def pair(op, function):
    x, y = aligned(op["X"], op["Y"], op.attrs.get("axis", -1))
    return {"Out": function(x, y)}


def reduction(op, function):
    x, dims = op["X"], tuple(d % max(op["X"].ndim, 1) for d in op.attrs.get("dim", []))
    if op.has("AxisTensor") or op.has("AxisTensorList") or x.size == 0:
        return None
    everything = op.attrs.get("reduce_all") or not dims or x.ndim == 0
    return {"Out": function(x, axis=None if everything else dims, keepdims=bool(op.attrs.get("keep_dim")))}


def logsumexp(op):
    x = op["X"]
    axes = None if op.attrs["reduce_all"] or x.ndim == 0 else tuple(op.attrs["axis"])
    top = np.max(x, axis=axes, keepdims=True)
    out = np.log(np.sum(np.exp(x - top), axis=axes, keepdims=True)) + top
    return {"Out": out if op.attrs["keepdim"] else np.squeeze(out, axis=axes)}


def softmax_of(x, axis):
    if x.ndim == 0 or x.size == 0:
        return np.ones(x.shape)
    e = np.exp(np.maximum(x - x.max(axis=axis, keepdims=True), -64))
    return e / e.sum(axis=axis, keepdims=True)


def flipped(x, wanted):
    return np.swapaxes(x, -1, -2) if wanted and x.ndim > 1 else x


def matmul(op):
    names = ("trans_x", "trans_y") if "trans_x" in op.attrs else ("transpose_X", "transpose_Y")
    if op.attrs.get("head_number", 1) != 1:
        return None
    x, y = flipped(op["X"], op.attrs[names[0]]), flipped(op["Y"], op.attrs[names[1]])
    return {"Out": np.matmul(x, y) * op.attrs.get("alpha", 1.0)}


def mul(op):
    x, y = op["X"], op["Y"]
    a, b = op.attrs["x_num_col_dims"], op.attrs["y_num_col_dims"]
    left, right = x.reshape(int(np.prod(x.shape[:a])), int(np.prod(x.shape[a:]))), y.reshape(int(np.prod(y.shape[:b])), int(np.prod(y.shape[b:])))
    return {"Out": (left @ right).reshape(*x.shape[:a], *y.shape[b:])}


def cumsum(op):
    x, axis = op["X"], op.attrs["axis"]
    if op.attrs["flatten"]:
        x, axis = x.ravel(), 0
    if x.ndim == 0:
        return None
    turned = np.flip(x, axis) if op.attrs["reverse"] else x
    out = np.cumsum(turned, axis=axis)
    out = out - turned if op.attrs["exclusive"] else out
    return {"Out": np.flip(out, axis) if op.attrs["reverse"] else out}


def stack(op):
    return {"Y": np.stack(op.all("X"), axis=op.attrs["axis"])}


def concat(op):
    return None if op.has("AxisTensor") else {"Out": np.concatenate(op.all("X"), axis=op.attrs["axis"])}


def gather(op):
    return None if op.has("Axis") else {"Out": np.take(op["X"], op["Index"].ravel(), axis=op.attrs["axis"])}


def scatter(op):
    out, ids = op["X"].copy(), op["Ids"].ravel()
    if op.attrs["overwrite"]:
        for k, i in enumerate(ids):
            out[i] = op["Updates"][k]
        return {"Out": out}
    out[ids] = 0
    np.add.at(out, ids, op["Updates"])
    return {"Out": out}


def softmax_with_cross_entropy(op):
    x, label, axis, a = op["Logits"], op["Label"], op.attrs["axis"], op.attrs
    if not a.get("use_softmax", True) or x.size == 0:
        return None
    top = x - x.max(axis=axis, keepdims=True)
    log = top - np.log(np.exp(top).sum(axis=axis, keepdims=True))
    if a["soft_label"]:
        loss = -(label * log).sum(axis=axis, keepdims=True)
    else:
        index = label.reshape([1 if k == axis % x.ndim else d for k, d in enumerate(x.shape)])
        good = (index != a["ignore_index"]) & (index >= 0) & (index < x.shape[axis])
        loss = np.where(good, -np.take_along_axis(log, np.where(good, index, 0), axis), 0)
    return {"Loss": loss, "Softmax": np.exp(log)}


def square(x):
    return x * x


def huber(op):
    r, d = op["Y"] - op["X"], op.attrs["delta"]
    return {"Residual": r, "Out": np.where(np.abs(r) <= d, 0.5 * r * r, d * (np.abs(r) - 0.5 * d))}


def sigmoid_ce(op):
    x, z, a = op["X"], op["Label"], op.attrs
    if op.has("pos_weight"):
        return None
    loss = np.maximum(x, 0) - x * z + np.log1p(np.exp(-np.abs(x)))
    keep = np.abs(z - a["ignore_index"]) > 1e-5
    loss = np.where(keep, loss, 0)
    return {"Out": loss / (keep.sum() or 1e-5) if a["normalize"] else loss}


def top_k(op):
    if op.has("K"):
        return None
    return {"Out": -np.sort(-op["X"], axis=-1)[..., :op.attrs["k"]]}


def argsort(op):
    x, axis = op["X"], op.attrs["axis"]
    if x.ndim == 0:
        return None
    return {"Out": -np.sort(-x, axis=axis) if op.attrs["descending"] else np.sort(x, axis=axis)}


def argument(op, function):
    a, x = op.attrs, op["X"]
    if a["flatten"] or x.ndim == 0:
        return None
    out = function(x, axis=a["axis"])
    return {"Out": np.expand_dims(out, a["axis"]) if a["keepdims"] else out}


def tiled(op):
    times = list(op.attrs.get("repeat_times") or op.attrs.get("expand_times") or [])
    return None if not times or any(op.has(s) for s in ("RepeatTimes", "repeat_times_tensor", "ExpandTimes", "expand_times_tensor")) else {
        "Out": np.tile(op["X"], times)}


OPS = {
    "logsumexp": logsumexp, "matmul": matmul, "matmul_v2": matmul, "mul": mul, "cumsum": cumsum, "stack": stack, "concat": concat,
    "gather": gather, "scatter": scatter, "softmax_with_cross_entropy": softmax_with_cross_entropy, "huber_loss": huber,
    "sigmoid_cross_entropy_with_logits": sigmoid_ce, "top_k": top_k, "argsort": argsort, "tile": tiled, "expand": tiled,
    "softmax": lambda op: {"Out": softmax_of(op["X"], op.attrs["axis"])},
    "log_softmax": lambda op: {"Out": np.log(softmax_of(op["X"], op.attrs["axis"]))},
    "bmm": lambda op: {"Out": op["X"] @ op["Y"]}, "mv": lambda op: {"Out": op["X"] @ op["Vec"]},
    "dot": lambda op: {"Out": (op["X"] * op["Y"]).sum(axis=-1)},
    "addmm": lambda op: {"Out": op.attrs["Beta"] * op["Input"] + op.attrs["Alpha"] * (op["X"] @ op["Y"])},
    "sum": lambda op: {"Out": sum(op.all("X"))} if all(n not in op.variant.rows for n in op.slots["X"]) else None,
    "transpose2": lambda op: {"Out": np.transpose(op["X"], op.attrs["axis"])},
    "transpose": lambda op: {"Out": np.transpose(op["X"], op.attrs["axis"])},
    "where": lambda op: {"Out": np.where(op["Condition"], op["X"], op["Y"])},
    "index_select": lambda op: {"Out": np.take(op["X"], op["Index"].ravel(), axis=op.attrs["dim"])},
    "gather_nd": lambda op: {"Out": op["X"][tuple(np.moveaxis(op["Index"], -1, 0))]} if op["Index"].shape[-1] else None,
    "flip": lambda op: {"Out": np.flip(op["X"], tuple(op.attrs["axis"]))},
    "pad": lambda op: {"Out": np.pad(op["X"], np.reshape(op.attrs["paddings"], (-1, 2)), constant_values=op.attrs["pad_value"])},
    "kron": lambda op: {"Out": np.kron(op["X"], op["Y"])} if op["X"].ndim == op["Y"].ndim else None,
    "tril_triu": lambda op: {"Out": (np.tril if op.attrs["lower"] else np.triu)(op["X"], op.attrs["diagonal"])},
    "meshgrid": lambda op: {"Out": list(np.meshgrid(*op.all("X"), indexing="ij"))},
    "arg_max": lambda op: argument(op, np.argmax), "arg_min": lambda op: argument(op, np.argmin),
    "log_loss": lambda op: {"Loss": -op["Labels"] * np.log(op["Predicted"] + op.attrs["epsilon"]) -
                            (1 - op["Labels"]) * np.log(1 - op["Predicted"] + op.attrs["epsilon"])},
    "hinge_loss": lambda op: {"Loss": np.maximum(0, 1 - op["Logits"] * (2 * op["Labels"] - 1))},
    "rank_loss": lambda op: {"Out": softplus(op["Left"] - op["Right"]).reshape(op["Label"].shape) -
                             op["Label"] * (op["Left"] - op["Right"]).reshape(op["Label"].shape)},
    "square_error_cost": lambda op: {"Out": square(op["X"] - op["Y"])},
    "squared_l2_distance": lambda op: {"Out": square(op["X"] - op["Y"]).reshape(len(op["X"]), -1).sum(axis=1, keepdims=True)},
    "label_smooth": lambda op: {"Out": (1 - op.attrs["epsilon"]) * op["X"] + op.attrs["epsilon"] *
                                (op["PriorDist"].reshape(-1) if op.has("PriorDist") else 1 / op["X"].shape[-1])},
    "clip_by_norm": lambda op: {"Out": op["X"] * min(1, op.attrs["max_norm"] / max(np.sqrt(np.sum(op["X"] ** 2)), 1e-30))} if op.rows("X") is None else None,
    "cross": lambda op: {"Out": np.cross(op["X"], op["Y"], axis=op.attrs["dim"])} if op.attrs["dim"] != 9 else None,
    **plain_detection.OPS, **plain_fused.OPS, **plain_layers.OPS, **plain_newer.OPS, **plain_sequences.OPS, **plain_updates.OPS,
}


def compute(check, program):
    """Results of numpy for the forward op: slot -> arrays; None if unknown. `program`: the parsed program of the
    case."""
    name = check.reference.op
    if check.reference.meta["n_forward_ops"] != 1 or program.blocks[0].ops[0].type != name:
        return None
    op = Op(check, program)
    with np.errstate(all="ignore"):
        if name in POINTWISE and set(op.slots) == {"X"} and op.rows("X") is None:
            found = {"Out": POINTWISE[name](op["X"], op.attrs)}
        elif name in PAIRS and op.rows("X") is None and op.rows("Y") is None:
            found = pair(op, PAIRS[name])
        elif name in REDUCTIONS:
            found = reduction(op, REDUCTIONS[name])
        else:
            found = OPS[name](op) if name in OPS else None
    return found and {slot: value if isinstance(value, list) else [value] for slot, value in found.items()}
