"""Programs of one op each for attributes.py, for attributes whose effect no reference case shows.

CASES[op] = [Made, ...]. Results are only compared with each other, so they are not stored; the original cannot run most
of these ops, nor those that only millrace has. Their expected results are tested in tests/kernels.
"""
import numpy as np

import program_bytes as form

CASES = {}
NUMBERS = {"bool": 0, "int32": 2, "int64": 3, "float16": 4, "float32": 5, "float64": 6, "uint8": 20, "int8": 21}


class Lod:
    """A tensor with offsets of sequences, one list per level."""

    def __init__(self, array, *levels):
        self.array, self.levels = array, [[0, *np.cumsum(level).tolist()] for level in levels]


class Rows:
    """SelectedRows."""

    def __init__(self, rows, array, height):
        self.rows, self.array, self.height = rows, array, height


class Array:
    """A list of tensors as one var."""

    def __init__(self, *items):
        self.items, self.array = items, items[0]


class Constant:
    """A tensor that the program fills: a fed one would be split over the devices."""

    def __init__(self, value, *shape):
        self.value, self.shape, self.array = value, shape, np.zeros(shape, "float32")


def described(value):
    """(kind, element type, dims, LoD levels) of a var."""
    array = value if isinstance(value, np.ndarray) else value.array
    kind = form.SELECTED_ROWS if isinstance(value, Rows) else form.LOD_TENSOR_ARRAY if isinstance(value, Array) else form.LOD_TENSOR
    dims = [value.height, *array.shape[1:]] if isinstance(value, Rows) else list(array.shape)
    return kind, NUMBERS[str(array.dtype)], dims, len(value.levels) if isinstance(value, Lod) else 0


def members(name, value):
    """The members of the feed for a var."""
    if isinstance(value, np.ndarray):
        return {name: value}
    if isinstance(value, Array):
        return {name + ".length": np.array(len(value.items)), **{f"{name}.{k}": item for k, item in enumerate(value.items)}}
    if isinstance(value, Rows):
        return {name: value.array, name + ".rows": np.array(value.rows, "int64"), name + ".height": np.array(value.height, "int64")}
    return {name: value.array, **{f"{name}.lod{k}": np.array(level, "int64") for k, level in enumerate(value.levels)}}


class Made:
    """One op and, if `grad` is given, its gradient op.

    inputs: slot -> value or list of them; attrs: name -> value, or (kind, value) if the kind cannot be derived from the value;
    outputs: slot -> element type, "=Slot" for the vars of an input, (type, count) for several, or an initial value;
    grad: (inputs whose gradients are fetched, {output: shape of its gradient, which is fed}), as SelectedRows with `sparse`;
    hidden: outputs that are not fetched; also: inputs that are fetched after the run.
    """

    def __init__(self, name, op, inputs, attrs, outputs, grad=None, sparse=False, hidden=(), also=()):
        self.name, self.op, self.attrs, self.outputs = name, op, attrs, outputs
        self.inputs = {slot: value if isinstance(value, list) else [value] for slot, value in inputs.items()}
        self.grad, self.sparse, self.hidden, self.also = grad, sparse, hidden, also

    def build(self):
        """(program, members of the feed, names to fetch)"""
        variables, feed, fetch, ins, outs, ops = {}, {}, [], {}, {}, []
        for slot, values in self.inputs.items():
            ins[slot] = [f"{slot}_{k}" for k in range(len(values))]
            for name, value in zip(ins[slot], values):
                variables[name] = described(value)
                if isinstance(value, Constant):
                    filled = {"shape": ("longs", list(value.shape)), "value": value.value, "dtype": NUMBERS["float32"]}
                    ops.append(form.encode_op("fill_constant", {}, {"Out": [name]}, filled))
                else:
                    feed.update(members(name, value))
        for slot, what in self.outputs.items():
            if isinstance(what, str) and what.startswith("="):
                outs[slot] = ins[what[1:]]
            elif isinstance(what, np.ndarray):
                outs[slot] = [slot + "_0"]
                variables[slot + "_0"], feed[slot + "_0"] = described(what), what
            else:
                dtype, count = what if isinstance(what, tuple) else (what, 1)
                outs[slot] = [f"{slot}_{k}" for k in range(count)]
                variables.update({name: (form.LOD_TENSOR, NUMBERS[dtype], [-1], 0) for name in outs[slot]})
            if slot not in self.hidden:
                fetch += outs[slot]
        ops.append(form.encode_op(self.op, ins, outs, self.attrs))
        if self.grad:
            ops.append(self.gradient(variables, feed, fetch, {**ins, **outs}))
        fetch += [name for slot in self.also for name in ins[slot]]
        return form.encode_program(variables, ops), feed, fetch

    def gradient(self, variables, feed, fetch, taken):
        slots, outer = self.grad
        rng = np.random.default_rng(5)
        for slot, shape in outer.items():
            names = [name + "@GRAD" for name in taken[slot]]
            dtype = self.outputs[slot][0] if isinstance(self.outputs[slot], tuple) else self.outputs[slot]
            for name in names:
                variables[name] = (form.LOD_TENSOR, NUMBERS[dtype], list(shape), 0)
                feed[name] = rng.uniform(-1, 1, shape).astype(dtype)
            taken[slot + "@GRAD"] = names
        given = {}
        for slot in slots:
            given[slot + "@GRAD"] = [f"{slot}_{k}@GRAD" for k in range(len(self.inputs[slot]))]
            for name, value in zip(given[slot + "@GRAD"], self.inputs[slot]):
                kind, *rest = described(value)
                variables[name] = (form.SELECTED_ROWS if self.sparse else kind, *rest)
                fetch.append(name)
        return form.encode_op(self.op + "_grad", taken, given, self.attrs)


DRAWS = [np.random.default_rng(17)]


def made(name, op, *args, **more):
    CASES.setdefault(op, []).append(Made(name, op, *args, **more))
    DRAWS[0] = np.random.default_rng(17)  # so that no case depends on earlier ones


def f(*shape, lo=-1.0, hi=1.0, dt="float32"):
    return DRAWS[0].uniform(lo, hi, shape).astype(dt)


def plain(op, grad):
    """A case of an op X -> Out with default attributes."""
    return Made("plain", op, {"X": np.random.default_rng(17).uniform(-1, 1, (2, 3)).astype("float32")}, {}, {"Out": "float32"},
                (["X"], {"Out": (2, 3)}) if grad else None)


def i(*shape, lo=0, hi=10, dt="int64"):
    return DRAWS[0].integers(lo, hi, shape).astype(dt)


def one(value, dt="float32"):
    return np.array([value], dt)


def updates():
    """Optimizers with parameters of half precision and their copies of full precision."""
    half = {"Param": f(4, 3, dt="float16"), "Grad": f(4, 3, dt="float16"), "LearningRate": one(0.1)}
    powers = {"Beta1Pow": one(0.9), "Beta2Pow": one(0.99)}
    states = {"sgd": {}, "adadelta": {"AvgSquaredGrad": 0, "AvgSquaredUpdate": 0}, "adagrad": {"Moment": 0},
              "adam": {"Moment1": 0, "Moment2": 0}, "adamw": {"Moment1": 0, "Moment2": 0}, "adamax": {"Moment": 0, "InfNorm": 0},
              "lars_momentum": {"Velocity": 0}, "momentum": {"Velocity": 0},
              "rmsprop": {"MeanSquare": 0, "MeanGrad": 0, "Moment": 0}, "merged_momentum": {"Velocity": 0}, "merged_sgd": {},
              "merged_adam": {"Moment1": 0, "Moment2": 0}}
    for op, kept in states.items():
        ins = {**half, **{slot: f(4, 3, lo=0.1) for slot in kept}, "MasterParam": f(4, 3)}
        if "adam" in op:
            ins.update({slot: value for slot, value in powers.items() if op != "adamax" or slot == "Beta1Pow"})
        outs = {slot + "Out": "=" + slot for slot in ins if slot not in ("Grad", "LearningRate")}
        if op == "adamax":
            del outs["Beta1PowOut"]
        attrs = {"multi_precision": True, "mu": 0.9} if "momentum" in op else {"multi_precision": True}
        made("half", op, ins, attrs, outs)


updates()

sparse = {"Param": f(5, 3), "Grad": Rows([4, 1], f(2, 3), 5), "LearningRate": one(0.1), "Moment1": f(5, 3), "Moment2": f(5, 3, lo=0.1),
          "Beta1Pow": one(0.9), "Beta2Pow": one(0.99)}
made("sparse", "adamw", sparse, {}, {slot + "Out": "=" + slot for slot in sparse if slot not in ("Grad", "LearningRate")})

made("two", "coalesce_tensor", {"Input": [f(3, 2), f(5)]}, {"copy_data": True}, {"Output": ("float32", 2), "FusedOutput": "float32"})

made("plain", "center_loss", {"X": f(4, 3), "Label": i(4, 1, hi=5), "Centers": f(5, 3), "CenterUpdateRate": one(0.1)},
     {"cluster_num": 5, "need_update": True}, {"SampleCenterDiff": "float32", "Loss": "float32", "CentersOut": "=Centers"},
     (["X"], {"Loss": (4, 1)}))

made("levels", "collect_fpn_proposals",
     {"MultiLevelRois": [Lod(f(4, 4), [2, 2]), Lod(f(3, 4), [1, 2])], "MultiLevelScores": [Lod(f(4, 1), [2, 2]), Lod(f(3, 1), [1, 2])]},
     {"post_nms_topN": 4}, {"FpnRois": "float32"})

lstm = {"Input": f(5, 2, 4), "InitH": f(1, 2, 3), "InitC": f(1, 2, 3), "W": f(3 * 4 * (4 + 3) + 2 * 3 * 4)}
made("dropout", "cudnn_lstm", {**lstm, "InitH": f(2, 2, 3), "InitC": f(2, 2, 3), "W": f(3 * 4 * (4 + 3) + 3 * 4 * 6 + 4 * 3 * 4)},
     {"dropout_prob": 0.5, "is_bidirec": False, "input_size": 4, "hidden_size": 3, "num_layers": 2, "seed": 3, "fix_seed": True},
     {"Reserve": "uint8", "StateOut": "uint8", "Out": "float32", "LastH": "float32", "LastC": "float32"},
     (["Input", "W"], {"Out": (5, 2, 3)}), hidden=("Reserve", "StateOut"))

made("steps", "dgc", {"U": f(8), "V": f(8), "Grad": f(8), "Param": f(8), "current_step": one(12), "nranks": one(2)},
     {"m": 0.5, "sparsity": [0.75, 0.5, 0.25], "rampup_begin_step": 8.0, "rampup_step": 9.0, "regular_type": 2, "regular_coeff": 0.5},
     {slot: "float32" for slot in ("U_out", "V_out", "EncodeGrad", "Grad_out", "k", "GatherBuff")})
made("step", "dgc_clip_by_norm", {"X": f(8), "current_step": one(12)}, {"max_norm": 0.5, "rampup_begin_step": 8.0}, {"Out": "float32"})

made("two steps", "elementwise_chain", {"X": [f(5), f(5)]}, {"steps": ["tanh X=x0 -> Out=t", "elementwise_add X=t Y=x1 -> Out=t"]},
     {"Out": "float32"})
made("stretched", "elementwise_add", {"X": f(2, 1), "Y": f(2, 3)}, {}, {"Out": "float32"})

made("six", "fill", {}, {"value": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], "shape": [2, 3]}, {"Out": "float32"})

tags = {"Ins": Lod(f(4, 2), [1, 2, 1]), "Ins_tag": Lod(i(4, 1, hi=4), [1, 1, 2])}
instag = {"Out": "float32", "LossWeight": "float32", "IndexMap": "int64"}
made("sequences", "filter_by_instag", {**tags, "Filter_tag": np.arange(4)}, {}, instag, (["Ins"], {"Out": (4, 2)}))
made("nothing", "filter_by_instag", {**tags, "Filter_tag": one(9, "int64")}, {}, instag, (["Ins"], {"Out": (1, 2)}))

for op, attrs in (("flatten", {"axis": 1}), ("squeeze", {"axes": [0]}), ("unsqueeze", {"axes": [0]})):
    shape = {"flatten": (1, 6), "squeeze": (2, 1, 3), "unsqueeze": (1, 1, 2, 1, 3)}[op]
    made("plain", op, {"X": f(1, 2, 1, 3)}, attrs, {"Out": "float32"}, (["X"], {"Out": shape}))

norm = {"X": f(3, 4, 2, 2), "Scale": f(4), "Bias": f(4), "Mean": f(4), "Variance": f(4, lo=0.5)}
normed = {"Y": "float32", "MeanOut": "=Mean", "VarianceOut": "=Variance", "SavedMean": "float32", "SavedVariance": "float32"}
for op in ("fused_batch_norm", "inplace_abn", "sync_batch_norm"):
    ins = {**norm, "X": f(3, 4, 2, 4)}  # in both layouts
    more = {"activation": "leaky_relu"} if op == "inplace_abn" else {}
    shape = (["X", "Scale", "Bias"], {"Y": (3, 4, 2, 4)})
    made("training", op, ins, {"momentum": 0.8, "epsilon": 1e-3, **more}, normed, shape, hidden=("SavedMean", "SavedVariance"))
    made("test", op, ins, {"momentum": 0.8, "epsilon": 1e-3, "is_test": True, **more}, normed, shape, hidden=("SavedMean", "SavedVariance"))
constants = {"Scale": Constant(1.5, 4), "Bias": Constant(0.5, 4), "Mean": Constant(0.0, 4), "Variance": Constant(1.0, 4)}
made("devices", "inplace_abn", {"X": f(4, 4, 2, 2), **constants}, {}, normed, hidden=("SavedMean", "SavedVariance", "MeanOut", "VarianceOut"))
constants = {"BatchSize": Constant(3.0, 4), "BatchSum": Constant(0.5, 4), "BatchSquareSum": Constant(4.0, 4)}
made("devices", "data_norm", {"X": f(4, 4), **constants}, {}, {"Y": "float32", "Means": "float32", "Scales": "float32"}, hidden=("Means", "Scales"))
shows = np.where(np.arange(24).reshape(4, 6) % 5 == 0, 0, f(4, 6)).astype("float32")
made("shows", "data_norm", {"X": shows, "BatchSize": f(6, lo=2, hi=4), "BatchSum": f(6), "BatchSquareSum": f(6, lo=2, hi=5), "scale_w": f(6), "bias": f(6)},
     {"slot_dim": 2, "enable_scale_and_shift": True, "summary_decay_rate": 0.9}, {"Y": "float32", "Means": "float32", "Scales": "float32"},
     (["X", "scale_w", "bias", "BatchSize", "BatchSum", "BatchSquareSum"], {"Y": (4, 6)}), hidden=("Means", "Scales"))

made("two groups", "fused_conv2d", {"Input": f(2, 4, 5, 4), "Filter": f(4, 2, 2, 2), "Bias": f(4)},
     {"groups": 2, "activation": "leaky_relu", "alpha": 0.3, "paddings": [1, 0]}, {"Output": "float32"})
made("bounded", "fused_conv2d", {"Input": f(2, 4, 5, 4), "Filter": f(4, 4, 2, 2), "ResidualData": f(2, 4, 4, 3)},
     {"fuse_activation": "relu6", "fuse_beta": 0.5}, {"Output": "float32"})
made("images in sequences", "fused_conv2d", {"Input": f(2, 4, 5, 4), "Filter": f(4, 4, 2, 2), "ResidualData": Lod(f(2, 4, 4, 3), [1, 1])}, {},
     {"Output": "float32"})
made("images in sequences", "fused_batch_norm", {**norm, "Z": Lod(f(3, 4, 2, 2), [1, 2])}, {}, normed, hidden=("SavedMean", "SavedVariance"))
made("normed", "fused_conv2d", {"Input": f(2, 4, 5, 4), "Filter": f(4, 4, 2, 2), "Scale": f(4), "Shift": f(4), "Mean": f(4), "Variance": f(4, lo=0.5)},
     {"epsilon": 1e-3}, {"Output": "float32"}, also=("Filter",))

ids = Lod(i(6, 1, hi=7), [2, 0, 4])
made("dense", "fused_embedding_seq_pool", {"W": f(7, 3), "Ids": ids}, {"combiner": "sum", "padding_idx": ("long", int(ids.array[0, 0]))},
     {"Out": "float32"}, (["W"], {"Out": (3, 3)}))
made("dense", "fused_embedding_seq_pool_concat", {"W": [f(7, 3), f(7, 3)], "Ids": [ids, ids], "X": [f(3, 2)]},
     {"combiner": "sum", "parts": [1, 0, 1], "padding_idx": ("long", int(ids.array[0, 0]))}, {"Out": "float32"},
     (["W", "X"], {"Out": (3, 8)}))

made("small", "gaussian_random_batch_size_like", {"Input": f(3, 4)}, {"shape": [5, 6], "seed": 7}, {"Out": "float32"})
made("square", "uniform_random", {}, {"shape": ("longs", [4, 4]), "seed": 7, "diag_num": 3, "diag_step": 5}, {"Out": "float32"})
made("square", "uniform_random_batch_size_like", {"Input": f(4, 4)}, {"shape": [4, 4], "seed": 7, "diag_num": 3, "diag_step": 5}, {"Out": "float32"})

made("rows", "lookup_sparse_table", {"W": Rows([2, 4, 7], f(3, 2), 10), "Ids": np.array([[2], [7], [4]])}, {}, {"Out": "float32"})

made("plain", "lstm_unit", {"X": f(2, 12), "C_prev": f(2, 3)}, {}, {"C": "float32", "H": "float32"},
     (["X", "C_prev"], {"C": (2, 3), "H": (2, 3)}))
for name, attrs in (("peepholes", {}), ("clipped", {"cell_clip": 0.2, "proj_clip": 0.1})):
    made(name, "lstmp", {"Input": Lod(f(5, 12), [3, 2]), "Weight": f(2, 12), "ProjWeight": f(3, 2), "Bias": f(1, 21)}, attrs,
         {slot: "float32" for slot in ("Projection", "Cell", "BatchGate", "BatchCellPreAct", "BatchHidden")},
         (["Input", "Weight", "ProjWeight", "Bias"], {"Projection": (5, 2)}), hidden=("BatchGate", "BatchCellPreAct", "BatchHidden"))

made("plain", "margin_rank_loss", {"Label": np.sign(f(5, 1)), "X1": f(5, 1), "X2": f(5, 1)}, {"margin": 0.1},
     {"Activated": "float32", "Out": "float32"}, (["X1", "X2"], {"Out": (5, 1)}))
made("plain", "mean_iou", {"Predictions": i(8, hi=3, dt="int32"), "Labels": i(8, hi=3, dt="int32")}, {"num_classes": 3},
     {"OutMeanIou": "float32", "OutWrong": "int32", "OutCorrect": "int32"})
halves = {"X": Lod(f(5, 2), [1, 2], [2, 1, 2]), "Mask": np.array([[True], [False]]), "InTrue": Lod(f(2, 2), [1], [2]), "InFalse": Lod(f(3, 2), [2], [1, 2])}
made("two levels", "merge_lod_tensor_infer", halves, {"level": 0}, {"Out": "float32"})
made("two heads", "multi_head_attention", {"Q": f(2, 3, 4), "K": f(2, 3, 4), "V": f(2, 3, 4)}, {"heads": 2, "scale": 0.5},
     {"Out": "float32", "Probs": "float32"}, (["Q", "K", "V"], {"Out": (2, 3, 4)}), hidden=("Probs",))

made("drawn", "nce", {"Input": f(4, 3), "Label": i(4, 1, hi=6), "Weight": f(6, 3), "Bias": f(6, 1)},
     {"num_total_classes": 6, "num_neg_samples": 3, "seed": 7}, {"Cost": "float32", "SampleLogits": "float32", "SampleLabels": "int64"},
     (["Input", "Weight", "Bias"], {"Cost": (4, 1)}))

made("fetched", "nce", {"Input": f(4, 3), "Label": i(4, 1, hi=6), "Rows": f(4, 4, 3), "Classes": i(4, 4, hi=6), "Bias": f(6, 1)},
     {"num_total_classes": 6, "num_neg_samples": 3, "height_sections": [4, 2]}, {"Cost": "float32", "SampleLogits": "float32", "SampleLabels": "int64"})
made("drawn", "sample_classes", {"Label": i(4, 1, hi=6)}, {"num_total_classes": 6, "num_neg_samples": 3, "seed": 7}, {"SampleLabels": "int64"})
made("fetched", "hierarchical_sigmoid", {"X": f(4, 3), "Label": i(4, 1, hi=6), "Rows": f(4, 3, 3), "Nodes": i(4, 3, hi=5), "Bias": f(5, 1)},
     {"num_classes": 6, "height_sections": [5]}, {"Out": "float32", "PreOut": "float32"})
made("plain", "tree_nodes", {"Label": i(4, 1, hi=6)}, {"num_classes": 6}, {"Nodes": "int64"})

made("beyond", "one_hot", {"X": np.array([[1], [9]])}, {"depth": 4, "allow_out_of_range": True}, {"Out": "float32"})
made("within", "one_hot", {"X": np.array([[1], [2]])}, {"depth": 4}, {"Out": "float32"})
made("beyond", "one_hot_v2", {"X": np.array([[1], [9]])}, {"depth": 4, "allow_out_of_range": True}, {"Out": "float32"})

made("constant", "pad2d", {"X": f(2, 3, 4, 3)}, {"paddings": [1, 1, 2, 0], "pad_value": 0.5}, {"Out": "float32"},
     (["X"], {"Out": (2, 3, 6, 5)}))
made("plain", "pad_constant_like", {"X": f(4, 5), "Y": f(2, 3)}, {"pad_value": 0.5}, {"Out": "float32"}, (["Y"], {"Out": (4, 5)}))
made("plain", "proximal_adagrad", {"Param": f(4), "Grad": f(4), "LearningRate": one(0.1), "Moment": f(4, lo=0.1)}, {"l1": 0.1, "l2": 0.1},
     {"ParamOut": "=Param", "MomentOut": "=Moment"})
made("boxes", "prroi_pool", {"X": f(1, 2, 6, 6), "ROIs": Lod(np.array([[0.5, 0.7, 3.2, 4.1], [1, 1, 5, 4]], "float32"), [2])},
     {"pooled_height": 2, "pooled_width": 3, "spatial_scale": 0.9}, {"Out": "float32"}, (["X"], {"Out": (2, 2, 2, 3)}))


def bloom(*words):
    """A filter of 96 bits and one hash function, as a tensor of floats."""
    return np.frombuffer(np.array([17070416, 96, 1, 5], "uint64").tobytes() + bytes(words), "float32").reshape(11, 1).copy()


for op in ("pyramid_hash", "search_pyramid_hash"):
    tokens = Lod(np.array([[5], [9], [3], [4], [7], [1], [2], [2]], "int32"), [4, 1, 3])
    attrs = {"num_emb": 4, "space_len": 20, "pyramid_layer": 3, "rand_len": 2, "drop_out_percent": 0.5, "is_training": 1, "seed": 7, "lr": 0.1}
    outs = {"Out": "float32", "DropPos": "int32"}
    for name, more, given in (("drops", {}, {}), ("white", {"white_list_len": 11}, {"WhiteList": bloom(*[0x5A] * 12)}),
                              ("black", {"black_list_len": 11}, {"BlackList": bloom(*[0xFF] * 12)})):
        made(name, op, {"X": tokens, "W": f(22, 1), **given}, {**attrs, **more}, outs)
    # 5, none and 3 n-grams; the gradient op updates W
    made("updates", op, {"X": tokens, "W": f(22, 1)}, {**attrs, "is_training": 0}, outs, ([], {"Out": (9, 4)}), also=("W",))

made("window", "random_crop", {"X": f(2, 6, 6), "Seed": one(3, "int64")}, {"shape": [3, 3]}, {"Out": "float32", "SeedOut": "int64"})
made("plain", "rnn_memory_helper", {"X": f(2, 3)}, {}, {"Out": "float32"}, (["X"], {"Out": (2, 3)}))
made("no gradient", "rnn_memory_helper", {"X": f(2, 3)}, {}, {"Out": "float32"}, (["X"], {}))
made("drawn", "sample_logits", {"Logits": f(4, 9), "Labels": i(4, 2, hi=9)}, {"num_samples": 3, "seed": 7},
     {"Samples": "int64", "Probabilities": "float32", "LogitsDim": "float32", "LabelsDim": "int64", "SampledLogits": "float32", "SampledLabels": "int64"},
     hidden=("LogitsDim", "LabelsDim"))  # only the shapes matter
made("two channels", "sequence_topk_avg_pooling", {"X": Lod(f(12, 1), [12]), "ROW": Lod(f(2, 1), [2]), "COLUMN": Lod(f(3, 1), [3])},
     {"topks": [1, 2], "channel_num": 2}, {"Out": "float32", "pos": "int32"}, (["X"], {"Out": (2, 4)}))
made("drawn", "shuffle_batch", {"X": f(8, 2)}, {"startup_seed": 7}, {"Out": "float32", "ShuffleIdx": "int64", "SeedOut": "int64"})
made("plain", "smooth_l1_loss", {"X": f(4, 3, lo=-2, hi=2), "Y": f(4, 3)}, {"sigma": 1.5}, {"Diff": "float32", "Out": "float32"},
     (["X", "Y"], {"Out": (4, 1)}))
made("by number", "split_byref", {"X": f(6, 2)}, {"num": 2}, {"Out": ("float32", 2)})
made("by sections", "split_byref", {"X": f(6, 2)}, {"sections": [2, 4]}, {"Out": ("float32", 2)})
made("matched", "target_assign", {"X": Lod(f(3, 2, 4), [3]), "MatchIndices": np.array([[0, -1]], "int32")}, {"mismatch_value": 1},
     {"Out": "float32", "OutWeight": "float32"})
made("tree", "tdm_sampler", {"X": i(8, 1, hi=3), "Travel": np.array([[1, 3], [2, 6], [2, 0]]), "Layer": np.arange(1, 7).reshape(6, 1)},
     {"neg_samples_num_list": [1, 2], "layer_offset_lod": [0, 2, 6], "seed": 7, "dtype": 3}, {"Out": "int64", "Labels": "int64", "Mask": "int64"})
edges = np.array([[[1, 2], [1, 3], [3, 4], [4, 5]]], "int32")
made("deep", "tree_conv", {"NodesVector": f(1, 5, 2), "EdgeSet": edges, "Filter": f(2, 3, 2, 2)}, {"max_depth": 3}, {"Out": "float32"},
     (["NodesVector", "Filter"], {"Out": (1, 5, 2, 2)}))

made("steps", "spectral_norm", {"Weight": f(3, 3), "U": f(3), "V": f(3)}, {"dim": 0, "power_iters": 1, "eps": 0.1}, {"Out": "float32"},
     (["Weight"], {"Out": (3, 3)}))
made("joined", "tensor_array_to_tensor", {"X": Array(f(2, 2), f(2, 2))}, {"axis": 0}, {"Out": "float32", "OutIndex": "int32"}, (["X"], {"Out": (4, 2)}))
made("stacked", "tensor_array_to_tensor", {"X": Array(f(2, 2), f(2, 2))}, {"axis": 0, "use_stack": True}, {"Out": "float32", "OutIndex": "int32"},
     (["X"], {"Out": (2, 2, 2)}))
layers = [f(12, 4), f(12, 3), f(12, 3), f(12, 3)] + [f(12) for _ in range(4)]
made("dropout", "rnn", {"Input": f(5, 2, 4), "PreState": [f(2, 2, 3), f(2, 2, 3)], "WeightList": layers},
     {"dropout_prob": 0.5, "is_bidirec": False, "input_size": 4, "hidden_size": 3, "num_layers": 2, "mode": "LSTM", "seed": 3, "is_test": False},
     {"Out": "float32", "State": ("float32", 2), "Reserve": "uint8", "DropoutState": "uint8"},
     (["Input", "WeightList"], {"Out": (5, 2, 3)}), hidden=("Reserve", "DropoutState"))
whole = {"InScale": np.full(1, 127, "float32"), "WeightScale": np.full(1, 127, "float32")}
halves = i(4, 2, 2, 2, lo=-9, hi=9).astype("float32") + np.float32(0.5)
quantised = {"Output": "float32", "OutWeightScale": "float32"}
made("two groups", "int8_conv2d", {"Input": f(2, 4, 5, 4), "Filter": f(4, 2, 2, 2), "Bias": f(4), "InScale": f(1, lo=0.8)},
     {"groups": 2, "activation": "leaky_relu", "alpha": 0.3, "paddings": [1, 0]}, quantised)
made("halves", "int8_conv2d", {"Input": halves, "Filter": halves[:, :1] + 3, **whole}, {"groups": 2}, quantised)
made("integers", "int8_conv2d", {"Input": f(2, 4, 5, 4), "Filter": np.round(f(4, 4, 2, 2, hi=90)), "InScale": f(1, lo=0.8)},
     {"integer_weights": True, "weight_scale": 2.0}, quantised)
made("images in sequences", "int8_conv2d", {"Input": f(2, 4, 5, 4), "Filter": f(4, 4, 2, 2), "InScale": f(1, lo=0.8),
                                            "ResidualData": Lod(f(2, 4, 4, 3), [1, 1])}, {}, quantised)
made("normed", "int8_conv2d", {"Input": f(2, 4, 5, 4), "Filter": f(4, 4, 2, 2), "Scale": f(4), "Shift": f(4), "Mean": f(4),
                               "Variance": f(4, lo=0.5), "InScale": f(1, lo=0.8)}, {"epsilon": 1e-3}, quantised)
quantised = {"Out": "float32", "OutWeightScale": "float32"}
made("plain", "int8_fc", {"Input": f(3, 4), "W": f(4, 2), "Bias": f(2), "InScale": f(1, lo=0.8)}, {}, quantised)
made("halves", "int8_fc", {"Input": halves[0, 0], "W": halves[1, 0] + 3, **whole}, {}, quantised)
made("integers", "int8_fc", {"Input": f(3, 4), "W": np.round(f(4, 2, hi=90)), "InScale": f(1, lo=0.8)},
     {"integer_weights": True, "weight_scale": 2.0}, quantised)
made("sequences", "int8_fc", {"Input": f(3, 4), "W": f(4, 2), "InScale": f(1, lo=0.8), "ResidualData": Lod(f(3, 2), [1, 2])}, {}, quantised)
made("rows of sequences", "int8_fc", {"Input": Lod(f(3, 4), [1, 2]), "W": f(4, 2), "InScale": f(1, lo=0.8)}, {}, quantised)
made("sequences", "fc", {"Input": f(3, 4), "W": f(4, 2), "ResidualData": Lod(f(3, 2), [1, 2])}, {}, {"Out": "float32"})
made("rows of sequences", "fc", {"Input": Lod(f(3, 4), [1, 2]), "W": f(4, 2)}, {}, {"Out": "float32"})
made("wide", "margin_rank_loss", {"Label": np.ones((3, 1), "float32"), "X1": f(3, 1), "X2": f(3, 1)}, {"margin": 3.0},
     {"Activated": "float32", "Out": "float32"}, (["X1", "X2"], {"Out": (3, 1)}))
for word in ("downgrade_in_infer", "upscale_in_train"):
    made(word, "dropout", {"X": f(4, 6)}, {"dropout_prob": 0.5, "dropout_implementation": word, "fix_seed": True, "seed": 7, "is_test": False},
         {"Out": "float32", "Mask": "uint8"}, (["X"], {"Out": (4, 6)}))
made("real sizes", "im2sequence", {"X": f(2, 1, 6, 6), "Y": np.array([[6, 6], [4, 6]], "float32")},
     {"kernels": [2, 2], "strides": [1, 1], "paddings": [0, 0, 0, 0], "out_stride": [2, 2]}, {"Out": "float32"}, (["X"], {"Out": (6, 4)}))
made("third of two", "fake_quantize_range_abs_max", {"X": f(3, 4), "InScale": one(3.0), "Iter": one(5, "int64")}, {"window_size": 2, "is_test": False},
     {"Out": "float32", "OutScale": "=InScale", "OutScales": np.array([0.5, 3.0], "float32")})
halves = {"X": Lod(f(5, 2), [1, 2], [2, 1, 2]), "Mask": np.array([[True], [False]])}
made("two levels", "split_lod_tensor", halves, {"level": 0}, {"OutTrue": "float32", "OutFalse": "float32"})
made("two levels", "merge_lod_tensor", {**halves, "InTrue": Lod(f(2, 2), [1], [2]), "InFalse": Lod(f(3, 2), [2], [1, 2])}, {"level": 0}, {"Out": "float32"})
made("kept", "fused_elemwise_activation", {"X": f(2, 3), "Y": f(2, 3)},
     {"axis": -1, "scale": 0.5, "functor_list": ["scale", "elementwise_mul"], "save_intermediate_out": True}, {"Out": "float32", "IntermediateOut": "float32"},
     (["X", "Y"], {"Out": (2, 3)}))
