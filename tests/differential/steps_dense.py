"""Building steps of random nets for matrices, images and embeddings. Runs with the original (see oracle.py)."""
import paddle
import paddle.nn.functional as F
import paddle.static as static
from paddle.base import ParamAttr

from building import INT, Skip, gen, step

UNARY = [
    ("tanh", {}), ("sigmoid", {}), ("softplus", {"beta": 1.0, "threshold": 20.0}), ("softsign", {}), ("square", {}), ("sin", {}), ("cos", {}),
    ("gelu", {"approximate": False}), ("gelu", {"approximate": True}), ("elu", {"alpha": 0.7}), ("leaky_relu", {"alpha": 0.1}),
    ("swish", {"beta": 1.0}), ("hard_swish", {"threshold": 6.0, "scale": 6.0, "offset": 3.0}), ("hard_sigmoid", {"slope": 0.2, "offset": 0.5}),
    ("relu", {}), ("relu6", {"threshold": 6.0}), ("stanh", {"scale_a": 0.67, "scale_b": 1.7}), ("logsigmoid", {}), ("abs", {}), ("atan", {}),
    ("mish", {"threshold": 20.0}), ("tanh_shrink", {}), ("erf", {}), ("selu", {}), ("silu", {}), ("softshrink", {"lambda": 0.3}),
    ("hard_shrink", {"threshold": 0.3}), ("thresholded_relu", {"threshold": 0.2}), ("brelu", {"t_min": -0.5, "t_max": 0.7}),
    ("soft_relu", {"threshold": 20.0}), ("scale", {"scale": -1.5, "bias": 0.3, "bias_after_scale": False}),
    ("scale", {"scale": 0.5, "bias": 0.1, "bias_after_scale": True}), ("clip", {"min": -0.4, "max": 0.6}), ("clip_by_norm", {"max_norm": 0.8}),
    ("assign", {}), ("celu", {"alpha": 0.9}), ("sinh", {}), ("asinh", {}), ("expm1", {}), ("sign", {}), ("floor", {}),
]
POSITIVE = [("sqrt", {}), ("rsqrt", {}), ("log", {}), ("reciprocal", {}), ("log2", {}), ("log1p", {}), ("pow", {"factor": 1.5}), ("exp", {})]
BINARY = "elementwise_add elementwise_sub elementwise_mul elementwise_max elementwise_min elementwise_add elementwise_mul minus".split()


def positive(x):
    return gen.op("scale", {"X": gen.op("square", {"X": x}, ["Out"])}, ["Out"], {"scale": 1.0, "bias": 0.5})


def unary_op(r, x):
    if r.random() < 0.2:
        kind, attrs = r.choice(POSITIVE)
        return gen.op(kind, {"X": positive(x)}, ["Out"], attrs)
    kind, attrs = r.choice(UNARY)
    return gen.op(kind, {"X": x}, ["Out"], attrs)


@step("linear")
def linear(net, r):
    x = net.pick(r, "matrix")
    net.push("matrix", net.linear(x, net.size(r), r.choice([None, "relu", "tanh", "sigmoid"]), bias=r.random() < 0.8))


@step("shared_linear")
def shared_linear(net, r):
    """A second layer with the parameters of the first; a new layer if there is none."""
    x = net.pick(r, "matrix")
    w = net.parameter_of([x.shape[1], x.shape[1]])
    for _ in range(2):
        x = gen.op("mul", {"X": x, "Y": w}, ["Out"], {"x_num_col_dims": 1, "y_num_col_dims": 1})
    net.push("matrix", x)


@step("unary")
def unary(net, r):
    net.push("matrix", unary_op(r, net.pick(r, "matrix")))


@step("image_unary")
def image_unary(net, r):
    net.push("image", unary_op(r, net.pick(r, "image")))


@step("binary")
def binary(net, r):
    x = net.pick(r, "matrix")
    y = net.with_width(net.pick(r, "matrix"), x.shape[1])
    kind = r.choice(BINARY + ["elementwise_div", "elementwise_pow"])
    if kind == "elementwise_div":
        y = positive(y)
    if kind == "elementwise_pow":
        x = positive(x)
    net.push("matrix", gen.op(kind, {"X": x, "Y": y}, ["Out"], {} if kind == "minus" else {"axis": -1}))


@step("broadcast")
def broadcast(net, r):
    x = net.pick(r, "matrix")
    v = net.parameter([x.shape[1]])
    net.push("matrix", gen.op(r.choice(BINARY[:5]), {"X": x, "Y": v}, ["Out"], {"axis": r.choice([1, -1])}))


@step("tied")
def tied(net, r):
    """One weight used twice, once transposed."""
    x = net.pick(r, "matrix")
    w = net.parameter([x.shape[1], net.size(r)])
    h = gen.op("tanh", {"X": gen.op("mul", {"X": x, "Y": w}, ["Out"], {"x_num_col_dims": 1, "y_num_col_dims": 1})}, ["Out"])
    net.push("matrix", h)
    net.push("matrix", gen.op("matmul", {"X": h, "Y": w}, ["Out"], {"transpose_X": False, "transpose_Y": True, "alpha": r.choice([1.0, 0.5])}))


@step("reshape")
def reshape(net, r):
    x = net.with_width(net.pick(r, "matrix"), 6)
    x = paddle.transpose(paddle.reshape(x, [-1, 2, 3]), r.choice([[0, 2, 1], [0, 1, 2]]))
    net.push("matrix", paddle.flatten(x, 1) if r.random() < 0.5 else paddle.reshape(paddle.unsqueeze(x, [1]), [-1, 6]))


@step("concat")
def concat(net, r):
    parts = [net.pick(r, "matrix") for _ in range(r.choice([2, 3]))]
    net.push("matrix", paddle.concat(parts, axis=1))


@step("split")
def split(net, r):
    x = net.with_width(net.pick(r, "matrix"), 6)
    parts = paddle.split(x, r.choice([2, 3, [1, 5], [2, 3, 1]]), axis=1)
    for part in parts[: r.choice([1, 2, len(parts)])]:          # the other parts have no reader and no gradient
        net.push("matrix", part)


@step("slice")
def slice_(net, r):
    x = net.with_width(net.pick(r, "matrix"), 6)
    if r.random() < 0.3:
        net.push("matrix", paddle.strided_slice(x, [1], [0], [6], [2]))
    else:
        a = r.randrange(4)
        net.push("matrix", paddle.slice(x, [1], [a], [r.choice([a + 1, 6])]))


@step("stack")
def stack(net, r):
    x = net.pick(r, "matrix")
    y = net.with_width(net.pick(r, "matrix"), x.shape[1])
    s = paddle.stack([x, y, x], axis=1)
    if r.random() < 0.5:
        net.push("matrix", paddle.unstack(s, axis=1)[r.randrange(3)])
    else:
        net.push("time", s)


@step("gather")
def gather(net, r):
    x = net.pick(r, "matrix")
    index = net.feed_index(r)
    if r.random() < 0.5:
        net.push("matrix", paddle.gather(x, index))
    else:
        net.push("matrix", paddle.gather_nd(x, paddle.reshape(index, [-1, 1])))


@step("scatter")
def scatter(net, r):
    x = net.pick(r, "matrix")
    y = net.with_width(net.pick(r, "matrix"), x.shape[1])
    net.push("matrix", paddle.scatter(x, net.feed_index(r, distinct=True), y, overwrite=r.random() < 0.5))


@step("pad")
def pad(net, r):
    x = net.pick(r, "matrix")
    net.push("matrix", gen.op("pad", {"X": x}, ["Out"], {"paddings": [0, 0, r.choice([0, 1]), r.choice([1, 2])], "pad_value": 0.3}))


@step("tile")
def tile(net, r):
    x = net.pick(r, "matrix")
    net.push("matrix", paddle.tile(x, [1, 2]) if r.random() < 0.6 else gen.op("expand", {"X": x}, ["Out"], {"expand_times": [1, 2]}))


@step("expand")
def expand(net, r):
    x = net.pick(r, "matrix")
    one = net.linear(net.pick(r, "matrix"), 1, "tanh")
    # the original's gradient of expand_as is zero if the batch size is unknown: docs/fidelity.md
    e = paddle.expand_as(one, x) if net.job else paddle.expand(one, [-1, x.shape[1]])
    net.push("matrix", gen.op("elementwise_add", {"X": e, "Y": x}, ["Out"], {"axis": -1}))


@step("reduce")
def reduce(net, r):
    x = net.pick(r, "matrix")
    kind = r.choice(["reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "logsumexp", "frobenius_norm"])
    attrs = {"axis": [1], "keepdim": True} if kind == "logsumexp" else {"dim": [1], "keep_dim": True, "reduce_all": False}
    m = gen.op(kind, {"X": x}, ["Out"], attrs)
    net.push("matrix", gen.op("elementwise_sub", {"X": x, "Y": m}, ["Out"], {"axis": -1}) if r.random() < 0.6 else m)


@step("batch_norm")
def batch_norm(net, r):
    x, n = net.pick(r, "matrix"), net.name()
    net.push("matrix", static.nn.batch_norm(x, act=r.choice([None, "relu", "tanh"]), momentum=r.choice([0.9, 0.5]), epsilon=1e-3, use_global_stats=r.random() < 0.15,
                                            param_attr=ParamAttr(n + ".w_0"), bias_attr=ParamAttr(n + ".b_0"), moving_mean_name=n + ".w_1", moving_variance_name=n + ".w_2"))


@step("layer_norm")
def layer_norm(net, r):
    x = net.with_width(net.pick(r, "matrix"), 5)
    net.push("matrix", gen.layer_norm(x, net.name(), 1))


@step("softmax")
def softmax(net, r):
    net.push("matrix", r.choice([F.softmax, F.log_softmax])(net.pick(r, "matrix")))


@step("sum3")
def sum3(net, r):
    x = net.pick(r, "matrix")
    parts = [x] + [net.with_width(net.pick(r, "matrix"), x.shape[1]) for _ in range(r.choice([1, 2]))]
    net.push("matrix", gen.op("sum", {"X": parts}, ["Out"]))


@step("bilinear")
def bilinear(net, r):
    x, y, k = net.pick(r, "matrix"), net.pick(r, "matrix"), net.size(r)
    ins = {"X": x, "Y": y, "Weight": net.parameter([k, x.shape[1], y.shape[1]])}
    if r.random() < 0.6:
        ins["Bias"] = net.parameter([1, k])
    net.push("matrix", gen.op("bilinear_tensor_product", ins, ["Out"]))


@step("maxout")
def maxout(net, r):
    x = net.with_width(net.pick(r, "matrix"), 6)
    x = gen.op("maxout", {"X": paddle.reshape(x, [-1, 6, 1, 1])}, ["Out"], {"groups": r.choice([2, 3]), "axis": 1})
    net.push("matrix", paddle.reshape(x, [-1, int(x.shape[1])]))


@step("prelu")
def prelu(net, r):
    x = net.pick(r, "matrix")
    mode = r.choice(["all", "channel"])
    net.push("matrix", gen.op("prelu", {"X": x, "Alpha": net.parameter([1] if mode == "all" else [x.shape[1]])}, ["Out"], {"mode": mode, "data_format": "NCHW"}))


@step("cosine")
def cosine(net, r):
    x = net.pick(r, "matrix")
    y = net.with_width(net.pick(r, "matrix"), x.shape[1])
    net.push("matrix", paddle.unsqueeze(F.cosine_similarity(x, y, axis=1), [1]))


@step("matmul")
def matmul(net, r):
    """x x^T x, the batch mixed by its own products."""
    x = net.pick(r, "matrix")
    a = paddle.matmul(x, x, transpose_y=True) if r.random() < 0.5 else gen.op("matmul", {"X": x, "Y": x}, ["Out"], {"transpose_Y": True, "transpose_X": False, "alpha": 0.2})
    net.push("matrix", paddle.matmul(F.softmax(a), x))


@step("addmm")
def addmm(net, r):
    x, k = net.pick(r, "matrix"), net.size(r)
    y = net.with_width(net.pick(r, "matrix"), k)
    net.push("matrix", paddle.addmm(y, x, net.parameter([x.shape[1], k]), beta=0.5, alpha=0.7))


@step("norm")
def norm(net, r):
    x = net.pick(r, "matrix")
    net.push("matrix", gen.op("norm", {"X": x}, ["Out", "Norm"], {"axis": 1, "epsilon": 1e-3}))


@step("compare")
def compare(net, r):
    x = net.pick(r, "matrix")
    y = net.with_width(net.pick(r, "matrix"), x.shape[1])
    net.push("matrix", paddle.where(r.choice([paddle.greater_than, paddle.less_equal])(x, y), x, paddle.scale(y, 0.5)))


@step("topk")
def topk(net, r):
    x = net.with_width(net.pick(r, "matrix"), 5)
    net.push("matrix", paddle.topk(x, r.choice([1, 3]))[0] if r.random() < 0.6 else paddle.sort(x, axis=1))


@step("cumsum")
def cumsum(net, r):
    net.push("matrix", paddle.cumsum(net.pick(r, "matrix"), axis=r.choice([0, 1])))


@step("dropout")
def dropout(net, r):
    """With probability zero, because random numbers are not compared."""
    attrs = {"dropout_prob": 0.0, "is_test": False, "dropout_implementation": r.choice(["upscale_in_train", "downgrade_in_infer"])}
    net.push("matrix", gen.op("dropout", {"X": net.pick(r, "matrix")}, ["Out", "Mask"], attrs))


@step("unused")
def unused(net, r):
    """A layer whose output has no reader: its parameters get no gradient."""
    net.linear(net.pick(r, "matrix"), net.size(r), "relu")


@step("activation_reuse")
def activation_reuse(net, r):
    """An op that reads one variable twice, and a variable with four readers."""
    x = net.pick(r, "matrix")
    parts = [gen.op("elementwise_mul", {"X": x, "Y": x}, ["Out"], {"axis": -1}), x, gen.op("tanh", {"X": x}, ["Out"]), x]
    net.push("matrix", gen.op("sum", {"X": parts}, ["Out"]))


@step("clip_values")
def clip_values(net, r):
    x = net.pick(r, "matrix")
    net.push("matrix", paddle.clip(x, -0.3, 0.5))
    if r.random() < 0.3:
        x.stop_gradient = True


# ------------------------------------------------------------------ images
@step("conv")
def conv(net, r):
    x, k, n = net.pick(r, "image"), r.choice([1, 3]), net.name()
    net.push("image", static.nn.conv2d(x, r.choice([2, 3, 4]), k, stride=r.choice([1, 1, 2]), padding=r.choice([k // 2, 0]) if x.shape[2] > 3 else k // 2, dilation=1,
                                       act=r.choice([None, "relu"]), param_attr=ParamAttr(n + ".w_0"), bias_attr=ParamAttr(n + ".b_0") if r.random() < 0.6 else False))


@step("depthwise")
def depthwise(net, r):
    x, n = net.pick(r, "image"), net.name()
    net.push("image", static.nn.conv2d(x, x.shape[1], 3, padding=1, groups=x.shape[1], use_cudnn=False, param_attr=ParamAttr(n + ".w_0"), bias_attr=False))


@step("transpose_conv")
def transpose_conv(net, r):
    x, n = net.pick(r, "image"), net.name()
    net.push("image", static.nn.conv2d_transpose(x, r.choice([2, 3]), filter_size=r.choice([2, 3]), stride=1, padding=1 if x.shape[2] > 2 else 0,
                                                 param_attr=ParamAttr(n + ".w_0"), bias_attr=ParamAttr(n + ".b_0")))


@step("pool")
def pool(net, r):
    x = net.pick(r, "image")
    attrs = {"pooling_type": r.choice(["max", "avg"]), "ksize": [2, 2], "strides": [r.choice([1, 2])] * 2, "paddings": [r.choice([0, 1])] * 2, "global_pooling": r.random() < 0.1,
             "ceil_mode": r.random() < 0.3, "exclusive": r.random() < 0.5, "adaptive": False, "data_format": "NCHW", "padding_algorithm": "EXPLICIT"}
    if r.random() < 0.2:
        attrs.update(adaptive=True, paddings=[0, 0], ceil_mode=False, global_pooling=False, pooling_type="avg")
    if min(x.shape[2:]) < 2:
        raise Skip()
    net.push("image", gen.op("pool2d", {"X": x}, ["Out"], attrs))


@step("image_norm")
def image_norm(net, r):
    x, n, kind = net.pick(r, "image"), net.name(), r.choice(["batch", "batch", "group", "instance", "lrn"])
    w, b = ParamAttr(n + ".w_0"), ParamAttr(n + ".b_0")
    if kind == "batch":
        y = static.nn.batch_norm(x, act=r.choice([None, "relu"]), epsilon=1e-3, param_attr=w, bias_attr=b, moving_mean_name=n + ".w_1", moving_variance_name=n + ".w_2")
    elif kind == "group":
        y = static.nn.group_norm(x, groups=1 if x.shape[1] % 2 else 2, epsilon=1e-3, param_attr=w, bias_attr=b)
    elif kind == "instance":
        if min(x.shape[2:]) < 2:
            raise Skip()
        y = static.nn.instance_norm(x, epsilon=1e-3, param_attr=w, bias_attr=b)
    else:
        y = F.local_response_norm(x, 3)
    net.push("image", y)


@step("interpolate")
def interpolate(net, r):
    net.push("image", F.interpolate(net.pick(r, "image"), size=[r.choice([3, 5]), 4], mode=r.choice(["nearest", "bilinear"])))


@step("image_to_matrix")
def image_to_matrix(net, r):
    x = net.pick(r, "image")
    if r.random() < 0.5:
        net.push("matrix", net.linear(x, net.size(r), "tanh"))
    else:
        net.push("matrix", paddle.flatten(F.adaptive_avg_pool2d(x, 1), 1))


@step("pixel_shuffle")
def pixel_shuffle(net, r):
    x, n = net.pick(r, "image"), net.name()
    net.push("image", F.pixel_shuffle(static.nn.conv2d(x, 4, 1, param_attr=ParamAttr(n + ".w_0"), bias_attr=False), 2))


@step("residual")
def residual(net, r):
    x = net.pick(r, "image")
    y = gen.conv_bn(x, x.shape[1], 3, net.name(), 1, r.choice([None, "relu"]))
    net.push("image", F.relu(gen.op("elementwise_add", {"X": x, "Y": y}, ["Out"], {"axis": -1})))


@step("image_pad")
def image_pad(net, r):
    x = net.pick(r, "image")
    mode = r.choice(["constant", "reflect", "replicate"]) if min(x.shape[2:]) > 1 else "constant"
    net.push("image", F.pad(x, [1, 0, 0, 1], mode=mode, value=0.1))


@step("channel_affine")
def channel_affine(net, r):
    x = net.pick(r, "image")
    net.push("image", gen.op("elementwise_mul", {"X": x, "Y": net.parameter([x.shape[1]])}, ["Out"], {"axis": 1}))


# ------------------------------------------------------------------ embeddings
@step("lookup")
def lookup(net, r, shared=False):
    """Either generation of the op, dense or sparse gradients, over LoD or padded ids."""
    w = net.table(r, shared)
    if r.random() < 0.6:
        ids = net.feed_ids(r, ragged=True)
        net.push("ragged", net.lookup(ids, w, r))
    else:
        ids = net.feed_ids(r, ragged=False)
        attrs = {"is_sparse": net.sparse(r), "is_distributed": False, "padding_idx": -1, "remote_prefetch": False}
        e = gen.op("lookup_table_v2", {"Ids": ids, "W": w}, ["Out"], attrs)
        net.push("matrix", paddle.sum(e, axis=1) if r.random() < 0.5 else paddle.reshape(e, [-1, INT["slot"] * w.shape[1]]))


@step("shared_lookup")
def shared_lookup(net, r):
    lookup(net, r, shared=True)
