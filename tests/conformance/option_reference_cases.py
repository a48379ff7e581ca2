"""More cases of make_op_references.py: for attributes whose effect no other case shows (tests/options)."""
import numpy as np
from gen_op_goldens import T
from op_reference_cases import op


def truth(shape, places):
    """Zeros with boxes (x, y, w, h) at the given positions."""
    made = np.zeros(shape, "float32")
    for place, box in places.items():
        made[place] = box
    return made


@op("yolov3_loss")
def yolov3_loss(g, o):
    # boxes of the sizes of all three anchors (10x13, 16x30, 33x23 of 96x96), in different cells
    boxes = truth((2, 3, 4), {(0, 0): (0.2, 0.3, 0.1, 0.13), (0, 1): (0.7, 0.6, 0.17, 0.31), (1, 0): (0.45, 0.8, 0.18, 0.3), (1, 2): (0.9, 0.1, 0.34, 0.24)})
    for smooth, scale, more in ((True, 1.0, {}), (False, 1.0, {}), (True, 1.2, {"score": True}), (False, 1.05, {"thresh": 0.05})):
        ins = {"X": g.f(2, 2 * 7, 3, 3), "GTBox": boxes, "GTLabel": g.i(2, 3, hi=2, dt="int32")}
        if "score" in more:
            ins["GTScore"] = g.f(2, 3, lo=0.2, hi=1)
        attrs = {"anchors": [10, 13, 16, 30, 33, 23], "anchor_mask": [0, 1], "class_num": 2, "ignore_thresh": more.get("thresh", 0.5),
                 "downsample_ratio": 32, "use_label_smooth": smooth, "scale_x_y": scale}
        g.case(o, ins, attrs, {"GTMatchMask": "int32"}, grad=["X"], tag=f"matched, {smooth} {scale} {more}", tolerance=(1e-4, 1e-5))


@op("merged_adam")
def merged_adam(g, o):
    for dt in ("float32", "float64"):
        for attrs in ({}, {"beta1": 0.8, "beta2": 0.95, "epsilon": 1e-3}, {"use_global_beta_pow": True}):
            ins = {"Param": [g.f(4, 3, dt=dt), g.f(2, dt=dt)], "Grad": [g.f(4, 3, dt=dt), g.f(2, dt=dt)], "LearningRate": [np.array([0.1], dt), np.array([0.2], dt)],
                   "Moment1": [g.f(4, 3, dt=dt), g.f(2, dt=dt)], "Moment2": [g.f(4, 3, lo=0.1, dt=dt), g.f(2, lo=0.1, dt=dt)],
                   "Beta1Pow": [np.array([0.9], dt), np.array([0.81], dt)], "Beta2Pow": [np.array([0.99], dt), np.array([0.98], dt)]}
            outs = {"ParamOut": (2, dt), "Moment1Out": (2, dt), "Moment2Out": (2, dt), "Beta1PowOut": (2, dt), "Beta2PowOut": (2, dt), "MasterParamOut": None}
            inplace = {slot + "Out": slot for slot in ins if slot not in ("Grad", "LearningRate")}
            g.case(o, ins, {"beta1": 0.9, "beta2": 0.99, "epsilon": 1e-6, "use_global_beta_pow": False, **attrs}, outs, grad=False, inplace=inplace, tag=f"{dt} {attrs}")


@op("coalesce_tensor")
def coalesce_tensor(g, o):
    for dt, number in (("float32", 5), ("float64", 6)):
        for attrs in ({"copy_data": True}, {"set_constant": True, "constant": 1.5}, {"copy_data": True, "use_align": False}, {"copy_data": True, "align_size": 32},
                      {"copy_data": True, "align_size": 20}, {"copy_data": True, "align_size": 6}, {"copy_data": True, "align_size": 64, "user_defined_size_of_dtype": 2},
                      {"set_constant": True, "constant": 1.5, "align_size": 20, "user_defined_size_of_dtype": 4},
                      {"set_constant": True, "constant": 1.5, "align_size": 6, "user_defined_size_of_dtype": 4},
                      {"set_constant": True, "constant": 1.5, "align_size": 32, "user_defined_size_of_dtype": 2}, {"set_constant": True, "constant": 1.5, "use_align": False}):
            g.case(o, {"Input": [g.f(3, 2, dt=dt), g.f(5, dt=dt)]},
                   {"dtype": number, "copy_data": False, "set_constant": False, "constant": 0.0, "persist_output": False, "use_align": True, "align_size": -1, "user_defined_size_of_dtype": -1, **attrs},
                   {"Output": (2, dt), "FusedOutput": dt}, grad=False, tag=f"{dt} {attrs}",
                   # only set_constant sets the gap between the parts; its size must not depend on the element type
                   # (random_shapes.py)
                   drop=() if attrs.get("set_constant") and ("user_defined_size_of_dtype" in attrs or "use_align" in attrs) else ("FusedOutput",))


@op("merge_lod_tensor_infer")
def merge_lod_tensor_infer(g, o):
    mask = np.array([[True], [False], [True]])
    g.case(o, {"X": g.f(3, 2), "Mask": mask, "InTrue": g.f(2, 2), "InFalse": g.f(1, 2)}, {"level": 0}, grad=False, tag="rows")


@op("collect_fpn_proposals")
def collect_fpn_proposals(g, o):
    for top in (4, 5, 9):
        rois = [T(g.f(4, 4), [[0, 2, 4]]), T(g.f(3, 4), [[0, 1, 3]])]
        scores = [T(g.f(4, 1, lo=0), [[0, 2, 4]]), T(g.f(3, 1, lo=0), [[0, 1, 3]])]
        g.case(o, {"MultiLevelRois": rois, "MultiLevelScores": scores}, {"post_nms_topN": top}, {"RoisNum": "int32"}, grad=False, tag=str(top))


@op("average_accumulates")
def average_accumulates(g, o):
    for updates, window, low in ((9, 100, 5), (9, 100, 4), (200, 4, 2), (200, 50, 2)):
        ins = {"param": g.f(3, 2), "in_sum_1": g.f(3, 2), "in_sum_2": g.f(3, 2), "in_sum_3": g.f(3, 2), "in_num_accumulates": np.array([3], "int64"),
               "in_old_num_accumulates": np.array([2], "int64"), "in_num_updates": np.array([updates], "int64")}
        outs = {"out_" + slot[3:]: "int64" if "num" in slot else "float32" for slot in ins if slot != "param"}
        g.case(o, ins, {"average_window": 0.3, "max_average_window": window, "min_average_window": low}, outs, grad=False,
               inplace={slot: "in_" + slot[4:] for slot in outs}, tag=f"{updates} {window} {low}")


@op("ctc_align")
def ctc_align(g, o):
    for value in (0, 7):
        g.case(o, {"Input": g.i(3, 6, hi=3, dt="int32"), "InputLength": np.array([[6], [4], [2]], "int32")}, {"blank": 0, "merge_repeated": True, "padding_value": value},
               {"Output": "int32", "OutputLength": "int32"}, grad=False, tag=f"padded with {value}")


@op("data_norm")
def data_norm(g, o):
    for slot in (-1, 2, 3):
        x = g.f(4, 6)
        x[1, 0] = x[2, 2] = x[0, 3] = 0
        ins = {"X": x, "BatchSize": g.f(6, lo=2, hi=4), "BatchSum": g.f(6), "BatchSquareSum": g.f(6, lo=2, hi=5)}
        g.case(o, ins, {"epsilon": 1e-4, "slot_dim": slot, "data_layout": "NCHW"}, grad=["X"], gout=["Y"], tag=f"slots of {slot}")


@op("density_prior_box")
def density_prior_box(g, o):
    for clip in (True, False):
        g.case(o, {"Input": g.f(1, 2, 3, 3), "Image": g.f(1, 3, 12, 12)},
               {"variances": [0.1, 0.1, 0.2, 0.2], "clip": clip, "fixed_sizes": [8.0, 14.0], "fixed_ratios": [1.0, 2.0], "densities": [2, 1], "step_w": 0.0, "step_h": 0.0, "offset": 0.5},
               grad=False, tag=f"beyond the image, clip {clip}")


@op("dequantize_linear")
def dequantize_linear(g, o):
    for test in (True, False):
        g.case(o, {"X": g.i(2, 3, lo=-100, hi=100).astype("float32"), "Scale": np.array([0.7], "float32"), "ZeroPoint": np.array([0.0], "float32"),
                   "InAccum": np.array([1.5], "float32"), "InState": np.array([2.0], "float32")},
               {"quant_axis": -1, "bit_length": 8, "is_test": test}, {"Y": "float32"}, grad=False, tag=f"test {test}")


@op("distribute_fpn_proposals")
def distribute_fpn_proposals(g, o):
    edge = np.array([[0, 0, 119.6, 119.6], [0, 0, 239.5, 239.5], [0, 0, 30, 30], [5, 5, 300, 300]], "float32")
    for offset in (True, False):
        g.case(o, {"FpnRois": T(edge, [[0, 2, 4]])}, {"min_level": 2, "max_level": 4, "refer_level": 3, "refer_scale": 120, "pixel_offset": offset},
               {"MultiFpnRois": 3, "RestoreIndex": "int32"}, grad=False, tag=f"at the border {offset}")


@op("fake_channel_wise_dequantize_max_abs")
def channel_wise(g, o):
    for columns in (1, 2):
        g.case(o, {"X": g.i(2, 3, 4, lo=-100, hi=100).astype("float32"), "Scales": [g.f((3, 4)[columns - 1] if columns == 2 else 3, lo=0.1, hi=1), np.array([0.8], "float32")]},
               {"quant_bits": [8, 8], "quant_axis": 1, "x_num_col_dims": columns}, grad=False, tag=f"two scales {columns}")


@op("generate_proposals", "generate_proposals_v2")
def generate_proposals(g, o):
    corner = g.f(12, 2, lo=0, hi=20)
    anchors = np.concatenate([corner, corner + g.f(12, 2, lo=4, hi=16)], 1).astype("float32").reshape(3, 2, 2, 4)
    size = {"ImShape": np.array([[40, 36]], "float32")} if o.endswith("2") else {"ImInfo": np.array([[40, 36, 1]], "float32")}
    for pre, small in ((12, 0.1), (5, 0.1), (12, 9.0)):
        attrs = {"pre_nms_topN": pre, "post_nms_topN": 12, "nms_thresh": 0.9, "min_size": small, "eta": 1.0, **({"pixel_offset": True} if o.endswith("2") else {})}
        g.case(o, {"Scores": g.f(1, 2, 3, 2, lo=0), "BboxDeltas": g.f(1, 8, 3, 2, lo=-0.1, hi=0.1), "Anchors": anchors, "Variances": np.full((3, 2, 2, 4), 0.5, "float32"), **size},
               attrs, {"RpnRoisNum": "int32"}, grad=False, tag=f"spread {pre} {small}", tolerance=(1e-4, 1e-4))


@op("matrix_nms")
def matrix_nms(g, o):
    corner = g.f(1, 8, 2, lo=0, hi=5)
    boxes = np.concatenate([corner, corner + g.f(1, 8, 2, lo=3, hi=8)], 2).astype("float32")
    scores = g.f(1, 2, 8, lo=0.1, hi=1)
    for low, post in ((0.05, 0.0), (0.4, 0.0), (0.05, 0.3)):
        g.case(o, {"BBoxes": boxes, "Scores": scores}, {"background_label": -1, "score_threshold": low, "post_threshold": post, "nms_top_k": 8, "keep_top_k": 8, "use_gaussian": False, "gaussian_sigma": 2.0, "normalized": True},
               {"Index": "int32", "RoisNum": "int32"}, grad=False, tag=f"thresholds {low} {post}")


@op("gather")
def gather(g, o):
    for overwrite in (True, False):
        g.case(o, {"X": g.f(4, 3), "Index": np.array([1, 3, 1, 1], "int64")}, {"overwrite": overwrite, "axis": 0}, grad=["X"], tag=f"twice, overwrite {overwrite}")


@op("reduce_any", "reduce_all")
def reduce_bools(g, o):
    for number, dt in ((-1, "bool"), (0, "bool"), (5, "float32"), (3, "int64")):
        g.case(o, {"X": g.b(3, 4)}, {"dim": [1], "keep_dim": False, "reduce_all": False, "in_dtype": -1, "out_dtype": number}, {"Out": dt}, grad=False, tag=f"to {number}")


@op("reduce_sum", "reduce_mean")
def reduce_typed(g, o):
    for given, wanted, dt in ((5, 6, "float64"), (6, -1, "float32"), (5, -1, "float32"), (6, 6, "float64")):
        if o == "reduce_mean" and wanted == 6:
            continue  # the kernel of 2.6.2 does not convert, and the gradient fails
        g.case(o, {"X": g.f(3, 4)}, {"dim": [1], "keep_dim": False, "reduce_all": False, "in_dtype": given, "out_dtype": wanted}, {"Out": dt}, tag=f"in {given} out {wanted}")


@op("fused_elemwise_activation")
def fused_elemwise_activation(g, o):
    for outer in (["elementwise_add", "relu"], ["relu", "elementwise_add"]):
        for saved in (True, False):
            g.case(o, {"X": g.f(2, 3), "Y": g.f(2, 3)}, {"axis": -1, "scale": 0.5, "functor_list": outer, "save_intermediate_out": saved}, {"IntermediateOut": "float32"}, tag=f"{outer} {saved}")


@op("fused_embedding_seq_pool")
def fused_embedding_seq_pool(g, o):
    ids = g.i(6, 1, hi=7)
    for padding in (-1, int(ids[0, 0])):
        for sparse in (False, True):
            g.case(o, {"W": g.f(7, 3), "Ids": T(ids, [[0, 2, 6]])}, {"combiner": "sum", "padding_idx": padding, "is_sparse": sparse, "grad_inplace": False}, grad=["W"], tag=f"{padding} {sparse}")


@op("nce")
def nce(g, o):
    for sampler in (0, 1, 2):
        ins = {"Input": g.f(4, 3), "Label": g.i(4, 1, hi=6), "Weight": g.f(6, 3), "Bias": g.f(6, 1), "SampleWeight": g.f(4, 1, lo=0.2)}
        if sampler == 2:
            ins.update(CustomDistProbs=np.array([0.1, 0.2, 0.1, 0.3, 0.2, 0.1], "float32"), CustomDistAlias=np.arange(6, dtype="int32"), CustomDistAliasProbs=np.ones(6, "float32"))
        g.case(o, ins, {"num_total_classes": 6, "num_neg_samples": 3, "sampler": sampler, "seed": 7, "is_sparse": False, "custom_neg_classes": [0, 4, 5], "remote_prefetch": False},
               {"SampleLogits": "float32", "SampleLabels": "int64"}, grad=["Input", "Weight", "Bias"], gout=["Cost"], tag=f"sampler {sampler}")


@op("fake_quantize_abs_max", "fake_quantize_dequantize_abs_max", "fake_channel_wise_quantize_abs_max", "fake_channel_wise_quantize_dequantize_abs_max")
def ties(g, o):
    x = np.array([[127.0, 2.5, 3.5, -2.5], [-127.0, -3.5, 0.5, 1.5]], "float32")
    for kind in (0, 1):
        g.case(o, {"X": x}, {"bit_length": 8, "round_type": kind, **({"quant_axis": 0} if "channel" in o else {})}, {"OutScale": 1}, grad=False, tag=f"ties, round_type {kind}")


@op("quantize_linear")
def quantize_linear(g, o):
    x = np.array([[127.0, 2.5, 3.5, -2.5], [-127.0, -3.5, 0.5, 1.5]], "float32")
    for test, rate, kind in ((True, 0.9, 0), (True, 0.9, 1), (False, 0.9, 0), (False, 0.5, 0)):
        ins = {"X": x, "Scale": np.array([127.0], "float32"), "ZeroPoint": np.zeros(1, "float32")}
        if not test:
            ins.update(InAccum=np.array([300.0], "float32"), InState=np.array([2.0], "float32"))
        g.case(o, ins, {"quant_axis": -1, "bit_length": 8, "round_type": kind, "is_test": test, "only_observer": False, "moving_rate": rate},
               {"Y": "float32", **({} if test else {"OutState": "float32", "OutAccum": "float32", "OutScale": "float32"})}, grad=False, tag=f"{test} {rate} {kind}")


@op("yolo_box")
def yolo_box(g, o):
    for factor in (0.5, 0.2):
        g.case(o, {"X": g.f(1, 2 * 8, 3, 3), "ImgSize": np.array([[96, 96]], "int32")},
               {"anchors": [10, 13, 16, 30], "class_num": 2, "conf_thresh": 0.1, "downsample_ratio": 32, "clip_bbox": True, "scale_x_y": 1.0, "iou_aware": True, "iou_aware_factor": factor},
               {"Scores": "float32"}, grad=False, tag=f"with IoU {factor}", tolerance=(1e-4, 1e-5))
