"""Intended and harmless differences of random operator cases: why a finding of check_op.py is none.

reason(result) returns the reason, or None. The list is short on purpose: a row names ops, what differs and a condition
on the case. docs/fidelity.md and docs/decisions/0005-reference-differences.md explain them.
"""
import re

import numpy as np

LARGE = 1e29


def arrays(result):
    return {m: a for m, a in result["record"]["arrays"].items() if m.startswith("in/")}


def note(pattern):
    """A change of the case matches."""
    return lambda r: re.search(pattern, "; ".join(r["notes"])) is not None


def attr(name, test):
    return lambda r: name in r["record"]["meta"]["attrs_set"] and test(r["record"]["meta"]["attrs_set"][name])


def ties(r):
    """An input has equal numbers, so that an order among them is free."""
    return any(np.unique(a).size < a.size for a in arrays(r).values()) or attr("sorted", lambda v: not v)(r)


def extreme(r):
    """An input or result is NaN, infinite or huge."""
    return any(a.dtype.kind == "f" and a.size and not (np.abs(a.astype("f8")) < LARGE).all() for a in r["record"]["arrays"].values())


def stays_nan(r):
    """Ours has NaN where the original has a number, or infinity at a pole."""
    return extreme(r) and re.search(r": nan, expected|: -?inf, expected nan", r["text"]) is not None


def overflows(r):
    """Inputs are huge or infinite, but not NaN, and the original has NaN."""
    return extreme(r) and not any(a.dtype.kind == "f" and np.isnan(a.astype("f8")).any() for a in arrays(r).values()) and "expected nan" in r["text"]


def half(r):
    return any(e["dtype"] in ("bfloat16", "float16") for e in r["record"]["meta"]["expects"])


def blank_label(r):
    labels = [a for m, a in arrays(r).items() if m.startswith("in/Label/")]
    return any((a == r["record"]["meta"]["attrs_set"].get("blank", 0)).any() for a in labels)


def without(slot):
    return lambda r: not r["record"]["meta"]["inputs"].get(slot)


def shifted(r):
    """X and Y have different ranks, and axis is given."""
    ranks = {a.ndim for a in arrays(r).values()}
    return len(ranks) > 1 and attr("axis", lambda v: v >= 0)(r)


def without_output(slot):
    return lambda r: not r["record"]["meta"]["outputs"].get(slot)


def always(_):
    return True


# (ops, kinds of findings, condition, reason)
KNOWN = [
    ("relu6|hard_swish|swish", ".*", note(r"threshold|scale|offset|beta"), "2.6.2 ignores attributes that older releases obey"),
    ("reduce_.*|frobenius_norm", "dtype", note("out_dtype"), "2.6.2 ignores out_dtype"),
    ("top_k|top_k_v2|kthvalue|argsort|arg_max|arg_min|collect_fpn_proposals|similarity_focus|generate_proposals.*|.*nms.*|mine_hard_examples", "value|gradient", ties,
     "the original's order of equal numbers depends on its sort"),
    ("gather", "gradient", always, "the original's gradient along another axis than 0 is wrong"),
    ("matmul", "gradient", attr("head_number", lambda v: v > 1), "the original's gradient has no heads"),
    ("dist|p_norm", "gradient", lambda r: attr("p", lambda v: v < 1)(r) or attr("porder", lambda v: v < 1)(r) or extreme(r), "the original limits powers of the norm"),
    ("depthwise_conv2d_transpose", "gradient", attr("data_format", lambda v: v == "NHWC"), "the original's gradients are those of other positions"),
    ("elementwise_(max|min|pow)", "gradient", shifted, "2.6.2's gradients align the last dims, whatever axis says"),
    ("elementwise_f(max|min)", "value|gradient", shifted, "2.6.2 aligns the last dims, whatever axis says"),
    ("softmax_with_cross_entropy", "value", lambda r: "expected 6" in r["text"] and "Loss" in r["text"], "the original clips exponents at -64, so losses are 64 at most"),
    (".*_interp(_v2)?", "value", lambda r: all(e["dtype"] in ("uint8", "int32", "int64") for e in r["record"]["meta"]["expects"]), "whole numbers are cut off after rounding"),
    ("warpctc", "value", lambda r: "0.0, expected inf" in r["text"], "no label in no frame is certain; the original has infinity"),
    ("unique", "shape", lambda r: any(a.ndim == 0 for a in arrays(r).values()), "the number of a tensor without dims has an index of dims [1]"),
    ("matrix_nms", "lod", without_output("RoisNum"), "without RoisNum, only the LoD says which image a box belongs to; 2.6.2 has dropped it"),
    ("fake_quantize_(dequantize_)?(range|moving_average)_abs_max", "lod", lambda r: re.fullmatch(r"\w+_InScale0: lod .*", r["text"]) is not None,
     "a scale has no sequences"),
    ("shuffle_batch", "lod", lambda r: re.fullmatch(r"\w+_SeedOut0: lod .*", r["text"]) is not None, "a seed has no sequences"),
    ("collect_fpn_proposals", "lod", without_output("RoisNum"), "the original leaves out images of which no box is kept"),
    ("fusion_gru", "value", note("origin_mode"), "2.6.2 ignores origin_mode"),
    ("momentum", "value", note("rescale_grad"), "2.6.2 ignores rescale_grad"),
    ("slice", "value|shape", attr("axes", lambda v: min(v, default=0) < 0), "the original takes negative axes for none"),
    ("lamb|adam|adamw|momentum", "value", lambda r: re.fullmatch(r"\w+_MasterParamOut0: not fetched", r["text"]) is not None, "the original leaves it unset without multi_precision"),
    ("check_finite_and_unscale", "value", extreme, "the original scales those tensors that are before the first infinite number"),
    ("rnn", "gradient", lambda r: r["record"]["meta"]["inputs"].get("SequenceLength") and all("WeightList" in part for part in r["text"].split("; ")),
     "the original's gradient of backward weights ignores where sequences end"),
    (".*", "value", lambda r: extreme(r) and "rows in other order and values differ" in r["text"], "rows with NaN equal no rows"),
    ("histogram", "lod", always, "the counts of bins are no rows of sequences"),
    ("maxout", "value|gradient", extreme, "which of NaN and a number is the largest depends on the order"),
    ("batch_norm", "value|gradient", without("Scale"), "the original takes Bias for a missing Scale"),
    ("expand_as_v2", "gradient", always, "the original reads the sizes from target_shape"),
    ("equal|not_equal|less_than|less_equal|greater_than|greater_equal", "value", note("axis ="), "axis has no effect among equal ranks; the original writes past its dims"),
    ("sequence_conv", "gradient", note("contextStart|contextLength|extents"), "windows outside of all sequences leave the original's columns unset"),
    ("warpctc", ".*", blank_label, "labels must not be blank"),
    ("pool[23]d|max_pool.*", ".*", note("data_format|ksize"), "the original reads attributes of another rank"),
    ("moving_average_abs_max_scale|fake_quantize.*|update_loss_scaling|average_accumulates", "shape", note("has shape"), "states keep their shape"),
    ("fusion_seqpool.*", "value", note("extents|lod"), "the original leaves rows of empty sequences unset"),
    ("detection_map", "value", always, "states of true and false positives have the same scores"),
    ("momentum|rmsprop", "value", lambda r: any(e["kind"] == "selected_rows" for e in r["record"]["meta"]["feeds"]), "the original misses rows that are not in order"),
    ("split", ".*", attr("axis", lambda v: v < 0), "the original splits flat memory for a negative axis"),
    ("dpsgd|bernoulli", "value", always, "adds noise"),
    ("tdm_child", "value", always, "row 0 of a tree is empty"),
    ("ctc_align", "lod", always, "outer levels stay"),
    ("celu", "gradient", note("alpha = 0"), "alpha must not be 0"),
    ("norm|logsumexp", "value", extreme, "infinity divided by infinity"),
    ("ctc_align", "shape", lambda r: "expected (1, 1)" in r["text"], "the original has a row -1 if no label is left"),
    ("sigmoid_cross_entropy_with_logits", "value|gradient", note("ignore_index"), "2.6.2 cuts off fractions of labels"),
    (".*", "value", overflows, "infinity divided by infinity or multiplied by 0"),
    (".*", "value|gradient", half, "sums of rounded numbers"),
    (".*", "value|gradient", stays_nan, "NaN stays NaN"),
    (".*", "gradient", extreme, "derivatives at infinity and of NaN are not defined"),
    (".*", "lod", lambda r: "(gradient)" in r["text"] and "value" not in r["text"], "the LoD of gradients is that of the forward value"),
]


def reason(result):
    for ops, kinds, condition, why in KNOWN:
        if re.fullmatch(ops, result["op"]) and re.fullmatch(kinds, result["kind"]) and condition(result):
            return why
    return None
