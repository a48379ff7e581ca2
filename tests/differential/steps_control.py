"""Building steps of random nets with control flow, nested up to two levels. Runs with the original."""
import paddle
import paddle.static as static

from building import constant, gen, mean, step


def mul(x, w):
    return gen.op("mul", {"X": x, "Y": w}, ["Out"], {"x_num_col_dims": 1, "y_num_col_dims": 1})


def add(x, y, axis=-1):
    return gen.op("elementwise_add", {"X": x, "Y": y}, ["Out"], {"axis": axis})


def shaped(v, width):
    v.desc.set_shape([-1, width])
    return v


def flag_of(r, x):
    """A condition that usually depends on the batch."""
    if r.random() < 0.15:
        return gen.op("fill_constant", {}, ["Out"], {"shape": [1], "dtype": 0, "value": float(r.random() < 0.5), "str_value": ""}, "bool")
    bound = paddle.full([], r.choice([0.0, 0.1, -0.1]), "float32")
    return gen.op("less_than", {"X": mean(x), "Y": bound}, ["Out"], {}, "bool")


def branch(net, r, x, width):
    n, act = net.name(), r.choice(["tanh", "sigmoid", None])
    return lambda: gen.fc(x, width, n, act)


def nested_cond_on(net, r, h):
    """h through one of two branches that keep its width; can be used in a loop."""
    flag = flag_of(r, h)
    w = net.parameter_of([h.shape[1], h.shape[1]])
    k = r.choice([0.5, -0.7])
    out = static.nn.cond(flag, lambda: gen.op("tanh", {"X": mul(h, w)}, ["Out"]), lambda: gen.op("scale", {"X": h}, ["Out"], {"scale": k}))
    return shaped(out, h.shape[1])


@step("cond")
def cond(net, r):
    x, width = net.pick(r, "matrix"), net.size(r)
    out = static.nn.cond(flag_of(r, x), branch(net, r, x, width), branch(net, r, x, width))
    net.push("matrix", shaped(out, width))


@step("nested_cond")
def nested_cond(net, r):
    """A branch with a nested branch, and two outputs, of which one may have no reader."""
    x, width = net.pick(r, "matrix"), net.size(r)
    inner_flag, deep, other, flat = flag_of(r, x), branch(net, r, x, width), branch(net, r, x, width), branch(net, r, x, width)

    def yes():
        h = shaped(static.nn.cond(inner_flag, deep, other), width)
        return h, gen.op("scale", {"X": h}, ["Out"], {"scale": 0.5})

    def no():
        h = flat()
        return h, gen.op("tanh", {"X": h}, ["Out"])
    outs = static.nn.cond(flag_of(r, x), yes, no)
    for out in outs if r.random() < 0.6 else [r.choice(outs)]:
        net.push("matrix", shaped(out, width))


@step("switch")
def switch(net, r):
    x, width = net.pick(r, "matrix"), net.size(r)
    index = net.feed("branch", [1], "int32", lambda g, n, lengths: g.randint(0, 3, 1).astype("i4"))
    out = static.nn.switch_case(index, [branch(net, r, x, width) for _ in range(3)])
    net.push("matrix", shaped(out, width))


def loop_over(net, r, x, count, body, memories=1, outputs=False, unused=False):
    """h[t+1] = body(h[t], input) through arrays; returns the last element of every memory."""
    width, i = x.shape[1], constant(0)
    n = count if not isinstance(count, int) else constant(count)
    boots = [net.linear(x, width, "tanh") for _ in range(memories)]
    mems = [paddle.tensor.array_write(b, i) for b in boots]
    outs = paddle.tensor.create_array("float32")
    flag = paddle.less_than(i, n)
    loop = gen.CF.While(flag)
    with loop.block():
        hs = [shaped(paddle.tensor.array_read(m, i), width) for m in mems]
        if r.random() < 0.3:
            hs[0] = add(hs[0], shaped(paddle.tensor.array_read(mems[-1], i), width))
        new = [body(h, hs[k - 1]) for k, h in enumerate(hs)]
        if outputs:
            paddle.tensor.array_write(gen.op("scale", {"X": new[0]}, ["Out"], {"scale": 0.7}), i, outs)
        paddle.increment(i, 1)
        for m, h in zip(mems, new):
            paddle.tensor.array_write(h, i, m)
        paddle.assign(paddle.less_than(i, n), flag)
    ends = [shaped(paddle.tensor.array_read(m, i), width) for m in mems]
    if outputs and not unused:
        ends.append(shaped(paddle.tensor.array_read(outs, constant(0)), width))
    return ends


def cell(net, r, width, x):
    """A recurrent cell; it may read an activation and a parameter from outside the loop."""
    w, act = net.parameter([width, width]), r.choice(["tanh", "sigmoid"])
    outside = r.random() < 0.5

    def body(h, other):
        z = mul(h, w) if other is h else add(mul(h, w), other)
        if outside:
            z = add(z, x)
        return gen.op(act, {"X": z}, ["Out"])
    return body


@step("while_array")
def while_array(net, r):
    x = net.pick(r, "matrix")
    ends = loop_over(net, r, x, r.choice([1, 2, 3]), cell(net, r, x.shape[1], x), outputs=r.random() < 0.4, unused=r.random() < 0.4)
    for end in ends:
        net.push("matrix", end)


@step("trips")
def trips(net, r):
    """The number of iterations is fed and differs from step to step."""
    x = net.pick(r, "matrix")
    count = net.feed("trips", [1], "int64", lambda g, n, lengths: g.randint(1, 4, 1).astype("i8"))
    for end in loop_over(net, r, x, count, cell(net, r, x.shape[1], x), memories=r.choice([1, 2]), outputs=r.random() < 0.5, unused=r.random() < 0.3):
        net.push("matrix", end)


@step("while_memories")
def while_memories(net, r):
    """Several memories, of which some may not be read after the loop."""
    x = net.pick(r, "matrix")
    ends = loop_over(net, r, x, r.choice([2, 3]), cell(net, r, x.shape[1], x), memories=r.choice([2, 3]))
    for end in ends if r.random() < 0.5 else ends[:1]:
        net.push("matrix", end)


@step("nested_while")
def nested_while(net, r):
    x = net.pick(r, "matrix")
    width, inner_count = x.shape[1], r.choice([1, 2])
    w = net.parameter([width, width])

    def body(h, other):
        j, n = constant(0), constant(inner_count)
        mem = paddle.tensor.array_write(h, j)
        flag = paddle.less_than(j, n)
        loop = gen.CF.While(flag)
        with loop.block():
            z = gen.op("tanh", {"X": mul(shaped(paddle.tensor.array_read(mem, j), width), w)}, ["Out"])
            paddle.increment(j, 1)
            paddle.tensor.array_write(z, j, mem)
            paddle.assign(paddle.less_than(j, n), flag)
        return shaped(paddle.tensor.array_read(mem, j), width)
    for end in loop_over(net, r, x, 2, body):
        net.push("matrix", end)


@step("cond_in_while")
def cond_in_while(net, r):
    x = net.pick(r, "matrix")
    inner = cell(net, r, x.shape[1], x)
    net.parameter_of([x.shape[1], x.shape[1]])
    for end in loop_over(net, r, x, 2, lambda h, other: nested_cond_on(net, r, inner(h, other))):
        net.push("matrix", end)


@step("while_in_cond")
def while_in_cond(net, r):
    x = net.pick(r, "matrix")
    width = x.shape[1]
    body = cell(net, r, width, x)
    flat = branch(net, r, x, width)
    out = static.nn.cond(flag_of(r, x), lambda: loop_over(net, r, x, 2, body)[0], flat)
    net.push("matrix", shaped(out, width))
