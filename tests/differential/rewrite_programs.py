"""Random small programs of the ops that the executor's passes rewrite, with overwritten vars, in-place ops, sub-blocks
that write vars of block 0, several batch sizes and odd fetches. A program is a dict that stays valid if ops or fetches
are removed: vars (name to [kind of declaration, type]), ops (each a dict with the line of the op and, if it has one,
the lines of its sub-block), feeds, fetches, batches, loss, sequences (feeds that have a LoD)."""
import random

F32, I64 = "f32", "i64"
MATRIX, CUBE, HEADS, IMAGE, COLUMN = (-1, 8), (-1, 4, 8), (-1, 2, 4, 4), (-1, 3, 6, 6), (-1, 1)
FEEDS = {"x": MATRIX, "y": MATRIX, "one_row": MATRIX, "cube": CUBE, "image": IMAGE, "column": COLUMN}
PARAMS = {"w0": (8, 8), "w1": (8, 8), "b0": (8,), "b1": (8,), "s0": (1,), "table": (16, 8), "table2": (16, 8),
          "filter": (3, 3, 3, 3), "c0": (3,), "c1": (3,), "mean": (3,), "variance": (3,)}
SEQUENCES = {"words": (-1, 1), "more_words": (-1, 1)}
LOD_FEEDS = ["x", "y", "cube", "image"]  # may be fed as sequences of rows, each cut in its own way: results must have the LoD of the right operand
UNARY = ["relu", "sigmoid", "tanh", "square", "abs", "gelu", "leaky_relu", "softmax", "exp_small", "floor", "assign"]
BINARY = ["add", "sub", "mul", "max", "min", "div"]


def dims_text(dims):
    return "(" + ", ".join(map(str, dims)) + ")"


class Maker:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.vars, self.ops, self.count = {}, [], 0
        self.live = {}  # names that hold a value, by (dtype, dims)
        self.lod = set()  # names of sequences of rows
        self.free_names = []
        for name, dims in FEEDS.items():
            self.vars[name] = ["var", f"f32{dims_text(dims)}"]
            self.live.setdefault((F32, dims), []).append(name)
        for name, dims in PARAMS.items():
            self.vars[name] = ["param", f"f32{dims_text(dims)}"]
            self.live.setdefault((F32, dims), []).append(name)
        for name, dims in SEQUENCES.items():
            self.vars[name] = ["var", f"i64{dims_text(dims)} lod=1"]
        self.overwrites = self.random.choice([0.0, 0.05, 0.15, 0.3])
        self.noise = self.random.choice([0.0, 0.1, 0.3])

    def pick(self, dims, dtype=F32):
        return self.random.choice(self.live[(dtype, tuple(dims))])

    def has(self, dims, dtype=F32):
        return bool(self.live.get((dtype, tuple(dims))))

    def new(self, dims, dtype=F32, lod=False):
        """The name of a result: usually a new var, sometimes one that already holds a value."""
        key = (dtype, tuple(dims))
        known = [n for n in self.live.get(key, []) if n not in ("variance", "filter")]
        if known and self.random.random() < self.overwrites:
            return self.random.choice(known)
        self.count += 1
        name = f"v{self.count}"
        kind = "persist" if self.random.random() < 0.03 and -1 not in dims else "var"
        self.vars[name] = [kind, f"{dtype}{dims_text(dims)}" + (" lod=1" if lod else "")]
        self.live.setdefault(key, []).append(name)
        return name

    def op(self, line, block=None):
        self.ops.append({"line": line, **({"block": block} if block else {})})
        if self.random.random() < self.noise and not block:
            self.disturb()

    def disturb(self):
        """Something between two ops of a pattern: another write or read of a var, or a sub-block that does it."""
        noise, self.noise = self.noise, 0.0
        what = self.random.choice(["overwrite", "overwrite", "read", "branch", "loop"])
        if what == "overwrite":
            self.overwrite()
        elif what == "read":
            self.unary()
        else:
            self.block(what)
        self.noise = noise

    def overwrite(self):
        dims = self.random.choice([MATRIX, MATRIX, CUBE, IMAGE, (8,), (8, 8)])
        into, source = self.pick(dims), self.pick(dims)
        self.op(self.random.choice([f"scale X={source} -> Out={into} {{scale: 0.5, bias: 0.25, bias_after_scale: true}}",
                                    f"assign X={source} -> Out={into}", f"relu X={source} -> Out={into}"]))

    def helper(self, dtype, dims=(1,)):
        self.count += 1
        name = f"h{self.count}"
        self.vars[name] = ["var", dtype if dims is None else f"{dtype}{dims_text(dims)}"]
        return name

    def block(self, what):
        """A conditional block or a loop that writes a var, which its slots need not name."""
        dims = self.random.choice([MATRIX, MATRIX, CUBE, (8,)])
        into, source = self.pick(dims), self.pick(dims)
        cond, scope, count, limit = self.helper("bool"), self.helper("step_scopes", None), self.helper(F32), self.helper(F32)
        self.ops.append({"line": f"fill_constant -> Out={count} {{shape: [1l], dtype: 5, value: 0.0}}"})
        self.ops.append({"line": f"fill_constant -> Out={limit} {{shape: [1l], dtype: 5, value: {self.random.choice(['0.0', '1.0', '2.0'])}}}"})
        self.ops.append({"line": f"less_than X={count} Y={limit} -> Out={cond}"})
        body = [f"scale X={source} -> Out={into} {{scale: 0.5, bias: 0.125, bias_after_scale: true}}"]
        if self.random.random() < 0.3:
            body = [f"relu X={source} -> Out=inner", f"scale X=inner -> Out={into} {{scale: 2.0, bias: 0.5}}"]
        inner = f"var inner: f32{dims_text(dims)}"
        named = self.random.random() < 0.7
        ins = f"{source}" if named else "[]"
        outs = f"{into}" if named else "[]"
        if what == "loop":
            body += [f"increment X={count} -> Out={count} {{step: 1.0}}", f"less_than X={count} Y={limit} -> Out={cond}"]
            ins = f"{source}, {count}, {limit}" if named else f"{count}, {limit}"
            outs = f"{into}, {count}, {cond}" if named else f"{count}, {cond}"
            self.op(f"while X={ins} Condition={cond} -> Out={outs} StepScopes={scope} {{sub_block: ^BLOCK}}", [inner, *body])
        else:
            self.op(f"conditional_block Cond={cond} Input={ins} -> Out={outs} Scope={scope} {{sub_block: ^BLOCK, is_scalar_condition: true}}", [inner, *body])

    def unary(self, source=None, dims=None):
        dims = dims or self.random.choice([MATRIX, MATRIX, CUBE, IMAGE, (8,)])
        source = source or self.pick(dims)
        kind = self.random.choice(UNARY + ["scale"])
        out = self.new(dims, lod=source in self.lod)
        if source in self.lod:
            self.lod.add(out)
        if kind == "scale":
            after = self.random.choice(["true", "false"])
            self.op(f"scale X={source} -> Out={out} {{scale: {self.random.choice(['0.5', '1.0', '-2.0', '0.0'])}, "
                    f"bias: {self.random.choice(['0.0', '0.25'])}, bias_after_scale: {after}}}")
        elif kind == "exp_small":
            self.op(f"tanh X={source} -> Out={out}")
        elif kind == "gelu":
            self.op(f"gelu X={source} -> Out={out} {{approximate: {self.random.choice(['true', 'false'])}}}")
        elif kind == "leaky_relu":
            self.op(f"leaky_relu X={source} -> Out={out} {{alpha: 0.125}}")
        elif kind == "softmax":
            self.op(f"softmax X={source} -> Out={out} {{axis: -1}}")
        else:
            self.op(f"{kind} X={source} -> Out={out}")
        return out

    def binary(self, x=None, y=None, dims=None, kinds=None):
        dims = dims or self.random.choice([MATRIX, MATRIX, CUBE, IMAGE, (8,)])
        x = x or self.pick(dims)
        axis = -1
        if y is None:
            which = self.random.random()
            if which < 0.55 or dims == IMAGE:
                y = self.pick(dims)
            elif which < 0.8:
                y, axis = self.pick((8,)), self.random.choice([-1, len(dims) - 1])
            elif which < 0.9 or dims != MATRIX:
                y = self.pick((1,))
            else:
                y = self.pick(COLUMN)
        kind = self.random.choice(kinds or BINARY[:5])
        out = self.new(dims)
        if self.vars[y][1] == self.vars[x][1] and self.random.random() < 0.3:
            x, y = y, x
        self.op(f"elementwise_{kind} X={x} Y={y} -> Out={out} {{axis: {axis}}}")
        return out

    def fc(self):
        dims = self.random.choice([MATRIX, CUBE])
        x, w, rank = self.pick(dims), self.pick((8, 8)), len(dims)
        out = self.new(dims)
        self.op(self.random.choice([f"mul X={x} Y={w} -> Out={out} {{x_num_col_dims: {rank - 1}, y_num_col_dims: 1}}",
                                    f"matmul X={x} Y={w} -> Out={out} {{transpose_X: false, transpose_Y: false, alpha: 1.0}}",
                                    f"matmul_v2 X={x} Y={w} -> Out={out} {{trans_x: false, trans_y: false}}"]))
        if self.random.random() < 0.8:
            out = self.binary(out, self.pick((8,)), dims, ["add"])
        if self.random.random() < 0.4:
            out = self.binary(out, self.pick(dims), dims, ["add"])
        if self.random.random() < 0.6:
            out = self.unary(out, dims)

    def chain(self):
        dims = self.random.choice([MATRIX, CUBE, IMAGE])
        out = self.pick(dims)
        for _ in range(self.random.randint(2, 5)):
            out = self.unary(out, dims) if self.random.random() < 0.5 else self.binary(out, None, dims)

    def row_pattern(self):
        dims = self.random.choice([MATRIX, CUBE])
        x, row = self.pick(dims), (*dims[:-1], 1)

        def reduce(kind, of):
            out = self.new(row)
            self.op(f"reduce_{kind} X={of} -> Out={out} {{dim: [{self.random.choice([-1, len(dims) - 1])}], keep_dim: true, reduce_all: false}}")
            return out

        def sub(a, b, kind="sub"):
            out = self.new(dims)
            self.op(f"elementwise_{kind} X={a} Y={b} -> Out={out} {{axis: -1}}")
            return out
        if self.random.random() < 0.5:
            shifted = sub(x, reduce("max", x))
            e = self.new(dims)
            self.op(f"exp X={shifted} -> Out={e}")
            return sub(e, reduce("sum", e), "div")
        c = sub(x, reduce("mean", x))
        squared = self.new(dims)
        self.op(self.random.choice([f"square X={c} -> Out={squared}", f"elementwise_mul X={c} Y={c} -> Out={squared} {{axis: -1}}",
                                    f"pow X={c} -> Out={squared} {{factor: 2.0}}"]))
        moved, root = self.new(row), self.new(row)
        self.op(f"scale X={reduce('mean', squared)} -> Out={moved} {{scale: 1.0, bias: {self.random.choice(['0.00001', '0.0005', '0.1'])}, bias_after_scale: true}}")
        self.op(f"sqrt X={moved} -> Out={root}")
        out = sub(c, root, "div")
        if self.random.random() < 0.6:
            out = self.binary(out, self.pick((8,)), dims, ["mul"])
            out = self.binary(out, self.pick((8,)), dims, ["add"])
        return out

    def move(self):
        """Transposes and reshapes in a row."""
        dims, x = CUBE, self.pick(CUBE)
        for _ in range(self.random.randint(1, 3)):
            shape = self.helper(F32, (0, *dims))
            if len(dims) == 3 and self.random.random() < 0.5:
                axis = self.random.choice([[0, 2, 1], [0, 1, 2], [0, 2, 1]])
                dims = tuple(dims[a] for a in axis)
                out = self.new(dims)
                self.op(f"transpose2 X={x} -> Out={out} XShape={shape} {{axis: {axis}}}")
            else:
                dims = self.random.choice([(-1, 4, 8), (-1, 8, 4), (-1, 32), (-1, 8)])
                to = [-1, *dims[1:]] if dims == (-1, 8) else [self.random.choice([0, -1]) if dims != (-1, 8) else -1, *dims[1:]]
                out = self.new(dims)
                self.op(f"reshape2 X={x} -> Out={out} XShape={shape} {{shape: {to}}}")
                if dims == (-1, 8):
                    return
            x = out

    def attention(self):
        sources = [self.pick(CUBE) for _ in range(3)]

        def heads(source):
            cut, turned = self.new((-1, 4, 2, 4)), self.new(HEADS)
            self.op(f"reshape2 X={source} -> Out={cut} XShape={self.helper(F32, (0, -1, 4, 8))} {{shape: [0, 0, 2, 4]}}")
            self.op(f"transpose2 X={cut} -> Out={turned} XShape={self.helper(F32, (0, -1, 4, 2, 4))} {{axis: [0, 2, 1, 3]}}")
            return turned
        q, k, v = map(heads, sources)
        if self.random.random() < 0.5:
            scaled = self.new(HEADS)
            self.op(f"scale X={q} -> Out={scaled} {{scale: 0.5, bias: 0.0, bias_after_scale: true}}")
            q = scaled
        scores, probs, mixed, turned, out = self.new(HEADS), self.new(HEADS), self.new(HEADS), self.new((-1, 4, 2, 4)), self.new(CUBE)
        self.op(f"matmul X={q} Y={k} -> Out={scores} {{transpose_X: false, transpose_Y: true, alpha: 0.5}}")
        if self.random.random() < 0.4:
            masked = self.new(HEADS)
            self.op(f"elementwise_add X={scores} Y={self.pick(HEADS)} -> Out={masked} {{axis: -1}}")
            scores = masked
        self.op(f"softmax X={scores} -> Out={probs} {{axis: -1}}")
        self.op(f"matmul_v2 X={probs} Y={v} -> Out={mixed} {{trans_x: false, trans_y: false}}")
        self.op(f"transpose2 X={mixed} -> Out={turned} XShape={self.helper(F32, (0, -1, 2, 4, 4))} {{axis: [0, 2, 1, 3]}}")
        self.op(f"reshape2 X={turned} -> Out={out} XShape={self.helper(F32, (0, -1, 4, 2, 4))} {{shape: [0, 0, 8]}}")

    def image(self):
        x, out = self.pick(IMAGE), self.new(IMAGE)
        self.op(f'conv2d Input={x} Filter=filter -> Output={out} {{strides: [1, 1], paddings: [1, 1], dilations: [1, 1], groups: 1, data_format: "NCHW"}}')
        if self.random.random() < 0.5:
            summed = self.new(IMAGE)
            self.op(f"elementwise_add X={out} Y={self.pick((3,))} -> Out={summed} {{axis: 1}}")
            out = summed
        if self.random.random() < 0.6:
            y, saved, other = self.new(IMAGE), self.helper(F32, (3,)), self.helper(F32, (3,))
            test = self.random.choice(["true", "true", "false"])
            self.op(f"batch_norm X={out} Scale={self.pick((3,))} Bias={self.pick((3,))} Mean=mean Variance=variance -> Y={y} MeanOut=mean VarianceOut=variance "
                    f'SavedMean={saved} SavedVariance={other} {{epsilon: 0.00001, momentum: 0.9, is_test: {test}, data_layout: "NCHW"}}')
            out = y
        if self.random.random() < 0.5:
            out = self.binary(out, self.pick(IMAGE), IMAGE, ["add"])
        if self.random.random() < 0.5:
            self.unary(out, IMAGE)

    def words(self):
        parts = []
        for _ in range(self.random.randint(1, 3)):
            rows, pooled, index = self.helper("f32", (-1, 8)), self.new(MATRIX), self.helper("i32", (-1, 8))
            self.vars[rows][1] += " lod=1"
            ids = self.random.choice(list(SEQUENCES))
            kind = self.random.choice(["SUM", "AVERAGE", "SQRT", "SUM", "LAST"])
            pad = self.random.choice(["", "", ", padding_idx: 3l"])
            self.op(f"lookup_table W={self.random.choice(['table', 'table2'])} Ids={ids} -> Out={rows} {{is_sparse: false{pad}}}")
            self.op(f'sequence_pool X={rows} -> Out={pooled} MaxIndex={index} {{pooltype: "{kind}", pad_value: {self.random.choice(["0.0", "0.0", "1.5"])}}}')
            parts.append(pooled)
        if len(parts) > 1:
            if self.random.random() < 0.3:
                parts.insert(1, self.pick(MATRIX))
            out = self.new((-1, 8 * len(parts)))
            self.op(f"concat X={', '.join(parts)} -> Out={out} {{axis: 1}}")

    def constants(self):
        kind, number = self.random.choice([("f32", 5), ("i32", 2), ("i64", 3), ("f64", 6)])
        dims = self.random.choice([(8,), (1,), (2, 4)])
        names = []
        for _ in range(2):
            out = self.new(dims, kind)
            if kind != "f64" and self.random.random() < 0.4:
                size = 1
                for d in dims:
                    size *= d
                slot = {"f32": "fp32_values", "i32": "int32_values", "i64": "int64_values"}[kind]
                values = [self.random.randint(-3, 9) for _ in range(size)]
                text = {"f32": [f"{v}.5" for v in values], "i32": values, "i64": [f"{v}l" for v in values]}[kind]
                self.op(f"assign_value -> Out={out} {{shape: [{', '.join(map(str, dims))}], dtype: {number}, {slot}: [{', '.join(map(str, text))}]}}")
            else:
                text = self.random.choice(["2.0", "-1.0", "0.0", "3.5", "7.25"])
                self.op(f"fill_constant -> Out={out} {{shape: [{', '.join(f'{d}l' for d in dims)}], dtype: {number}, value: {text}}}")
            names.append(out)
        for _ in range(self.random.randint(1, 4)):
            a, b, out = self.random.choice(names), self.random.choice(names), self.new(dims, kind)
            op = self.random.choice(["scale", "scale", "elementwise_add", "elementwise_sub", "elementwise_mul", "elementwise_max", "elementwise_min", "relu", "square", "abs"]
                                    + (["floor", "sqrt", "tanh", "elementwise_div", "reciprocal"] if kind in ("f32", "f64") else []))
            if op == "scale":
                self.op(f"scale X={a} -> Out={out} {{scale: {self.random.choice(['0.5', '2.0', '-1.5'])}, bias: {self.random.choice(['0.0', '0.75', '1.0'])}, "
                        f"bias_after_scale: {self.random.choice(['true', 'false'])}}}")
            elif op.startswith("elementwise"):
                self.op(f"{op} X={a} Y={b} -> Out={out} {{axis: -1}}")
            else:
                self.op(f"{op} X={a} -> Out={out}")
            names.append(out)
        if kind != "f32":
            out = self.new(dims)
            self.op(f"cast X={names[-1]} -> Out={out} {{in_dtype: {number}, out_dtype: 5}}")

    def repeat(self):
        """The same computation twice, so that one result may serve both."""
        again = self.random.choice([o for o in self.ops if "block" not in o and "MeanOut" not in o["line"]] or [None])
        if again is None or " -> Out=" not in again["line"]:
            return
        out = again["line"].split(" -> Out=")[1].split(" ")[0]
        if out not in self.vars or "lod" in self.vars[out][1]:
            return
        for (dtype, dims), names in list(self.live.items()):
            if out in names:
                self.op(again["line"].replace(f" -> Out={out}", f" -> Out={self.new(dims, dtype)}"))
                return


def make(seed):
    """The program of a seed."""
    maker = Maker(seed)
    rng = maker.random
    parts = [maker.fc, maker.fc, maker.chain, maker.chain, maker.row_pattern, maker.row_pattern, maker.move, maker.move, maker.attention, maker.image,
             maker.image, maker.words, maker.constants, maker.constants, maker.repeat, maker.repeat, maker.overwrite,
             lambda: maker.block("branch"), lambda: maker.block("loop")]
    chosen = rng.sample(range(len(parts)), rng.randint(2, 4))
    for _ in range(rng.randint(2, 7)):
        parts[rng.choice(chosen)]()
    written = sorted({n for names in maker.live.values() for n in names if n.startswith("v")} | set(FEEDS) | set(PARAMS))
    fetches = [n for n in written if rng.random() < rng.choice([0.1, 0.3])]
    outs = [n for n in written if n.startswith("v")][-1:]
    batches = rng.choice([[3, 3], [3, 5, 3], [3, 1, 4], [2, 0, 2]])
    program = dict(seed=seed, vars=maker.vars, ops=maker.ops, fetches=sorted(set(fetches + outs)) or ["x"], batches=batches, train=False)
    matrix = [n for n in maker.live[(F32, MATRIX)] if n.startswith("v")]
    if matrix and rng.random() < 0.4:
        program["train"] = rng.choice(["sgd", "momentum", "none"])
        program["loss_of"] = matrix[-rng.randint(1, min(3, len(matrix)))]
    program["sequences"] = [n for n in LOD_FEEDS if rng.random() < 0.4]
    for name in program["sequences"]:
        maker.vars[name][1] += " lod=1"
    return program


def used(program):
    words = " ".join(o["line"] + " " + " ".join(o.get("block", [])) for o in program["ops"]).replace("=", " ").replace(",", " ").split()
    return set(words)


def text_of(program):
    """The program in text form."""
    words = used(program)
    extra = ["  var loss_square: f32(-1, 8)", "  var loss: f32(1)"] if program["train"] else []
    loss = program.get("loss_of")
    lines = ["# millrace program 1", "block 0 {"]
    lines += [f"  {kind} {name}: {what}" for name, (kind, what) in program["vars"].items() if name in words or name == loss]
    lines += extra
    blocks = []
    for op in program["ops"]:
        line = op["line"]
        if "block" in op:
            blocks.append(op["block"])
            line = line.replace("^BLOCK", f"^{len(blocks)}")
        lines.append("  " + line)
    if program["train"]:
        lines += [f"  square X={loss} -> Out=loss_square", "  mean X=loss_square -> Out=loss"]
    lines.append("}")
    for number, body in enumerate(blocks, 1):
        lines += [f"block {number} parent=0 {{", *("  " + line for line in body), "}"]
    return "\n".join(lines) + "\n"
