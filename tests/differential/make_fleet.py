"""Random fleet jobs, from a plan that is plain JSON: a net with embeddings, an optimizer, a cluster, and its feeds."""
import random

import numpy as np

METHODS = [dict(type="sgd"), dict(type="momentum", momentum=0.8), dict(type="momentum", momentum=0.8, use_nesterov=True), dict(type="adagrad", epsilon=1e-3),
           dict(type="adagrad", epsilon=1e-3, initial_accumulator_value=0.3), dict(type="decayed_adagrad", decay=0.8, epsilon=1e-3), dict(type="adadelta", epsilon=1e-3, rho=0.9),
           dict(type="rmsprop", rho=0.9, epsilon=1e-3, momentum=0.5), dict(type="rmsprop", rho=0.9, epsilon=1e-3, centered=True), dict(type="adam", epsilon=1e-3),
           dict(type="adam", epsilon=1e-3, lazy_mode=True), dict(type="adamw", epsilon=1e-3, weight_decay=0.05), dict(type="adamax", epsilon=1e-3),
           dict(type="ftrl", l1=0.01, l2=0.02), dict(type="lamb", lamb_weight_decay=0.02, epsilon=1e-3), dict(type="lars_momentum", momentum=0.8)]
SCHEDULES = [dict(type="exponential", learning_rate=0.05, decay_steps=2, decay_rate=0.7), dict(type="natural_exp", learning_rate=0.05, decay_steps=2, decay_rate=0.3, staircase=True),
             dict(type="inverse_time", learning_rate=0.05, decay_steps=2, decay_rate=0.5), dict(type="polynomial", learning_rate=0.05, decay_steps=4, end_learning_rate=0.01),
             dict(type="piecewise", boundaries=[2, 4], values=[0.05, 0.02, 0.08]), dict(type="cosine", learning_rate=0.05, step_each_epoch=2, epochs=4),
             dict(type="noam", d_model=16, warmup_steps=3, learning_rate=0.3), dict(type="warmup", after=0.05, warmup_steps=3, start_lr=0.0, end_lr=0.05)]
CLIPS = [dict(type="value", max=0.02, min=-0.01), dict(type="norm", clip_norm=0.05), dict(type="global_norm", clip_norm=0.05)]


def make(seed):
    """The plan of a seed."""
    rng = random.Random(seed)
    tables = [dict(name=f"emb_{i}", rows=rng.choice([3, 7, 12, 20]), dim=rng.choice([2, 3, 8, 8]) if rng.random() < 0.95 else 1, rate=rng.choice([1.0, 1.0, 1.0, 0.5])) for i in range(rng.choice([0, 1, 1, 2, 3]))]
    lookups = []
    for i in range(len(tables) and rng.randint(len(tables), len(tables) + 2)):
        table = i if i < len(tables) else rng.randrange(len(tables))
        kind = rng.choice(["lookup_table", "lookup_table_v2"])
        sparse = lookups[table]["sparse"] if i >= len(tables) else rng.random() < 0.9
        lookups.append(dict(table=table, kind=kind, lod=kind == "lookup_table" and rng.random() < 0.5, sparse=sparse,
                            padding=lookups[table]["padding"] if i >= len(tables) and rng.random() < 0.8 else rng.choice([-1, -1, -1, 0, 2])))
    method = dict(rng.choice(METHODS))
    method.update(dict(schedule=rng.choice(SCHEDULES)) if rng.random() < 0.35 else dict(learning_rate=rng.choice([0.05, 0.1])))
    if rng.random() < 0.25:
        method["regularization"] = dict(type=rng.choice(["l1", "l2"]), coeff=0.01)
    if rng.random() < 0.25:
        method["clip"] = rng.choice(CLIPS)
    workers, mode = rng.choice([1, 1, 2, 2, 3]), rng.choice(["sync", "sync", "sync", "sync", "geo", "async"])
    if mode == "geo":
        workers = 1
    return dict(seed=seed, tables=tables, lookups=lookups, method=method, mode=mode, workers=workers, servers=rng.choice([1, 2, 2, 3]), servers_after=rng.choice([1, 2, 3, 4]),
                batch=rng.choice([2, 4, 6]), steps=rng.choice([3, 5]), hidden=rng.choice([1, 3, 5]), bias_rate=rng.choice([1.0, 1.0, 2.0]), dense=rng.choice([1, 4]),
                all_rows=rng.random() < 0.7, dense_gradients="all_reduce" if mode != "geo" and tables and rng.random() < 0.35 else "servers")


def width(plan):
    return plan["dense"] + sum(plan["tables"][k["table"]]["dim"] for k in plan["lookups"])


def parameters(plan):
    """Dims by name."""
    dims = {t["name"]: [t["rows"], t["dim"]] for t in plan["tables"]}
    return dict(dims, w_0=[width(plan), plan["hidden"]], b_0=[plan["hidden"]], w_1=[plan["hidden"], 1], b_1=[1])


def shape(dims):
    return f"f32({', '.join(map(str, dims))})"


def main_text(plan):
    """The forward program in the text form."""
    rows = [f"  param {n}: {shape(d)}" for n, d in parameters(plan).items()]
    ops, parts = [], []
    rows += [f"  var x: f32(-1, {plan['dense']}) need_check_feed stop_gradient", "  var y: f32(-1, 1) need_check_feed stop_gradient"]
    for i, lookup in enumerate(plan["lookups"]):
        table, out = plan["tables"][lookup["table"]], f"row_{i}"
        dim, lod = table["dim"], int(lookup["lod"])
        rows += [f"  var ids_{i}: i64(-1, 1) lod={lod} need_check_feed stop_gradient", f"  var {out}: f32(-1, {'1, ' if lookup['kind'].endswith('v2') else ''}{dim}) lod={lod}",
                 f"  var part_{i}: f32(-1, {dim})"]
        ops.append(f"  {lookup['kind']} Ids=ids_{i} W={table['name']} -> Out={out} {{is_sparse: {str(lookup['sparse']).lower()}, remote_prefetch: {str(lookup['sparse']).lower()}, "
                   f"is_distributed: false, padding_idx: {lookup['padding']}l}}")
        if lookup["lod"]:
            rows.append(f"  var index_{i}: i32(-1, {dim})")
            ops.append(f'  sequence_pool X={out} -> MaxIndex=index_{i} Out=part_{i} {{pooltype: "SUM"}}')
        else:
            rows.append(f"  var shape_{i}: f32(0, -1, {dim})")
            ops.append(f"  reshape2 X={out} -> Out=part_{i} XShape=shape_{i} {{shape: [-1, {dim}]}}")
        parts.append(f"part_{i}")
    rows += [f"  var {n}: f32(-1, {c})" for n, c in (("all", width(plan)), ("h0", plan["hidden"]), ("h1", plan["hidden"]), ("h", plan["hidden"]), ("p0", 1), ("p", 1), ("d", 1), ("s", 1))]
    rows.append("  var loss: f32()")
    ops += [f"  concat X={', '.join(['x'] + parts)} -> Out=all {{axis: 1}}", "  mul X=all Y=w_0 -> Out=h0", "  elementwise_add X=h0 Y=b_0 -> Out=h1 {axis: 1}", "  tanh X=h1 -> Out=h",
            "  mul X=h Y=w_1 -> Out=p0", "  elementwise_add X=p0 Y=b_1 -> Out=p {axis: 1}", "  elementwise_sub X=p Y=y -> Out=d", "  square X=d -> Out=s", "  mean X=s -> Out=loss"]
    return "\n".join(["# millrace program 1", "", "block 0 {", *rows, "", *ops, "}", ""])


def startup_text(plan):
    dims = parameters(plan)
    ops = [f"  uniform_random -> Out={n} {{dtype: 5, min: -0.1, max: 0.1, seed: {plan['seed'] % 1000 + 1}, shape: [{', '.join(f'{v}l' for v in d)}]}}" for n, d in dims.items()]
    return "\n".join(["# millrace program 1", "", "block 0 {", *(f"  param {n}: {shape(d)}" for n, d in dims.items()), "", *ops, "}", ""])


def minimize_config(plan):
    rates = {t["name"]: t["rate"] for t in plan["tables"]}
    rates["b_1"] = plan["bias_rate"]
    return dict(losses=["loss"], optimizer=[plan["method"]], parameters=[dict(name=n, learning_rate=rates.get(n, 1.0)) for n in parameters(plan)])


def fleet_config(plan, servers):
    return dict(mode=plan["mode"], pservers=",".join(f"127.0.0.1:{6170 + i}" for i in range(servers)), trainers=plan["workers"], all_optimizers=True,
                a_sync_configs=dict(k_steps=1 if plan["mode"] == "geo" else 0), dense_gradients=plan.get("dense_gradients", "servers"))


def batch(plan, numbers):
    """Feeds of a worker in a step; with all_rows every worker reads every row that is no padding."""
    count, feeds = plan["batch"], {}
    for i, lookup in enumerate(plan["lookups"]):
        rows = plan["tables"][lookup["table"]]["rows"]
        if lookup["lod"]:
            lengths = numbers.integers(1, 5, count)
            if plan["all_rows"]:
                lengths[-1] += rows
            feeds[f"ids_{i}.lod0"] = np.concatenate([[0], np.cumsum(lengths)]).astype("i8")
            ids = numbers.integers(0, rows, int(lengths.sum()))
            if plan["all_rows"]:
                ids[-rows:] = np.arange(rows)
        else:
            ids = numbers.integers(0, rows, count)
        feeds[f"ids_{i}"] = ids.reshape(-1, 1).astype("i8")
    feeds["x"] = numbers.uniform(-1, 1, (count, plan["dense"])).astype("f4")
    feeds["y"] = numbers.uniform(-1, 1, (count, 1)).astype("f4")
    return feeds


def joined(batches):
    """One batch from those of all workers."""
    whole = {}
    for name in batches[0]:
        parts = [b[name] for b in batches]
        if name.endswith(".lod0"):
            out = parts[0]
            for part in parts[1:]:
                out = np.concatenate([out, part[1:] + out[-1]])
            whole[name] = out
        else:
            whole[name] = np.concatenate(parts)
    return whole
