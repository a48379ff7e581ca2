"""Convolutions, poolings, norms and lookups in numpy; see plain_ops.py."""
import itertools

import numpy as np


def padding_of(op, sizes, kernel, strides, dilations):
    """(before, after) for each dim of the image."""
    kind, given = op.attrs.get("padding_algorithm", "EXPLICIT"), list(op.attrs.get("paddings", []))
    if kind == "VALID":
        return [(0, 0)] * len(sizes)
    if kind == "SAME":
        totals = [max(((n + s - 1) // s - 1) * s + k - n, 0) for n, k, s in zip(sizes, kernel, strides)]
        return [(t // 2, t - t // 2) for t in totals]
    if len(given) == len(sizes):
        return [(p, p) for p in given]
    return [(given[2 * k], given[2 * k + 1]) for k in range(len(sizes))]


def channels_first(op, x, key="data_format"):
    """Moves the channels of the image to dim 1, and back."""
    if op.attrs.get(key, "NCHW") in ("NHWC", "NDHWC"):
        return np.moveaxis(x, -1, 1), lambda y: np.moveaxis(y, 1, -1)
    return x, lambda y: y


def conv(op):
    x, back = channels_first(op, op["Input"])
    w, groups = op["Filter"], max(op.attrs["groups"], 1)
    sizes, kernel = x.shape[2:], w.shape[2:]
    strides, dilations = list(op.attrs["strides"]), list(op.attrs["dilations"])
    pads = padding_of(op, sizes, kernel, strides, dilations)
    if op.attrs.get("padding_algorithm") == "SAME":
        dilations = [1] * len(kernel)
    if x.size == 0 or any(p < 0 for both in pads for p in both):
        return None
    padded = np.pad(x, [(0, 0), (0, 0), *pads])
    places = [(n + sum(p) - d * (k - 1) - 1) // s + 1 for n, p, k, s, d in zip(sizes, pads, kernel, strides, dilations)]
    out = np.zeros((x.shape[0], w.shape[0], *places))
    wide = w.shape[0] // groups
    for at in np.ndindex(*kernel):
        part = padded[(slice(None), slice(None), *(slice(k * d, k * d + (n - 1) * s + 1, s) for k, d, n, s in zip(at, dilations, places, strides)))]
        for g in range(groups):
            taps = w[(slice(g * wide, (g + 1) * wide), slice(None), *at)]
            out[:, g * wide:(g + 1) * wide] += np.einsum("nc...,oc->no...", part[:, g * w.shape[1]:(g + 1) * w.shape[1]], taps)
    return {"Output": back(out)}


def conv_transpose(op):
    x, back = channels_first(op, op["Input"])
    w, groups = op["Filter"], max(op.attrs["groups"], 1)
    strides, dilations = list(op.attrs["strides"]), list(op.attrs["dilations"])
    if op.attrs.get("padding_algorithm", "EXPLICIT") != "EXPLICIT" or len(op.attrs.get("output_size", [])) or any(
            op.attrs.get("output_padding", [])) or x.size == 0 or op.has("Bias") or op.attrs.get("data_format") == "NDHWC":
        return None
    pads = padding_of(op, x.shape[2:], w.shape[2:], strides, dilations)
    full = [(n - 1) * s + d * (k - 1) + 1 for n, s, d, k in zip(x.shape[2:], strides, dilations, w.shape[2:])]
    out = np.zeros((x.shape[0], groups * w.shape[1], *full))
    deep, wide = x.shape[1] // groups, w.shape[1]
    for at in np.ndindex(*w.shape[2:]):
        where = tuple(slice(k * d, k * d + (n - 1) * s + 1, s) for k, d, n, s in zip(at, dilations, x.shape[2:], strides))
        for g in range(groups):
            taps = w[(slice(g * deep, (g + 1) * deep), slice(None), *at)]
            out[(slice(None), slice(g * wide, (g + 1) * wide), *where)] += np.einsum("nc...,co->no...", x[:, g * deep:(g + 1) * deep], taps)
    kept = tuple(slice(before, n - after) for (before, after), n in zip(pads, full))
    return {"Output": back(out[(slice(None), slice(None), *kept)])}


def windows(size, k, s, pad, ceil):
    """Begin and end of each window, which may be outside of the image."""
    span = size + sum(pad) - k
    count = (span + (s - 1 if ceil else 0)) // s + 1
    return [(i * s - pad[0], min(i * s - pad[0] + k, size + pad[1])) for i in range(count)]


def pool(op):
    x, back = channels_first(op, op["X"])
    a, sizes = op.attrs, x.shape[2:]
    kernel, strides = list(a["ksize"]), list(a.get("strides", [])) or [1] * len(sizes)
    highest = a["pooling_type"] == "max"
    if x.size == 0:
        return None
    pads = padding_of(op, sizes, kernel, strides, None)
    if a["global_pooling"]:
        kernel, pads = list(sizes), [(0, 0)] * len(sizes)
    if a["adaptive"] and highest:  # windows of the size of the kernel that slide over the image
        axes = [[(i * s, i * s + k) for i in range(k)] for k, s in zip(kernel, strides)]
    elif a["adaptive"]:
        axes = [[(i * n // k, -(-(i + 1) * n // k)) for i in range(k)] for n, k in zip(sizes, kernel)]
        if a["global_pooling"]:
            axes = [[(0, n)] for n in sizes]
    else:
        axes = [windows(n, k, s, p, a["ceil_mode"]) for n, k, s, p in zip(sizes, kernel, strides, pads)]
    out = np.zeros((*x.shape[:2], *(len(w) for w in axes)))
    for place in itertools.product(*(range(len(w)) for w in axes)):
        ranges = [axes[k][i] for k, i in enumerate(place)]
        inside = [(max(b, 0), min(e, n)) for (b, e), n in zip(ranges, sizes)]
        if any(b >= e for b, e in inside):
            return None
        part = x[(slice(None), slice(None), *(slice(b, e) for b, e in inside))].reshape(*x.shape[:2], -1)
        counted = part.shape[-1] if a["exclusive"] or a["adaptive"] else int(np.prod([e - b for b, e in ranges]))
        out[(slice(None), slice(None), *place)] = part.max(axis=-1) if highest else part.sum(axis=-1) / counted
    return {"Out": back(out)}


def normalized(x, axes, epsilon):
    mean, variance = x.mean(axis=axes, keepdims=True), x.var(axis=axes, keepdims=True)
    return (x - mean) / np.sqrt(variance + epsilon), mean, variance


def scaled(op, x, shape, scale="Scale", bias="Bias"):
    x = x * op[scale].reshape(shape) if op.has(scale) else x
    return x + op[bias].reshape(shape) if op.has(bias) else x


def layer_norm(op):
    x, axis = op["X"], op.attrs["begin_norm_axis"]
    if x.size == 0:
        return None
    y, mean, variance = normalized(x, tuple(range(axis, x.ndim)), op.attrs["epsilon"])
    return {"Y": scaled(op, y, x.shape[axis:]), "Mean": mean.ravel(), "Variance": variance.ravel()}


def batch_norm(op):
    x, back = channels_first(op, op["X"], "data_layout")
    a, shape = op.attrs, (1, -1, *[1] * (x.ndim - 2))
    if x.size == 0 or op.has("MomentumTensor") or x.ndim < 2:
        return None
    if a["use_global_stats"] or a["is_test"] and not a["trainable_statistics"]:
        y = (x - op["Mean"].reshape(shape)) / np.sqrt(op["Variance"].reshape(shape) + a["epsilon"])
        return {"Y": back(scaled(op, y, shape))}
    y, mean, variance = normalized(x, (0, *range(2, x.ndim)), a["epsilon"])
    m = a["momentum"]
    return {"Y": back(scaled(op, y, shape)), "MeanOut": m * op["Mean"] + (1 - m) * mean.ravel(),
            "VarianceOut": m * op["Variance"] + (1 - m) * variance.ravel()}


def group_norm(op):
    x, back = channels_first(op, op["X"], "data_layout")
    groups = max(op.attrs.get("groups", x.shape[1]), 1)
    if x.size == 0:
        return None
    y, _, _ = normalized(x.reshape(x.shape[0], groups, -1), (2,), op.attrs["epsilon"])
    return {"Y": back(scaled(op, y.reshape(x.shape), (1, -1, *[1] * (x.ndim - 2))))}


def instance_norm(op):
    x = op["X"]
    if x.size == 0:
        return None
    y, _, _ = normalized(x, tuple(range(2, x.ndim)), op.attrs["epsilon"])
    return {"Y": scaled(op, y, (1, -1, *[1] * (x.ndim - 2)))}


def lookup(op):
    """Rows of the table; the padding row reads as zeros."""
    ids, table, padding = op["Ids"], op["W"], op.attrs["padding_idx"]
    if op.rows("W") is not None:
        return None
    if op.variant.reference.op == "lookup_table":
        ids = ids[..., 0]
    if padding == -1:
        return {"Out": table[ids]}
    pads = ids == (padding if padding >= 0 else padding + len(table))
    out = np.zeros((*ids.shape, *table.shape[1:]))
    out[~pads] = table[ids[~pads]]  # the padding row may be outside of the table
    return {"Out": out}


def one_hot(op):
    x, depth = op["X"], op.attrs["depth"]
    if op.has("depth_tensor"):
        return None
    if op.variant.reference.op == "one_hot":
        x = x[..., 0]
    return {"Out": (x[..., None] == np.arange(depth)).astype("f8")}


def lrn(op):
    x, back = channels_first(op, op["X"])
    n, a = op.attrs["n"], op.attrs
    before = (n - 1) // 2
    padded = np.pad(x * x, [(0, 0), (before, n - 1 - before), (0, 0), (0, 0)])
    mid = a["k"] + a["alpha"] * sum(padded[:, k:k + x.shape[1]] for k in range(n))
    return {"Out": back(x * mid ** -a["beta"])}


def maxout(op):
    x, axis, groups = op["X"], op.attrs["axis"], op.attrs["groups"]
    axis = axis % x.ndim
    shape = (*x.shape[:axis], x.shape[axis] // groups, groups, *x.shape[axis + 1:])
    return {"Out": x.reshape(shape).max(axis=axis + 1)}


def prelu(op):
    x, alpha, mode = op["X"], op["Alpha"], op.attrs["mode"]
    if mode == "channel":
        axis = x.ndim - 1 if op.attrs.get("data_format") == "NHWC" else 1
        alpha = alpha.reshape([-1 if k == axis else 1 for k in range(x.ndim)])
    elif mode == "element":
        alpha = alpha.reshape(1, *x.shape[1:])
    return {"Out": np.where(x > 0, x, alpha * x)}


def affine_channel(op):
    x, back = channels_first(op, op["X"], "data_layout")
    return {"Out": back(scaled(op, x, (1, -1, *[1] * (x.ndim - 2))))}


def pixel_shuffle(op):
    x, back = channels_first(op, op["X"])
    r = op.attrs["upscale_factor"]
    n, c, h, w = x.shape
    if back(x) is not x:
        return None
    return {"Out": x.reshape(n, c // (r * r), r, r, h, w).transpose(0, 1, 4, 2, 5, 3).reshape(n, c // (r * r), h * r, w * r)}


OPS = {
    "conv2d": conv, "depthwise_conv2d": conv, "conv3d": conv, "conv2d_transpose": conv_transpose, "conv3d_transpose": conv_transpose,
    "depthwise_conv2d_transpose": conv_transpose, "pool2d": pool, "pool3d": pool, "layer_norm": layer_norm, "batch_norm": batch_norm,
    "group_norm": group_norm, "instance_norm": instance_norm, "lookup_table": lookup, "lookup_table_v2": lookup, "one_hot": one_hot,
    "one_hot_v2": one_hot, "lrn": lrn, "maxout": maxout, "prelu": prelu, "affine_channel": affine_channel, "pixel_shuffle": pixel_shuffle,
}
