"""Case table of make_op_references.py: TABLE is a list of (op, function of the generator and the op)."""
import numpy as np
from gen_op_goldens import SR, T, TA

TABLE = []


def op(*names):
    def put(function):
        TABLE.extend((name, function) for name in names)
        return function
    return put


@op("trilinear_interp")
def trilinear(g, o):
    for layout, shape in (("NCHW", (2, 3, 3, 4, 5)), ("NHWC", (2, 3, 4, 5, 3))):
        for corners, mode in ((True, 1), (False, 0), (False, 1)):
            attrs = {"data_layout": layout, "out_d": 5, "out_h": 6, "out_w": 3, "align_corners": corners, "align_mode": mode, "interp_method": "trilinear"}
            g.case(o, {"X": g.f(*shape)}, attrs, tag=f"{layout} {corners} {mode}")
    g.case(o, {"X": g.f(2, 3, 3, 4, 5)}, {"scale": 2.0, "interp_method": "trilinear", "align_corners": False, "out_d": 1, "out_h": 1, "out_w": 1}, tag="scale")
    g.case(o, {"X": g.f(1, 2, 3, 4, 5), "OutSize": np.array([4, 4, 4], "int32")}, {"out_d": 1, "out_h": 1, "out_w": 1, "interp_method": "trilinear"}, tag="OutSize")
    g.case(o, {"X": g.f(1, 2, 3, 4, 5, dt="float64")}, {"out_d": 2, "out_h": 6, "out_w": 6, "interp_method": "trilinear"}, tag="float64")
    g.case(o, {"X": g.i(1, 2, 3, 4, 5, hi=255, dt="uint8")}, {"out_d": 5, "out_h": 7, "out_w": 9, "interp_method": "trilinear"}, {"Out": "uint8"}, grad=False, tag="uint8")


@op("bicubic_interp")
def bicubic(g, o):
    for layout, shape in (("NCHW", (2, 3, 4, 5)), ("NHWC", (2, 4, 5, 3))):
        for corners in (True, False):
            attrs = {"data_layout": layout, "out_h": 6, "out_w": 3, "align_corners": corners, "interp_method": "bicubic"}
            g.case(o, {"X": g.f(*shape)}, attrs, tag=f"{layout} {corners}")
    g.case(o, {"X": g.f(2, 3, 4, 5)}, {"scale": 1.5, "interp_method": "bicubic", "align_corners": False, "out_h": 1, "out_w": 1}, tag="scale")
    g.case(o, {"X": g.f(2, 3, 4, 5), "Scale": np.array([1.5], "float32")}, {"interp_method": "bicubic", "align_corners": False, "out_h": 1, "out_w": 1}, tag="Scale")
    g.case(o, {"X": g.f(2, 3, 4, 5), "OutSize": np.array([6, 4], "int32")}, {"interp_method": "bicubic", "out_h": 1, "out_w": 1}, tag="OutSize")
    g.case(o, {"X": g.f(2, 3, 4, 5), "SizeTensor": [np.array([6], "int32"), np.array([4], "int32")]}, {"interp_method": "bicubic", "out_h": 1, "out_w": 1}, tag="SizeTensor")
    g.case(o, {"X": g.f(1, 2, 3, 4, dt="float64")}, {"out_h": 6, "out_w": 6, "interp_method": "bicubic"}, tag="float64")


@op("linear_interp")
def linear(g, o):
    for layout, shape in (("NCHW", (2, 3, 5)), ("NHWC", (2, 5, 3))):
        for corners, mode in ((True, 1), (False, 0), (False, 1)):
            attrs = {"data_layout": layout, "out_w": 8, "align_corners": corners, "align_mode": mode, "interp_method": "linear"}
            g.case(o, {"X": g.f(*shape)}, attrs, tag=f"{layout} {corners} {mode}")
    g.case(o, {"X": g.f(2, 3, 5)}, {"scale": 1.5, "interp_method": "linear", "align_corners": False, "out_w": 1}, tag="scale")
    g.case(o, {"X": g.f(2, 3, 5), "OutSize": np.array([4], "int32")}, {"interp_method": "linear", "out_w": 1}, tag="OutSize")
    g.case(o, {"X": g.f(2, 3, 5, dt="float64")}, {"out_w": 3, "interp_method": "linear"}, tag="float64")
    g.case(o, {"X": g.i(2, 3, 5, hi=255, dt="uint8")}, {"out_w": 7, "interp_method": "linear"}, {"Out": "uint8"}, grad=False, tag="uint8")


@op("bilinear_interp", "bilinear_interp_v2", "nearest_interp", "nearest_interp_v2")
def resized_bytes(g, o):
    method = o.split("_")[0]
    for dt in ("uint8", "float64") + (("int64",) if o == "nearest_interp_v2" else ()):
        for corners in (True, False):
            x = g.i(2, 3, 5, 4, hi=255, dt=dt) if dt != "float64" else g.f(2, 3, 5, 4, dt=dt)
            g.case(o, {"X": x}, {"out_h": 9, "out_w": 3, "align_corners": corners, "align_mode": 0, "interp_method": method}, {"Out": dt}, grad=dt == "float64", tag=f"{dt} {corners}")


@op("trilinear_interp_v2", "linear_interp_v2")
def resized_more_bytes(g, o):
    volume = o.startswith("tri")
    shape = (2, 2, 3, 4, 5) if volume else (2, 3, 7)
    sizes = {"out_d": 4, "out_h": 3, "out_w": 7} if volume else {"out_w": 4}
    for dt in ("uint8", "float64"):
        x = g.i(*shape, hi=255, dt=dt) if dt == "uint8" else g.f(*shape, dt=dt)
        exact = {"align_corners": True, **({"out_d": 5, "out_h": 7, "out_w": 9} if volume else {"out_w": 13})}  # weights that no sum rounds
        given = exact if dt == "uint8" else {"align_corners": False, **sizes}
        g.case(o, {"X": x}, {"align_mode": 0, "interp_method": "trilinear" if volume else "linear", **given}, {"Out": dt}, grad=dt == "float64", tag=dt)


def invertible(g, *shape, dt="float32"):
    return g.f(*shape, dt=dt) + 2 * np.eye(shape[-1], dtype=dt)


@op("inverse")
def inverse(g, o):
    for shape in ((3, 3), (2, 4, 4), (2, 3, 2, 2), (1, 1), (5, 7, 7)):
        g.case(o, {"Input": invertible(g, *shape)}, {}, tag=str(shape), tolerance=(1e-4, 1e-5))
    g.case(o, {"Input": invertible(g, 4, 4, dt="float64")}, {}, tag="float64")


@op("cholesky")
def cholesky(g, o):
    for dt in ("float64", "float32"):
        for shape in ((3, 3), (2, 4, 4), (1, 1), (2, 2, 5, 5)):
            for upper in (False, True):
                a = g.f(*shape, dt=dt)
                x = a @ np.swapaxes(a, -1, -2) + np.eye(shape[-1], dtype=dt)
                g.case(o, {"X": x.astype(dt)}, {"upper": upper}, tag=f"{dt} {shape} {upper}", tolerance=(1e-4, 1e-5))


@op("trace")
def trace(g, o):
    for shape, attrs in (((3, 4), {}), ((3, 4), {"offset": 1}), ((4, 3), {"offset": -2}), ((2, 3, 4), {"axis1": 1, "axis2": 2}), ((2, 3, 4), {"axis1": 2, "axis2": 0, "offset": 1}),
                         ((2, 3, 4, 5), {"axis1": -1, "axis2": 1, "offset": -1}), ((3, 4), {"offset": 7})):
        g.case(o, {"Input": g.f(*shape)}, {"offset": 0, "axis1": 0, "axis2": 1, **attrs}, tag=f"{shape} {attrs}")
    g.case(o, {"Input": g.f(3, 4, dt="float64")}, {}, tag="float64")
    for dt in ("int32", "int64"):
        g.case(o, {"Input": g.i(3, 4, 4, dt=dt)}, {}, {"Out": dt}, grad=False, tag=dt)


@op("diag_embed")
def diag_embed(g, o):
    for shape, attrs in (((3,), {}), ((2, 3), {}), ((2, 3), {"offset": 1}), ((2, 3), {"offset": -2}), ((2, 3, 4), {"dim1": 0, "dim2": 2}), ((2, 3), {"dim1": 1, "dim2": 0, "offset": 1}),
                         ((2, 3), {"dim1": -1, "dim2": -2, "offset": 1}), ((2, 3), {"dim1": 2, "dim2": 0, "offset": -1})):
        g.case(o, {"Input": g.f(*shape)}, {"offset": 0, "dim1": -2, "dim2": -1, **attrs}, grad=False, tag=f"{shape} {attrs}")
    for dt in ("float64", "int32", "int64"):
        x = g.f(2, 3, dt=dt) if dt[0] == "f" else g.i(2, 3, dt=dt)
        g.case(o, {"Input": x}, {}, {"Out": dt}, grad=False, tag=dt)


@op("equal_all")
def equal_all(g, o):
    x = g.f(3, 4)
    y = x.copy()
    y[2, 3] += 1
    for a, b, tag in ((x, x, "equal"), (x, y, "one differs"), (x, x[:, :3], "shapes differ"), (g.f(0, 3), g.f(0, 3), "empty"),
                      (np.full((2,), np.nan, "float32"), np.full((2,), np.nan, "float32"), "nan"), (x, np.nextafter(x, 2, dtype="float32"), "neighbours"), (np.zeros(2, "float32"), np.full(2, 5e-9, "float32"), "close to 0"),
                      (np.array([np.inf], "float32"), np.array([np.inf], "float32"), "infinite")):
        g.case(o, {"X": a, "Y": b}, {}, {"Out": "bool"}, grad=False, tag=tag)
    for dt in ("int32", "int64", "float64", "bool"):
        v = g.b(2, 3) if dt == "bool" else g.i(2, 3, dt=dt) if dt[0] == "i" else g.f(2, 3, dt=dt)
        g.case(o, {"X": v, "Y": v}, {}, {"Out": "bool"}, grad=False, tag=dt)
        g.case(o, {"X": v, "Y": v[::-1].copy()}, {}, {"Out": "bool"}, grad=False, tag=dt + " reversed")


@op("allclose")
def allclose(g, o):
    for dt in ("float32", "float64"):
        x = g.f(3, 4, dt=dt)
        nan = np.array([1.0, np.nan, np.inf], dt)
        for a, b, attrs, tag in ((x, x, {}, "equal"), (x, x + dt_step(dt, 1e-6), {}, "near"), (x, x + dt_step(dt, 1e-4), {}, "off"), (x, x * dt_step(dt, 1.05), {"rtol": "0.1"}, "rtol"),
                                 (x, x + dt_step(dt, 0.05), {"atol": "0.1"}, "atol"), (nan, nan, {}, "nan"), (nan, nan, {"equal_nan": True}, "equal nan"),
                                 (np.array([np.inf], dt), np.array([1.0], dt), {}, "inf against number"), (np.array([1.0], dt), np.array([np.inf], dt), {}, "number against inf"),
                                 (np.array([np.inf], dt), np.array([-np.inf], dt), {}, "inf against -inf"), (np.array([10.0], dt), np.array([11.0], dt), {"rtol": "0.095", "atol": "0"}, "of Other")):
            g.case(o, {"Input": a, "Other": b}, {"rtol": "1e-05", "atol": "1e-08", "equal_nan": False, **attrs}, {"Out": "bool"}, grad=False, tag=f"{dt} {tag}")
    x = g.f(3, 4)
    g.case(o, {"Input": x, "Other": x + np.float32(0.05), "Rtol": np.array([0.0], "float64"), "Atol": np.array([0.1], "float64")}, {}, {"Out": "bool"}, grad=False, tag="tensors")


def dt_step(dt, value):
    return np.array(value, dt)


@op("histogram")
def histogram(g, o):
    for attrs in ({"bins": 4, "min": 0, "max": 0}, {"bins": 5, "min": -1, "max": 1}, {"bins": 3, "min": 0, "max": 1}, {"bins": 1, "min": -2, "max": 2}, {"bins": 100}):
        g.case(o, {"X": g.f(4, 5)}, attrs, {"Out": "int64"}, grad=False, tag=str(attrs))
    g.case(o, {"X": np.full((3, 2), 4.0, "float32")}, {"bins": 4}, {"Out": "int64"}, grad=False, tag="one value")
    for dt in ("int32", "int64", "float64"):
        x = g.i(40, hi=9, dt=dt) if dt[0] == "i" else g.f(40, dt=dt)
        g.case(o, {"X": x}, {"bins": 6, "min": 1, "max": 7} if dt[0] == "i" else {"bins": 6}, {"Out": "int64"}, grad=False, tag=dt)
        g.case(o, {"X": x}, {"bins": 4}, {"Out": "int64"}, grad=False, tag=dt + " own range")


@op("empty")
def empty(g, o):
    for dt, number in (("float32", 5), ("int64", 3), ("bool", 0), ("float64", 6)):
        g.case(o, {}, {"shape": [2, 3], "dtype": number}, {"Out": dt}, grad=False, compare="shape", tag=dt)
    g.case(o, {"ShapeTensor": np.array([2, 4], "int32")}, {"shape": [1], "dtype": 5}, grad=False, compare="shape", tag="tensor")
    g.case(o, {"ShapeTensorList": [np.array([2], "int32"), np.array([4], "int32")]}, {"shape": [1], "dtype": 5}, grad=False, compare="shape", tag="tensors")


@op("bernoulli")
def bernoulli(g, o):
    g.case(o, {"X": np.full((200, 20), 0.3, "float32")}, {}, grad=False, compare="statistics", tag="0.3")
    g.case(o, {"X": np.full((200, 20), 0.8, "float64")}, {}, {"Out": "float64"}, grad=False, compare="statistics", tag="0.8")
    g.case(o, {"X": np.array([0.0, 1.0, 1.0, 0.0], "float32")}, {}, grad=False, tag="certain")


@op("seed")
def seed(g, o):
    g.case(o, {}, {"seed": 17}, {"Out": "int32"}, grad=False, tag="given")
    g.case(o, {}, {"seed": -3}, {"Out": "int32"}, grad=False, tag="negative")
    g.case(o, {}, {"seed": 0}, {"Out": "int32"}, grad=False, compare="shape", tag="drawn")


@op("segment_pool")
def segment_pool(g, o):
    for kind in ("SUM", "MEAN", "MAX", "MIN"):
        for ids, tag in (([0, 0, 1, 2, 2, 2], "all"), ([0, 0, 2, 2, 5, 5], "gaps"), ([1, 1, 1, 1, 1, 1], "first absent")):
            for dt in ("int32", "int64"):
                g.case(o, {"X": g.f(6, 3), "SegmentIds": np.array(ids, dt)}, {"pooltype": kind}, tag=f"{kind} {tag} {dt}")
        g.case(o, {"X": g.f(6, 2, 2, dt="float64"), "SegmentIds": np.array([0, 0, 1, 1, 1, 3], "int64")}, {"pooltype": kind}, {"SummedIds": "float64"}, tag=f"{kind} float64")
        g.case(o, {"X": np.repeat(g.f(3, 2), 2, axis=0), "SegmentIds": np.array([0, 0, 1, 1, 1, 2], "int64")}, {"pooltype": kind}, tag=f"{kind} equal values")


@op("dequantize_log")
def dequantize_log(g, o):
    g.case(o, {"X": g.i(5, 6, lo=-128, hi=128, dt="int8"), "Dict": g.f(128, lo=0, hi=2)}, {}, grad=False, tag="all")


@op("lookup_table_dequant")
def lookup_table_dequant(g, o):
    table = g.f(7, 2 + 3)
    table[:, 0], table[:, 1] = -1, 1
    table[:, 2:] = g.i(7, 12, hi=256, dt="uint8").view("float32").reshape(7, 3)
    for ids in (g.i(4, 1, hi=7), g.i(2, 3, 1, hi=7)):
        g.case(o, {"W": table, "Ids": ids}, {"padding_idx": -1}, grad=False, tag=str(ids.shape))
    g.case(o, {"W": table, "Ids": T(g.i(4, 1, hi=7), [[0, 1, 4]])}, {"padding_idx": -1}, grad=False, tag="lod")
    g.case(o, {"W": table, "Ids": np.array([[2], [3], [2], [1]], "int64")}, {"padding_idx": 2}, grad=False, tag="padding")


@op("positive_negative_pair")
def positive_negative_pair(g, o):
    def inputs(n, depth, dt="float32"):
        return {"Score": np.round(g.f(n, depth, dt=dt), 1), "Label": g.i(n, 1, hi=3).astype(dt), "QueryID": g.i(n, 1, hi=4)}
    outs = {"PositivePair": "float32", "NegativePair": "float32", "NeutralPair": "float32"}
    g.case(o, inputs(20, 1), {"column": -1}, outs, grad=False, tag="plain")
    g.case(o, inputs(20, 3), {"column": 0}, outs, grad=False, tag="column 0")
    g.case(o, inputs(20, 3), {"column": -2}, outs, grad=False, tag="column -2")
    g.case(o, {**inputs(20, 1), "Weight": g.f(20, 1, lo=0)}, {"column": -1}, outs, grad=False, tag="weights")
    g.case(o, {**inputs(20, 1), "AccumulatePositivePair": np.array([3.0], "float32"), "AccumulateNegativePair": np.array([2.0], "float32"), "AccumulateNeutralPair": np.array([1.0], "float32")},
           {"column": -1}, outs, grad=False, tag="accumulated")
    g.case(o, inputs(20, 1, "float64"), {"column": -1}, {k: "float64" for k in outs}, grad=False, tag="float64")


@op("similarity_focus")
def similarity_focus(g, o):
    for axis, indexes in ((1, [0]), (1, [0, 2]), (2, [1]), (3, [0, 1])):
        for dt in ("float32", "float64"):
            g.case(o, {"X": g.f(2, 3, 4, 5, dt=dt)}, {"axis": axis, "indexes": indexes}, {"Out": dt}, grad=False, tag=f"{axis} {indexes} {dt}")


@op("shuffle_batch")
def shuffle_batch(g, o):
    for shape, seed_value in (((5, 3), 7), ((4, 2, 3), 123), ((30, 2), 99)):
        g.case(o, {"X": g.f(*shape), "Seed": np.array([seed_value], "int64")}, {"startup_seed": 0}, {"ShuffleIdx": "int64", "SeedOut": "int64"}, grad=False,
               tag=str(shape), drop=("Out", "ShuffleIdx"))


@op("beam_search")
def beam_search(g, o):
    kinds = {"selected_ids": "int64", "selected_scores": "float32", "parent_idx": "int32"}

    def step(pre, width, level_low, attrs, tag, ids=True, scores=None):
        rows = len(pre)
        lod = [level_low, list(range(rows + 1))]
        made = {"pre_ids": T(np.array(pre, "int64").reshape(-1, 1), lod), "pre_scores": T(g.f(rows, 1, lo=0.1, hi=1), lod)}
        values = g.f(rows, width, lo=0.05, hi=1) if scores is None else scores
        made["scores"] = T(values, lod)
        if ids:
            made["ids"] = T(np.stack([g.rng.permutation(20)[:width] for _ in range(rows)]).astype("int64"), lod)
        g.case(o, made, {"level": 0, "beam_size": 2, "end_id": 0, "is_accumulated": True, **attrs}, kinds, grad=False, tag=tag)

    step([1, 2, 3, 4], 3, [0, 2, 4], {}, "two sources")
    step([1, 2, 3, 4], 3, [0, 1, 4], {"beam_size": 3}, "uneven")
    step([0, 2, 0, 4], 3, [0, 2, 4], {}, "some ended")
    step([0, 0, 3, 4], 3, [0, 2, 4], {}, "a source ended")
    step([0, 0, 0, 0], 3, [0, 2, 4], {}, "all ended")
    step([1, 2, 3, 4], 6, [0, 2, 4], {"is_accumulated": False}, "not accumulated", ids=False)
    step([1, 0, 3, 4], 6, [0, 2, 4], {"is_accumulated": True}, "without ids", ids=False)
    step([1, 2], 4, [0, 1, 2], {"beam_size": 3, "end_id": 5}, "first step")
    step([1], 4, [0, 1], {"beam_size": 1}, "greedy")
    step([1, 2, 3, 4], 3, [0, 2, 4], {}, "equal scores", scores=np.round(g.f(4, 3, lo=0, hi=1) * 2) / 2)
    step([1, 2], 1, [0, 2], {"beam_size": 4}, "fewer candidates")


@op("beam_search_decode")
def beam_search_decode(g, o):
    def steps(lods, ids, end, beam, tag, dt="float32"):
        made_ids, made_scores = [], []
        for lod, row in zip(lods, ids):
            made_ids.append(T(np.array(row, "int64").reshape(-1, 1), lod))
            made_scores.append(T(g.f(len(row), 1, dt=dt), lod))
        g.case(o, {"Ids": TA(made_ids), "Scores": TA(made_scores)}, {"beam_size": beam, "end_id": end}, {"SentenceIds": "int64", "SentenceScores": dt}, grad=False, tag=tag)

    steps([[[0, 1, 2], [0, 1, 2]], [[0, 1, 2], [0, 2, 4]], [[0, 2, 4], [0, 2, 2, 4, 4]], [[0, 2, 4], [0, 1, 2, 3, 4]]],
          [[1, 1], [2, 3, 4, 5], [6, 0, 7, 8], [0, 0, 0, 9]], 0, 2, "two sources")
    steps([[[0, 1], [0, 1]], [[0, 1], [0, 2]], [[0, 2], [0, 1, 2]]], [[1], [3, 0], [0, 0]], 0, 2, "ended beam goes on")
    steps([[[0, 1, 2], [0, 1, 2]], [[0, 1, 2], [0, 1, 2]], [[0, 1, 2], [0, 0, 1]]], [[1, 1], [0, 5], [7]], 0, 1, "pruned source")
    steps([[[0, 1, 2], [0, 1, 2]], [[0, 1, 2], [0, 1, 2]], [[0, 1, 2], [0, 0, 1]]], [[1, 1], [0, 5], [7]], 0, 1, "float64", dt="float64")
    steps([[[0, 1, 2], [0, 1, 2]]], [[4, 5]], 0, 1, "one step")


@op("max_pool2d_with_index")
def pool_with_index(g, o):
    for attrs in ({"global_pooling": True, "adaptive": True, "ksize": [2, 3]}, {"global_pooling": True, "adaptive": False, "ksize": [2, 3]}):
        g.case(o, {"X": g.f(2, 2, 5, 7)}, {"strides": [1, 1], "paddings": [0, 0], **attrs}, {"Mask": "int32"}, tag=str(attrs))


@op("rank_loss")
def rank_loss(g, o):
    for label, left in (((5, 1), (5, 1)), ((5,), (5, 1)), ((5, 1), (5,)), ((5,), (5,))):
        g.case(o, {"Label": g.b(*label).astype("float32"), "Left": g.f(*left), "Right": g.f(*left)}, {}, grad=["Left", "Right"], tag=f"{label} {left}")


@op("cross_entropy2")
def cross_entropy2(g, o):
    for x, label in (((4, 5), (4, 1)), ((4, 5), (4,)), ((2, 3, 5), (2, 3, 1)), ((2, 3, 5), (2, 3))):
        p = g.f(*x, lo=0.1, hi=1)
        g.case(o, {"X": p / p.sum(-1, keepdims=True), "Label": g.i(*label, hi=5)}, {"ignore_index": -100}, grad=["X"], gout=["Y"], tag=f"{x} {label}")


@op("merge_selected_rows")
def merge_selected_rows(g, o):
    g.case(o, {"X": SR([7, 2, 7, 0, 5, 2], g.f(6, 3), 9)}, {}, {"Out": "selected_rows"}, grad=False, tag="order")


@op("adam")
def adam(g, o):
    for lazy in (False, True):
        for same in (True, False):
            ins = {"Param": g.f(6, 3), "Grad": SR([4, 1, 4], g.f(3, 3), 6), "LearningRate": np.array([0.1], "float32"), "Moment1": g.f(6, 3), "Moment2": g.f(6, 3, lo=0.1, hi=1),
                   "Beta1Pow": np.array([0.81], "float32"), "Beta2Pow": np.array([0.99], "float32")}
            outs = {"ParamOut": "float32", "Moment1Out": "float32", "Moment2Out": "float32", "Beta1PowOut": "float32", "Beta2PowOut": "float32", "MasterParamOut": None}
            inplace = {"ParamOut": "Param", "Moment1Out": "Moment1", "Moment2Out": "Moment2", **({"Beta1PowOut": "Beta1Pow", "Beta2PowOut": "Beta2Pow"} if same else {})}
            g.case(o, ins, {"beta1": 0.9, "beta2": 0.99, "epsilon": 1e-6, "lazy_mode": lazy}, outs, grad=False, inplace=inplace, tag=f"sparse, lazy {lazy}, powers in place {same}")


@op("linear_chain_crf")
def linear_chain_crf(g, o):
    g.case(o, {"Emission": g.f(3, 4, 5), "Transition": g.f(7, 5), "Label": g.i(3, 4, 1, hi=5), "Length": np.array([[4], [2], [3]], "int64")}, {}, grad=["Emission", "Transition"], gout=["LogLikelihood"], tag="padded")


@op("gru", "gru_unit")
def gru(g, o):
    big = np.array([-60.0, -45.0, -41.0, -12.0, 12.5, 14.0, 30.0, 100.0] * 3, "float32").reshape(4, 6)
    for dt in ("float32", "float64"):
        x = big.astype(dt)
        if o == "gru":
            g.case(o, {"Input": T(x, [[0, 1, 4]]), "Weight": g.f(2, 6, dt=dt), "H0": g.f(2, 2, dt=dt)}, {"gate_activation": "sigmoid", "activation": "tanh"},
                   {"BatchGate": dt, "BatchResetHiddenPrev": dt, "BatchHidden": dt, "Hidden": dt}, gout=["Hidden"], tag=f"large {dt}")
        else:
            g.case(o, {"Input": x, "HiddenPrev": g.f(4, 2, dt=dt), "Weight": g.f(2, 6, dt=dt)}, {"gate_activation": 1, "activation": 2}, {"Gate": dt, "ResetHiddenPrev": dt, "Hidden": dt}, gout=["Hidden"], tag=f"large {dt}")


@op("lstm")
def lstm(g, o):
    big = np.array([-60.0, -45.0, -41.0, -12.0, 12.5, 14.0, 30.0, 100.0] * 4, "float32").reshape(4, 8)
    for dt in ("float32", "float64"):
        g.case(o, {"Input": T(big.astype(dt), [[0, 1, 4]]), "Weight": g.f(2, 8, dt=dt), "Bias": g.f(1, 8, dt=dt)}, {"use_peepholes": False},
               {"BatchGate": dt, "BatchCellPreAct": dt, "Cell": dt, "Hidden": dt}, gout=["Hidden"], tag=f"large {dt}")


@op("fill_any_like")
def fill_any_like(g, o):
    for dt, value in (("float32", 1e39), ("float32", float("inf")), ("float32", float("nan")), ("float16", float("inf")), ("int32", 2.7), ("bool", 0.5), ("float64", 1e39), ("uint8", 255.0)):
        x = g.b(2, 3) if dt == "bool" else g.f(2, 3).astype(dt)
        g.case(o, {"X": x}, {"value": value, "dtype": -1}, {"Out": dt}, grad=False, tag=f"{dt} {value}")


@op("multiplex")
def multiplex(g, o):
    g.case(o, {"X": [g.f(4, 3), g.f(4, 3), g.f(4, 3)], "Ids": np.array([[1], [0], [2], [1]], "int32")}, {}, grad=["X"], tag="three")


@op("mine_hard_examples")
def mine_hard(g, o):
    for dt in ("float32", "float64"):
        match = np.array([[0, -1, -1, -1, -1, -1], [-1, 0, -1, -1, 1, -1]], "int32")
        g.case(o, {"ClsLoss": g.f(2, 6, lo=0, dt=dt), "MatchIndices": match, "MatchDist": g.f(2, 6, lo=0, dt=dt)}, {"neg_pos_ratio": 2.0, "neg_dist_threshold": 0.7, "mining_type": "max_negative", "sample_size": 0},
               {"NegIndices": "int32", "UpdatedMatchIndices": "int32"}, grad=False, tag=dt)
