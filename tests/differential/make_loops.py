"""Random programs with loops, branches, recurrences and arrays, from a plan that is plain JSON.

A plan is a tree of statements. Names that begin with `v` are vars of block 0 of shape [2, 3], `s` sequences of them, `a`
arrays, `k` counters; `l` names are local to the block that writes them first. emit() makes blocks of ops, text() prints
them in the text form. A plan whose ops read what no op has written is invalid: run_loops.py says so, and repair() drops
the statement."""
import random

ROWS, COLUMNS = 2, 3
BINARY, UNARY = ("mul", "add"), ("tanh", "scale", "square", "assign")


class Maker:
    """Makes the plan of a seed."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.serial = 0
        self.left = self.rng.randint(5, 16)  # statements that may still be made
        self.vars = [f"v{i}" for i in range(self.rng.randint(2, 4))]
        self.arrays = [f"a{i}" for i in range(self.rng.choice([0, 1, 1, 2]))]
        self.uses_recurrent = self.rng.random() < 0.35

    def plan(self, seed):
        rng = self.rng
        body = [dict(op="tanh", ins=["x"], out="v0"), dict(op="mul", ins=["v0", "w"], out="v0")][: rng.choice([1, 2])] + [dict(op="mul", ins=["x", "w"], out="v1")]
        for name in self.vars[2:]:
            body.append(dict(op=rng.choice(["assign", "tanh"]), ins=[rng.choice(["x", "v0", "v1"])], out=name))
        known = [s["out"] for s in body] + ["w", "x"]
        for array in self.arrays:
            body.append(dict(op="write", ins=[rng.choice(known)], array=array, at=0))
        while self.left > 0:
            body += self.statements(known, [], 0)
        losses = [rng.sample(self.vars, min(len(self.vars), rng.choice([1, 2, 2, 4]))) for _ in range(rng.choice([1, 1, 1, 2]))]
        return dict(seed=seed, body=body, losses=losses, lists_arrays=rng.random() < 0.7)

    def fresh(self, kind):
        self.serial += 1
        return f"{kind}{self.serial}"

    def target(self, known):
        """A new local var, or one to overwrite."""
        if self.rng.random() < 0.3:
            return self.fresh("l")
        return self.rng.choice(self.vars + [n for n in known if n[0] == "l"])

    def index(self, counters):
        choices = [0, 0, 1, 2] + counters * 3
        return self.rng.choice(choices)

    def condition(self, counters):
        """[counter or constant, bound]: less than."""
        if counters and self.rng.random() < 0.7:
            return [self.rng.choice(counters), self.rng.choice([1, 1, 2])]
        return [self.rng.choice([0, 1]), 1]

    def plain(self, known):
        rng = self.rng
        # mostly vars that programs overwrite
        pick = lambda: rng.choice([n for n in known if n[0] in "vl"] if rng.random() < 0.8 else known)  # noqa: E731
        kind = rng.choice(["tanh", "scale", "square", "assign", "assign", "mul", "mul", "mul", "add"])
        out = self.target(known)
        ins = [pick() for _ in range(2 if kind in BINARY else 1)]
        statement = dict(op=kind, ins=ins, out=out)
        if kind == "scale":
            statement["scale"] = rng.choice([0.5, 1.5, -0.8])
        if out not in known:
            known.append(out)
        return statement

    def statements(self, known, counters, depth):
        """One or a few statements, after which the names in known have values."""
        rng, self.left = self.rng, self.left - 1
        kinds = ["plain"] * (5 if depth else 4)
        if self.arrays:
            kinds += ["write", "read"] * 2
        if depth < 3 and self.left > 0:
            kinds += ["loop"] * (3 - depth) + ["branch", "cond"]
        if self.uses_recurrent and self.left > 0 and depth < 2:
            kinds += ["recurrent"] * 2
        kind = rng.choice(kinds)
        if kind == "plain":
            return [self.plain(known)]
        if kind == "write":
            return [dict(op="write", ins=[rng.choice(known)], array=rng.choice(self.arrays), at=self.index(counters))]
        if kind == "read":
            out = self.target(known)
            if out not in known:
                known.append(out)
            return [dict(op="read", array=rng.choice(self.arrays), at=self.index(counters), out=out)]
        return getattr(self, kind)(known, counters, depth)

    def block(self, known, counters, depth, least=1, names=()):
        inner, out = list(known) + list(names), []
        for _ in range(self.rng.randint(least, 4)):
            out += self.statements(inner, counters, depth + 1)
        known += [n for n in inner if n[0] == "v" and n not in known]
        return out

    def loop(self, known, counters, depth):
        rng, counter = self.rng, self.fresh("k")
        body = self.block(known, counters + [counter], depth)
        body.insert(rng.choice([len(body), rng.randint(0, len(body))]), dict(op="count", out=counter))
        return [dict(op="loop", counter=counter, trips=rng.choice([1, 2, 2, 3, 3, 0]), start=rng.choice([0, 0, 0, 1]), fed=rng.random() < 0.2, outer=rng.random() < 0.3,
                     by_assign=rng.random() < 0.5, body=body)]

    def branch(self, known, counters, depth):
        return [dict(op="branch", test=self.condition(counters), body=self.block(list(known), counters, depth))]

    def cond(self, known, counters, depth):
        test = self.condition(counters)
        sides, picks = [], []
        for _ in range(2):
            inner, body = list(known), []
            for _ in range(self.rng.randint(0, 2)):
                statement = self.plain(inner)
                if statement["out"][0] != "l":  # sides of cond write their own vars only
                    inner.remove(statement["out"]) if statement["out"] not in known else None
                    statement["out"] = self.fresh("l")
                    inner.append(statement["out"])
                body.append(statement)
            sides.append((body, inner))
        for _ in range(self.rng.choice([1, 1, 2])):
            out = self.target(known)
            picks.append([out] + [self.rng.choice(inner[-3:]) for _, inner in sides])
        known += [p[0] for p in picks if p[0] not in known]
        return [dict(op="cond", test=test, then=sides[0][0], other=sides[1][0], picks=picks)]

    def recurrent(self, known, counters, depth):
        rng = self.rng
        pick = lambda: rng.choice([n for n in known if n != "x"])  # noqa: E731
        seq, pairs = self.fresh("s"), rng.choice([1, 1, 2])
        out = [dict(op="stack", ins=[pick() for _ in range(rng.choice([1, 2, 3]))], out=seq)]
        previous = [self.fresh("l") for _ in range(pairs)]
        inner = known + previous + [seq]
        body = []
        for _ in range(rng.randint(1, 4)):
            statement = self.plain(inner)
            if statement["out"] in known + previous or statement["out"][0] == "v":  # a time step writes its own vars only
                if statement["out"] not in known + previous:
                    inner.remove(statement["out"])
                statement["out"] = self.fresh("l")
                inner.append(statement["out"])
            body.append(statement)
        made = [s["out"] for s in body]
        states = [rng.choice(made) for _ in previous]
        outs = []
        for _ in range(rng.choice([1, 1, 2])):
            name = self.fresh("s")
            body.append(dict(op="assign", ins=[rng.choice(made)], out=name))
            outs.append(name)
        if rng.random() < 0.7:  # as front ends write it: the state has its own name
            for i, state in enumerate(states):
                states[i] = self.fresh("l")
                body.append(dict(op="assign", ins=[state], out=states[i]))
        out.append(dict(op="recurrent", ins=[seq], init=[pick() for _ in previous], previous=previous, states=states, outs=outs, reverse=rng.random() < 0.2, body=body))
        for name in outs:
            to = self.target(known)
            out.append(dict(op="total", ins=[name], out=to))
            if to not in known:
                known.append(to)
        return out


def make(seed):
    return Maker(seed).plan(seed)


# ---- blocks of ops


class Invalid(Exception):
    """A statement of a plan cannot run."""

    def __init__(self, statement, why):
        super().__init__(why)
        self.statement = statement


class Op:
    def __init__(self, kind, ins, outs, attrs, statement, body=None):
        self.kind, self.ins, self.outs, self.attrs, self.statement, self.body = kind, ins, outs, attrs, statement, body

    def reads(self):
        return [n for names in self.ins.values() for n in names]

    def writes(self):
        return [n for names in self.outs.values() for n in names]


class Block:
    def __init__(self, parent=None):
        self.parent, self.vars, self.ops, self.index = parent, {}, [], None

    def sees(self, name):
        return name in self.vars or (self.parent is not None and self.parent.sees(name))

    def touched(self, lists_arrays=False):
        """Vars of outer blocks that the block reads before it writes them, and those that it writes, as the front end
        of the original lists them."""
        reads, writes = [], []
        for op in self.ops:
            reads += [n for n in dict.fromkeys(op.reads()) if n not in writes and n not in reads]
            writes += [n for n in dict.fromkeys(op.writes()) if n not in writes]
        if lists_arrays:
            reads += [n for n in writes if n[0] == "a" and n not in reads]
        return [n for n in reads if n not in self.vars], [n for n in writes if n not in self.vars]


TYPES = {"v": f"f32({ROWS}, {COLUMNS})", "l": f"f32({ROWS}, {COLUMNS})", "s": f"f32(-1, {ROWS}, {COLUMNS})", "a": f"lod_tensor_array f32({ROWS}, {COLUMNS})", "k": "i64(1) stop_gradient", "n": "i64(1) stop_gradient",
         "i": "i32(1) stop_gradient", "c": "bool(1) stop_gradient", "S": "step_scopes", "L": "f32(1)"}


class Emitter:
    def __init__(self, plan):
        self.plan, self.serial, self.feeds = plan, 0, {}
        self.root = Block()
        self.root.vars.update(w=f"param f32({ROWS}, {COLUMNS})", x=f"var f32({ROWS}, {COLUMNS}) need_check_feed")
        self.body(self.root, plan["body"])
        for i, terms in enumerate(plan["losses"]):
            total = terms[0]
            for name in terms[1:]:
                total = self.op(self.root, "elementwise_add", dict(X=[total], Y=[name]), self.new(self.root, "v"), {"axis": "-1"}, None)
            square = self.op(self.root, "square", dict(X=[total]), self.new(self.root, "v"), {}, None)
            self.root.vars[f"loss{i}"] = "var " + TYPES["L"]
            self.op(self.root, "mean", dict(X=[square]), f"loss{i}", {}, None)

    def new(self, block, kind):
        self.serial += 1
        name = f"{kind}_{self.serial}"
        block.vars[name] = "var " + TYPES[kind]
        return name

    def declare(self, block, name):
        if not block.sees(name):
            home = block
            while name[0] in "va" and home.parent is not None:
                home = home.parent
            home.vars[name] = "var " + TYPES[name[0]]

    def op(self, block, kind, ins, out, attrs, statement):
        for name in (n for names in ins.values() for n in names):
            if not block.sees(name):
                raise Invalid(statement, f"{name} is not declared")
        self.declare(block, out)
        block.ops.append(Op(kind, ins, {"Y" if kind == "stack" else "Out": [out]}, attrs, statement))
        return out

    def number(self, block, value, statement, name=None):
        if name is None:
            name = self.new(block, "n")
        return self.op(block, "fill_constant", {}, name, {"shape": "[1l]", "value": f"{value}.0", "dtype": "3", "str_value": f'"{value}"'}, statement)

    def whole(self, block, value, statement):
        return value if isinstance(value, str) else self.number(block, value, statement)

    def body(self, block, statements):
        for statement in statements:
            getattr(self, "on_" + statement["op"], self.on_plain)(block, statement)

    def on_plain(self, block, s):
        kind = {"mul": "elementwise_mul", "add": "elementwise_add"}.get(s["op"], s["op"])
        attrs = {"axis": "-1"} if s["op"] in BINARY else {"scale": str(s["scale"]), "bias": "0.1", "bias_after_scale": "true"} if kind == "scale" else {}
        self.op(block, kind, dict(zip("XY", [[n] for n in s["ins"]])), s["out"], attrs, s)

    def on_write(self, block, s):
        self.op(block, "write_to_array", dict(X=s["ins"], I=[self.whole(block, s["at"], s)]), s["array"], {}, s)

    def on_read(self, block, s):
        self.op(block, "read_from_array", dict(X=[s["array"]], I=[self.whole(block, s["at"], s)]), s["out"], {}, s)

    def on_stack(self, block, s):
        self.op(block, "stack", dict(X=s["ins"]), s["out"], {"axis": "0"}, s)

    def on_total(self, block, s):
        self.op(block, "reduce_sum", dict(X=s["ins"]), s["out"], {"dim": "[0]", "keep_dim": "false", "reduce_all": "false"}, s)

    def on_count(self, block, s):
        self.op(block, "increment", dict(X=[s["out"]]), s["out"], {"step": "1.0"}, s)

    def on_loop(self, block, s):
        counter, start = s["counter"], s["start"]
        home = self.root if s["outer"] else block
        home.vars[counter] = "var " + TYPES["k"]
        if s["fed"] and block is self.root:
            self.feeds[counter] = start
            self.root.vars[counter] += " need_check_feed"
        else:
            self.number(block, start, s, counter)
            if home is not block:  # the front end sets such a counter before the loop around it, too
                self.root.ops.insert(0, Op("fill_constant", {}, block.ops[-1].outs, block.ops[-1].attrs, s))
        limit, condition = self.number(block, start + s["trips"], s), self.new(block, "c")
        less = dict(X=[counter], Y=[limit])
        self.op(block, "less_than", less, condition, {"axis": "-1"}, s)
        inside = Block(block)
        self.body(inside, s["body"])
        if not s["by_assign"]:
            self.op(inside, "less_than", less, condition, {"axis": "-1"}, s)
        else:
            self.op(inside, "assign", dict(X=[self.op(inside, "less_than", less, self.new(inside, "c"), {"axis": "-1"}, s)]), condition, {}, s)
        reads, writes = inside.touched(self.plan["lists_arrays"])
        block.ops.append(Op("while", dict(Condition=[condition], X=reads), dict(Out=writes, StepScopes=[self.new(block, "S")]), {"is_test": "false"}, s, inside))

    def test(self, block, s):
        at, bound = (self.whole(block, v, s) for v in s["test"])
        return self.op(block, "less_than", dict(X=[at], Y=[bound]), self.new(block, "c"), {"axis": "-1"}, s)

    def side(self, block, s, condition, statements, copies=()):
        inside = Block(block)
        self.body(inside, statements)
        for source, out in copies:
            self.op(inside, "assign", dict(X=[source]), out, {}, s)
        reads, writes = inside.touched()
        block.ops.append(Op("conditional_block", dict(Cond=[condition], Input=reads), dict(Out=writes, Scope=[self.new(block, "S")]), {"is_scalar_condition": "true"}, s, inside))

    def on_branch(self, block, s):
        self.side(block, s, self.test(block, s), s["body"])

    def on_cond(self, block, s):
        condition = self.test(block, s)
        outs = [[self.new(block, "v") for _ in range(2)] for _ in s["picks"]]
        self.side(block, s, condition, s["then"], [(p[1], o[0]) for p, o in zip(s["picks"], outs)])
        opposite = self.op(block, "logical_not", dict(X=[condition]), self.new(block, "c"), {}, s)
        self.side(block, s, opposite, s["other"], [(p[2], o[1]) for p, o in zip(s["picks"], outs)])
        mask = self.op(block, "cast", dict(X=[condition]), self.new(block, "i"), {"in_dtype": "0", "out_dtype": "2"}, s)
        for pick, (taken, other) in zip(s["picks"], outs):
            self.op(block, "select_input", dict(X=[other, taken], Mask=[mask]), pick[0], {}, s)

    def on_recurrent(self, block, s):
        inside = Block(block)
        for name in s["init"] + s["ins"]:
            if not block.sees(name):
                raise Invalid(s, f"{name} is not declared")
        for name in s["ins"] + s["previous"] + s["outs"]:
            inside.vars[name] = "var " + TYPES["l"]
        self.body(inside, s["body"])
        for name in s["outs"]:
            self.declare(block, name)
        reads, _ = inside.touched()
        quoted = lambda names: "[" + ", ".join(f'"{n}"' for n in names) + "]"  # noqa: E731
        attrs = {"ex_states": quoted(s["previous"]), "states": quoted(s["states"]), "has_states": "true", "is_train": "true", "reverse": str(s["reverse"]).lower()}
        block.ops.append(Op("recurrent", dict(initial_states=s["init"], inputs=s["ins"], parameters=reads), dict(outputs=s["outs"], step_scopes=[self.new(block, "S")]), attrs, s, inside))


def emit(plan):
    """(block 0, feeds of counters)."""
    emitter = Emitter(plan)
    return emitter.root, emitter.feeds


def text(root):
    """The program in the text form."""
    blocks = [root]
    for block in blocks:
        for op in block.ops:
            if op.body is not None:
                op.body.index = len(blocks)
                blocks.append(op.body)
    root.index, lines = 0, ["# millrace program 1"]
    for block in blocks:
        lines.append(f"\nblock {block.index}" + (f" parent={block.parent.index}" if block.parent else "") + " {")
        for name, declared in block.vars.items():
            how, _, kind = declared.partition(" ")
            lines.append(f"  {how} {name}: {kind}")
        for op in block.ops:
            slots = [" ".join(f"{slot}={', '.join(names) or '[]'}" for slot, names in side.items()) for side in (op.ins, op.outs)]
            attrs = dict(op.attrs, **({"sub_block": f"^{op.body.index}"} if op.body is not None else {}))
            lines.append(f"  {op.kind} {slots[0]} -> {slots[1]}" + (" {" + ", ".join(f"{k}: {v}" for k, v in attrs.items()) + "}" if attrs else ""))
        lines.append("}")
    return "\n".join(lines) + "\n"
