"""Turns a plan into a folder in the layout of the training references: programs, parameters, feeds and results of the
original."""
import json
import os

import numpy as np
import paddle
import paddle.static as static
from paddle.base import core, framework

import gen_training_goldens as gen
from building import build_net

PERTURBATION, GROWTH = 1.2e-7, 50           # ratio of a perturbed run, for tolerances
CHAOTIC = 1e-3


def unstable(text):
    return dict(usable=False, reason=text)


def parameter_lists(net, main, plan):
    """Which loss trains which parameters; two losses share some, or each has a separate list."""
    names = [p.name for p in main.all_parameters() if p.trainable]
    if len(plan["heads"]) == 1 or not plan["split_lists"]:
        return [None] * len(plan["heads"])
    return [names[::2] or names, names[1::2] or names]


def bytes_so_far(program):
    """A program as it is while it is being built."""
    desc = core.ProgramDesc(program.desc)
    for b in range(desc.num_blocks()):
        block = desc.block(b)
        for i in range(block.op_size()):
            if block.op(i).has_attr("op_callstack"):
                block.op(i).remove_attr("op_callstack")
    desc.flush()
    return desc.serialize_to_string()


def build(plan, mode):
    """The programs after append_backward ("backward") or minimize ("full"); the last element of the result is the bytes of both programs before
    either."""
    framework._name_scope = framework.NameScope()
    made = {}

    def network():
        net, losses = build_net(plan)
        made["net"] = net
        made["forward"] = [bytes_so_far(program) for program in (static.default_main_program(), static.default_startup_program())]
        network.no_grad = net.no_grad or None
        case["params"] = parameter_lists(net, static.default_main_program(), plan)
        return losses
    case = dict(net=network, seed=plan["seed"] % 10**6 + 1, opts=[json.loads(json.dumps(o)) for o in plan["optimizers"]])
    paddle.seed(case["seed"])
    network.no_grad = None
    # gen.build reads no_grad after the network is built, and the lists by index
    case["params"] = Lists(made, plan)
    main, startup, losses, pgs, rates = gen.build(case, mode)
    return main, startup, losses, pgs, rates, made["net"], case, made["forward"]


class Lists:
    """Parameter lists that are known once the network is built."""

    def __init__(self, made, plan):
        self.made, self.plan = made, plan

    def __getitem__(self, i):
        return parameter_lists(self.made.get("net"), static.default_main_program(), self.plan)[i]


def close(a, b, bound=1e-4):
    a, b = np.asarray(a, "f8"), np.asarray(b, "f8")
    return a.shape == b.shape and (not a.size or np.abs(a - b).max() <= bound * max(np.abs(b).max(), 1e-3))


def train(main, init, feeds, fetch):
    """The results of the old executor, and whether the new one agrees; it does not if arrays outlive a step."""
    old = gen.run(main, init, feeds, fetch, True)
    try:
        new = gen.run(main, init, feeds, fetch, False)
    except Exception as e:
        return old, f"the new executor fails: {str(e).strip()[-200:]}"
    agree = all(close(new[0][k][n], old[0][k][n]) for k in range(len(feeds)) for n in fetch) and all(close(new[1][n], v) for n, v in old[1].items())
    return old, "agree" if agree else "differ"


def perturbed(init):
    noise = np.random.RandomState(1)
    return {n: (v * (1 + PERTURBATION * np.sign(noise.randn(*v.shape)))).astype(v.dtype) if v.dtype == np.float32 and v.size > 1 else v for n, v in init.items()}


def dense(value):
    if not isinstance(value, tuple):
        return value
    rows, part, height = value
    out = np.zeros((height,) + part.shape[1:], "f4")
    np.add.at(out, rows, part)
    return out


def off(a, b, floor):
    a, b = np.asarray(a, "f8"), np.asarray(b, "f8")
    return float(np.abs(a - b).max() / max(np.abs(b).max(), floor)) if a.size else 0.0


def describe(plan, built, grads, names, fetch, tolerance):
    main, _, losses, pgs, rates, net, case, _ = built
    lists = parameter_lists(net, main, plan)
    optimizers = []
    for i, spec in enumerate(plan["optimizers"]):
        d = dict(spec)
        d.setdefault("learning_rate", None if "schedule" in d else 0.01)
        optimizers.append(dict(d, learning_rate_var=rates[i].name, parameter_list=lists[i], loss=losses[i].name))
    block = main.global_block()
    return dict(
        source="paddlepaddle 2.6.2, static graph, CPU", program=f"net_{plan['seed']}", steps=plan["training_steps"], random_seed=case["seed"],
        loss=losses[0].name, losses=[v.name for v in losses], fetch_list=fetch,
        parameters=[dict(name=p.name, shape=list(p.shape), trainable=bool(p.trainable), learning_rate=p.optimize_attr["learning_rate"],
                         regularizer=str(p.regularizer) if p.regularizer is not None else None) for p in block.all_parameters()],
        param_grad=gen.grad_map(grads), param_grad_after_minimize=gen.grad_map(pgs), optimizer=optimizers, no_grad_set=sorted(net.no_grad),
        error_clip=net.error_clip, persistables=names, tolerance=tolerance)


def store_feeds(path, feeds):
    stored = {}
    for k, feed in enumerate(feeds):
        for n, v in feed.items():
            value, lod = v if isinstance(v, tuple) else (v, [])
            stored[f"step{k}/{n}"] = value
            for level, row in enumerate(lod):
                stored[f"step{k}/{n}.lod{level}"] = np.array(row, "i8")
    np.savez(path, **stored)


def store_json(path, value):
    with open(path, "w", encoding="utf-8") as f:
        json.dump(value, f, indent=1)


def gradients_of(backward, init, feed):
    pairs = gen.grad_map(backward[3])
    return gen.gradients(backward[0], {n: init[n] for n in gen.persistables(backward[0])}, feed, [g for pair in pairs for _, g in pair])


def growth(before, after, names):
    """The effect of rounding: losses, parameters and gradients of two runs whose initial values differ by one part in
    ten million."""
    (history, final), grads = before
    (history2, final2), grads2 = after
    loss = max(off(b[n], a[n], 1e-2) for a, b in zip(history, history2) for n in a)
    param = max([off(final2[n], final[n], 1e-2) for n in names if final[n].dtype.kind == "f"] + [0.0])
    grad = max([off(dense(grads2[g]), dense(grads[g]), 1e-4) for g in grads] + [0.0])
    return loss, param, grad


def make(plan, out):
    """Writes programs, parameters, feeds and configuration first: if the original fails to run, millrace can still use
    them."""
    os.makedirs(out, exist_ok=True)
    backward, full = (build(plan, mode) for mode in ("backward", "full"))
    main, startup, losses, _, rates, net, case, forward = full
    programs = dict(main_forward=forward[0], startup_forward=forward[1], backward=gen.strip(backward[0]), main=gen.strip(main), startup=gen.strip(startup))
    for name, data in programs.items():
        with open(f"{out}/{name}.pb", "wb") as f:
            f.write(data)
    names = gen.persistables(main)
    read = {n for b in main.blocks for op in b.ops for n in op.input_arg_names}
    fetch = list(dict.fromkeys([v.name for v in losses] + [v.name for v in rates if v.name in read]))
    meta = dict(kind="net", plan=plan, ops=sum(len(b.ops) for b in main.blocks), blocks=main.num_blocks)
    config = describe(plan, full, backward[3], names, fetch, None)
    store_json(f"{out}/config.json", config)
    store_json(f"{out}/meta.json", meta)
    numbers = np.random.RandomState(case["seed"])
    feeds = [{n: v for n, v in net.make_feeds(numbers).items() if n in read} for _ in range(plan["training_steps"])]
    store_feeds(f"{out}/feeds.npz", feeds)
    scope = core.Scope()
    static.Executor(gen.CPU).run(startup, scope=scope)
    init = gen.values(scope, names)
    np.savez(f"{out}/init.npz", **init)
    run, engines = train(main, init, feeds, fetch)
    history, final = run
    if not all(np.isfinite(v).all() for v in list(final.values()) + [h[n] for h in history for n in fetch] if v.dtype.kind == "f"):
        return unstable("the original's numbers are not finite")
    moved = perturbed(init)
    grads = gradients_of(backward, init, feeds[0])
    grown = growth((run, grads), (gen.run(main, moved, feeds, fetch, True), gradients_of(backward, moved, feeds[0])), names)
    if max(grown) > CHAOTIC:
        return unstable(f"rounding grows to {max(grown):.1e}")
    bound = [float("%.2g" % max(floor, GROWTH * by)) for floor, by in zip((2e-5, 5e-5, 5e-5), grown)]
    config["tolerance"] = dict(loss_rtol_first=bound[0], loss_rtol_last=bound[0], param_rel_to_max=bound[1], grad_rel_to_max=bound[2])
    expected = {f"step{k}/{n}": v for k, h in enumerate(history) for n, v in h.items()}
    expected.update({f"final/{n}": v for n, v in final.items()})
    expected.update({f"grad/{g}": dense(v) for g, v in grads.items()})
    np.savez(f"{out}/expected.npz", **expected)
    store_json(f"{out}/config.json", config)
    store_json(f"{out}/meta.json", dict(meta, engines=engines))
    return dict(usable=True, engines=engines, ops=meta["ops"])
