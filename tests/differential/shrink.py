"""Shrinks a failing plan to a small one that fails in the same way."""
import copy

PLAIN = {"type": "sgd", "learning_rate": 0.05}


def smaller(plan):
    """Plans with one element removed, the largest reductions first."""
    steps = plan["steps"]
    for size in (len(steps), len(steps) // 2, 1):
        for at in range(0, len(steps), size) if size else ():
            yield dict(plan, steps=steps[:at] + steps[at + size:])
    if len(plan["heads"]) > 1:
        for i in range(len(plan["heads"])):
            yield dict(plan, heads=[plan["heads"][i]], optimizers=[plan["optimizers"][i]])
    if len(plan["sources"]) > 1:
        for source in plan["sources"]:
            yield dict(plan, sources=[s for s in plan["sources"] if s != source])
    for i, spec in enumerate(plan["optimizers"]):
        less = [PLAIN] if spec != PLAIN else []
        for key in ("schedule", "clip", "regularization"):
            if key in spec:
                less.append({k: v for k, v in spec.items() if k != key})
        for one in less:
            yield dict(plan, optimizers=plan["optimizers"][:i] + [dict(one)] + plan["optimizers"][i + 1:])
    for i, (kind, seed) in enumerate(plan["heads"]):
        if kind != "sumsq":
            yield dict(plan, heads=plan["heads"][:i] + [["sumsq", seed]] + plan["heads"][i + 1:])
    for key in ("own_attrs", "frozen", "no_grad", "error_clip", "large"):
        if plan[key]:
            yield dict(plan, **{key: False})
    for key, least in (("training_steps", 1), ("batch", 2), ("width", 2)):
        if plan[key] > least:
            yield dict(plan, **{key: plan[key] - 1})
    yield from smaller_clusters(plan)


def smaller_clusters(plan):
    cluster = plan.get("cluster")
    if not cluster:
        return
    servers = "pservers" in cluster["call"]
    endpoints = cluster["call"].get("pservers", "").split(",")
    if len(endpoints) > 1:
        yield changed(plan, call=dict(cluster["call"], pservers=",".join(endpoints[:-1])))
    if servers and cluster["call"]["trainers"] > 1:
        count = cluster["call"]["trainers"] - 1
        yield changed(plan, call=dict(cluster["call"], trainers=count, trainer_id=min(cluster["call"]["trainer_id"], count - 1)))
    for key in cluster["config"] if servers else ():
        yield changed(plan, config={k: v for k, v in cluster["config"].items() if k != key})
    for key in ("prefetch", "distributed"):
        if cluster[key]:
            yield changed(plan, **{key: False})


def changed(plan, **what):
    return dict(plan, cluster=dict(copy.deepcopy(plan["cluster"]), **what))


def shrink(plan, fails, rounds=80):
    """fails(plan) returns whether a plan still has the finding. Returns the smallest such plan."""
    again = True
    while again and rounds > 0:
        again = False
        for less in smaller(plan):
            rounds -= 1
            if fails(less):
                plan, again = less, True
                break
            if rounds <= 0:
                break
    return plan
