"""Turns seeds into plans: JSON descriptions of a net, of its training and, for a job, of its cluster.

A plan has no state of the random numbers: every building step and head has a separate seed, so that removing one does
not change the others, which shrinking relies on. Needs only the standard library.
"""
import random

# kinds of building steps by the kind of value they start with; steps_*.py have a function for each
MATRIX = """linear linear unary unary unary binary broadcast tied reshape concat split slice stack gather pad tile reduce
batch_norm layer_norm softmax sum3 bilinear maxout prelu cosine matmul addmm norm compare topk expand cumsum dropout unused
activation_reuse clip_values scatter shared_linear""".split()
IMAGE = """conv conv depthwise transpose_conv pool pool image_norm interpolate image_unary image_to_matrix image_to_matrix
pixel_shuffle residual image_pad channel_affine""".split()
DENSE_SEQUENCE = """attention time_linear time_norm time_to_matrix time_to_matrix recurrent recurrent padded_lstm time_reverse""".split()
RAGGED = """ragged_linear sequence_conv sequence_pool sequence_pool sequence_pool lstm gru sequence_softmax sequence_expand
sequence_concat sequence_reverse sequence_pad sequence_reshape row_conv dynamic_rnn dynamic_rnn sequence_slice""".split()
CONTROL = "while_array while_array while_memories nested_while cond cond nested_cond cond_in_while while_in_cond switch trips".split()
FAMILIES = {
    "dense": MATRIX, "image": IMAGE + MATRIX[:12], "time": DENSE_SEQUENCE + MATRIX[:8], "ragged": RAGGED + MATRIX[:8],
    "control": CONTROL + MATRIX[:14], "ragged_control": RAGGED + CONTROL, "table": ["lookup", "lookup", "shared_lookup"] + RAGGED[:8] + MATRIX[:12],
}
SOURCES = {"dense": ["matrix"], "image": ["image"], "time": ["time"], "ragged": ["ragged"], "control": ["matrix"],
           "ragged_control": ["ragged", "matrix"], "table": ["matrix", "ids"]}
HEADS = "xent fused_xent square huber smooth_l1 log_loss sigmoid_xent sumsq mean scaled_mean sum_loss kldiv hinge two_terms".split()
DENSE_ONLY = {"adadelta", "ftrl", "lars_momentum"}            # no kernel for selected rows in the original
SEARCH_UNSORTED = {"rmsprop", "momentum", "momentum_fused"}     # the original finds rows by binary search although they are not sorted: docs/fidelity.md


def schedule_of(r):
    """A learning-rate schedule, or none."""
    kinds = {
        "noam": dict(d_model=r.choice([16, 64]), warmup_steps=r.choice([2, 5]), learning_rate=0.2),
        "exponential": dict(learning_rate=0.05, decay_steps=r.choice([1, 2, 3]), decay_rate=0.5, staircase=r.random() < 0.5),
        "natural_exp": dict(learning_rate=0.05, decay_steps=r.choice([2, 3]), decay_rate=0.5, staircase=r.random() < 0.5),
        "inverse_time": dict(learning_rate=0.05, decay_steps=r.choice([2, 3]), decay_rate=0.5, staircase=r.random() < 0.5),
        "polynomial": dict(learning_rate=0.05, decay_steps=r.choice([2, 4]), end_learning_rate=0.01, power=r.choice([1.0, 2.0]), cycle=r.random() < 0.5),
        "piecewise": dict(boundaries=[1, 3], values=[0.05, 0.02, 0.01]),
        "cosine": dict(learning_rate=0.05, step_each_epoch=2, epochs=5),
    }
    kind = r.choice(sorted(kinds) + ["warmup"])
    if kind == "warmup":
        inner = r.choice(["exponential", "cosine", "noam"])
        after = r.choice([0.05, dict(kinds[inner], type=inner)])
        return dict(type="warmup", after=after, warmup_steps=r.choice([2, 4]), start_lr=0.0, end_lr=0.05)
    return dict(kinds[kind], type=kind)


def optimizer_of(r, sparse, job):
    """Type and hyper-parameters, in the form of config.json of the training references."""
    rate = r.choice([0.01, 0.05])
    kinds = {
        "sgd": {}, "momentum": dict(momentum=0.9, use_nesterov=r.random() < 0.3), "momentum_fused": dict(momentum=0.9),
        "adam": dict(epsilon=1e-4, beta1=r.choice([0.9, 0.5])), "adamax": dict(epsilon=1e-4), "adagrad": dict(initial_accumulator_value=0.1),
        "adadelta": dict(rho=0.9, epsilon=1e-3), "rmsprop": dict(rho=0.9, epsilon=1e-3, momentum=r.choice([0.0, 0.5]), centered=r.random() < 0.4),
        "lamb": dict(lamb_weight_decay=0.01), "adamw": dict(epsilon=1e-4, weight_decay=0.01), "ftrl": dict(l1=1e-3, l2=1e-2),
        "lars_momentum": dict(momentum=0.9, lars_coeff=0.01, lars_weight_decay=5e-4, epsilon=1e-6),
    }
    names = sorted(k for k in kinds if not (sparse and k in DENSE_ONLY))
    if job:
        names = [k for k in names if k not in ("adadelta", "lamb", "adamw")] + ["sgd", "sgd"]
    kind = r.choice(names)
    spec = dict(kinds[kind], type=kind)
    if kind == "adam" and sparse and r.random() < 0.4:
        spec["lazy_mode"] = True
    if r.random() < 0.35:
        spec["schedule"] = schedule_of(r)
        if kind == "ftrl" and "start_lr" in spec["schedule"]:
            spec["schedule"]["start_lr"] = 0.01                  # the schedule divides by the rate
    else:
        spec["learning_rate"] = rate
    if r.random() < 0.3:
        clips = [dict(type="value", max=0.02), dict(type="value", max=0.05, min=-0.01), dict(type="norm", clip_norm=0.1), dict(type="global_norm", clip_norm=0.2)]
        spec["clip"] = r.choice(clips)
    if r.random() < 0.3 and kind not in ("adamw", "lamb"):
        spec["regularization"] = dict(type=r.choice(["l1", "l2"]) if kind != "lars_momentum" else "l2", coeff=1e-2)
    return spec


def net_plan(seed, job=False):
    """A net and its training."""
    r = random.Random(f"net {seed} {int(job)}")
    # the training of a job is compared with one process that gets the rows of all trainers, so batch statistics are not
    # used
    family = r.choice(["dense", "table", "ragged", "table", "control"] if job else sorted(FAMILIES))
    kinds = [k for k in FAMILIES[family] if not (job and k in ("batch_norm", "dropout", "unused", "cumsum"))]
    length = r.choice([1, 2, 3, 4, 6, 8] if not job else [1, 2, 3])
    steps = [[r.choice(kinds), r.randrange(10**6)] for _ in range(length)]
    if family == "table":
        steps.insert(0, ["lookup", r.randrange(10**6)])
    heads = [[r.choice(HEADS), r.randrange(10**6)] for _ in range(1 if job or r.random() < 0.8 else 2)]
    sparse = any("lookup" in kind for kind, _ in steps)
    plan = dict(seed=seed, family=family, sources=SOURCES[family], steps=steps, heads=heads, width=r.choice([4, 5, 6, 8]),
                batch=r.choice([2, 3, 4, 5]), training_steps=4, large=job,
                own_attrs=r.random() < 0.25, frozen=r.random() < 0.15 and not job, no_grad=r.random() < 0.1 and not job, error_clip=r.random() < 0.1 and not job,
                split_lists=r.random() < 0.5, optimizers=[optimizer_of(r, sparse, job) for _ in heads])
    return plan


def job_plan(seed):
    """A net, its training and a cluster with a mode for the transpiler."""
    r = random.Random(f"job {seed}")
    plan = net_plan(seed, job=True)
    servers, trainers = r.choice([1, 2, 2, 3, 4]), r.choice([1, 2, 2, 3])
    sync = r.random() < 0.6
    config = {}
    if r.random() < 0.3:
        config["slice_var_up"] = False
    if r.random() < 0.5:
        config["min_block_size"] = r.choice([8192, 8192, 10000, 16384, 1048576])
    if r.random() < 0.1:
        config["split_method"] = "HashName"
    transpiler = "distribute"
    if not sync:
        mode = r.choice(["plain", "config", "runtime_split", "half_async", "completely_not_async", "dc_asgd", "geo"])
        if mode != "plain":
            config["sync_mode"] = False
        if mode in ("runtime_split", "half_async", "completely_not_async"):
            config["runtime_split_send_recv"] = True
        if mode in ("half_async", "completely_not_async"):
            config[mode] = True
        if mode == "dc_asgd":
            config["enable_dc_asgd"] = True
        if mode == "geo":
            config.update(geo_sgd_mode=True, geo_sgd_need_push_nums=r.choice([1, 2, 50]))
            transpiler = "geo"
    elif r.random() < 0.1:
        config.update(r.choice([{"runtime_split_send_recv": True}, {"enable_dc_asgd": True}, {"half_async": True}]))
    endpoints = ",".join(f"127.0.0.1:{6174 + i}" for i in range(servers))
    call = dict(trainer_id=r.randrange(trainers), pservers=endpoints, trainers=trainers, sync_mode=sync)
    plan["cluster"] = dict(transpiler=transpiler, config=config, call=call, random_seed=1, prefetch=r.random() < 0.3, distributed=r.random() < 0.15)
    plan["training_steps"] = 3
    if random.Random(f"collective {seed}").random() < 0.12:
        plan["cluster"] = collective(random.Random(f"ranks {seed}"))
    return plan


def collective(r):
    """A job without servers."""
    ranks = r.choice([1, 2, 3, 4])
    endpoints, me = [f"127.0.0.1:{7000 + i}" for i in range(ranks)], r.randrange(ranks)
    config = dict(mode=r.choice(["nccl2", "collective"]), wait_port=False)
    if config["mode"] == "collective":
        config["collective_mode"] = r.choice(["grad_allreduce", "local_sgd"])
    if r.random() < 0.6:
        config["nccl_comm_num"] = r.choice([1, 2, 3])
    if config["mode"] == "nccl2" and r.random() < 0.4:
        config.update(use_hierarchical_allreduce=True, hierarchical_allreduce_inter_nranks=r.choice([1, 2, 3]))
    call = dict(trainer_id=me, trainers=",".join(endpoints), current_endpoint=endpoints[me])
    return dict(transpiler="distribute", config=config, call=call, random_seed=1, prefetch=False, distributed=False)
