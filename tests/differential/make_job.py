"""Turns a plan with a cluster into a training program and, if the original's transpiler accepts it, the programs of all
roles."""
import json
import os

import paddle
import paddle.static as static
from paddle.base import framework

import gen_training_goldens as gen
import gen_transpiler_goldens as reference
from building import build_net


def builder(plan, made):
    """Builds the training program again, as every role of the original does."""
    def rebuild():
        framework._name_scope = framework.NameScope()
        paddle.seed(1)
        main, startup = static.Program(), static.Program()
        main.random_seed = startup.random_seed = plan["cluster"]["random_seed"]
        with static.program_guard(main, startup):
            net, losses = build_net(plan)
            optimizer, rate = gen.optimizer_of(json.loads(json.dumps(plan["optimizers"][0])))
            optimizer.minimize(losses[0], startup)
        reference.strip_empty_optimizer_slots(main)
        made.update(net=net, loss=losses[0].name, rate=rate)
        return main, startup
    return rebuild


def outcome(case, rebuild):
    """Files of all roles, or the original's refusal."""
    try:
        files, info = reference.generate(case, rebuild)
        return files, dict(info, outcome="ok")
    except Exception as e:                                # the exception of the original's transpiler is its result
        with gen.unique_name.guard():
            main, startup = rebuild()
        files = {"main": reference.to_bytes(main), "startup": reference.to_bytes(startup)}
        order = [p.name for p in startup.global_block().vars.values() if isinstance(p, framework.Parameter)]
        return files, dict(outcome="error", parameter_order=order, error=dict(type=type(e).__name__, message=str(e).strip()[:300]))


def make(plan, out):
    os.makedirs(out, exist_ok=True)
    reference.install_legacy_ops()
    reference.install_control_names()
    cluster, made = plan["cluster"], {}
    reference.reset_constants()
    constants = {"LOOKUP_TABLE_TYPE": "lookup_table"} if cluster["distributed"] else {}
    case = dict(name=f"job_{plan['seed']}", config=cluster["config"], call=cluster["call"], transpiler=cluster["transpiler"], random_seed=cluster["random_seed"], module_constants=constants)
    rebuild = builder(plan, made)
    files, info = outcome(case, rebuild)
    for name, data in files.items():
        with open(f"{out}/{name}.pb", "wb") as f:
            f.write(data)
    program = static.Program.parse_from_string(files["main"])
    read = {n for b in program.blocks for op in b.ops for n in op.input_arg_names}
    written = {n for b in program.blocks for op in b.ops for n in op.output_arg_names}
    block = program.global_block()
    feeds = {}
    for name in sorted(made["net"].feeds):
        if name in read and name not in written:
            v = block.var(name)
            feeds[name] = dict(shape=list(v.shape), dtype={5: "float32", 3: "int64", 2: "int32"}[int(v.dtype)], lod_level=v.lod_level)
    info.update(name=case["name"], config=case["config"], call=case["call"], transpiler=case["transpiler"], random_seed=case["random_seed"], loss=made["loss"], feeds=feeds,
                steps=plan["training_steps"], batch=plan["batch"], module_constants=constants)
    with open(f"{out}/config.json", "w", encoding="utf-8") as f:
        json.dump(info, f, indent=1)
    with open(f"{out}/meta.json", "w", encoding="utf-8") as f:
        json.dump(dict(kind="job", plan=plan), f)
    return dict(usable=True, outcome=info["outcome"], error=info.get("error", {}).get("message", "")[:160])
