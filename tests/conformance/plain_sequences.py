"""Ops over sequences in numpy; see plain_ops.py."""
import numpy as np


def parts(op, slot, k=0):
    """The rows of each sequence."""
    offsets, x = op.lod(slot, k)[-1], op.all(slot)[k]
    return [x[b:e] for b, e in zip(offsets, offsets[1:])]


def pool(op):
    kind, x = op.attrs["pooltype"], op["X"]
    out = []
    for part in parts(op, "X"):
        if len(part) == 0:
            out.append(np.full(x.shape[1:], op.attrs["pad_value"]))
            continue
        total = part.sum(axis=0)
        out.append({"SUM": total, "AVERAGE": total / len(part), "SQRT": total / np.sqrt(len(part)), "MAX": part.max(axis=0), "FIRST": part[0],
                    "LAST": part[-1]}[kind])
    return {"Out": np.array(out).reshape(len(out), *x.shape[1:])}


def joined(op, slot, made):
    return np.concatenate(made) if made else op[slot][:0]


def softmax(op):
    def one(part):
        e = np.exp(part - part.max(axis=0, keepdims=True)) if len(part) else part
        return e / e.sum(axis=0, keepdims=True)
    return {"Out": joined(op, "X", [one(p) for p in parts(op, "X")])}


def expand(op):
    level = op.attrs["ref_level"]
    counts = np.diff(op.lod("Y")[level if level >= 0 else len(op.lod("Y")) - 1])
    if op.lod("X") and len(op.lod("X")) > 1:
        return None
    pieces = parts(op, "X") if op.lod("X") else [op["X"][k:k + 1] for k in range(len(op["X"]))]
    return {"Out": joined(op, "X", [p for p, n in zip(pieces, counts) for _ in range(n)])}


def expand_as(op):
    return {"Out": np.repeat(op["X"], np.diff(op.lod("Y")[0]), axis=0)} if len(op.lod("Y")) == 1 else None


def conv(op):
    a, weights = op.attrs, op["Filter"]
    if op.has("PaddingData"):
        return None
    made = []
    for part in parts(op, "X"):
        length, width, start = a["contextLength"], part.shape[1], a["contextStart"]
        rows = np.zeros((len(part), length * width))
        for t in range(len(part)):
            for k in range(length):
                if 0 <= t + start + k < len(part):
                    rows[t, k * width:(k + 1) * width] = part[t + start + k]
        made.append(rows @ weights)
    return {"Out": np.concatenate(made)} if made else None


def pad(op):
    sequences, x, value = parts(op, "X"), op["X"], op["PadValue"]
    length = op.attrs["padded_length"]
    length = max(map(len, sequences), default=0) if length == -1 else length
    out = np.empty((len(sequences), length, *x.shape[1:]))
    out[...] = value.reshape(x.shape[1:]) if value.size > 1 else value.ravel()[0]
    for k, part in enumerate(sequences):
        out[k, :len(part)] = part
    return {"Out": out, "Length": np.array([len(p) for p in sequences], np.int64)}


def unpad(op):
    return {"Out": joined(op, "X", [row[:n] for row, n in zip(op["X"], op["Length"].ravel())]).reshape(op["Length"].sum(), *(op["X"].shape[2:] or (1,)))}


def concat(op):
    count = len(op.slots["X"])
    split = [parts(op, "X", k) for k in range(count)]
    return {"Out": joined(op, "X", [split[k][s] for s in range(len(split[0])) for k in range(count)])}


def cut(op):
    ends = zip(parts(op, "X"), op["Offset"].ravel(), op["Length"].ravel())
    return {"Out": joined(op, "X", [p[o:o + n] for p, o, n in ends])}


def row_conv(op):
    weights, made = op["Filter"], []
    if not op.lod("X"):
        return None
    for part in parts(op, "X"):
        out = np.zeros_like(part)
        for t in range(len(part)):
            for k in range(min(len(weights), len(part) - t)):
                out[t] += part[t + k] * weights[k]
        made.append(out)
    return {"Out": joined(op, "X", made)}


def enumerate_windows(op):
    a, made = op.attrs, []
    for part in parts(op, "X"):
        flat = part.ravel()
        for t in range(len(flat)):
            made.append([flat[t + k] if t + k < len(flat) else a["pad_value"] for k in range(a["win_size"])])
    return {"Out": np.array(made, op["X"].dtype).reshape(-1, a["win_size"])}


OPS = {
    "sequence_pool": pool, "sequence_softmax": softmax, "sequence_expand": expand, "sequence_expand_as": expand_as, "sequence_conv": conv,
    "sequence_pad": pad, "sequence_unpad": unpad, "sequence_concat": concat, "sequence_slice": cut, "row_conv": row_conv,
    "sequence_enumerate": enumerate_windows,
    "sequence_reverse": lambda op: {"Y": joined(op, "X", [p[::-1] for p in parts(op, "X")])},
}
