"""Resizing, beams, matrices, counting and lookups in numpy; see plain_ops.py."""
import itertools

import numpy as np


# ---- resizing
def sizes_of(op, old):
    """New sizes of the spatial dims, and the scale factors if they determine the sizes."""
    names = ("out_d", "out_h", "out_w")[3 - len(old):]
    if op.has("SizeTensor"):
        return [int(t.ravel()[0]) for t in op.all("SizeTensor")], [0] * len(old)
    factors = op["Scale"].ravel() if op.has("Scale") else np.atleast_1d(op.attrs.get("scale", 0.0))
    factors = [float(np.float32(f)) for f in (list(factors) * len(old) if len(factors) == 1 else factors)] or [0] * len(old)
    sizes = [int(n * f) if f > 0 else op.attrs[name] for n, f, name in zip(old, factors, names)]
    return ([int(v) for v in op["OutSize"].ravel()] if op.has("OutSize") else sizes), factors


def resize_matrix(op, old, new, factor, method):
    """[new, old] weights of one axis."""
    corners, centres = op.attrs["align_corners"], not op.attrs["align_corners"] and op.attrs["align_mode"] == 0
    second = op.name.endswith("_v2")
    step = 0.0 if new <= 1 else (old - 1) / (new - 1) if corners else 1 / factor if second and factor > 0 else old / new
    step = float(np.float32(step))
    out = np.zeros((new, old))
    for i in range(new):
        if method == "nearest":
            place = np.float32(step) * np.float32(i)  # a product of f32 in the original, which matters at whole numbers
            out[i, min(int(float(place) + (0.5 if corners else 0)), old - 1)] = 1
        elif method == "bicubic":
            place = float(np.float32(step) * np.float32(i)) if corners else step * (i + 0.5) - 0.5
            first = int(np.floor(place))
            for k in range(-1, 3):
                x = abs(place - first - k)
                weight = 1.25 * x ** 3 - 2.25 * x ** 2 + 1 if x <= 1 else -0.75 * x ** 3 + 3.75 * x ** 2 - 6 * x + 3
                out[i, min(max(first + k, 0), old - 1)] += weight
        else:
            # positions and weights are f32 in the original, for every element type
            place = np.float32(np.float32(step) * np.float32(i))
            if centres:
                place = np.float32(max(np.float32(step) * np.float32(i + 0.5) - np.float32(0.5) if second else step * (i + 0.5) - 0.5, 0))
            first = min(int(place), old - 1)
            out[i, first] += np.float32(1) - (place - np.float32(first))
            out[i, min(first + 1, old - 1)] += place - np.float32(first)
    return out


def resize(op):
    x, last = op["X"], not op.attrs["data_layout"].startswith("NC")
    if x.dtype.kind != "f":
        return None  # truncated, and a sum may be rounded either way
    x = np.moveaxis(x, -1, 1) if last else x
    sizes, factors = sizes_of(op, x.shape[2:])
    for axis, (new, factor) in enumerate(zip(sizes, factors)):
        matrix = resize_matrix(op, x.shape[2 + axis], new, factor, op.attrs["interp_method"])
        x = np.moveaxis(np.tensordot(matrix, x, (1, 2 + axis)), 0, 2 + axis)
    return {"Out": np.moveaxis(x, 1, -1) if last else x}


# ---- beams
def beam_search(op):
    scores, pre_ids, before = op["scores"], op["pre_ids"].ravel(), op["pre_scores"].ravel()
    high, low = op.lod("scores")
    ids = op["ids"] if op.has("ids") else np.tile(np.arange(scores.shape[1]), (len(scores), 1))
    chosen = []
    for begin, end in zip(high, high[1:]):
        ways = []
        for beam in range(low[begin], low[end]):
            if pre_ids[beam] == op.attrs["end_id"]:
                ways.append((before[beam], beam, op.attrs["end_id"]))
            else:
                own = scores[beam] if op.attrs["is_accumulated"] else before[beam] + np.log(scores[beam])
                ways += [(own[k], beam, ids[beam, k]) for k in range(scores.shape[1])]
        if len({w[:2] for w in ways}) < len(ways):
            return None  # the kernel may choose either of two equal paths of a beam
        best = sorted(ways, key=lambda w: (-w[0], -w[1]))[:op.attrs["beam_size"]]
        if not all(w[2] == op.attrs["end_id"] and pre_ids[w[1]] == op.attrs["end_id"] for w in best):
            chosen += sorted(best, key=lambda w: w[1])
    return {"selected_ids": np.array([w[2] for w in chosen], "i8").reshape(-1, 1), "selected_scores": np.array([w[0] for w in chosen]).reshape(-1, 1),
            "parent_idx": np.array([w[1] for w in chosen], "i4")}


# ---- matrices and diagonals
def trace(op):
    rank = op["Input"].ndim
    axes = sorted((op.attrs["axis1"] % rank, op.attrs["axis2"] % rank))  # unlike numpy
    return {"Out": np.trace(op["Input"], op.attrs["offset"], *axes)}


def diag_embed(op):
    x, offset = op["Input"], op.attrs["offset"]
    n = x.shape[-1] + abs(offset)
    out = np.zeros((*x.shape[:-1], n, n), x.dtype)
    for k in range(x.shape[-1]):
        out[..., k + max(-offset, 0), k + max(offset, 0)] = x[..., k]
    rank = out.ndim
    return {"Out": np.moveaxis(out, (-2, -1), (op.attrs["dim1"] % rank, op.attrs["dim2"] % rank))}


def cholesky(op):
    x = op["X"]
    return {"Out": np.swapaxes(np.linalg.cholesky(np.swapaxes(x, -1, -2)), -1, -2) if op.attrs["upper"] else np.linalg.cholesky(x)}


# ---- whole tensors
def equal_all(op):
    x, y = op["X"], op["Y"]
    return {"Out": np.bool_(x.shape == y.shape and bool(np.all((x == y) | (np.abs(x - y) < 1e-8) if x.dtype.kind == "f" else x == y)))}


def allclose(op):
    x, y = op["Input"], op["Other"]
    rtol = float(op["Rtol"].ravel()[0]) if op.has("Rtol") else float(op.attrs["rtol"])
    atol = float(op["Atol"].ravel()[0]) if op.has("Atol") else float(op.attrs["atol"])
    finite = np.isfinite(x).all() and np.isfinite(y).all()
    return {"Out": np.bool_(np.allclose(x, y, rtol, atol))} if finite else None


def histogram(op):
    x, low, high, bins = op["X"], op.attrs["min"], op.attrs["max"], op.attrs["bins"]
    if x.size == 0:
        return None
    low, high = (x.min(), x.max()) if low == high else (low, high)
    low, high = (low - 1, high + 1) if low == high else (low, high)
    x = x[(x >= low) & (x <= high)]
    if x.dtype.kind == "f":
        kind = op.variant.values[op.slots["X"][0]].dtype
        place = ((x.astype(kind) - kind.type(low)) * kind.type(bins) / (kind.type(high) - kind.type(low))).astype("i8")
    else:
        place = (x.astype("i8") - int(low)) * bins // (int(high) - int(low))
    return {"Out": np.bincount(np.minimum(place, bins - 1), minlength=bins)}


def segment_pool(op):
    x, ids = op["X"], op["SegmentIds"].ravel()
    out = np.zeros((ids[-1] + 1, *x.shape[1:]))
    function = {"SUM": np.sum, "MEAN": np.mean, "MAX": np.max, "MIN": np.min}[op.attrs["pooltype"]]
    for k in set(ids.tolist()):
        out[k] = function(x[ids == k], axis=0)
    return {"Out": out}


# ---- stored values
def lookup_dequant(op):
    table = op.variant.values[op.slots["W"][0]].astype("f4")
    data = np.ascontiguousarray(table[:, 2:]).view("u1").reshape(len(table), -1).astype("f8")
    low, high = table[:, :1].astype("f8"), table[:, 1:2].astype("f8")
    ids = op["Ids"][..., 0]
    rows = (data * ((high - low) / 256) + low)[ids]
    if op.attrs["padding_idx"] != -1:
        rows[ids == op.attrs["padding_idx"]] = 0
    return {"Out": rows}


def ranked_pairs(op):
    score, label, query = op["Score"][:, op.attrs["column"]], op["Label"].ravel(), op["QueryID"].ravel()
    weight = op["Weight"].ravel() if op.has("Weight") else np.ones(len(score))
    start = [float(op[f"Accumulate{k}Pair"].ravel()[0]) if op.has("AccumulatePositivePair") else 0.0 for k in ("Positive", "Negative", "Neutral")]
    for a, b in itertools.combinations(range(len(score)), 2):
        if query[a] == query[b] and label[a] != label[b]:
            mean = (weight[a] + weight[b]) / 2
            start[2] += mean * (score[a] == score[b])
            start[0 if (score[a] - score[b]) * (label[a] - label[b]) > 0 else 1] += mean
    return {f"{k}Pair": np.array([v]) for k, v in zip(("Positive", "Negative", "Neutral"), start)}


# ---- images
def similarity_focus(op):
    axis = op.attrs["axis"]
    x = np.moveaxis(op["X"], axis, 1)
    mask = np.zeros(x.shape)
    for image, index in itertools.product(range(len(x)), op.attrs["indexes"]):
        part = x[image, index].copy()
        if len(np.unique(part)) < part.size:
            return None  # the kernel may put either of two equal elements first
        for _ in range(min(part.shape)):
            row, column = np.unravel_index(np.argmax(part), part.shape)
            mask[image, :, row, column] = 1
            part[row], part[:, column] = -np.inf, -np.inf
    return {"Out": np.moveaxis(mask, 1, axis)}


def slice_weights(place, size, smooth):
    """Weight of each of `size` cells at a position."""
    out, first = np.zeros(size), int(np.floor(place - 0.5))
    for cell in (first, first + 1):
        away = cell + 0.5 - place
        out[min(max(cell, 0), size - 1)] += max(1 - (np.sqrt(away * away + 1e-8) if smooth else abs(away)), 0)
    return out


def bilateral_slice(op):
    x, grid, guide = op["X"], op["Grid"], op["Guide"]
    batch, channels, height, width = x.shape
    factors = channels + bool(op.attrs["has_offset"])
    maps = grid.reshape(batch, -1, factors, *grid.shape[2:])
    wide = np.concatenate([x, np.ones((batch, 1, height, width))], axis=1)[:, :factors]
    out = np.zeros((batch, maps.shape[1], height, width))
    for b, y, k in itertools.product(range(batch), range(height), range(width)):
        down = slice_weights((y + 0.5) * grid.shape[3] / height, grid.shape[3], False)
        across = slice_weights((k + 0.5) * grid.shape[4] / width, grid.shape[4], False)
        deep = slice_weights(guide[b, y, k] * grid.shape[2], grid.shape[2], True)
        out[b, :, y, k] = np.einsum("ofdrc,d,r,c,f->o", maps[b], deep, down, across, wide[b, :, y, k])
    return {"Out": out}


def space_to_depth(op):
    x, block = op["X"], int(op.attrs["blocksize"])
    n, c, h, w = x.shape
    moved = x.reshape(n, block, block, c // block ** 2, h, w).transpose(0, 3, 4, 1, 5, 2)
    return {"Out": moved.reshape(n, c * block ** 2, h // block, w // block)}


def sample_logits(op):
    if not op.attrs["use_customized_samples"]:
        return None
    samples, p, right = op["CustomizedSamples"], op["CustomizedProbabilities"], op["Labels"].shape[1]
    out = np.take_along_axis(op["Logits"], samples, axis=1)
    if op.attrs["remove_accidental_hits"]:
        hits = (samples[:, right:, None] == samples[:, None, :right]).any(axis=2)
        out[:, right:] = np.where(hits, -1e20, out[:, right:])
    return {"SampledLogits": out - np.log(p), "SampledLabels": np.tile(np.arange(right), (len(out), 1))}


OPS = {
    **{name + end: resize for name in ("linear_interp", "bilinear_interp", "trilinear_interp", "bicubic_interp", "nearest_interp") for end in ("", "_v2")},
    "beam_search": beam_search, "trace": trace, "diag_embed": diag_embed, "cholesky": cholesky, "equal_all": equal_all, "allclose": allclose,
    "inverse": lambda op: {"Output": np.linalg.inv(op["Input"])}, "histogram": histogram, "segment_pool": segment_pool,
    "dequantize_log": lambda op: {"Out": np.where(op["X"] < 0, -1, 1) * op["Dict"][op["X"].astype("i8") % 128]},
    "lookup_table_dequant": lookup_dequant, "positive_negative_pair": ranked_pairs, "similarity_focus": similarity_focus,
    "bilateral_slice": bilateral_slice, "space_to_depth": space_to_depth, "sample_logits": sample_logits,
    "seed": lambda op: {"Out": np.array([op.attrs["seed"]])} if op.attrs["seed"] else None,
}
