#!/usr/bin/env python3
"""Cases of the ops of detectors in tests/data/ops, for which the reference corpus has none.

    <python with paddlepaddle 2.6.2> tests/conformance/detection_reference_cases.py --shared ../shared --output tests/data/ops [--only op,op]

Same format as goldens/ops of the corpus, generated with its generator (tools/gen_op_goldens.py), so that check_ops.py
and random_shapes.py can read them. Ops that the original no longer has, or only on a GPU (plain_case()), have the
values of plain_detection.py and gradients by its differences. Neither the build nor its tests need the original. TABLE
is a list of (op, function of the generator and the op).
"""
import argparse
import os
import sys
import types

import numpy as np

import plain_detection

if __name__ == "__main__":
    sys.path.insert(0, os.path.join(sys.argv[sys.argv.index("--shared") + 1], "tools"))
from gen_op_goldens import NP2PD, Gen, Member, T, pb, tol

TABLE = []
KINDS = {bool: (6, "b"), int: (0, "i"), float: (1, "f"), str: (2, "s")}
LISTS = {int: (3, "ints"), float: (4, "floats")}


def op(*names):
    def put(function):
        TABLE.extend((name, function) for name in names)
        return function
    return put


class PlainOp(plain_detection.PlainInputs):
    """Inputs and attributes in the form of the numpy references."""

    def __init__(self, ins, attrs):
        self.attrs, self.ins = attrs, ins

    def has(self, slot):
        return slot in self.ins

    def all(self, slot):
        return [v.a.astype("f8") if v.a.dtype.kind == "f" else v.a for v in self.ins[slot]]

    def lod(self, slot, k=0):
        return self.ins[slot][k].lod


def put_attr(desc, name, value):
    attr = desc.attrs.add()
    attr.name = name
    if isinstance(value, list):
        attr.type, field = LISTS[type(value[0]) if value else int]
        getattr(attr, field).extend(value)
    else:
        attr.type, field = KINDS[type(value)]
        setattr(attr, field, value)


def put_slots(slots, names):
    for slot, listed in names.items():
        entry = slots.add()
        entry.parameter = slot
        entry.arguments.extend(listed)


def put_var(block, name, dtype, dims, lod_level):
    var = block.vars.add()
    var.name, var.type.type = name, 7
    var.type.lod_tensor.tensor.data_type = NP2PD[dtype]
    var.type.lod_tensor.tensor.dims.extend(dims)
    var.type.lod_tensor.lod_level = lod_level


def plain_slopes(name, ins, attrs, outer, slot, k):
    """Gradient of the outputs, weighted by `outer`, by central differences."""
    x = ins[slot][k]
    found = np.zeros(x.a.shape)
    for at in np.ndindex(*x.a.shape):
        total = 0.0
        for side in (1, -1):
            moved = x.a.astype("f8")
            moved[at] += side * 1e-4
            changed = {**ins, slot: [T(moved, x.lod) if i == k else v for i, v in enumerate(ins[slot])]}
            out = plain_detection.OPS[name](PlainOp(changed, attrs))
            total += side * sum(float((np.asarray(out[s]) * w).sum()) for s, w in outer.items())
        found[at] = total / 2e-4
    return found.astype(x.a.dtype)


def plain_case(g, name, ins, attrs, outs, tag, reads=(), slopes=(), outer=("Out",), lods=None):
    """A case whose results are those of the numpy reference. `reads`: slots of the gradient op, `slopes`: inputs that
    get a gradient."""
    if not g.wanted(name, False):
        return
    ins = {s: [v if isinstance(v, T) else T(v) for v in (vs if isinstance(vs, list) else [vs])] for s, vs in ins.items()}
    found = plain_detection.OPS[name](PlainOp(ins, attrs))
    found = {s: [np.asarray(x) for x in (v if isinstance(v, list) else [v])] for s, v in found.items() if s in outs}
    hidden = [s for s in outs if s not in found]  # only read by the gradient op
    names = {s: [f"{name}_{s}{k}" for k in range(len(vs))] for s, vs in {**ins, **found, **{s: [0] for s in hidden}}.items()}
    program, member = pb.ProgramDesc(), Member()
    block = program.blocks.add()
    block.idx, block.parent_idx = 0, -1
    forward = block.ops.add()
    forward.type = name
    put_slots(forward.inputs, {s: names[s] for s in ins})
    put_slots(forward.outputs, {s: names[s] for s in outs})
    meta = {"op": name, "tag": tag, "attrs_set": attrs, "n_forward_ops": 1, "program_ops": [name], "inputs": {s: names[s] for s in ins},
            "outputs": {s: names[s] for s in outs}, "feeds": [], "expects": [], "has_grad": bool(slopes)}
    first = next(v for vs in ins.values() for v in vs if v.a.dtype.kind == "f")
    for slot, values in ins.items():
        for k, value in enumerate(values):
            put_var(block, names[slot][k], value.dtype, value.a.shape, len(value.lod))
            meta["feeds"].append(member.add(f"in/{slot}/{k}", names[slot][k], slot, value))
    for slot in hidden:
        put_var(block, names[slot][0], first.dtype, [-1], 0)
    for slot, values in found.items():
        for k, value in enumerate(values):
            value = T(value.astype(outs[slot] or first.dtype), (lods or {}).get(slot))
            put_var(block, names[slot][k], value.dtype, [-1] * value.a.ndim, len(value.lod))
            entry = member.add(f"out/{slot}/{k}", names[slot][k], slot, value)
            meta["expects"].append({**entry, "compare": "values", **tol(value.dtype, (1e-5, 1e-6))})
    if slopes:
        add_gradient(g, name, (ins, attrs, found, names), (reads, slopes, outer), (block, member, meta, first.dtype))
    for key, value in attrs.items():
        for desc in block.ops:
            put_attr(desc, key, value)
    g._keep(name, types.SimpleNamespace(desc=types.SimpleNamespace(serialize_to_string=program.SerializeToString)), member, meta)


def add_gradient(g, name, forward, wanted, to):
    (ins, attrs, found, names), (reads, slopes, outer), (block, member, meta, dtype) = forward, wanted, to
    weights = {s: g.rng.uniform(-1, 1, found[s][0].shape).astype(dtype) for s in outer}
    backward = block.ops.add()
    backward.type = name + "_grad"
    put_slots(backward.inputs, {**{s: names[s] for s in reads if s in names}, **{s + "@GRAD": [names[s][0] + "@GRAD"] for s in outer}})
    put_slots(backward.outputs, {s + "@GRAD": [n + "@GRAD" for n in names[s]] for s in slopes if s in names})
    meta["program_ops"].append(backward.type)
    for slot, value in weights.items():
        put_var(block, names[slot][0] + "@GRAD", dtype, value.shape, 0)
        meta["feeds"].append(member.add(f"ograd/{slot}/0", names[slot][0] + "@GRAD", slot, T(value)))
    for slot in slopes:
        for k in range(len(ins.get(slot, []))):
            value = T(plain_slopes(name, ins, attrs, weights, slot, k))
            put_var(block, names[slot][k] + "@GRAD", value.dtype, value.a.shape, 0)
            entry = member.add(f"grad/{slot}/{k}", names[slot][k] + "@GRAD", slot, value)
            meta["expects"].append({**entry, "compare": "values", "grad_of": names[slot][k], **tol("float32", (1e-4, 1e-5))})


def boxes(g, count, size=100.0, least=2.0, dt="float32"):
    """Boxes with left < right and top < bottom."""
    corner = g.rng.uniform(0, size * 0.7, (count, 2))
    return np.concatenate([corner, corner + g.rng.uniform(least, size * 0.3, (count, 2))], axis=1).astype(dt)


def near(g, base, count, spread=6.0, dt="float32"):
    """Boxes around given ones."""
    return (base[g.rng.randint(0, len(base), count)] + g.rng.uniform(-spread, spread, (count, 4))).astype(dt)


def offsets(g, lengths):
    return [[0, *np.cumsum(lengths).tolist()]]


@op("deformable_conv_v1")
def deformable_conv_v1(g, o):
    for groups, fields, stride, dilation, dt in ((1, 1, 1, 1, "float32"), (2, 2, 1, 1, "float32"), (1, 2, 2, 1, "float32"), (2, 1, 1, 2, "float32"), (1, 1, 1, 1, "float64")):
        x = g.f(2, 4, 6, 7, dt=dt)
        places = [(n + 2 - dilation * 2 - 1) // stride + 1 for n in (6, 7)]
        g.case(o, {"Input": x, "Offset": g.f(2, 18 * fields, *places, lo=-1.5, hi=1.5, dt=dt), "Filter": g.f(4, 4 // groups, 3, 3, dt=dt)},
               {"strides": [stride] * 2, "paddings": [1, 1], "dilations": [dilation] * 2, "groups": groups, "deformable_groups": fields, "im2col_step": 1},
               tag=f"{groups} {fields} {stride} {dilation} {dt}", tolerance=(1e-4, 1e-5))


@op("deformable_psroi_pooling")
def deformable_psroi_pooling(g, o):
    for still, group, part, pooled, movers in ((True, 1, 1, 2, 1), (False, 1, 2, 2, 1), (False, 2, 2, 4, 2), (False, 2, 3, 3, 1)):
        depth = 4
        rois = T(boxes(g, 3, 30.0), offsets(g, [1, 2]))
        g.case(o, {"Input": g.f(2, depth * group * group, 9, 8), "ROIs": rois, "Trans": g.f(3, 2 * movers, part, part)},
               {"no_trans": still, "spatial_scale": 0.25, "output_dim": depth, "group_size": [group] * 2, "pooled_height": pooled, "pooled_width": pooled,
                "part_size": [part] * 2, "sample_per_part": 3, "trans_std": 0.2},
               grad=["Input"] if still else ["Input", "Trans"], gout=["Output"], tag=f"{still} {group} {part} {movers}", tolerance=(1e-4, 1e-5))


@op("roi_perspective_transform")
def roi_perspective_transform(g, o):
    for scale, height, width, lengths in ((1.0, 4, 6, [1, 1]), (0.5, 3, 8, [2, 1]), (1.0, 1, 5, [1, 0])):
        quads = []
        while len(quads) < sum(lengths):
            left, top, w, h = g.rng.uniform(0.5, 2), g.rng.uniform(0.5, 2), g.rng.uniform(4, 7), g.rng.uniform(3, 5)
            quad = np.array([left, top, left + w, top, left + w, top + h, left, top + h]) + g.rng.uniform(-0.7, 0.7, 8)
            one = {"X": [T(np.zeros((1, 1, 8, 9)))], "ROIs": [T(quad[None], [[0, 1]])]}
            attrs = {"spatial_scale": 1.0, "transformed_height": height, "transformed_width": width}
            if plain_detection.OPS[o](PlainOp(one, attrs)) is not None:
                quads.append(quad / scale)
        plain_case(g, o, {"X": g.f(2, 2, 8, 9), "ROIs": T(np.array(quads, "float32"), offsets(g, lengths))},
                   {"spatial_scale": scale, "transformed_height": height, "transformed_width": width},
                   {"Out": None, "Mask": "int32", "TransformMatrix": None}, f"{scale} {height} {width}", ("X", "ROIs"), ("X",))


@op("max_pool3d_with_index")
def max_pool3d_with_index(g, o):
    base = {"ksize": [2, 2, 3], "strides": [2, 1, 2], "paddings": [0, 0, 0]}
    for tag, attrs in (("plain", {}), ("padded", {"paddings": [1, 1, 1], "strides": [2, 2, 2]}), ("global", {"global_pooling": True}), ("adaptive", {"adaptive": True})):
        for dt in ("float32", "float64"):
            g.case(o, {"X": g.f(2, 3, 5, 6, 7, dt=dt)}, {**base, **attrs}, {"Out": dt, "Mask": "int32"}, tag=f"{tag} {dt}")


def anchor_inputs(g, lengths, anchors, crowds, scale, dt="float32"):
    truths = boxes(g, sum(lengths), 60.0, 8.0, dt)
    flags = np.array([[1 if k in crowds else 0] for k in range(len(truths))], "int32")
    info = np.array([[70 * scale, 80 * scale, scale]] * len(lengths), dt)
    all_anchors = np.concatenate([near(g, truths * scale, anchors // 2, 5.0, dt), boxes(g, anchors - anchors // 2, 90.0 * scale, 8.0, dt) - 5]).astype(dt)
    lod = offsets(g, lengths)
    return {"Anchor": all_anchors, "GtBoxes": T(truths, lod), "IsCrowd": T(flags, lod), "ImInfo": T(info, offsets(g, [1] * len(lengths)))}


@op("rpn_target_assign")
def rpn_target_assign(g, o):
    outs = {"LocationIndex": "int32", "ScoreIndex": "int32", "TargetBBox": "float32", "TargetLabel": "int32", "BBoxInsideWeight": "float32"}
    for lengths, crowds, batch, straddle, fraction, scale in (([2, 1], (), 16, 0.0, 0.5, 1.0), ([3, 2], (1,), 8, -1.0, 0.25, 1.0), ([1, 4], (2, 3), 40, 3.0, 0.5, 2.0),
                                                               ([2, 2], (), 6, 0.0, 1.0, 1.5), ([5], (), 256, 0.0, 0.5, 1.0)):
        g.case(o, anchor_inputs(g, lengths, 40, crowds, scale),
               {"rpn_batch_size_per_im": batch, "rpn_straddle_thresh": straddle, "rpn_positive_overlap": 0.6, "rpn_negative_overlap": 0.5, "rpn_fg_fraction": fraction,
                "use_random": False}, outs, grad=False, tag=f"{lengths} {crowds} {batch} {straddle}")


@op("retinanet_target_assign")
def retinanet_target_assign(g, o):
    outs = {"LocationIndex": "int32", "ScoreIndex": "int32", "TargetBBox": "float32", "TargetLabel": "int32", "BBoxInsideWeight": "float32", "ForegroundNumber": "int32"}
    for lengths, crowds, high, low, scale in (([2, 1], (), 0.5, 0.4, 1.0), ([3, 2], (1,), 0.6, 0.6, 2.0), ([4], (0,), 0.3, 0.1, 1.0)):
        ins = anchor_inputs(g, lengths, 30, crowds, scale)
        ins["GtLabels"] = T(g.i(sum(lengths), 1, lo=1, hi=6, dt="int32"), offsets(g, lengths))
        g.case(o, ins, {"positive_overlap": high, "negative_overlap": low}, outs, grad=False, tag=f"{lengths} {crowds} {high} {low}")


@op("generate_proposal_labels")
def generate_proposal_labels(g, o):
    outs = {"Rois": "float32", "LabelsInt32": "int32", "BboxTargets": "float32", "BboxInsideWeights": "float32", "BboxOutsideWeights": "float32", "MaxOverlapWithGT": "float32"}
    for cascade, agnostic, batch, scale, crowds, low in ((False, False, 8, 1.0, (), 0.0), (False, True, 12, 2.0, (1,), 0.1), (True, False, 8, 1.0, (0,), 0.0), (True, True, 8, 0.5, (), 0.0),
                                                         (False, False, 4, 1.0, (0, 2), 0.0), (False, False, 64, 1.5, (), 0.0)):
        truths = boxes(g, 4, 60.0, 8.0)
        rois = np.concatenate([near(g, truths, 10), boxes(g, 4, 80.0)]).astype("float32") * scale
        lod, of_rois = offsets(g, [1, 3]), offsets(g, [6, 8])
        ins = {"RpnRois": T(rois.astype("float32"), of_rois), "GtClasses": T(g.i(4, 1, lo=1, hi=5, dt="int32"), lod),
               "IsCrowd": T(np.array([[int(k in crowds)] for k in range(4)], "int32"), lod), "GtBoxes": T(truths, lod),
               "ImInfo": T(np.array([[70 * scale, 80 * scale, scale]] * 2, "float32"), offsets(g, [1, 1]))}
        if cascade:
            ins["MaxOverlap"] = T(np.where(np.arange(14) % 4 == 0, 1, g.rng.uniform(0, 1, 14)).astype("float32"), of_rois)
        g.case(o, ins, {"batch_size_per_im": batch, "fg_fraction": 0.5, "fg_thresh": 0.5, "bg_thresh_hi": 0.5, "bg_thresh_lo": low, "bbox_reg_weights": [0.1, 0.1, 0.2, 0.2],
                        "class_nums": 5, "use_random": False, "is_cascade_rcnn": cascade, "is_cls_agnostic": agnostic}, outs, grad=False,
               tag=f"{cascade} {agnostic} {batch} {scale} {crowds}")


@op("generate_mask_labels")
def generate_mask_labels(g, o):
    outs = {"MaskRois": "float32", "RoiHasMaskInt32": "int32", "MaskInt32": "int32"}
    for lengths, side, scale, labels in (([1, 2], 8, 1.0, None), ([2, 1], 14, 2.0, None), ([2, 1], 5, 1.0, [0, 0, 0, 0, 2, 1]), ([3], 28, 0.5, None)):
        objects = sum(lengths)
        polygons = [int(g.rng.randint(1, 4)) for _ in range(objects)]
        counts = [int(g.rng.randint(3, 8)) for _ in range(sum(polygons))]
        centres = np.repeat(np.repeat(g.rng.uniform(15, 60, (objects, 2)), polygons, axis=0), counts, axis=0)
        points = (centres + g.rng.uniform(-14, 14, centres.shape)).astype("float32")
        rois = np.concatenate([near(g, np.array([[5, 5, 40, 45], [20, 15, 60, 50]]), 4, 8.0), boxes(g, 2, 80.0)]).astype("float32") * scale
        of_rois = offsets(g, [3, 3] if len(lengths) == 2 else [6])
        kinds = np.array(labels or g.i(6, lo=0, hi=4), "int32").reshape(6, 1)
        lod = offsets(g, lengths)
        flags = np.zeros((objects, 1), "int32")
        flags[-1] = objects == 3 and side == 8
        g.case(o, {"ImInfo": T(np.array([[80 * scale, 80 * scale, scale]] * len(lengths), "float32"), offsets(g, [1] * len(lengths))),
                   "GtClasses": T(g.i(objects, 1, lo=1, hi=4, dt="int32"), lod), "IsCrowd": T(flags, lod),
                   "GtSegms": T(points, [*lod, *offsets(g, polygons), *offsets(g, counts)]), "Rois": T(rois.astype("float32"), of_rois), "LabelsInt32": T(kinds, of_rois)},
               {"num_classes": 4, "resolution": side}, outs, grad=False, tag=f"{lengths} {side} {scale}")


@op("retinanet_detection_output")
def retinanet_detection_output(g, o):
    for images, scale, threshold, top, keep, eta, limit in ((2, 1.0, 0.1, 10, 12, 1.0, 0.3), (1, 2.0, 0.5, 4, 5, 0.9, 0.7), (2, 1.0, 0.95, 3, 100, 1.0, 0.5)):
        sizes = (12, 8)
        anchors = [near(g, np.array([[10, 10, 40, 50], [30, 20, 70, 60]]), n, 10.0) * scale for n in sizes]
        g.case(o, {"BBoxes": [g.f(images, n, 4, lo=-0.3, hi=0.3) for n in sizes], "Scores": [g.f(images, n, 3, lo=0, hi=1) for n in sizes],
                   "Anchors": [a.astype("float32") for a in anchors], "ImInfo": T(np.array([[70 * scale, 75 * scale, scale]] * images, "float32"), offsets(g, [1] * images))},
               {"score_threshold": threshold, "nms_top_k": top, "nms_threshold": limit, "nms_eta": eta, "keep_top_k": keep}, grad=False, tag=f"{images} {scale} {threshold}", tolerance=(1e-4, 1e-4))


@op("locality_aware_nms")
def locality_aware_nms(g, o):
    for images, kinds, background, keep, top, normalized, threshold in ((2, 1, -1, 6, 10, False, 0.1), (1, 2, -1, 3, 8, True, 0.2), (2, 2, 0, -1, -1, False, 0.0), (1, 1, -1, 5, 5, True, 100.0)):
        base = boxes(g, 4, 60.0, 20.0)
        all_boxes = np.stack([np.sort(near(g, np.repeat(base, 3, axis=0)[g.rng.randint(0, 12, 12)], 12, 2.0).reshape(12, 2, 2), axis=1).reshape(12, 4) for _ in range(images)])
        all_boxes[:, 1::3] = all_boxes[:, ::3] + 1.5
        if normalized:
            all_boxes = all_boxes / 80
        g.case(o, {"BBoxes": all_boxes.astype("float32"), "Scores": g.f(images, kinds, 12, lo=0.05, hi=1)},
               {"background_label": background, "score_threshold": threshold, "nms_top_k": top, "nms_threshold": 0.4, "nms_eta": 1.0, "keep_top_k": keep, "normalized": normalized},
               grad=False, tag=f"{images} {kinds} {background} {keep} {normalized}", tolerance=(1e-4, 1e-4))
    quads = np.tile(boxes(g, 3, 60.0, 20.0)[:, [0, 1, 2, 1, 2, 3, 0, 3]], (1, 2)).reshape(1, 6, 8) + g.rng.uniform(-2, 2, (1, 6, 8))
    g.case(o, {"BBoxes": quads.astype("float32"), "Scores": g.f(1, 1, 6, lo=0.05, hi=1)},
           {"background_label": -1, "score_threshold": 0.0, "nms_top_k": 10, "nms_threshold": 0.3, "nms_eta": 1.0, "keep_top_k": 10, "normalized": False}, grad=False, tag="quadrangles",
           tolerance=(1e-3, 1e-3))
    crowd = boxes(g, 12, 12.0, 20.0)[None]
    for eta in (1.0, 0.7):
        g.case(o, {"BBoxes": crowd, "Scores": g.f(1, 1, 12, lo=0.1, hi=1)},
               {"background_label": -1, "score_threshold": 0.05, "nms_top_k": 12, "nms_threshold": 0.8, "nms_eta": eta, "keep_top_k": 12, "normalized": False}, grad=False, tag=f"eta {eta}",
               tolerance=(1e-3, 1e-3))


@op("detection_map")
def detection_map(g, o):
    outs = {"AccumPosCount": "int32", "AccumTruePos": "float32", "AccumFalsePos": "float32", "MAP": "float32"}
    for kind, hard, columns, state, background in (("integral", True, 6, False, 0), ("11point", False, 6, False, 0), ("integral", False, 6, True, 0), ("11point", True, 5, True, 2), ("integral", True, 5, False, 2)):
        truths = boxes(g, 7, 1.0, 0.1)
        rows = np.concatenate([g.i(7, 1, lo=0, hi=4), g.i(7, 1, lo=0, hi=2), truths], axis=1)
        rows = rows if columns == 6 else rows[:, [0, 2, 3, 4, 5]]
        places = g.rng.randint(0, 7, 9)
        found = np.concatenate([rows[places, :1], g.f(9, 1, lo=0, hi=1), truths[places] + g.f(9, 4, lo=-0.04, hi=0.04)], axis=1)
        found[::4, 0] = 3
        ins = {"DetectRes": T(found.astype("float32"), offsets(g, [5, 4])), "Label": T(rows.astype("float32"), offsets(g, [3, 4]))}
        if state:
            lod = offsets(g, [2, 0, 3, 1])
            score = g.f(6, 1, lo=0, hi=1)
            hit = g.i(6, 1, hi=2)
            ins.update({"HasState": np.array([1], "int32"), "PosCount": g.i(4, 1, lo=0, hi=5, dt="int32"),
                        "TruePos": T(np.concatenate([score, hit], axis=1).astype("float32"), lod), "FalsePos": T(np.concatenate([score, 1 - hit], axis=1).astype("float32"), lod)})
        g.case(o, ins, {"class_num": 4, "background_label": background, "overlap_threshold": 0.4, "evaluate_difficult": hard, "ap_type": kind}, outs, grad=False,
               tag=f"{kind} {hard} {columns} {state}")


@op("box_decoder_and_assign")
def box_decoder_and_assign(g, o):
    for kinds, clip, dt in ((3, 4.135, "float32"), (5, 0.1, "float32"), (2, 4.135, "float64"), (1, 1.0, "float32")):
        lod = offsets(g, [2, 4])
        ins = {"PriorBox": T(boxes(g, 6, dt=dt), lod), "PriorBoxVar": np.array([0.1, 0.1, 0.2, 0.2], dt), "TargetBox": T(g.f(6, 4 * kinds, dt=dt), lod),
               "BoxScore": T(g.f(6, kinds, dt=dt), lod)}
        g.case(o, ins, {"box_clip": clip}, {"DecodeBox": dt, "OutputAssignBox": dt}, grad=False, tag=f"{kinds} {clip} {dt}")


@op("sigmoid_focal_loss")
def sigmoid_focal_loss(g, o):
    for count, gamma, alpha, dt in ((3, 2.0, 0.25, "float32"), (0, 1.5, 0.5, "float32"), (5, 2.0, 0.25, "float64")):
        plain_case(g, o, {"X": g.f(6, 4, lo=-3, hi=3, dt=dt), "Label": g.i(6, 1, lo=-1, hi=5, dt="int32"), "FgNum": np.array([count], "int32")}, {"gamma": gamma, "alpha": alpha},
                   {"Out": None}, f"{count} {gamma} {dt}", ("X", "Label", "FgNum"), ("X",))


@op("cudnn_lstm")
def cudnn_lstm(g, o):
    width, size, length, batch = 3, 4, 5, 3
    for layers, both, lengths, flat in ((1, False, None, True), (2, True, None, True), (1, True, [5, 3, 0], False), (2, False, [2, 5, 4], False)):
        directions = 2 if both else 1
        shapes = [s for k in range(layers) for _ in range(directions) for s in ((4 * size, width if k == 0 else directions * size), (4 * size, size))]
        weights = [g.f(*s, lo=-0.5, hi=0.5) for s in shapes] + [g.f(4 * size, lo=-0.5, hi=0.5) for _ in shapes]
        ins = {"Input": g.f(length, batch, width), "InitH": g.f(layers * directions, batch, size), "InitC": g.f(layers * directions, batch, size)}
        ins.update({"W": np.concatenate([w.ravel() for w in weights])} if flat else {"WeightList": weights})
        if lengths:
            ins["SequenceLength"] = np.array(lengths, "int32")
        last = ("last_h", "last_c") if flat else ("LastH", "LastC")
        cudnn_case(g, o, ins, last, {"dropout_prob": 0.0, "is_bidirec": both, "input_size": width, "hidden_size": size, "num_layers": layers, "is_test": False, "seed": 0},
                   f"{layers} {both} {lengths}")


def cudnn_case(g, o, ins, last, attrs, tag):
    slots = ("Input", "InitH", "InitC", "W", "WeightList")
    plain_case(g, o, ins, attrs, {"Out": None, last[0]: None, last[1]: None, "Reserve": None}, tag, (*slots, "SequenceLength", "Out", "Reserve"), slots, ("Out", *last))


@op("conv2d_fusion", "fused_conv2d_add_act")
def conv2d_fusion(g, o):
    for activation, parts, residual, groups, layout in (("relu", [], True, 1, "NCHW"), ("identity", [1, 3], False, 2, "NCHW"), ("sigmoid", [], False, 1, "NHWC"), ("tanh", [2, 2], True, 1, "NHWC"),
                                                        ("relu6", [], False, 1, "NCHW"), ("leaky_relu", [], True, 1, "NCHW"), ("swish", [], False, 4, "NCHW")):
        last = layout == "NHWC"
        ins = {"Input": g.f(2, 6, 7, 4) if last else g.f(2, 4, 6, 7), "Filter": g.f(4, 4 // groups, 3, 3), "Bias": g.f(4)}
        if residual:
            ins["ResidualData"] = g.f(2, 6, 7, 4) if last else g.f(2, 4, 6, 7)
        attrs = {"strides": [1, 1], "paddings": [1, 1], "dilations": [1, 1], "groups": groups, "data_format": layout, "activation": activation, "split_channels": parts, "fuse_alpha": 0.1,
                 "padding_algorithm": "EXPLICIT"}
        plain_case(g, o, ins, attrs, {"Output": None, **({"Outputs": None} if parts else {})}, f"{activation} {parts} {layout}")


@op("fusion_transpose_flatten_concat")
def fusion_transpose_flatten_concat(g, o):
    for axes, flatten, joined, shapes in (([0, 2, 3, 1], 1, 1, ((2, 3, 4, 5), (2, 2, 3, 3))), ([0, 2, 1], 2, 0, ((2, 3, 4), (3, 3, 1))), ([1, 0], 1, 0, ((3, 4), (3, 2), (3, 1))), ([0, 1, 2], 0, 1, ((2, 2, 2), (1, 2, 3)))):
        plain_case(g, o, {"X": [g.f(*s) for s in shapes]}, {"trans_axis": axes, "flatten_axis": flatten, "concat_axis": joined}, {"Out": None}, f"{axes} {flatten} {joined}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    made, functions = Gen(False), {}
    for name, function in TABLE:
        if not args.only or name in args.only.split(","):
            functions.setdefault(name, []).append(function)
    for name, listed in functions.items():
        made.isolated(name, listed)
    size = made.write(args.output)
    for gone in made.skipped:
        print("skipped", gone["op"], gone["tag"], gone["why"])
    print(f"{len(made.store)} ops, {sum(len(c) for c in made.store.values())} cases, {size} bytes")
    return 1 if made.skipped else 0


if __name__ == "__main__":
    sys.exit(main())
