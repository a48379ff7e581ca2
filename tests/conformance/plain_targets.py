"""Training targets of detectors, in numpy; see plain_ops.py. Boxes are left, top, right, bottom, and their corners are
pixels."""
import numpy as np


def parts(op, slot):
    offsets = op.lod(slot)[-1]
    return list(zip(offsets, offsets[1:]))


def areas(boxes):
    return (boxes[:, 2] - boxes[:, 0] + 1) * (boxes[:, 3] - boxes[:, 1] + 1)


def pixel_overlaps(a, b):
    """Overlaps of all boxes of a with all of b, whose corners are pixels."""
    low, high = np.maximum(a[:, None, :2], b[None, :, :2]), np.minimum(a[:, None, 2:], b[None, :, 2:])
    common = np.prod(np.maximum(high - low + 1, 0), axis=2)
    return np.where(common == 0, 0, common / (areas(a)[:, None] + areas(b)[None] - common))


def deltas(boxes, targets):
    def centre(v):
        size = v[:, 2:] - v[:, :2] + 1
        return v[:, :2] + size / 2, size
    (at, size), (goal, wanted) = centre(boxes), centre(targets)
    return np.concatenate([(goal - at) / size, np.log(wanted / size)], axis=1)


def anchor_targets(op, labels, positive, negative, batch, fraction, straddle):
    """Common part of both target assignments; takes the first candidates if there are too many."""
    anchors, truths, crowd, info = op["Anchor"], op["GtBoxes"], op["IsCrowd"].ravel(), op["ImInfo"]
    found = {k: [] for k in ("LocationIndex", "ScoreIndex", "TargetBBox", "TargetLabel", "BBoxInsideWeight", "ForegroundNumber")}
    for n, (begin, end) in enumerate(parts(op, "GtBoxes")):
        inside = np.arange(len(anchors))
        if straddle >= 0:
            height, width = info[n, :2] + straddle
            inside = inside[(anchors[:, 0] >= -straddle) & (anchors[:, 1] >= -straddle) & (anchors[:, 2] < width) & (anchors[:, 3] < height)]
        known = np.arange(begin, end)[crowd[begin:end] == 0]
        boxes = truths[known] * info[n, 2]
        if not len(known) or not len(inside):
            return None
        overlaps = pixel_overlaps(anchors[inside], boxes)
        best, which = overlaps.max(axis=1), overlaps.argmax(axis=1)
        first = [i for i in range(len(inside)) if (np.abs(overlaps[i] - overlaps.max(axis=0)) < 1e-5).any() or best[i] >= positive]
        second = [i for i in range(len(inside)) if best[i] < negative]
        if batch > 0 and fraction > 0:
            first = first[:int(fraction * batch)]
            second = second[:batch - len(first)]
        both = [i for i in second if i in first]
        foreground = sorted(set(first) - set(second))
        located = [first[0]] * len(both) + foreground
        background = sorted(second)
        found["LocationIndex"] += [inside[i] + n * len(anchors) for i in located]
        found["ScoreIndex"] += [inside[i] + n * len(anchors) for i in foreground + background]
        found["TargetLabel"] += [1 if labels is None else labels[known[which[i]]] for i in foreground] + [0] * len(background)
        found["BBoxInsideWeight"] += [[0.0] * 4] * len(both) + [[1.0] * 4] * len(foreground)
        found["TargetBBox"] += list(deltas(anchors[inside][located], boxes[which[located]])) if located else []
        found["ForegroundNumber"].append([len(located) + 1])
    for key, columns in (("TargetBBox", 4), ("BBoxInsideWeight", 4), ("TargetLabel", 1), ("ForegroundNumber", 1)):
        found[key] = np.array(found[key]).reshape(-1, columns)
    return {k: np.asarray(v) for k, v in found.items()}


def rpn_target_assign(op):
    a = op.attrs
    if a["use_random"]:
        return None
    return anchor_targets(op, None, a["rpn_positive_overlap"], a["rpn_negative_overlap"], a["rpn_batch_size_per_im"], np.float32(a["rpn_fg_fraction"]),
                          a["rpn_straddle_thresh"])


def retinanet_target_assign(op):
    return anchor_targets(op, op["GtLabels"].ravel(), op.attrs["positive_overlap"], op.attrs["negative_overlap"], -1, -1, -1)


def generate_proposal_labels(op):
    a, crowd, classes = op.attrs, op["IsCrowd"].ravel(), op["GtClasses"].ravel()
    if a["use_random"] and not a["is_cascade_rcnn"]:
        return None
    width = 4 * a["class_nums"]
    found = {k: [] for k in ("Rois", "LabelsInt32", "BboxTargets", "BboxInsideWeights", "MaxOverlapWithGT")}
    for n, ((begin, end), (first, last)) in enumerate(zip(parts(op, "GtBoxes"), parts(op, "RpnRois"))):
        truths, scale = op["GtBoxes"][begin:end], op["ImInfo"][n, 2]
        rois = op["RpnRois"][first:last] / scale
        if begin == end:
            return None
        if a["is_cascade_rcnn"]:
            kept = (rois[:, 2:] - rois[:, :2] + 1 > 0).all(axis=1) & (op["MaxOverlap"].ravel()[first:last] < 1)
            rois = rois[kept] if kept.any() else np.zeros((1, 4))
        boxes = np.concatenate([truths, rois])
        overlaps = pixel_overlaps(boxes, truths)
        best = overlaps.max(axis=1)
        used = best.copy()
        used[:end - begin][crowd[begin:end] != 0] = -1
        good = [i for i in range(len(boxes)) if used[i] >= a["fg_thresh"]]
        rest = [i for i in range(len(boxes)) if used[i] < a["fg_thresh"] and a["bg_thresh_lo"] <= used[i] < a["bg_thresh_hi"]]
        if not a["is_cascade_rcnn"]:
            good = good[:int(np.floor(np.float32(a["batch_size_per_im"]) * np.float32(a["fg_fraction"])))]
            rest = rest[:a["batch_size_per_im"] - len(good)]
        for i in good + rest:
            target, inside, label = np.zeros(width), np.zeros(width), 0
            if i in good:
                truth = int(np.argmax(np.abs(overlaps[i] - used[i]) < 1e-5))
                label = int(classes[begin + truth])
                if label > 0:
                    at = 4 * (1 if a["is_cls_agnostic"] else label)
                    target[at:at + 4] = deltas(boxes[[i]], truths[[truth]])[0] / np.array(a["bbox_reg_weights"])
                    inside[at:at + 4] = 1
            found["Rois"].append(boxes[i] * scale)
            found["LabelsInt32"].append([label])
            found["BboxTargets"].append(target)
            found["BboxInsideWeights"].append(inside)
            found["MaxOverlapWithGT"].append(best[i])
    for key, columns in (("Rois", 4), ("LabelsInt32", 1), ("BboxTargets", width), ("BboxInsideWeights", width)):
        found[key] = np.array(found[key]).reshape(-1, columns)
    return {**{k: np.asarray(v) for k, v in found.items()}, "BboxOutsideWeights": found["BboxInsideWeights"]}


def outline_mask(points, side):
    """Pixels between crossings of their columns' centers with an outline in a grid five times as fine."""
    fine = [tuple(int(v) for v in np.sign(p) * np.floor(5 * np.abs(p) + 0.5)) for p in np.asarray(points, "f8")]
    line = []
    for (x0, y0), (x1, y1) in zip(fine, fine[1:] + fine[:1]):
        wide, tall = abs(x1 - x0), abs(y1 - y0)
        if wide == tall == 0:
            continue
        flip = x0 > x1 if wide >= tall else y0 > y1
        (ax, ay), (bx, by) = ((x1, y1), (x0, y0)) if flip else ((x0, y0), (x1, y1))
        steps = range(max(wide, tall) + 1)
        edge = [(ax + t, int(ay + (by - ay) / wide * t + 0.5)) if wide >= tall else (int(ax + (bx - ax) / tall * t + 0.5), ay + t) for t in steps]
        line += edge[::-1] if flip else edge
    switches = np.zeros(side * side + 1, int)
    for (x0, y0), (x1, y1) in zip(line, line[1:]):
        column = (min(x0, x1) + 0.5) / 5 - 0.5
        if x0 != x1 and column == int(column) and 0 <= column <= side - 1:
            row = np.ceil(np.clip((min(y0, y1) + 0.5) / 5 - 0.5, 0, side))
            switches[int(column) * side + int(row)] += 1
    return (np.cumsum(switches[:-1]) % 2).reshape(side, side).T


def generate_mask_labels(op):
    side, classes = op.attrs["resolution"], op.attrs["num_classes"]
    kinds, crowd, labels, points = op["GtClasses"].ravel(), op["IsCrowd"].ravel(), op["LabelsInt32"].ravel(), op["GtSegms"]
    _, of_object, of_polygon = op.lod("GtSegms")
    found = {"MaskRois": [], "RoiHasMaskInt32": [], "MaskInt32": []}
    for n, ((begin, end), (first, last)) in enumerate(zip(parts(op, "GtClasses"), parts(op, "Rois"))):
        scale, rois = op["ImInfo"][n, 2], op["Rois"][first:last]
        outlines = [[points[of_polygon[k]:of_polygon[k + 1]] for k in range(of_object[i], of_object[i + 1])]
                    for i in range(begin, end) if kinds[i] > 0 and crowd[i] == 0]
        if any(not len(p) for o in outlines for p in o) or not outlines:
            return None
        around = np.array([[*np.concatenate(o).min(axis=0), *np.maximum(np.concatenate(o).max(axis=0), 0)] if o else [np.inf] * 4 for o in outlines])
        chosen = [i for i in range(last - first) if labels[first + i] > 0]
        if not chosen and last > first:
            chosen = [int(np.argmax(labels[first:last] == 0))]
        for i in chosen:
            box, mask, label = rois[i] / scale, np.full((classes, side, side), -1), labels[first + i]
            if label > 0:
                overlaps = pixel_overlaps(box[None], around)[0]
                size = np.maximum(box[2:] - box[:2], 1)
                scaled = [(p - box[:2]) * side / size for p in outlines[int(overlaps.argmax()) if overlaps.max() > 0 else 0]]
                mask[label] = np.max([outline_mask(p, side) for p in scaled], axis=0) if scaled else 0
            found["MaskRois"].append(rois[i])
            found["RoiHasMaskInt32"].append([i])
            found["MaskInt32"].append(mask.ravel())
    return {k: np.array(v).reshape(-1, c) for (k, v), c in zip(found.items(), (4, 1, classes * side * side))}


OPS = {"rpn_target_assign": rpn_target_assign, "retinanet_target_assign": retinanet_target_assign, "generate_proposal_labels": generate_proposal_labels,
       "generate_mask_labels": generate_mask_labels}
