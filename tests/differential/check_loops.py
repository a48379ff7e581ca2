"""Gradients of random programs with loops, branches, recurrences and arrays (make_loops.py), compared with central
differences in numpy (run_loops.py). Needs no original."""
import copy
import json
import os
import re
import tempfile

import calls
import make_loops
import numpy as np
import run_loops
from calls import Finding

# Refusals and warnings that docs/gradients.md lists: a program gets one of them, or right gradients.
REFUSALS = [
    r"whose elements may be overwritten in a branch",
    r"which has no gradient, is written to the array '.*', whose elements may be overwritten",
]
WARNINGS = [
    r"gradients may be wrong, as in the original",
    r"one of the gradients may be lost, as in the original",
    r"lost-gradient",
]
EPSILON, BOUND, FORWARD_BOUND = 1e-5, 2e-6, 1e-9


def differences(plan):
    """(losses, gradients of w for each): central differences."""
    base, _, values, _ = run_loops.losses(plan)
    grads = [np.zeros_like(values["w"], "f8") for _ in base]
    for at in np.ndindex(values["w"].shape):
        sides = []
        for sign in (1, -1):
            w = values["w"].astype("f8")
            w[at] += sign * EPSILON
            sides.append(run_loops.losses(plan, w)[0])
        for k, grad in enumerate(grads):
            grad[at] = (sides[0][k][0] - sides[1][k][0]) / (2 * EPSILON)
    return base, grads


def gradient_names(made, grads):
    """The gradient of w for each loss, None where a program has none: a first loss without gradients leaves its name to
    the second."""
    first, second = (f"var {name}:" in made or f'var "{name}":' in made for name in ("w@GRAD", "grad/grad/w@GRAD"))
    names = (["w@GRAD"] if first else [None]) + (["grad/grad/w@GRAD"] if second else [None])
    if first and not second and len(grads) == 2 and not grads[0].any():
        names.reverse()
    return names[: len(grads)]


def is_listed(said, patterns):
    return any(re.search(pattern, said) for pattern in patterns)


def check(tools, plan, work):
    """What became of a plan: "right", "refused" or "warned". Raises a finding."""
    _, text, values, feeds = run_loops.losses(plan)
    base, grads = differences(plan)
    path = lambda name: os.path.join(work, name)  # noqa: E731
    with open(path("forward.prog"), "w", encoding="utf-8") as f:
        f.write(text)
    with open(path("minimize.json"), "w", encoding="utf-8") as f:
        json.dump({"losses": [f"loss{i}" for i in range(len(base))]}, f)
    np.savez(path("params.npz"), w=values["w"])
    np.savez(path("feeds.npz"), **feeds)
    status, said = tools.call("minimize", "transpile-program", "--program", path("forward.prog"), "--minimize", path("minimize.json"), "--backward-only", "-o", path("made"), "--format", "text", "--force")
    if status:
        if is_listed(said, REFUSALS):
            return "refused"
        raise Finding("minimize", f"status {status}: {said[-600:].replace(work, str())}")
    warned = is_listed(said, WARNINGS)
    with open(path("made/backward/__model__"), encoding="utf-8") as f:
        made = f.read()
    names = gradient_names(made, grads)
    fetches = [f"loss{i}" for i in range(len(base))] + [n for n in names if n]
    for how in (["--optimize=false"], ["--optimize=true"]):
        tools.must("run", "run-program", "--program", path("made/backward/__model__"), "--params", path("params.npz"), "--feed", path("feeds.npz"), "--fetch", ",".join(fetches), "--precision", "f64",
                   "--output", path("got.npz"), "--force", *how)
        got = calls.load(path("got.npz"))
        for i, want in enumerate(base):
            calls.near("forward", f"loss{i}", got.get(f"loss{i}"), want, FORWARD_BOUND, 1e-6)
        if warned:
            continue
        for name, want in zip(names, grads):
            calls.near("gradient" if name else "missing gradient", name or "w@GRAD", got[name] if name else np.zeros_like(want), want, BOUND, 1e-4)
    if warned:
        return "warned"
    if plan["seed"] % 4 == 0 and all(names):
        status, said = tools.call("check-gradients", "run-program", "--program", path("made/backward/__model__"), "--params", path("params.npz"), "--feed", path("feeds.npz"), "--check-gradients", "w",
                                  "--check-samples", "0")
        if status:
            raise Finding("check-gradients", said[-600:])
    return "right"


def one(tools, plan):
    """(what became of it, finding) of a plan; None for a plan that cannot run."""
    try:
        with tempfile.TemporaryDirectory() as work:
            return check(tools, plan, work), None
    except run_loops.Invalid:
        return "invalid", None
    except Finding as e:
        return "", e


def smaller(plan):
    """Plans with one statement less, or replaced by its body; the largest first."""
    if len(plan["losses"]) > 1:
        for loss in plan["losses"]:
            yield dict(plan, losses=[loss])
    for i, loss in enumerate(plan["losses"]):
        for term in loss if len(loss) > 1 else ():
            yield dict(plan, losses=plan["losses"][:i] + [[t for t in loss if t != term]] + plan["losses"][i + 1:])
    for body in smaller_body(plan["body"]):
        yield dict(plan, body=body)


def smaller_body(body):
    for i in range(len(body)):
        yield body[:i] + body[i + 1:]
    for i, s in enumerate(body):
        for key in ("body", "then", "other"):
            if key not in s:
                continue
            if s["op"] in ("branch", "cond"):
                yield body[:i] + s[key] + body[i + 1:]
            for less in smaller_body(s[key]):
                yield body[:i] + [dict(s, **{key: less})] + body[i + 1:]
        changes = {"loop": (("trips", 1), ("trips", 2), ("start", 0), ("fed", False), ("outer", False), ("by_assign", False)), "recurrent": (("reverse", False),)}
        for key, value in changes.get(s["op"], ()):
            if s[key] != value and (key != "trips" or s[key] > value):
                yield body[:i] + [dict(s, **{key: value})] + body[i + 1:]
        if s["op"] in ("mul", "add", "square", "scale", "tanh"):
            yield body[:i] + [dict(op="assign", ins=s["ins"][:1], out=s["out"])] + body[i + 1:]
        if s["op"] == "stack" and len(s["ins"]) > 1:
            yield body[:i] + [dict(s, ins=s["ins"][:1])] + body[i + 1:]


def shrink(tools, plan, finding, rounds=600):
    """The smallest plan with a finding of the same check."""
    again = True
    while again and rounds > 0:
        again = False
        for less in smaller(plan):
            rounds -= 1
            _, other = one(tools, copy.deepcopy(less))
            if other is not None and other.check == finding.check:
                plan, again = less, True
                break
            if rounds <= 0:
                break
    return plan


def one_seed(tools, seed):
    """(name of the result, plan, finding) of a seed."""
    plan = run_loops.repair(make_loops.make(seed))
    if plan is None:
        return "invalid", None, None
    result, finding = one(tools, plan)
    return result, plan, finding
