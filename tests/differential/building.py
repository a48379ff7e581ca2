"""Building blocks for the steps of random nets: the values so far, parameters, feeds. Runs with the original."""
import random

import numpy as np
import paddle
import paddle.static as static
from paddle.base import ParamAttr
from paddle.nn.initializer import Uniform

from plans import DENSE_ONLY, SEARCH_UNSORTED
import gen_training_goldens as gen       # helpers of the training references, in the shared tools

STEPS = {}
INT = {"slot": 3, "vocabulary": 12, "channels": 2, "pixels": 4, "time": 3}


class Skip(Exception):
    """The values that a building step needs do not exist."""


def step(name):
    def register(function):
        STEPS[name] = function
        return function
    return register


class Net:
    """Values by kind: matrix [batch, n], image [batch, c, h, w], time [batch, t, n], ragged [rows, n] with one level of LoD."""

    def __init__(self, plan):
        self.plan, self.values, self.feeds, self.names, self.params = plan, {}, {}, 0, []
        self.tables, self.job = [], plan.get("cluster")
        self.no_grad, self.error_clip = set(), {}

    def name(self):
        self.names += 1
        return f"p{self.names}"

    def size(self, r):
        return r.choice([2, 3, self.plan["width"]])

    # --- values
    def push(self, kind, value):
        if kind == "ragged" and value.desc.lod_level() < 1:          # not every op of the original sets it
            value.desc.set_lod_level(1)
        self.values.setdefault(kind, []).append(value)

    def pick(self, r, kind):
        """A value of a kind, mostly one of the last."""
        known = self.values.get(kind)
        if not known and kind == "matrix":
            self.as_matrices()
            known = self.values.get(kind)
        if not known:
            raise Skip()
        return known[-1] if r.random() < 0.6 else r.choice(known)

    def as_matrices(self):
        """Reductions of the existing values, so that every net ends in matrices."""
        for v in self.values.get("ragged", [])[-2:]:
            self.push("matrix", gen.seq_pool(v, "sum"))
        for v in self.values.get("time", [])[-2:]:
            self.push("matrix", paddle.mean(v, axis=1))
        for v in self.values.get("image", [])[-2:]:
            self.push("matrix", paddle.flatten(paddle.nn.functional.adaptive_avg_pool2d(v, 1), 1))

    # --- parameters
    def attr(self, name):
        more, r = {}, random.Random(f"{self.plan['seed']} {name}")
        if self.plan["own_attrs"]:
            more = r.choice([{}, {"learning_rate": 0.5}, {"regularizer": paddle.regularizer.L1Decay(1e-3)}, {"regularizer": paddle.regularizer.L2Decay(1e-2)}])
        if self.plan["frozen"] and r.random() < 0.3:
            more = {"trainable": False}
        return dict(name=name, **more)

    def parameter(self, shape):
        kind = self.attr(f"{self.name()}.w_0")
        p = gen.par(kind.pop("name"), shape, Uniform(-0.6, 0.6), **kind)
        self.params.append(p)
        return p

    def parameter_of(self, shape):
        """A parameter that is already in use, if one has this shape."""
        for p in self.params:
            if list(p.shape) == list(shape):
                return p
        return self.parameter(shape)

    def linear(self, x, size, act=None, bias=True, dims=1):
        n = self.name()
        return gen.fc(x, size, n, act, bias, dims, ParamAttr(initializer=Uniform(-0.5, 0.5), **self.attr(n + ".w_0")),
                      ParamAttr(initializer=Uniform(-0.1, 0.1), **self.attr(n + ".b_0")))

    def with_width(self, x, width):
        return x if x.shape[1] == width else self.linear(x, width)

    def table(self, r, shared):
        if shared and self.tables:
            return self.tables[0]
        rows = INT["vocabulary"] if not self.plan["large"] else r.choice([INT["vocabulary"], 2100])
        p = gen.par(self.name() + ".emb", [rows, 4 if rows < 100 else 8], Uniform(-0.3, 0.3))
        self.tables.append(p)
        return p

    def sparse(self, r):
        sparse = r.random() < 0.7
        return sparse and not {o["type"] for o in self.plan["optimizers"]} & (DENSE_ONLY if self.job else DENSE_ONLY | SEARCH_UNSORTED)

    def lookup(self, ids, w, r):
        out = gen.lookup(ids, w, sparse=self.sparse(r))
        if self.job:
            op = static.default_main_program().current_block().ops[-1]
            op._set_attr("remote_prefetch", bool(self.job["prefetch"]))
            op._set_attr("is_distributed", bool(self.job["distributed"]))
            w.is_distributed = bool(self.job["distributed"])
        return out

    # --- feeds: name -> function of (random numbers, batch, sequence lengths)
    def feed(self, name, shape, dtype, make, lod=0):
        if name not in self.feeds:
            static.data(name, shape, dtype, lod_level=lod)
            self.feeds[name] = make
        return static.default_main_program().global_block().var(name)

    def feed_matrix(self, name, width):
        return self.feed(name, [-1, width], "float32", lambda g, n, lengths: g.randn(n, width).astype("f4"))

    def feed_index(self, r, distinct=False):
        def make(g, n, lengths):
            return (g.permutation(n) if distinct else g.randint(0, n, n)).astype("i8")
        return self.feed("index" + ("_distinct" if distinct else ""), [-1], "int64", make)

    def feed_ids(self, r, ragged):
        name, rows = f"{'ragged_ids' if ragged else 'ids'}_{r.choice([0, 1])}", INT["vocabulary"]
        if ragged:
            return self.feed(name, [-1, 1], "int64", lambda g, n, lengths: (g.randint(0, rows, (sum(lengths), 1)).astype("i8"), offsets(lengths)), 1)
        return self.feed(name, [-1, INT["slot"]], "int64", lambda g, n, lengths: g.randint(0, rows, (n, INT["slot"])).astype("i8"))

    def source(self, kind):
        width = self.plan["width"]
        if kind == "matrix":
            self.push("matrix", self.feed_matrix("x", width))
            if self.plan["large"]:                               # a parameter that can be sliced over servers
                self.push("matrix", self.linear(self.linear(self.values["matrix"][-1], 130, "tanh"), 130, "tanh"))
        elif kind == "image":
            c, p = INT["channels"], INT["pixels"]
            self.push("image", self.feed("image", [-1, c, p, p], "float32", lambda g, n, lengths: g.randn(n, c, p, p).astype("f4")))
        elif kind == "time":
            t = INT["time"]
            self.push("time", self.feed("series", [-1, t, width], "float32", lambda g, n, lengths: g.randn(n, t, width).astype("f4")))
        elif kind == "ragged":
            self.push("ragged", self.feed("ragged", [-1, width], "float32", lambda g, n, lengths: (g.randn(sum(lengths), width).astype("f4"), offsets(lengths)), 1))
        elif kind == "ids":
            r = random.Random(f"ids {self.plan['seed']}")
            self.push("ragged", self.lookup(self.feed_ids(r, True), self.table(r, False), r))

    def make_feeds(self, g):
        """Values for one step; batches and sequences differ from step to step."""
        n = self.plan["batch"]
        lengths = [int(v) for v in g.randint(1, 5, n)]
        return {name: make(g, n, lengths) for name, make in sorted(self.feeds.items())}


def offsets(lengths):
    return [np.concatenate([[0], np.cumsum(lengths)]).tolist()]


def mean(x):
    return gen.op("mean", {"X": x}, ["Out"])


def constant(value, dtype="int64", shape=(1,)):
    v = paddle.full(list(shape), value, dtype)
    v.stop_gradient = True
    return v


# ------------------------------------------------------------------ losses
def labels(net, classes):
    return net.feed(f"label{classes}", [-1, 1], "int64", lambda g, n, lengths: g.randint(0, classes, (n, 1)).astype("i8"))


def target(net, binary=False):
    def make(g, n, lengths):
        return g.randint(0, 2, (n, 1)).astype("f4") if binary else g.randn(n, 1).astype("f4")
    return net.feed("click" if binary else "target", [-1, 1], "float32", make)


def head(net, kind, seed):
    """A loss over one to three of the values."""
    r = random.Random(seed)
    parts = [net.pick(r, "matrix") for _ in range(r.choice([1, 1, 2, 3]))]
    x = paddle.concat(parts, axis=1) if len(parts) > 1 else parts[0]
    if kind == "xent":
        return gen.xent(net.linear(x, 3, "softmax"), labels(net, 3))
    if kind == "fused_xent":
        return mean(paddle.nn.functional.softmax_with_cross_entropy(net.linear(x, 3), labels(net, 3)))
    if kind == "sumsq":
        return gen.op("reduce_sum", {"X": gen.op("square", {"X": x}, ["Out"])}, ["Out"], {"dim": [0], "reduce_all": True, "keep_dim": False})
    if kind == "mean":
        return mean(x)
    if kind == "scaled_mean":
        return gen.op("scale", {"X": mean(gen.op("square", {"X": x}, ["Out"]))}, ["Out"], {"scale": r.choice([0.5, -0.1]), "bias": 0.0})
    if kind == "sum_loss":
        return gen.op("sum", {"X": [mean(x), mean(gen.op("square", {"X": x}, ["Out"]))]}, ["Out"])
    if kind == "two_terms":
        a, b = gen.square_error(net.linear(x, 1), target(net)), mean(gen.op("tanh", {"X": x}, ["Out"]))
        return gen.op("elementwise_add", {"X": a, "Y": b}, ["Out"], {"axis": -1})
    if kind == "kldiv":
        y = paddle.nn.functional.softmax(net.feed_matrix("reference", 3))
        y.stop_gradient = True
        return gen.op("kldiv_loss", {"X": paddle.nn.functional.log_softmax(net.linear(x, 3)), "Target": y}, ["Loss"], {"reduction": "mean"})
    p = net.linear(x, 1)
    if kind == "square":
        return gen.square_error(p, target(net))
    if kind == "huber":
        return mean(gen.op("huber_loss", {"X": p, "Y": target(net)}, ["Out", "Residual"], {"delta": 0.5}))
    if kind == "smooth_l1":
        return mean(paddle.nn.functional.smooth_l1_loss(p, target(net), reduction="none"))
    if kind == "log_loss":
        p = gen.op("sigmoid", {"X": p}, ["Out"])
        return mean(gen.op("log_loss", {"Predicted": p, "Labels": target(net, True)}, ["Loss"], {"epsilon": 1e-4}))
    if kind == "sigmoid_xent":
        return mean(gen.op("sigmoid_cross_entropy_with_logits", {"X": p, "Label": target(net, True)}, ["Out"], {"ignore_index": -100, "normalize": False}))
    assert kind == "hinge", kind
    return mean(gen.op("hinge_loss", {"Logits": p, "Labels": target(net, True)}, ["Loss"]))


def build_net(plan):
    """Returns the net and its losses; building steps without a suitable input are left out."""
    net = Net(plan)
    for kind in plan["sources"]:
        net.source(kind)
    for kind, seed in plan["steps"]:
        try:
            STEPS[kind](net, random.Random(seed))
        except Skip:
            pass
    net.as_matrices()
    losses = [head(net, kind, seed) for kind, seed in plan["heads"]]
    r = random.Random(f"marks {plan['seed']}")
    inner = [v for v in net.values["matrix"] if v.name not in net.feeds and not v.stop_gradient]
    if plan["error_clip"] and inner:
        v = r.choice(inner)
        v._set_error_clip(paddle.nn.clip.ErrorClipByValue(max=0.02, min=-0.01))
        net.error_clip[v.name] = {"min": -0.01, "max": 0.02}
    if plan["no_grad"] and len(inner) > 1:
        net.no_grad = {r.choice(inner[:-1]).name}
    return net, losses
