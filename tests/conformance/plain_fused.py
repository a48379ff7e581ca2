"""Fused, recurrent and recommendation ops in numpy; see plain_ops.py."""
import numpy as np

from plain_sequences import parts


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


ACTIVATIONS = {"sigmoid": sigmoid, "tanh": np.tanh, "relu": lambda x: np.maximum(x, 0), "identity": lambda x: x, "": lambda x: x}


def steps(part, reverse):
    """Numbers of the rows of a sequence in the order of the time steps."""
    return range(len(part) - 1, -1, -1) if reverse else range(len(part))


def lstm_over(op, sequences, bias):
    """An lstm over projected sequences [rows, 4 * cells]; gates in the order candidate, input, forget, output."""
    a, weights = op.attrs, op["WeightH"]
    size = len(weights)
    gate, cell, candidate = (ACTIVATIONS[a[k]] for k in ("gate_activation", "cell_activation", "candidate_activation"))
    see = np.split(bias[4 * size:], 3) if a["use_peepholes"] else [np.zeros(size)] * 3
    hidden, cells = [], []
    for n, part in enumerate(sequences):
        h, c = (op[s][n] if op.has(s) else np.zeros(size) for s in ("H0", "C0"))
        made = np.zeros((2, len(part), size))
        for t in steps(part, a["is_reverse"]):
            new, i, f, o = np.split(part[t] + h @ weights, 4)
            i, f = gate(i + c * see[0]), gate(f + c * see[1])
            c = f * c + i * candidate(new)
            h = gate(o + c * see[2]) * cell(c)
            made[:, t] = h, c
        hidden.append(made[0])
        cells.append(made[1])
    return {"Hidden": np.concatenate(hidden), "Cell": np.concatenate(cells)} if hidden else None


def fusion_lstm(op):
    bias, width = op["Bias"].ravel(), 4 * len(op["WeightH"])
    return lstm_over(op, [p @ op["WeightX"] + bias[:width] for p in parts(op, "X")], bias)


def embedding_lstm(op):
    # Embeddings includes the bias: the rest of Bias is the peephole weights
    return lstm_over(op, [op["Embeddings"][p.ravel()] for p in parts(op, "Ids")], op["Bias"].ravel())


def fusion_gru(op):
    a, weights = op.attrs, op["WeightH"]
    size, flat = len(weights), weights.ravel()
    for_gates, for_candidate = flat[:2 * size * size].reshape(size, 2 * size), flat[2 * size * size:].reshape(size, size)
    gate, candidate = ACTIVATIONS[a["gate_activation"]], ACTIVATIONS[a["activation"]]
    made = []
    for n, part in enumerate(parts(op, "X")):
        rows = part @ op["WeightX"] + (op["Bias"].ravel() if op.has("Bias") else 0)
        h = op["H0"][n] if op.has("H0") else np.zeros(size)
        out = np.zeros((len(part), size))
        for t in steps(part, a["is_reverse"]):
            update, reset = np.split(gate(rows[t, :2 * size] + h @ for_gates), 2)
            new = candidate(rows[t, 2 * size:] + (reset * h) @ for_candidate)
            h = update * h + (1 - update) * new if a["origin_mode"] else (1 - update) * h + update * new
            out[t] = h
        made.append(out)
    return {"Hidden": np.concatenate(made)} if made else None


def attention_lstm(op):
    a, size = op.attrs, op["C0"].shape[1]
    gate, cell, candidate = (ACTIVATIONS[a[k]] for k in ("gate_activation", "cell_activation", "candidate_activation"))
    attention, weights, bias = op["AttentionWeight"].ravel(), op["LSTMWeight"], op["LSTMBias"].ravel()
    first, scalar, second = (op[s].item() if op.has(s) else None for s in ("AttentionBias", "AttentionScalar", "AttentionScalarBias"))
    hidden, cells = [], []
    for n, part in enumerate(parts(op, "X")):
        width = part.shape[1]
        h, c = op["H0"][n] if op.has("H0") else np.zeros(size), op["C0"][n]
        made = np.zeros((2, len(part), size))
        for t in range(len(part)):
            score = np.maximum(part @ attention[:width] + (first or 0) + c @ attention[width:], 0)
            if scalar is not None:
                score = np.maximum(score * scalar + (second or 0), 0)
            share = np.exp(score - score.max())
            seen = (share / share.sum()) @ part
            f, i, o, new = np.split(seen @ weights[size:] + h @ weights[:size] + bias, 4)
            c = gate(f) * c + gate(i) * candidate(new)
            h = gate(o) * cell(c)
            made[:, t] = h, c
        hidden.append(made[0])
        cells.append(made[1])
    return {"Hidden": np.concatenate(hidden), "Cell": np.concatenate(cells)} if hidden else None


def pooled(op):
    """The sequences of each X as rows, pooled; empty ones produce zeros."""
    divide = {"SUM": lambda n: 1, "AVERAGE": lambda n: n, "SQRT": np.sqrt}[op.attrs["pooltype"]]
    return [np.array([p.sum(axis=0) / divide(max(len(p), 1)) for p in parts(op, "X", k)]).reshape(-1, op.all("X")[k].shape[1])
            for k in range(len(op.slots["X"]))]


def with_counts(op, x):
    """Columns 0 and 1, shows and clicks, as logarithms: log of shows, and log of clicks per show."""
    if not op.attrs["use_cvm"]:
        return x[:, 2:]
    shows = np.log(x[:, :1] + 1)
    return np.concatenate([shows, np.log(x[:, 1:2] + 1) - shows, x[:, 2:]], axis=1)


def windowed(op):
    a, made = op.attrs, []
    for part in parts(op, "X"):
        rows = np.zeros((len(part), a["contextLength"] * part.shape[1]))
        for t in range(len(part)):
            window = [part[s] if 0 <= s < len(part) else 0 * part[0] for s in range(t + a["contextStart"], t + a["contextStart"] + a["contextLength"])]
            rows[t] = np.concatenate(window)
        made.append(np.maximum(rows @ op["Filter"] + op["Bias"].ravel(), 0))
    return {"Out": np.concatenate(made)} if made else None


def expanded_fc(op):
    counts = np.diff(op.lod("X")[-1])
    joined = np.concatenate([op["X"], *(np.repeat(x, counts, axis=0) for x in op.all("X")[1:])], axis=1)
    return {"Out": ACTIVATIONS[op.attrs["fc_activation"]](joined @ op["FCWeight"] + (op["FCBias"].ravel() if op.has("FCBias") else 0))}


def repeated_fc(op):
    made = [op["X"]]
    for w, b in zip(op.all("W"), op.all("Bias")):
        made.append(np.maximum(made[-1] @ w + b.ravel(), 0))
    return {"ReluOut": made[1:-1], "Out": made[-1]}


def squared_difference(op):
    x, y = op["X"], op["Y"]
    return {"Out": op.attrs["scalar"] * ((x @ y) ** 2 - (x * x) @ (y * y)), "SquaredX": x * x, "SquaredY": y * y, "SquaredXY": (x @ y) ** 2}


def multihead(op):
    x, heads = op["Input"], op.attrs["head_number"]
    batch, length, width = x.shape
    if x.size == 0:
        return None
    joined = x @ op["W"].reshape(width, -1) + op["Bias"].ravel()
    q, k, v = joined.reshape(batch, length, 3, heads, -1).transpose(2, 0, 3, 1, 4)
    scores = op.attrs["alpha"] * q @ k.swapaxes(2, 3) + (op["BiasQK"] if op.has("BiasQK") else 0)
    shares = np.exp(scores - scores.max(axis=3, keepdims=True))
    out = shares / shares.sum(axis=3, keepdims=True) @ v
    return {"Out": out.transpose(0, 2, 1, 3).reshape(batch, length, -1)}


def fc_and_norm(op):
    a, x, w = op.attrs, op["X"], op["W"]
    if x.size == 0 or w.size == 0:
        return None
    rows = x.reshape(int(np.prod(x.shape[:a["x_num_col_dims"]])), -1) @ w + (op["Bias0"].ravel() if op.has("Bias0") else 0)
    sums = ACTIVATIONS[a["activation_type"]](rows).reshape(op["Y"].shape) + op["Y"]
    flat = sums.reshape(int(np.prod(sums.shape[:a["begin_norm_axis"]])), -1)
    mean, variance = flat.mean(axis=1), flat.var(axis=1)
    out = (flat - mean[:, None]) / np.sqrt(variance + a["epsilon"])[:, None]
    out = out * (op["Scale"].ravel() if op.has("Scale") else 1) + (op["Bias1"].ravel() if op.has("Bias1") else 0)
    return {"Out": out.reshape(sums.shape), "Mean": mean, "Variance": variance}


def children(op):
    """Rows of the tree: item, layer, parent, children. 0 means no node; a leaf is a node that has an item."""
    tree, x, count = op["TreeInfo"], op["X"], op.attrs["child_nums"]
    child = tree[x][..., 3:3 + count] * (x[..., None] != 0) * (tree[x][..., 3:4] != 0)
    return {"Child": child, "LeafMask": ((tree[child][..., 0] != 0) & (child != 0)).astype(x.dtype)}


def matches(op):
    made = []
    for x, y in zip(parts(op, "X"), parts(op, "Y")):
        made += [(x @ op["W"][:, k] @ y.T).ravel() for k in range(op.attrs["dim_t"])]
    if not made:
        return None
    return {"Out": np.concatenate(made).reshape(-1, 1), "Tmp": (op["X"] @ op["W"].reshape(len(op["W"]), -1)).reshape(-1, 1)}


def sized_conv(op):
    a, made = op.attrs, []
    heights, widths = (np.diff(op.lod(s)[-1]) for s in ("ROW", "COLUMN"))
    kernel = op["W"].reshape(a["OutputChannel"], a["InputChannel"], a["KernelH"], a["KernelW"])
    for part, height, width in zip(parts(op, "X"), heights, widths):
        if height == 0 or width == 0:
            continue
        image = part.reshape(a["InputChannel"], height, width)
        reach = [a["KernelH"] // 2, a["KernelW"] // 2]
        padded = np.zeros((a["InputChannel"], height + a["KernelH"], width + a["KernelW"]))
        padded[:, reach[0]:reach[0] + height, reach[1]:reach[1] + width] = image
        tops, lefts = range(0, height, a["StrideH"]), range(0, width, a["StrideW"])
        made.append(np.array([[[(padded[:, t:t + a["KernelH"], s:s + a["KernelW"]] * k).sum() for s in lefts] for t in tops] for k in kernel]).ravel())
    return {"Out": np.concatenate(made).reshape(-1, 1)} if made else None


def rank_attention(op):
    x, places, weights, ranks = op["X"], op["RankOffset"], op["RankParam"], op.attrs["MaxRank"]
    width = x.shape[1]
    blocks = weights.reshape(ranks * ranks, width, -1)
    out, seen = np.zeros((len(x), blocks.shape[2])), np.zeros((len(x), ranks * width))
    for i, row in enumerate(places):
        for k in range(ranks):
            if row[0] > 0 and row[1 + 2 * k] > 0:
                out[i] += x[row[2 + 2 * k]] @ blocks[(row[0] - 1) * ranks + row[1 + 2 * k] - 1]
                seen[i, k * width:(k + 1) * width] = x[row[2 + 2 * k]]
    rest = max(op.attrs["MaxSize"] - len(x), 0)
    return {"Out": out, "InputHelp": np.pad(seen, ((0, rest), (0, 0))), "InsRank": np.pad(places[:, :1].astype("f8"), ((0, rest), (0, 0)), constant_values=-1)}


OPS = {
    "fusion_lstm": fusion_lstm, "fused_embedding_fc_lstm": embedding_lstm, "fusion_gru": fusion_gru, "attention_lstm": attention_lstm,
    "fusion_seqpool_concat": lambda op: {"Out": np.concatenate(pooled(op), axis=1)},
    "fusion_seqpool_cvm_concat": lambda op: {"Out": np.concatenate([with_counts(op, x) for x in pooled(op)], axis=1)},
    "fusion_seqconv_eltadd_relu": windowed, "fusion_seqexpand_concat_fc": expanded_fc, "fusion_repeated_fc_relu": repeated_fc,
    "fusion_squared_mat_sub": squared_difference, "multihead_matmul": multihead, "fused_fc_elementwise_layernorm": fc_and_norm,
    "tdm_child": children, "match_matrix_tensor": matches, "var_conv_2d": sized_conv, "rank_attention": rank_attention,
}
