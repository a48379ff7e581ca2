"""Ops of detectors in numpy, each according to its documentation; see plain_ops.py. Boxes are left, top, right,
bottom."""
import numpy as np

import plain_layers
import plain_targets
from plain_targets import parts

NO_ROW = -1e30


class PlainInputs:
    """Access to inputs by slot, for the references below."""

    def __getitem__(self, slot):
        return self.all(slot)[0]

    def get(self, slot):
        return self[slot] if self.has(slot) else None


def image_of(op, slot):
    """The image of each row."""
    return np.concatenate([np.full(e - b, n) for n, (b, e) in enumerate(parts(op, slot))] + [np.zeros(0)]).astype(int)


def between(plane, y, x):
    """Bilinear samples of an image, 0 outside; y, x: arrays."""
    height, width = plane.shape[-2:]
    top, left = np.floor(y).astype(int), np.floor(x).astype(int)
    total = np.zeros((*plane.shape[:-2], *y.shape))
    for row, down in ((top, 1 - (y - top)), (top + 1, y - top)):
        for column, right in ((left, 1 - (x - left)), (left + 1, x - left)):
            inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
            total += np.where(inside, down * right * plane[..., np.clip(row, 0, height - 1), np.clip(column, 0, width - 1)], 0)
    return total


def deformable_conv(op):
    x, offset, w = op["Input"], op["Offset"], op["Filter"]
    a, (n, c, h, wide), (out_c, _, kh, kw) = op.attrs, x.shape, w.shape
    mask = op.get("Mask")
    groups, fields = a["groups"], a["deformable_groups"]
    oh, ow = offset.shape[2:]
    columns = np.zeros((n, c, kh * kw, oh, ow))
    rows, places = np.meshgrid(np.arange(oh) * a["strides"][0] - a["paddings"][0], np.arange(ow) * a["strides"][1] - a["paddings"][1], indexing="ij")
    for image in range(n):
        for field in range(fields):
            channels = slice(field * c // fields, (field + 1) * c // fields)
            for tap in range(kh * kw):
                at = 2 * (field * kh * kw + tap)
                y = rows + tap // kw * a["dilations"][0] + offset[image, at]
                z = places + tap % kw * a["dilations"][1] + offset[image, at + 1]
                columns[image, channels, tap] = between(x[image, channels], y, z) * (1 if mask is None else mask[image, field * kh * kw + tap])
    wide = out_c // groups
    out = np.zeros((n, out_c, oh, ow))
    for g in range(groups):
        part = columns[:, g * c // groups:(g + 1) * c // groups]
        out[:, g * wide:(g + 1) * wide] = np.einsum("nctyx,oct->noyx", part, w[g * wide:(g + 1) * wide].reshape(wide, -1, kh * kw))
    return {"Output": out}


def deformable_psroi_pooling(op):
    x, rois, trans, a = op["Input"], op["ROIs"], op["Trans"], op.attrs
    height, width = x.shape[2:]
    ph, pw, s, depth = a["pooled_height"], a["pooled_width"], a["sample_per_part"], a["output_dim"]
    (gh, gw), (th, tw) = a["group_size"], a["part_size"]
    out, count = np.zeros((len(rois), depth, ph, pw)), np.zeros((len(rois), depth, ph, pw))
    movers = 1 if a["no_trans"] else trans.shape[1] // 2
    rounded = np.sign(rois) * np.floor(np.abs(rois) + 0.5)
    for n, image in enumerate(image_of(op, "ROIs")):
        start = rounded[n, :2] * a["spatial_scale"] - 0.5
        size = np.maximum((rounded[n, 2:] + 1) * a["spatial_scale"] - 0.5 - start, 0.1)
        for c, i, j in np.ndindex(depth, ph, pw):
            shift = np.zeros(2)
            if not a["no_trans"]:
                mover, place = c // (depth // movers), (i * th // ph, j * tw // pw)
                shift = trans[n, 2 * mover:2 * mover + 2, place[0], place[1]] * a["trans_std"]
            left = start[0] + j * size[0] / pw + shift[0] * size[0]
            top = start[1] + i * size[1] / ph + shift[1] * size[1]
            y, z = np.meshgrid(top + np.arange(s) * size[1] / ph / s, left + np.arange(s) * size[0] / pw / s, indexing="ij")
            near = np.abs(np.stack([y + 0.5, y - height + 0.5, z + 0.5, z - width + 0.5])).min()
            if near < 1e-5:  # depends on rounding
                return None
            inside = (y >= -0.5) & (y <= height - 0.5) & (z >= -0.5) & (z <= width - 0.5)
            plane = x[image, (c * gh + i * gh // ph) * gw + j * gw // pw]
            values = between(plane, np.clip(y, 0, height - 1), np.clip(z, 0, width - 1))
            count[n, c, i, j] = inside.sum()
            out[n, c, i, j] = values[inside].mean() if inside.any() else 0
    return {"Output": out, "TopCount": count}


def perspective(corners, height, width):
    """The map that takes (0, 0), (w - 1, 0), (w - 1, h - 1), (0, h - 1) to the corners, by its eight equations."""
    side = [np.linalg.norm(corners[k] - corners[(k + 1) % 4]) for k in range(4)]
    rows = max(height, 2) - 1
    columns = max(min(np.floor((side[0] + side[2]) * rows / (side[1] + side[3]) + 0.5), width - 1), 1)
    equations, right = [], []
    for (x, y), (u, v) in zip(corners, ((0, 0), (columns, 0), (columns, rows), (0, rows))):
        equations += [[u, v, 1, 0, 0, 0, -x * u, -x * v], [0, 0, 0, u, v, 1, -y * u, -y * v]]
        right += [x, y]
    return np.append(np.linalg.solve(equations, right), 1).reshape(3, 3)


def in_polygon(corners, x, y):
    """Whether a point is inside, and its distance from an edge."""
    inside, distance = False, np.inf
    for k in range(4):
        a, b = corners[k], corners[(k + 1) % 4]
        along = np.clip(np.dot([x - a[0], y - a[1]], b - a) / max(np.dot(b - a, b - a), 1e-30), 0, 1)
        distance = min(distance, np.hypot(*(a + along * (b - a) - (x, y))))
        if (a[1] > y) != (b[1] > y) and x < (y - a[1]) * (b[0] - a[0]) / (b[1] - a[1]) + a[0]:
            inside = not inside
    return inside, distance


def roi_perspective_transform(op):
    x, rois, a = op["X"], op["ROIs"], op.attrs
    height, width = x.shape[2:]
    th, tw = a["transformed_height"], a["transformed_width"]
    out, mask = np.zeros((len(rois), x.shape[1], th, tw)), np.zeros((len(rois), 1, th, tw), int)
    matrices = np.zeros((len(rois), 9))
    for n, image in enumerate(image_of(op, "ROIs")):
        corners = rois[n].reshape(4, 2) * a["spatial_scale"]
        turned = np.cross(corners - np.roll(corners, -1, axis=0), np.roll(corners, -1, axis=0) - np.roll(corners, -2, axis=0))
        if np.abs(turned).min() < 3 or np.sign(turned).min() != np.sign(turned).max():
            return None  # not convex, or nearly a line: the original's 1e-5 in a divisor matters
        matrices[n] = perspective(corners, th, tw).ravel()
        for i, j in np.ndindex(th, tw):
            u, v, depth = matrices[n].reshape(3, 3) @ (j, i, 1)
            u, v = u / depth, v / depth
            inside, distance = in_polygon(corners, u, v)
            edge = min(abs(u + 0.5), abs(u - width + 0.5), abs(v + 0.5), abs(v - height + 0.5))
            if edge < 1e-3 or 5e-5 < distance < 1e-3:
                return None  # depends on rounding
            if (inside or distance <= 5e-5) and -0.5 < u < width - 0.5 and -0.5 < v < height - 0.5:
                mask[n, 0, i, j] = 1
                out[n, :, i, j] = between(x[image], np.array(np.clip(v, 0, height - 1)), np.array(np.clip(u, 0, width - 1)))
    return {"Out": out, "Mask": mask, "TransformMatrix": matrices}


def max_pool_with_index(op):
    x, a = op["X"], op.attrs
    sizes, kernel = x.shape[2:], list(a["ksize"])
    if x.size == 0 or a["adaptive"] and a["global_pooling"]:
        return None
    if a["global_pooling"]:
        axes = [[(0, n)] for n in sizes]
    elif a["adaptive"]:
        axes = [[(i * n // k, -(-(i + 1) * n // k)) for i in range(k)] for n, k in zip(sizes, kernel)]
    else:
        axes = [plain_layers.windows(n, k, s, (p, p), False) for n, k, s, p in zip(sizes, kernel, a["strides"], a["paddings"])]
    out = np.zeros((*x.shape[:2], *(len(w) for w in axes)))
    mask = np.zeros(out.shape, int)
    numbers = np.arange(np.prod(sizes)).reshape(sizes)
    for place in np.ndindex(*out.shape[2:]):
        cut = tuple(slice(max(axes[k][i][0], 0), axes[k][i][1]) for k, i in enumerate(place))
        part, at = x[(..., *cut)].reshape(*x.shape[:2], -1), numbers[cut].ravel()
        if not at.size:
            return None
        out[(..., *place)], mask[(..., *place)] = part.max(axis=-1), at[part.argmax(axis=-1)]
    return {"Out": out, "Mask": mask}


def suppressed(boxes, scores, threshold, eta, top, overlap):
    """Indices of the boxes that are kept, best first."""
    order = np.argsort(-scores, kind="stable")
    kept = []
    for i in order if top < 0 else order[:top]:
        if all(overlap(boxes[i], boxes[k]) <= threshold for k in kept):
            kept.append(int(i))
            if eta < 1 and threshold > 0.5:
                threshold *= eta
    return kept


def jaccard(extra):
    def overlap(a, b):
        if b[0] > a[2] or b[2] < a[0] or b[1] > a[3] or b[3] < a[1]:
            return 0.0
        def area(v):
            return 0.0 if v[2] < v[0] or v[3] < v[1] else (v[2] - v[0] + extra) * (v[3] - v[1] + extra)
        common = (min(a[2], b[2]) - max(a[0], b[0]) + extra) * (min(a[3], b[3]) - max(a[1], b[1]) + extra)
        return common / (area(a) + area(b) - common)
    return overlap


def retinanet_detection_output(op):
    a, info = op.attrs, op["ImInfo"]
    levels = list(zip(op.all("BBoxes"), op.all("Scores"), op.all("Anchors")))
    rows = []
    for n in range(len(info)):
        found = []
        last = np.floor(info[n, [1, 0, 1, 0]] / info[n, 2] + 0.5) - 1
        for k, (offsets, scores, anchors) in enumerate(levels):
            flat = scores[n].ravel()
            good = np.flatnonzero(flat > (a["score_threshold"] if k + 1 < len(levels) else 0))
            good = good[np.argsort(-flat[good], kind="stable")]
            for i in good if a["nms_top_k"] < 0 else good[:a["nms_top_k"]]:
                anchor, delta = anchors[i // scores.shape[2]], offsets[n, i // scores.shape[2]]
                size = anchor[2:] - anchor[:2] + 1
                middle, half = anchor[:2] + size / 2 + delta[:2] * size, np.exp(delta[2:]) * size / 2
                box = np.concatenate([middle - half, middle + half - 1]) / info[n, 2]
                found.append((i % scores.shape[2], flat[i], np.clip(box, 0, np.maximum(last, 0))))
        left = []
        for kind in range(levels[0][1].shape[2]):
            own = [f for f in found if f[0] == kind]
            kept = suppressed([f[2] for f in own], np.array([f[1] for f in own]), a["nms_threshold"], a["nms_eta"], -1, jaccard(1))
            left += [own[i] for i in kept]
        left.sort(key=lambda f: -f[1])
        rows += [[f[0] + 1, f[1], *f[2]] for f in (left if a["keep_top_k"] < 0 else left[:a["keep_top_k"]])]
    return {"Out": np.array(rows).reshape(-1, 6)}


def locality_aware_nms(op):
    a, all_boxes, all_scores = op.attrs, op["BBoxes"].copy(), op["Scores"].copy()
    if all_boxes.shape[2] != 4:
        return None
    overlap, rows = jaccard(0 if a["normalized"] else 1), []
    for boxes, scores in zip(all_boxes, all_scores):
        found = []
        for kind in range(len(scores)):
            if kind == a["background_label"]:
                continue
            s, heads = scores[kind], []
            for i in range(len(boxes)):
                if heads and overlap(boxes[i], boxes[heads[-1]]) > a["nms_threshold"]:
                    k = heads[-1]
                    boxes[k] = (boxes[i] * s[i] + boxes[k] * s[k]) / (s[i] + s[k])
                    s[k] += s[i]
                else:
                    heads.append(i)
            heads = [i for i in heads if s[i] > a["score_threshold"]]
            kept = suppressed(boxes[heads], s[heads], a["nms_threshold"], a["nms_eta"], a["nms_top_k"], overlap)
            found += [(kind, s[heads[i]], heads[i]) for i in kept]
        if 0 <= a["keep_top_k"] < len(found):
            found = sorted(sorted(found, key=lambda f: -f[1])[:a["keep_top_k"]], key=lambda f: f[0])
        rows += [[f[0], f[1], *boxes[f[2]]] for f in found]
    return {"Out": np.array(rows) if rows else np.array([[-1.0]])}


def detection_map(op):
    a, found, truth = op.attrs, op["DetectRes"], op["Label"]
    objects, scored = {}, {}
    if op.has("PosCount") and op.has("HasState") and op["HasState"].ravel()[0]:
        objects = dict(enumerate(op["PosCount"].ravel().tolist()))
        for k, (begin, end) in enumerate(parts(op, "TruePos")):
            scored[k] = [(op["TruePos"][i, 0], int(op["TruePos"][i, 1]), int(op["FalsePos"][i, 1])) for i in range(begin, end)]
    overlap = jaccard(0)
    for (begin, end), (first, last) in zip(parts(op, "Label"), parts(op, "DetectRes")):
        rows = truth[begin:end]
        hard = np.abs(rows[:, 1]) >= 1e-6 if truth.shape[1] == 6 else np.zeros(len(rows), bool)
        counted = np.ones(len(rows), bool) if a["evaluate_difficult"] else ~hard
        for kind in sorted(set(rows[:, 0].astype(int))):
            count = int(((rows[:, 0].astype(int) == kind) & counted).sum())
            if count:
                objects[kind] = objects.get(kind, 0) + count
        for kind in sorted(set(found[first:last, 0].astype(int))):
            own = [f for f in found[first:last] if int(f[0]) == kind]
            goals = [k for k in range(len(rows)) if int(rows[k, 0]) == kind]
            if goals:
                own.sort(key=lambda f: -f[1])
            taken = set()
            for f in own:
                best = max(goals, key=lambda k: overlap(np.clip(f[2:], 0, 1), rows[k, -4:]), default=None)
                near = best is not None and overlap(np.clip(f[2:], 0, 1), rows[best, -4:]) > a["overlap_threshold"]
                if near and not counted[best]:
                    continue
                hit = near and best not in taken
                if hit:
                    taken.add(best)
                scored.setdefault(kind, []).append((f[1], int(hit), int(not hit)))
    precisions = []
    for kind, count in sorted(objects.items()):
        if count == a["background_label"]:
            continue
        hits = sorted(scored.get(kind, []), key=lambda s: -s[0])
        right, wrong = np.cumsum([h[1] for h in hits]), np.cumsum([h[2] for h in hits])
        with np.errstate(all="ignore"):
            precision, recall = np.nan_to_num(right / (right + wrong)), right / count
        if a["ap_type"] == "integral":
            steps = np.diff(np.concatenate([[0], recall]))
            precisions.append(float((precision * steps)[steps > 1e-6].sum()))
        else:
            precisions.append(sum(max(precision[recall >= k / 10 - 1e-9], default=0) for k in range(11)) / 11)
    rows = [(k, *s) for k in range(a["class_num"]) for s in scored.get(k, [])]
    return {"MAP": np.array([np.mean(precisions) if precisions else 0.0]), "AccumPosCount": np.array([[objects.get(k, 0)] for k in range(a["class_num"])]),
            "AccumTruePos": np.array([[r[1], r[2]] for r in rows]).reshape(-1, 2), "AccumFalsePos": np.array([[r[1], r[3]] for r in rows]).reshape(-1, 2)}


def box_decoder_and_assign(op):
    prior, offsets, scores = op["PriorBox"], op["TargetBox"], op["BoxScore"]
    if len(prior) == 0:
        return None
    factors = op["PriorBoxVar"].ravel() if op.has("PriorBoxVar") else np.ones(4)
    d = offsets.reshape(len(prior), -1, 4) * factors
    size = (prior[:, 2:] - prior[:, :2] + 1)[:, None]
    middle = prior[:, None, :2] + size / 2 + d[:, :, :2] * size
    half = np.exp(np.minimum(d[:, :, 2:], op.attrs["box_clip"])) * size / 2
    boxes = np.concatenate([middle - half, middle + half - 1], axis=2)
    good = np.where(np.arange(scores.shape[1]) > 0, scores, NO_ROW)
    best = good.argmax(axis=1)
    chosen = np.where((good.max(axis=1) > -1)[:, None], boxes[np.arange(len(prior)), best], prior)
    return {"DecodeBox": boxes.reshape(offsets.shape), "OutputAssignBox": chosen}


def sigmoid_focal_loss(op):
    x, label, count = op["X"], op["Label"].reshape(-1, 1), max(int(op["FgNum"].ravel()[0]), 1)
    gamma, alpha, p = op.attrs["gamma"], op.attrs["alpha"], 1 / (1 + np.exp(-x))
    right = label == np.arange(1, x.shape[1] + 1)
    log_p, log_rest = -np.logaddexp(0, -x), -np.logaddexp(0, x)
    loss = np.where(right, -alpha * (1 - p) ** gamma * log_p, -(1 - alpha) * p ** gamma * log_rest)
    return {"Out": np.where(label == -1, 0, loss) / count}


def lstm_weights(op):
    """The weights of all layers and directions, from one var or from a list."""
    a, width = op.attrs, op["Input"].shape[2]
    directions, size = 2 if a["is_bidirec"] else 1, a["hidden_size"]
    if op.has("WeightList"):
        return op.all("WeightList")
    shapes = [shape for layer in range(a["num_layers"]) for _ in range(directions)
              for shape in ((4 * size, width if layer == 0 else directions * size), (4 * size, size))]
    shapes += [(4 * size,)] * len(shapes)
    cuts = np.cumsum([0] + [int(np.prod(s)) for s in shapes])
    return [op["W"].ravel()[b:e].reshape(s) for b, e, s in zip(cuts, cuts[1:], shapes)]


def cudnn_lstm(op):
    x, a = op["Input"], op.attrs
    if a["dropout_prob"] and not a["is_test"] and a["num_layers"] > 1 or x.size == 0:
        return None
    weights, directions = lstm_weights(op), 2 if a["is_bidirec"] else 1
    lengths = op["SequenceLength"].ravel() if op.has("SequenceLength") else np.full(x.shape[1], len(x))
    if lengths.max() > len(x) or lengths.min() < 0:
        return None
    def squash(v):
        return 1 / (1 + np.exp(-v))
    last_h, last_c = [], []
    for layer in range(a["num_layers"]):
        outs = []
        for d in range(directions):
            k = layer * directions + d
            w, r = weights[2 * k].reshape(4 * a["hidden_size"], -1), weights[2 * k + 1].reshape(4 * a["hidden_size"], -1)
            bias = (weights[len(weights) // 2 + 2 * k] + weights[len(weights) // 2 + 2 * k + 1]).ravel()
            h, c = op["InitH"][k].copy(), op["InitC"][k].copy()
            y = np.zeros((*x.shape[:2], a["hidden_size"]))
            for t in range(len(x)) if d == 0 else reversed(range(len(x))):
                i, f, g, o = np.split(x[t] @ w.T + h @ r.T + bias, 4, axis=1)
                new_c = squash(f) * c + squash(i) * np.tanh(g)
                on = (t < lengths)[:, None]
                c, h = np.where(on, new_c, c), np.where(on, squash(o) * np.tanh(new_c), h)
                y[t] = np.where(on, h, 0)
            outs.append(y)
            last_h.append(h)
            last_c.append(c)
        x = np.concatenate(outs, axis=2)
    return {"Out": x, "LastH": np.stack(last_h), "LastC": np.stack(last_c), "last_h": np.stack(last_h), "last_c": np.stack(last_c)}


def conv2d_fusion(op):
    a, found = op.attrs, plain_layers.conv(op)
    if found is None:
        return None
    axis = 3 if a["data_format"] == "NHWC" else 1
    y = found["Output"] + (op["ResidualData"] if op.has("ResidualData") else 0)
    if op.has("Bias"):
        y = y + op["Bias"].reshape([-1 if k == axis else 1 for k in range(4)])
    functions = {"identity": lambda v: v, "relu": lambda v: np.maximum(v, 0), "relu6": lambda v: np.clip(v, 0, 6), "tanh": np.tanh,
                 "sigmoid": lambda v: 1 / (1 + np.exp(-v)), "swish": lambda v: v / (1 + np.exp(-v)),
                 "leaky_relu": lambda v: np.where(v > 0, v, a["fuse_alpha"] * v)}
    y = functions[a["activation"]](y)
    cuts = np.cumsum(list(a["split_channels"]))[:-1]
    return {"Output": y, "Outputs": np.split(y, cuts, axis=axis) if len(a["split_channels"]) else []}


def fusion_transpose_flatten_concat(op):
    def matrix(x):
        y = np.transpose(x, op.attrs["trans_axis"])
        return y.reshape(int(np.prod(y.shape[:op.attrs["flatten_axis"]])), int(np.prod(y.shape[op.attrs["flatten_axis"]:])))
    return {"Out": np.concatenate([matrix(x) for x in op.all("X")], axis=op.attrs["concat_axis"])}


OPS = {
    "deformable_conv": deformable_conv, "deformable_conv_v1": deformable_conv, "deformable_psroi_pooling": deformable_psroi_pooling,
    "roi_perspective_transform": roi_perspective_transform, "max_pool2d_with_index": max_pool_with_index, "max_pool3d_with_index": max_pool_with_index,
    **plain_targets.OPS, "retinanet_detection_output": retinanet_detection_output, "locality_aware_nms": locality_aware_nms,
    "detection_map": detection_map, "box_decoder_and_assign": box_decoder_and_assign, "sigmoid_focal_loss": sigmoid_focal_loss, "cudnn_lstm": cudnn_lstm,
    "conv2d_fusion": conv2d_fusion, "fused_conv2d_add_act": conv2d_fusion, "fusion_transpose_flatten_concat": fusion_transpose_flatten_concat,
}
