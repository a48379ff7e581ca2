"""Building steps of random nets for sequences, padded and with LoD. Runs with the original."""
import paddle
import paddle.nn.functional as F
import paddle.static as static
from paddle.base import ParamAttr
from paddle.static.nn import sequence_lod as lod

from building import Skip, constant, gen, step
from steps_control import nested_cond_on

POOLS = ["sum", "average", "sqrt", "max", "last", "first"]


@step("ragged_linear")
def ragged_linear(net, r):
    net.push("ragged", net.linear(net.pick(r, "ragged"), net.size(r), r.choice([None, "tanh", "relu"])))


@step("sequence_conv")
def sequence_conv(net, r):
    n = net.name()
    net.push("ragged", lod.sequence_conv(net.pick(r, "ragged"), net.size(r), r.choice([1, 2, 3]), act=r.choice([None, "tanh"]),
                                         param_attr=ParamAttr(n + ".w_0"), bias_attr=ParamAttr(n + ".b_0") if r.random() < 0.5 else False))


@step("sequence_pool")
def sequence_pool(net, r):
    net.push("matrix", gen.seq_pool(net.pick(r, "ragged"), r.choice(POOLS)))


@step("lstm")
def lstm(net, r):
    """The width is 3 or 5: lstm_grad of the original is wrong for multiples of 8."""
    hid, peep = r.choice([3, 5]), r.random() < 0.5
    z = net.linear(net.pick(r, "ragged"), 4 * hid)
    outs = ["Hidden", "Cell", "BatchGate", "BatchCellPreAct"]
    if r.random() < 0.3:
        outs = ["Cell", "Hidden", "BatchGate", "BatchCellPreAct"]
    net.push("ragged", gen.op("lstm", {"Input": z, "Weight": net.parameter([hid, 4 * hid]), "Bias": net.parameter([1, (7 if peep else 4) * hid])}, outs,
                              {"use_peepholes": peep, "is_reverse": r.random() < 0.4, "gate_activation": "sigmoid", "cell_activation": "tanh", "candidate_activation": r.choice(["tanh", "relu"])}))


@step("gru")
def gru(net, r):
    hid = r.choice([3, 5])
    z = net.linear(net.pick(r, "ragged"), 3 * hid)
    net.push("ragged", gen.op("gru", {"Input": z, "Weight": net.parameter([hid, 3 * hid]), "Bias": net.parameter([1, 3 * hid])},
                              ["Hidden", "BatchGate", "BatchResetHiddenPrev", "BatchHidden"],
                              {"is_reverse": r.random() < 0.4, "gate_activation": "sigmoid", "activation": "tanh", "origin_mode": r.random() < 0.4}))


@step("sequence_softmax")
def sequence_softmax(net, r):
    x = net.pick(r, "ragged")
    w = lod.sequence_softmax(net.linear(x, 1))
    net.push("matrix", gen.seq_pool(gen.op("elementwise_mul", {"X": x, "Y": w}, ["Out"], {"axis": 0}), "sum"))


@step("sequence_expand")
def sequence_expand(net, r):
    x, y = net.pick(r, "matrix"), net.pick(r, "ragged")
    if r.random() < 0.5:
        net.push("ragged", lod.sequence_expand_as(x, y))
    else:                                                        # its rows have no LoD
        net.push("ragged", gen.op("elementwise_add", {"X": net.with_width(y, x.shape[1]), "Y": lod.sequence_expand(x, y, ref_level=0)}, ["Out"], {"axis": -1}))


@step("sequence_concat")
def sequence_concat(net, r):
    x = net.pick(r, "ragged")
    y = net.with_width(net.pick(r, "ragged"), x.shape[1])
    if r.random() < 0.5:
        net.push("matrix", gen.seq_pool(lod.sequence_concat([x, y]), r.choice(POOLS)))
    else:
        net.push("ragged", paddle.concat([x, y], axis=1))


@step("sequence_reverse")
def sequence_reverse(net, r):
    net.push("ragged", lod.sequence_reverse(net.pick(r, "ragged")))


@step("sequence_pad")
def sequence_pad(net, r):
    x = net.pick(r, "ragged")
    value = paddle.full([1], 0.2, "float32")
    padded, length = lod.sequence_pad(x, value, maxlen=r.choice([None, 6]))
    if r.random() < 0.5:
        y = lod.sequence_unpad(gen.op("tanh", {"X": padded}, ["Out"]), length)
        y.desc.set_shape([-1, x.shape[1]])
        net.push("matrix", gen.seq_pool(y, r.choice(POOLS)))
    else:
        m = paddle.mean(padded, axis=1)
        m.desc.set_shape([-1, x.shape[1]])
        net.push("matrix", m)


@step("sequence_reshape")
def sequence_reshape(net, r):
    x = net.linear(net.pick(r, "ragged"), 4)
    net.push("matrix", gen.seq_pool(lod.sequence_reshape(x, 2), r.choice(POOLS)))


@step("row_conv")
def row_conv(net, r):
    x = net.pick(r, "ragged")
    net.push("ragged", gen.op("row_conv", {"X": x, "Filter": net.parameter([2, x.shape[1]])}, ["Out"]))


@step("sequence_slice")
def sequence_slice(net, r):
    """The first row of every sequence."""
    n = net.plan["batch"]
    begin, count = constant(0, "int64", [n, 1]), constant(1, "int64", [n, 1])
    y = lod.sequence_slice(net.pick(r, "ragged"), begin, count)
    y.desc.set_lod_level(1)
    net.push("matrix", gen.seq_pool(y, "sum"))


@step("dynamic_rnn")
def dynamic_rnn(net, r):
    """A while loop over sequences sorted by length, with a shrinking batch, in the form of DynamicRNN."""
    x = net.pick(r, "ragged")
    hid, memories = r.choice([2, 3, 5]), r.choice([1, 1, 2])
    table = lod_var("lod_rank_table", {"X": x}, "Out", gen.VT.LOD_RANK_TABLE, {"level": 0})
    steps = gen.op("max_sequence_len", {"RankTable": table}, ["Out"], {}, "int64")
    xs = lod_var("lod_tensor_to_array", {"X": x, "RankTable": table}, "Out", gen.VT.LOD_TENSOR_ARRAY, {}, x)
    i = constant(0)
    mems = []
    for _ in range(memories):
        boot = net.linear(gen.seq_pool(x, r.choice(["first", "average"])), hid, "tanh")
        boot = gen.op("reorder_lod_tensor_by_rank", {"X": boot, "RankTable": table}, ["Out"])
        boot.desc.set_shape([-1, hid])
        mems.append(paddle.tensor.array_write(boot, i))
    outs = paddle.tensor.create_array("float32")
    cond = paddle.less_than(i, steps)
    wx, wh, b = net.parameter([x.shape[1], hid]), net.parameter([hid, hid]), net.parameter([hid])
    loop = gen.CF.While(cond)
    with loop.block():
        xt = read(xs, i, x.shape[1])
        hs = [shrink(read(m, i, hid), i, table, hid) for m in mems]
        new = []
        for k, h in enumerate(hs):
            z = gen.op("elementwise_add", {"X": mul(xt, wx), "Y": mul(hs[k - 1], wh)}, ["Out"], {"axis": -1})
            z = gen.op("elementwise_add", {"X": z, "Y": b}, ["Out"], {"axis": 1})
            h = gen.op(r.choice(["tanh", "sigmoid"]), {"X": z}, ["Out"])
            if k == 0 and r.random() < 0.2:
                h = nested_cond_on(net, r, h)
            new.append(h)
        paddle.tensor.array_write(new[0], i, outs)
        paddle.increment(i, 1)
        for m, h in zip(mems, new):
            paddle.tensor.array_write(h, i, m)
        paddle.assign(paddle.less_than(i, steps), cond)
    y = gen.op("array_to_lod_tensor", {"X": outs, "RankTable": table}, ["Out"])
    y.desc.set_shape([-1, hid])
    y.desc.set_lod_level(1)
    net.push("ragged", y)


def mul(x, w):
    return gen.op("mul", {"X": x, "Y": w}, ["Out"], {"x_num_col_dims": 1, "y_num_col_dims": 1})


def read(array, i, width):
    v = paddle.tensor.array_read(array, i)
    v.desc.set_shape([-1, width])
    return v


def shrink(h, i, table, width):
    v = gen.op("shrink_rnn_memory", {"X": h, "I": i, "RankTable": table}, ["Out"])
    v.desc.set_shape([-1, width])
    return v


def lod_var(kind, ins, slot, var_type, attrs, like=None):
    """An op whose output is not a tensor."""
    block = static.default_main_program().current_block()
    v = block.create_var(name=gen.unique_name.generate(kind), type=var_type, dtype="float32" if like is not None else None)
    block.append_op(type=kind, inputs={k: [x] for k, x in ins.items()}, outputs={slot: [v]}, attrs=attrs)
    return v


# ------------------------------------------------------------------ padded sequences
@step("attention")
def attention(net, r):
    x = net.pick(r, "time")
    if x.shape[1] < 1:
        raise Skip()
    t = x.shape[1]
    x = net.linear(x, 4, dims=2)
    net.push("time", gen.attention(x, t, 4, 2, net.name()))


@step("time_linear")
def time_linear(net, r):
    net.push("time", net.linear(net.pick(r, "time"), net.size(r), r.choice([None, "tanh", "relu"]), dims=2))


@step("time_norm")
def time_norm(net, r):
    x = net.linear(net.pick(r, "time"), 5, dims=2)
    net.push("time", gen.layer_norm(x, net.name(), r.choice([2, 2, 1])))


@step("time_to_matrix")
def time_to_matrix(net, r):
    x = net.pick(r, "time")
    kind = r.choice(["mean", "max", "last", "flat"])
    if kind == "flat":
        net.push("matrix", paddle.flatten(x, 1))
    elif kind == "last":
        net.push("matrix", paddle.squeeze(paddle.slice(x, [1], [x.shape[1] - 1], [x.shape[1]]), [1]))
    else:
        net.push("matrix", getattr(paddle, kind)(x, axis=1))


@step("time_reverse")
def time_reverse(net, r):
    x = net.pick(r, "time")
    net.push("time", r.choice([lambda: paddle.flip(x, [1]), lambda: paddle.roll(x, 1, axis=1)])())


@step("padded_lstm")
def padded_lstm(net, r):
    """An LSTM cell, unrolled."""
    x, hid = net.pick(r, "time"), 3
    z = net.linear(x, 4 * hid, dims=2)
    h, c = (net.linear(paddle.mean(x, axis=1), hid, "tanh") for _ in range(2))
    w = net.parameter([hid, 4 * hid])
    for t in range(min(2, x.shape[1])):
        xt = gen.op("slice", {"Input": z}, ["Out"], {"axes": [1], "starts": [t], "ends": [t + 1], "decrease_axis": [1]})
        xt.desc.set_shape([-1, 4 * hid])
        s = gen.op("elementwise_add", {"X": xt, "Y": mul(h, w)}, ["Out"], {"axis": -1})
        i, f, o, g = paddle.split(s, 4, axis=1)
        c = paddle.add(paddle.multiply(F.sigmoid(f), c), paddle.multiply(F.sigmoid(i), paddle.tanh(g)))
        h = paddle.multiply(F.sigmoid(o), paddle.tanh(c))
    net.push("matrix", r.choice([h, c]))


@step("recurrent")
def recurrent(net, r):
    """A `recurrent` op over the time-major batch; the output or the state may have no reader."""
    x, hid = net.pick(r, "time"), r.choice([2, 3, 5])
    steps, width = x.shape[1], x.shape[2]
    x = paddle.transpose(x, [1, 0, 2])
    boot = net.linear(gen.op("reduce_mean", {"X": x}, ["Out"], {"dim": [0], "keep_dim": False, "reduce_all": False}), hid, "tanh")
    wx, wh, b = net.parameter([width, hid]), net.parameter([hid, hid]), net.parameter([hid])

    def body(ins, pre):
        z = gen.op("elementwise_add", {"X": mul(ins[0], wx), "Y": mul(pre, wh)}, ["Out"], {"axis": -1})
        h = gen.op("tanh", {"X": gen.op("elementwise_add", {"X": z, "Y": b}, ["Out"], {"axis": 1})}, ["Out"])
        return gen.op("assign", {"X": h}, ["Out"]), gen.op("scale", {"X": h}, ["Out"], {"scale": 0.5})
    outs, states = gen.recurrent([x], boot, body)
    use = r.choice(["both", "outs", "last"])
    if use != "last":
        net.push("matrix", paddle.mean(outs, axis=0))
        net.values["matrix"][-1].desc.set_shape([-1, hid])
    if use != "outs":
        last = gen.op("slice", {"Input": states}, ["Out"], {"axes": [0], "starts": [steps - 1], "ends": [steps], "decrease_axis": [0]})
        last.desc.set_shape([-1, hid])
        net.push("matrix", last)

