#!/usr/bin/env python3
"""Small nets with control flow: what the original's append_backward makes of them, and their gradients in float64.

    control_flow_nets.py OUT_FOLDER [NAME...]

Needs paddlepaddle==2.6.2 and numpy<2; the tests do not, they read what this has written: NAME.forward.pb, NAME.backward.pb
(absent where the original refuses), and NAME.npz with feeds (feed/VAR), parameters (param/VAR), the gradients that the
original computes (grad/PARAM) and those of central differences over its forward program in float64 (numerical/PARAM).
"""
import os
import sys
import warnings

if os.environ.get("PYTHONHASHSEED") != "0":  # control-flow ops list their vars in set order
    os.environ.update(PYTHONHASHSEED="0", OMP_NUM_THREADS="1", GLOG_minloglevel="3", FLAGS_new_executor_use_inplace="0")
    os.execv(sys.executable, [sys.executable] + sys.argv)
warnings.filterwarnings("ignore")
import numpy as np
import numpy.random
import original_layers as layers
import paddle
from original_layers import (ROWS, STEPS, WIDTH, Loop, add, bare, data, flag, mean_square, mul, number, op, par, read, recurrent, run,
                             scale, sequence, tanh, total, write)
from paddle import static
from paddle.base import unique_name
from paddle.base.backward import append_backward
from paddle.static.nn import control_flow as CF


# ---- nets: each returns its loss


def two_memories():
    """two arrays that only the loop reads, each fed by the other"""
    x = data("x", [ROWS, WIDTH])
    loop = Loop()
    a = write(tanh(mul(x, par("wa"))), loop.i)
    b = write(tanh(mul(x, par("wb"))), loop.i)
    out = paddle.tensor.create_array(layers.DTYPE)
    u, v = par("u"), par("v")
    with loop.block():
        ha, hb = read(a, loop.i), read(b, loop.i)
        na, nb = tanh(add(mul(hb, u), x)), tanh(add(mul(ha, v), hb))
        write(scale(na, 0.5), loop.i, out)
        loop.step()
        write(na, loop.i, a)
        write(nb, loop.i, b)
        loop.end()
    return mean_square(total(out))


def read_twice():
    """an array read by two ops of a step"""
    x = data("x", [ROWS, WIDTH])
    loop = Loop()
    a = write(tanh(mul(x, par("wa"))), loop.i)
    out = paddle.tensor.create_array(layers.DTYPE)
    u, v = par("u"), par("v")
    with loop.block():
        one, two = read(a, loop.i), read(a, loop.i)
        h = tanh(add(mul(one, u), mul(two, v)))
        write(h, loop.i, out)
        loop.step()
        write(h, loop.i, a)
        loop.end()
    return mean_square(total(out))


def nested_loops():
    """an inner loop with a memory of its own, which starts from that of the outer one"""
    x = data("x", [ROWS, WIDTH])
    outer = Loop(2)
    a = write(tanh(mul(x, par("wa"))), outer.i)
    u, v = par("u"), par("v")
    with outer.block():
        inner = Loop(2)
        b = write(tanh(mul(read(a, outer.i), u)), inner.i)
        with inner.block():
            h = tanh(add(mul(read(b, inner.i), v), x))
            inner.step()
            write(h, inner.i, b)
            inner.end()
        last = read(b, inner.i)
        outer.step()
        write(last, outer.i, a)
        outer.end()
    return mean_square(read(a, outer.i))


def inner_reads_outer_memory():
    """the memory of the outer loop is read and written by the inner one alone"""
    x = data("x", [ROWS, WIDTH])
    outer = Loop(2)
    k = number(0)
    a = write(tanh(mul(x, par("wa"))), k)
    out = paddle.tensor.create_array(layers.DTYPE)
    u = par("u")
    with outer.block():
        inner = Loop(2)
        with inner.block():
            h = tanh(add(mul(read(a, k), u), x))
            write(scale(h, 2), k, out)
            paddle.increment(k, 1)
            write(h, k, a)
            inner.step()
            inner.end()
        outer.step()
        outer.end()
    return mean_square(total(out, 4))


def cond_in_loop():
    """the step takes one of two branches, by its number"""
    x = data("x", [ROWS, WIDTH])
    loop = Loop()
    one = number(1)
    a = write(tanh(mul(x, par("wa"))), loop.i)
    out = paddle.tensor.create_array(layers.DTYPE)
    u, v = par("u"), par("v")
    with loop.block():
        h = read(a, loop.i)
        z = static.nn.cond(paddle.less_than(loop.i, one), lambda: tanh(mul(h, u)), lambda: scale(mul(h, v), 0.7))
        write(z, loop.i, out)
        loop.step()
        write(z, loop.i, a)
        loop.end()
    return mean_square(total(out))


def cond_writes_memory():
    """the memory is written inside of a conditional block"""
    x = data("x", [ROWS, WIDTH])
    loop = Loop()
    a = write(tanh(mul(x, par("wa"))), loop.i)
    out = paddle.tensor.create_array(layers.DTYPE)
    u = par("u")
    yes = flag()
    with loop.block():
        h = tanh(add(mul(read(a, loop.i), u), x))
        write(h, loop.i, out)
        loop.step()
        block = CF.ConditionalBlock([yes], is_scalar_condition=True)
        with block.block():
            write(scale(h, 0.9), loop.i, a)
        loop.end()
    return mean_square(total(out))


def cond_reads_memory():
    """the memory is read inside of a branch"""
    x = data("x", [ROWS, WIDTH])
    loop = Loop()
    a = write(tanh(mul(x, par("wa"))), loop.i)
    out = paddle.tensor.create_array(layers.DTYPE)
    u = par("u")
    yes = flag()
    with loop.block():
        h = static.nn.cond(yes, lambda: tanh(mul(read(a, loop.i), u)), lambda: scale(x, 1))
        write(h, loop.i, out)
        loop.step()
        write(h, loop.i, a)
        loop.end()
    return mean_square(total(out))


def carried_by_assign(start=lambda x: scale(x, 1)):
    """no array: a var is overwritten in each step, another one follows a step behind"""
    x = data("x", [ROWS, WIDTH])
    loop = Loop()
    h = start(mul(x, par("wa")))
    late = scale(h, 1)
    u, v = par("u"), par("v")
    with loop.block():
        n = tanh(add(mul(h, u), x))
        m = tanh(add(mul(late, v), h))
        paddle.assign(m, late)
        paddle.assign(n, h)
        loop.step()
        loop.end()
    return mean_square(late)


def carried_value_overwritten():
    """the same, where the gradient of what stands before the loop needs the value that the loop overwrites"""
    return carried_by_assign(tanh)


def carried_chain():
    """three vars, each a step behind the next; the loss sees the last"""
    x = data("x", [ROWS, WIDTH])
    loop = Loop(4)
    a, b, c = scale(mul(x, par("wa")), 1), scale(mul(x, par("wb")), 1), scale(mul(x, par("wc")), 1)
    u = par("u")
    with loop.block():
        nc, nb, na = tanh(b), tanh(a), tanh(mul(a, u))
        paddle.assign(nc, c)
        paddle.assign(nb, b)
        paddle.assign(na, a)
        loop.step()
        loop.end()
    return mean_square(c)


def never_fetched():
    """of two memories and two outputs the loss sees one output; a third memory has no part in it"""
    x = data("x", [ROWS, WIDTH])
    loop = Loop()
    a, b = write(tanh(mul(x, par("wa"))), loop.i), write(tanh(mul(x, par("wb"))), loop.i)
    lone = write(tanh(mul(x, par("wc"))), loop.i)
    out, other = paddle.tensor.create_array(layers.DTYPE), paddle.tensor.create_array(layers.DTYPE)
    u, v = par("u"), par("v")
    with loop.block():
        ha, hb, hl = read(a, loop.i), read(b, loop.i), read(lone, loop.i)
        na, nb = tanh(mul(ha, u)), tanh(add(mul(hb, v), ha))
        write(nb, loop.i, out)
        write(na, loop.i, other)
        loop.step()
        write(na, loop.i, a)
        write(nb, loop.i, b)
        write(tanh(hl), loop.i, lone)
        loop.end()
    return mean_square(total(out))


def recurrent_two_states():
    """two states, of which one is an output, too"""
    x = sequence()
    boot = tanh(mul(data("x", [ROWS, WIDTH]), par("wa")))
    u, v = par("u"), par("v")

    def body(ins, before):
        h = tanh(add(mul(before[0], u), ins[0]))
        g = tanh(add(mul(before[1], v), h))
        return [op("assign", {"X": h}), g], [op("assign", {"X": scale(g, 0.5)}), op("assign", {"X": h})]
    outs = recurrent([x], [boot, scale(boot, 1)], body)
    return add(mean_square(outs[0]), mean_square(outs[1]))


def recurrent_state_unused():
    """a state that is an output, which nobody reads"""
    x = sequence()
    boot = tanh(mul(data("x", [ROWS, WIDTH]), par("wa")))
    u, v = par("u"), par("v")

    def body(ins, before):
        h = tanh(add(mul(before[0], u), mul(ins[0], v)))
        state = op("assign", {"X": h})
        return [state], [scale(h, 0.5), state]
    return mean_square(recurrent([x], [boot], body)[0])


def recurrent_state_apart():
    """a state in a var of its own that is no output"""
    x = sequence()
    boot = tanh(mul(data("x", [ROWS, WIDTH]), par("wa")))
    u, v = par("u"), par("v")

    def body(ins, before):
        h = tanh(add(mul(before[0], u), mul(ins[0], v)))
        return [op("assign", {"X": h})], [scale(h, 0.5)]
    return mean_square(recurrent([x], [boot], body)[0])


def recurrent_last_state():
    """a state in a var of its own that is an output, of which the loss sees the last step"""
    x = sequence()
    boot = tanh(mul(data("x", [ROWS, WIDTH]), par("wa")))
    u, v = par("u"), par("v")

    def body(ins, before):
        h = tanh(add(mul(before[0], u), mul(ins[0], v)))
        state = op("assign", {"X": h})
        return [state], [scale(h, 0.5), state]
    out, states = recurrent([x], [boot], body)
    last = op("slice", {"Input": states}, attrs={"axes": [0], "starts": [STEPS - 1], "ends": [STEPS], "decrease_axis": [0]})
    last.desc.set_shape([ROWS, WIDTH])
    return add(mean_square(out), mean_square(last))


def recurrent_output_unused():
    """an output that nobody reads and that is no state"""
    x = sequence()
    boot = tanh(mul(data("x", [ROWS, WIDTH]), par("wa")))
    u, v = par("u"), par("v")

    def body(ins, before):
        h = tanh(add(mul(before[0], u), mul(ins[0], v)))
        return [h], [scale(h, 0.5), scale(mul(h, v), 2)]
    return mean_square(recurrent([x], [boot], body)[0])


def cond_in_recurrent():
    """a branch in each step"""
    x = sequence()
    boot = tanh(mul(data("x", [ROWS, WIDTH]), par("wa")))
    u, v = par("u"), par("v")
    yes = flag()

    def body(ins, before):
        h = static.nn.cond(yes, lambda: tanh(mul(before[0], u)), lambda: mul(before[0], v))
        h.desc.set_shape([ROWS, WIDTH])
        h = tanh(add(h, ins[0]))
        return [h], [scale(h, 0.5)]
    return mean_square(recurrent([x], [boot], body)[0])


def recurrent_in_loop():
    """a recurrent op in each step of a loop"""
    x = sequence()
    loop = Loop(2)
    a = write(tanh(mul(data("x", [ROWS, WIDTH]), par("wa"))), loop.i)
    u, v = par("u"), par("v")

    def body(ins, before):
        h = tanh(add(mul(before[0], u), ins[0]))
        return [h], [scale(h, 0.5)]
    with loop.block():
        h = read(a, loop.i)
        out = recurrent([x], [h], body)[0]
        z = tanh(mul(paddle.mean(out, axis=0), v))
        z.desc.set_shape([ROWS, WIDTH])
        loop.step()
        write(z, loop.i, a)
        loop.end()
    return mean_square(read(a, loop.i))


def cond_unused_output():
    """of two results of a branch the loss sees one"""
    x = data("x", [ROWS, WIDTH])
    wa, u, v, w = par("wa"), par("u"), par("v"), par("w")
    h = tanh(mul(x, wa))
    one, _ = static.nn.cond(flag(), lambda: (tanh(mul(h, u)), mul(h, v)), lambda: (mul(h, v), tanh(mul(h, w))))
    return mean_square(one)


def nested_cond():
    """a branch within a branch, with a result that nobody reads"""
    x = data("x", [ROWS, WIDTH])
    wa, u, v, w = par("wa"), par("u"), par("v"), par("w")
    h = tanh(mul(x, wa))
    yes = flag()

    def inner():
        one, _ = static.nn.cond(yes, lambda: (tanh(mul(h, u)), mul(h, v)), lambda: (mul(h, v), tanh(mul(h, w))))
        return one, mul(h, w)
    one, _ = static.nn.cond(yes, inner, lambda: (mul(h, u), scale(h, 1)))
    return mean_square(add(one, h))


def loop_in_cond():
    """a loop within a branch"""
    x = data("x", [ROWS, WIDTH])
    wa, u = par("wa"), par("u")
    start = tanh(mul(x, wa))

    def long():
        loop = Loop()
        a = write(start, loop.i)
        with loop.block():
            h = tanh(mul(read(a, loop.i), u))
            loop.step()
            write(h, loop.i, a)
            loop.end()
        return read(a, loop.i)
    out = static.nn.cond(flag(), long, lambda: scale(start, 1))
    return mean_square(out)


def while_loop_api():
    """the functional form, with an unused result"""
    x = data("x", [ROWS, WIDTH])
    wa, u, v = par("wa"), par("u"), par("v")
    start = scale(mul(x, wa), 1)

    def body(i, h, g):
        return [i + 1, tanh(mul(h, u)), tanh(mul(g, v))]
    n = number(STEPS)
    _, h, _ = static.nn.while_loop(lambda i, h, g: paddle.less_than(i, n), body, [number(0), start, scale(start, 1)])
    return mean_square(h)


def loop_only_inside_written():
    """arrays that only the loop writes: one is read behind it, one never"""
    x = data("x", [ROWS, WIDTH])
    loop = Loop()
    out, idle = paddle.tensor.create_array(layers.DTYPE), paddle.tensor.create_array(layers.DTYPE)
    u, v = par("u"), par("v")
    with loop.block():
        h = tanh(mul(x, u))
        write(h, loop.i, out)
        write(mul(h, v), loop.i, idle)
        loop.step()
        loop.end()
    return mean_square(total(out))


NETS = [two_memories, read_twice, nested_loops, inner_reads_outer_memory, cond_in_loop, cond_writes_memory, cond_reads_memory,
        carried_by_assign, carried_value_overwritten, carried_chain, never_fetched, recurrent_two_states, recurrent_state_unused, recurrent_state_apart,
        recurrent_last_state, recurrent_output_unused,
        cond_in_recurrent, recurrent_in_loop, cond_unused_output, nested_cond, loop_in_cond, while_loop_api,
        loop_only_inside_written]


# ---- building and running


def build(net, dtype, backward):
    layers.DTYPE = dtype
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), unique_name.guard():
        loss = net()
        forward = main.desc.serialize_to_string()
        pairs = append_backward(loss) if backward else []
    return main, forward, loss.name, pairs


def values(program, dtype):
    r = numpy.random.RandomState(7)
    feeds = {"x": r.randn(ROWS, WIDTH), "seq": r.randn(STEPS, ROWS, WIDTH)}
    params = {p.name: r.randn(*p.shape) * 0.6 for p in sorted(program.all_parameters(), key=lambda p: p.name)}
    used = {v.name for v in program.list_vars()}
    feeds = {k: v.astype(dtype) for k, v in feeds.items() if k in used}
    if "flag" in used:
        feeds["flag"] = np.array([1], "f4")
    return feeds, {k: v.astype(dtype) for k, v in params.items()}


def numerical(net, params32, feeds32, epsilon=1e-5):
    program, _, loss, _ = build(net, "float64", False)
    feeds = {k: v if k == "flag" else v.astype("f8") for k, v in feeds32.items()}
    params = {k: v.astype("f8") for k, v in params32.items()}
    grads = {}
    for name, value in params.items():
        grad = np.zeros_like(value)
        for at in np.ndindex(*value.shape):
            ends = []
            for sign in (1, -1):
                moved = dict(params, **{name: value.copy()})
                moved[name][at] += sign * epsilon
                ends.append(float(np.asarray(run(program, feeds, moved, [loss])[0]).reshape(())))
            grad[at] = (ends[0] - ends[1]) / (2 * epsilon)
        grads[name] = grad
    return grads


def store(net, folder):
    name = net.__name__
    main, forward, loss, _ = build(net, "float32", False)
    feeds, params = values(main, "float32")
    arrays = {f"feed/{k}": v for k, v in feeds.items()} | {f"param/{k}": v for k, v in params.items()}
    verdict = ""
    with open(f"{folder}/{name}.forward.pb", "wb") as file:
        file.write(bare(forward))
    arrays |= {f"numerical/{k}": v for k, v in numerical(net, params, feeds).items()}
    try:
        main, forward, loss, pairs = build(net, "float32", True)
        backward = bare(main.desc.serialize_to_string())  # a run adds to the program
        grads = dict(zip([p.name for p, _ in pairs], run(main, feeds, params, [g.name for _, g in pairs])))
        arrays |= {f"grad/{k}": v for k, v in grads.items()}
        with open(f"{folder}/{name}.backward.pb", "wb") as file:
            file.write(backward)
        for k, v in params.items():
            want, got = arrays[f"numerical/{k}"], grads.get(k)
            zero = np.abs(want).max() < 1e-9
            far = float("inf") if got is None else np.abs(got - want).max() / max(np.abs(want).max(), 1e-9)
            if got is None and zero:
                far = 0
            verdict += f" {k}: {far:.1e}" + (" no gradient" if got is None else "")
    except Exception as error:  # the original refuses
        verdict = f" refused: {type(error).__name__}: {str(error).strip().splitlines()[-1][:200]}"
    np.savez(f"{folder}/{name}.npz", **arrays)
    print(f"{name}:{verdict}", flush=True)


def main():
    folder, wanted = sys.argv[1], sys.argv[2:]
    os.makedirs(folder, exist_ok=True)
    for net in NETS:
        if not wanted or net.__name__ in wanted:
            store(net, folder)


if __name__ == "__main__":
    main()
