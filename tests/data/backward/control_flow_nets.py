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


# ---- states of recurrences that more than the next step reads


def states_of(body, boots=1):
    """Stacked outputs of a recurrence; body(input, states, u, v) as for recurrent()."""
    x = sequence()
    boot = tanh(mul(data("x", [ROWS, WIDTH]), par("wa")))
    u, v = par("u"), par("v")
    return recurrent([x], [boot] + [scale(boot, 0.5 + k) for k in range(1, boots)], lambda ins, before: body(ins[0], before, u, v))


def copy(x):
    return op("assign", {"X": x})


def recurrent_states_used():
    """a state that is an output, of which the loss sees every step"""
    def body(x, before, u, v):
        state = copy(tanh(add(mul(before[0], u), mul(x, v))))
        return [state], [state]
    return mean_square(states_of(body)[0])


def recurrent_states_and_last():
    """... and the last one once more"""
    def body(x, before, u, v):
        h = tanh(add(mul(before[0], u), mul(x, v)))
        state = copy(h)
        return [state], [scale(h, 0.5), state]
    out, states = states_of(body)
    last = op("slice", {"Input": states}, attrs={"axes": [0], "starts": [STEPS - 1], "ends": [STEPS], "decrease_axis": [0]})
    last.desc.set_shape([ROWS, WIDTH])
    return add(mean_square(out), mean_square(states), mean_square(last))


def recurrent_outputs_read_inside():
    """two states, both outputs used in full, which other ops of the step read, too"""
    def body(x, before, u, v):
        h = tanh(add(mul(before[0], u), x))
        g = tanh(add(mul(before[1], v), h))
        return [h, g], [h, g, mul(g, u)]
    a, b, c = states_of(body, 2)
    return add(mean_square(a), mean_square(b), mean_square(c))


def recurrent_swapped_states():
    """the second state is what the first one was"""
    def body(x, before, u, v):
        h = tanh(add(mul(before[0], u), mul(before[1], v), x))
        return [h, before[0]], [h]
    return mean_square(states_of(body, 2)[0])


def recurrent_one_state_twice():
    """two states with the same value"""
    def body(x, before, u, v):
        h = copy(tanh(add(mul(before[0], u), mul(before[1], v), x)))
        return [h, h], [h]
    return mean_square(states_of(body, 2)[0])


def recurrent_states_in_loop():
    """a sequence of states, used in full in each step of a loop"""
    x = sequence()
    loop = Loop(2)
    a = write(tanh(mul(data("x", [ROWS, WIDTH]), par("wa"))), loop.i)
    u, v = par("u"), par("v")

    def body(ins, before):
        state = copy(tanh(add(mul(before[0], u), ins[0])))
        return [state], [state]
    with loop.block():
        out = recurrent([x], [read(a, loop.i)], body)[0]
        z = tanh(mul(paddle.mean(out, axis=0), v))
        z.desc.set_shape([ROWS, WIDTH])
        loop.step()
        write(z, loop.i, a)
        loop.end()
    return mean_square(read(a, loop.i))


# ---- vars that several ops write


def begin(make=lambda x: scale(x, 1)):
    """An input, a var made of it, and two parameters."""
    x = data("x", [ROWS, WIDTH])
    return x, make(mul(x, par("wa"))), par("u"), par("v")


def branch(condition, body):
    block = CF.ConditionalBlock([condition], is_scalar_condition=True)
    with block.block():
        body()


def never():
    return paddle.logical_not(flag())


def in_place(kind, x, **attrs):
    layers.LayerHelper(kind).append_op(type=kind, inputs={"X": [x]}, outputs={"Out": [x]}, attrs=attrs)


def branch_assigns(taken=flag):
    """a branch assigns to a var of outside what it makes of it"""
    x, h, u, v = begin(tanh)
    branch(taken(), lambda: paddle.assign(tanh(mul(h, u)), h))
    return mean_square(mul(h, v))


def branch_assigns_not_taken():
    """the same, not taken"""
    return branch_assigns(never)


def branch_replaces(taken=flag):
    """a branch overwrites a var without reading it"""
    x, h, u, v = begin()
    branch(taken(), lambda: paddle.assign(tanh(mul(x, u)), h))
    return mean_square(mul(h, v))


def branch_replaces_not_taken():
    """the same, not taken"""
    return branch_replaces(never)


def branch_puts_back():
    """a branch overwrites a var with an earlier value"""
    x, h, u, v = begin()
    g = tanh(mul(h, u))
    branch(flag(), lambda: paddle.assign(h, g))
    return mean_square(mul(g, v))


def branch_overwrites_used():
    """a var that is used before the branch that overwrites it, and in the branch, and after it"""
    x, h, u, v = begin()
    k = tanh(mul(h, u))

    def body():
        paddle.assign(tanh(mul(add(k, h), u)), h)
        paddle.assign(mul(h, v), h)
    branch(flag(), body)
    return add(mean_square(mul(h, v)), mean_square(k))


def branch_within_branch():
    """the inner one overwrites a var of the outermost block"""
    x, h, u, v = begin(tanh)
    yes = flag()

    def body():
        k = mul(h, u)
        branch(yes, lambda: paddle.assign(tanh(mul(k, v)), h))
        paddle.assign(add(k, h), h)
    branch(yes, body)
    return mean_square(mul(h, v))


def switch_assigns():
    """each case of a switch assigns to a var, which holds something before"""
    x, h, u, v = begin()
    out = scale(h, 1)
    with CF.Switch() as switch:
        with switch.case(never()):
            paddle.assign(tanh(mul(h, u)), out)
        with switch.default():
            paddle.assign(tanh(mul(out, v)), out)
    return mean_square(out)


def switch_fills():
    """the same, where the var holds nothing before"""
    x, h, u, v = begin()
    out = layers.LayerHelper("out").create_variable_for_type_inference(layers.DTYPE)
    out.desc.set_shape([ROWS, WIDTH])
    yes = flag()
    with CF.Switch() as switch:
        with switch.case(never()):
            paddle.assign(tanh(mul(h, u)), out)
        with switch.case(yes):
            paddle.assign(tanh(mul(h, v)), out)
        with switch.default():
            paddle.assign(scale(h, 2), out)
    return mean_square(out)


def assigned_twice():
    """a var gets another value; both are used"""
    x, h, u, v = begin()
    a = tanh(mul(h, u))
    paddle.assign(tanh(mul(x, v)), h)
    return add(mean_square(a), mean_square(h))


def assigned_unused():
    """a var gets another value before anybody has read the first"""
    x, h, u, v = begin()
    paddle.assign(tanh(mul(x, v)), h)
    return add(mean_square(mul(h, u)), mean_square(h))


def in_place_square():
    """in place, by an op whose gradient needs its input"""
    x, h, u, v = begin()
    a = mul(h, u)
    in_place("square", h)
    return add(mean_square(a), mean_square(h))


def in_place_on_feed():
    """what is fed is scaled in place, after it was used"""
    x, h, u, v = begin()
    in_place("scale", x, scale=0.7)
    return add(mean_square(tanh(mul(x, u))), mean_square(h))


def increment_apart():
    """increment from one var into another"""
    x, h, u, v = begin()
    one = op("reduce_mean", {"X": h}, attrs={"dim": [0], "reduce_all": True, "keep_dim": True})
    one.desc.set_shape([1])
    return add(mean_square(mul(h, u)), mean_square(op("increment", {"X": one}, attrs={"step": 2.0})))


def loop_uses_assigned():
    """a step assigns to a var and reads it again"""
    x, h, u, v = begin()
    loop, s = Loop(), scale(h, 0.5)
    with loop.block():
        paddle.assign(tanh(mul(h, u)), h)
        paddle.assign(add(s, mul(h, v)), s)
        loop.step()
        loop.end()
    return mean_square(s)


def loop_assigns_twice():
    """a step assigns twice to a var"""
    x, h, u, v = begin()
    loop = Loop()
    with loop.block():
        paddle.assign(tanh(mul(h, u)), h)
        paddle.assign(tanh(add(mul(h, v), x)), h)
        loop.step()
        loop.end()
    return mean_square(h)


def loop_scales_in_place():
    """a step uses a var and scales it in place"""
    x, h, u, v = begin()
    loop, s = Loop(), scale(h, 0.5)
    with loop.block():
        paddle.assign(add(s, tanh(mul(h, u))), s)
        in_place("scale", h, scale=0.7)
        loop.step()
        loop.end()
    return add(mean_square(s), mean_square(mul(h, v)))


def loop_factor_in_place():
    """a step scales in place a factor"""
    x, h, u, v = begin()
    loop, factor = Loop(), paddle.full([1], 1.0, layers.DTYPE)
    factor.stop_gradient = False
    with loop.block():
        n = op("elementwise_mul", {"X": tanh(mul(h, u)), "Y": factor}, attrs={"axis": -1})
        in_place("scale", factor, scale=0.7)
        paddle.assign(n, h)
        loop.step()
        loop.end()
    return mean_square(mul(h, v))


def loop_between_writes():
    """a var is used before a loop that overwrites it, used after it, and overwritten again"""
    x, h, u, v = begin(tanh)
    a = mean_square(mul(h, v))
    loop = Loop()
    with loop.block():
        paddle.assign(tanh(add(mul(h, u), x)), h)
        loop.step()
        loop.end()
    b = mean_square(mul(h, v))
    paddle.assign(tanh(mul(x, v)), h)
    return add(a, b, mean_square(h))


def branch_in_loop_assigns():
    """in some steps a branch overwrites the var that the loop carries, and one of the step"""
    x, h, u, v = begin()
    loop, one = Loop(), number(1)
    with loop.block():
        n = tanh(add(mul(h, u), x))
        early = paddle.less_than(loop.i, one)
        branch(early, lambda: paddle.assign(tanh(mul(n, v)), n))
        branch(paddle.logical_not(early), lambda: paddle.assign(mul(add(n, h), v), h))
        paddle.assign(tanh(add(h, n)), h)
        loop.step()
        loop.end()
    return mean_square(h)


def loop_in_branch_assigns():
    """a loop within a branch overwrites a var of outside"""
    x, h, u, v = begin(tanh)

    def body():
        loop = Loop()
        with loop.block():
            paddle.assign(tanh(add(mul(h, u), x)), h)
            loop.step()
            loop.end()
    branch(flag(), body)
    return mean_square(mul(h, v))


def loops_carry():
    """a loop within a loop, which both overwrite a var"""
    x, h, u, v = begin()
    outer = Loop(2)
    with outer.block():
        n = tanh(mul(h, v))
        inner = Loop(2)
        with inner.block():
            paddle.assign(tanh(add(mul(h, u), n)), h)
            inner.step()
            inner.end()
        outer.step()
        outer.end()
    return mean_square(mul(h, v))


def cond_reads_carried():
    """a branch that makes a new value of the var that the loop carries"""
    x, h, u, v = begin()
    loop, one = Loop(), number(1)
    with loop.block():
        z = static.nn.cond(paddle.less_than(loop.i, one), lambda: tanh(mul(h, u)), lambda: scale(mul(h, v), 0.7))
        paddle.assign(add(z, h), h)
        loop.step()
        loop.end()
    return mean_square(mul(h, v))


def recurrent_reads_carried():
    """the steps of a recurrence read the var that the loop around it carries"""
    seq = sequence()
    x, h, u, v = begin()
    loop = Loop(2)

    def body(ins, before):
        state = copy(tanh(add(mul(before[0], u), ins[0], h)))
        return [state], [state]
    with loop.block():
        out = recurrent([seq], [mul(h, v)], body)[0]
        z = paddle.mean(out, axis=0)
        z.desc.set_shape([ROWS, WIDTH])
        paddle.assign(z, h)
        loop.step()
        loop.end()
    return mean_square(mul(h, v))


def branch_swaps():
    """a branch swaps two vars, in a loop"""
    x, h, u, v = begin()
    loop, one, g = Loop(), number(1), scale(h, 0.5)
    with loop.block():
        def body():
            spare = copy(h)
            paddle.assign(g, h)
            paddle.assign(spare, g)
        branch(paddle.less_than(loop.i, one), body)
        paddle.assign(tanh(mul(h, u)), h)
        paddle.assign(tanh(add(mul(g, v), h)), g)
        loop.step()
        loop.end()
    return add(mean_square(h), mean_square(mul(g, u)))


# ---- elements of arrays that are read at several places


def memory_read_outside():
    """each element of the memory is read after the loop, too"""
    x = data("x", [ROWS, WIDTH])
    loop = Loop()
    a = write(tanh(mul(x, par("wa"))), loop.i)
    u = par("u")
    with loop.block():
        h = tanh(add(mul(read(a, loop.i), u), x))
        loop.step()
        write(h, loop.i, a)
        loop.end()
    return mean_square(total(a, STEPS + 1))


def memory_two_back():
    """a step reads what the last two have left"""
    x = data("x", [ROWS, WIDTH])
    loop = Loop()
    back = number(0)
    a = write(tanh(mul(x, par("wa"))), loop.i)
    out = paddle.tensor.create_array(layers.DTYPE)
    u, v = par("u"), par("v")
    with loop.block():
        h = tanh(add(mul(read(a, loop.i), u), mul(read(a, back), v)))
        write(h, loop.i, out)
        paddle.assign(loop.i, back)
        loop.step()
        write(h, loop.i, a)
        loop.end()
    return mean_square(total(out))


def memory_in_one_slot():
    """the memory is one element, which each step overwrites, and which is read after the loop"""
    x = data("x", [ROWS, WIDTH])
    loop = Loop()
    slot = number(0)
    a = write(tanh(mul(x, par("wa"))), slot)
    u = par("u")
    with loop.block():
        write(tanh(add(mul(read(a, slot), u), x)), slot, a)
        loop.step()
        loop.end()
    return mean_square(read(a, number(0)))


# ---- two losses; the first is the mean before the last


def two_losses_of_loops():
    """a loop within a loop, with a memory each"""
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
    end = read(a, outer.i)
    mean_square(mul(end, u))
    return mean_square(tanh(end))


def two_losses_of_carried():
    """vars that a loop carries, of which each loss sees one"""
    x, h, u, v = begin(tanh)
    loop, s = Loop(), scale(h, 0.5)
    with loop.block():
        paddle.assign(tanh(mul(h, u)), h)
        paddle.assign(add(s, mul(h, v)), s)
        loop.step()
        loop.end()
    mean_square(h)
    return mean_square(s)


def two_losses_of_branches():
    """a branch, and one within it"""
    x, h, u, v = begin(tanh)
    yes = flag()
    out = static.nn.cond(yes, lambda: static.nn.cond(yes, lambda: tanh(mul(h, u)), lambda: scale(h, 2)), lambda: mul(h, v))
    mean_square(mul(out, v))
    return mean_square(tanh(out))


def two_losses_of_recurrence():
    """states, in full and by the last step"""
    def body(x, before, u, v):
        state = copy(tanh(add(mul(before[0], u), mul(x, v))))
        return [state], [state, scale(state, 2)]
    out, other = states_of(body)
    mean_square(out)
    return mean_square(other)


NETS = [two_memories, read_twice, nested_loops, inner_reads_outer_memory, cond_in_loop, cond_writes_memory, cond_reads_memory,
        carried_by_assign, carried_value_overwritten, carried_chain, never_fetched, recurrent_two_states, recurrent_state_unused, recurrent_state_apart,
        recurrent_last_state, recurrent_output_unused,
        cond_in_recurrent, recurrent_in_loop, cond_unused_output, nested_cond, loop_in_cond, while_loop_api,
        loop_only_inside_written,
        recurrent_states_used, recurrent_states_and_last, recurrent_outputs_read_inside, recurrent_swapped_states, recurrent_one_state_twice, recurrent_states_in_loop,
        branch_assigns, branch_assigns_not_taken, branch_replaces, branch_replaces_not_taken, branch_puts_back, branch_overwrites_used,
        branch_within_branch, switch_assigns, switch_fills, assigned_twice, assigned_unused, in_place_square, in_place_on_feed, increment_apart,
        loop_uses_assigned, loop_assigns_twice, loop_scales_in_place, loop_factor_in_place, loop_between_writes, branch_in_loop_assigns,
        loop_in_branch_assigns, loops_carry, cond_reads_carried, recurrent_reads_carried, branch_swaps, memory_read_outside, memory_two_back, memory_in_one_slot,
        two_losses_of_loops, two_losses_of_carried, two_losses_of_branches, two_losses_of_recurrence]


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
