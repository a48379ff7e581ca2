"""Models of programs that are stored without parameters: made parameters and inputs, results of millrace."""
import json
import subprocess

import numpy as np
import paddle

import export_cases as cases

BATCH, IMAGE, ROWS = 2, 64, 6  # extents that a program leaves open: the first, those of images, rows of sequences
# The last op of these programs sorts boxes whose scores are equal or close: its inputs are compared.
FETCHES = {"paddledet_openvino_model": ["box_coder_0.tmp_0", "transpose_12.tmp_0"],
           "picodet_control_flow": ["stack_8.tmp_0", "stack_9.tmp_0"]}
UNORDERED = {"stack_8.tmp_0"}  # rows in the order of close scores
POSITIVE = {"Variance", "Scale", "BatchSize", "BatchSquareSum"}  # slots whose parameters are above 0


def type_of(var):
    return str(var.dtype()).rsplit(".", maxsplit=1)[-1]  # paddle.float32


def ops_of(program, type_name=None):
    for number in range(program.num_blocks()):
        block = program.block(number)
        for index in range(block.op_size()):
            if type_name in (None, block.op(index).type()):
                yield block.op(index)


def by_rule(name, dims, scale):
    """The values in [-scale, scale) that ../shared/models/README.md defines for the name."""
    seed = 2166136261
    for byte in name.encode():
        seed = (seed ^ byte) * 16777619 % 2**32
    bits = (np.arange(int(np.prod(dims)), dtype=np.uint64) * np.uint64(2654435761) + np.uint64(seed)) % np.uint64(2**32)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        bits = (bits ^ bits >> np.uint64(shift)) * np.uint64(factor) % np.uint64(2**32)
    return (((bits >> np.uint64(8)) * 2.0**-24 - 0.5) * 2 * scale).astype(np.float32).reshape(dims)


def case_params(case):
    """The parameters of a stored case with rules."""
    params = {}
    for param in case["params_by_rule"]:
        init = param["init"]
        params[param["name"]] = (np.full(param["shape"], init["value"], param["dtype"]) if init["kind"] == "const"
                                 else by_rule(param["name"], param["shape"], init["scale"]).astype(param["dtype"]))
    return params


def case_feeds(case, folder):
    return [cases.Feed(f["name"], np.load(folder / f["file"]) if "file" in f else by_rule(f["name"], f["shape"], 1), [])
            for f in case["feed"]]


def made_params(program):
    """Random values by name, small enough that sums stay near 1."""
    random = np.random.RandomState(0)
    positive = {name for op in ops_of(program) for slot in op.input_names() if slot in POSITIVE for name in op.input(slot)}
    params = {}
    for number in range(program.num_blocks()):
        for var in program.block(number).all_vars():
            if not var.persistable() or str(var.type()).rsplit(".", maxsplit=1)[-1] not in ("LOD_TENSOR", "DENSE_TENSOR"):
                continue
            dims = [max(1, d) for d in var.shape()]
            values = random.uniform(-1, 1, dims) / np.sqrt(max(1, np.prod(dims[1:])))
            if var.name() in positive:
                values = np.abs(values) + 0.5
            params[var.name()] = values.astype(type_of(var)) if type_of(var).startswith("float") else np.ones(dims, type_of(var))
    return params


def made_feeds(program):
    random = np.random.RandomState(1)
    feeds = []
    for op in ops_of(program, "feed"):
        name = op.output("Out")[0]
        var = program.block(0).find_var(name.encode())
        has_lod = var.lod_level() > 0
        dims = [(d if d > 0 else (BATCH if i == 0 else IMAGE)) for i, d in enumerate(var.shape())]
        if has_lod:
            dims[0] = ROWS
        dtype = type_of(var)
        values = random.uniform(0, 1, dims).astype(dtype) if dtype.startswith("float") else random.randint(1, 3, dims).astype(dtype)
        feeds.append(cases.Feed(name, values, [[0, 2, ROWS]] * has_lod))
    return feeds


def set_fetches(program, names):
    """Fetches these vars instead."""
    block = program.block(0)
    while block.op(block.op_size() - 1).type() == "fetch":
        block._remove_op(block.op_size() - 1, block.op_size())  # pylint: disable=protected-access
    for col, name in enumerate(names):
        op = block.append_op()
        op.set_type("fetch")
        op.set_input("X", [name])
        op.set_output("Out", ["fetch"])
        op._set_attr("col", col)  # pylint: disable=protected-access


def without_fused_functions(program):
    """The program with functions that a oneDNN pass has put into convolutions as ops of their own."""
    block = program.block(0)
    index = 0
    while index < block.op_size():
        op = block.op(index)
        if op.has_attr("fuse_activation") and op.attr("fuse_activation"):
            function, (out,) = op.attr("fuse_activation"), op.output("Output")
            op._set_attr("fuse_activation", "")  # pylint: disable=protected-access
            inner = block.var(f"{out}.fused".encode())
            inner.set_type(paddle.base.core.VarDesc.VarType.DENSE_TENSOR)
            inner.set_dtype(block.find_var(out.encode()).dtype())
            inner.set_shape(block.find_var(out.encode()).shape())
            op.set_output("Output", [f"{out}.fused"])
            added = block._insert_op(index + 1)  # pylint: disable=protected-access
            added.set_type(function)
            added.set_input("X", [f"{out}.fused"])
            added.set_output("Out", [out])
        index += 1
    return program


def programs_of(shared):
    """Paths of the programs; those of training and start-up, which feed and fetch nothing, are left out."""
    found = sorted(shared.glob("models/programs_only/*.pb"))
    return [p for p in found if any(ops_of(paddle.base.core.ProgramDesc(p.read_bytes()), "fetch"))] + [
        shared / "models" / "picodet_control_flow"]


class MadeModel:
    """A model folder, its inputs, and what millrace computes."""

    def __init__(self, tools, path, work):
        """path: a program, or the folder of a case whose parameters are given by rules."""
        content = (path / "__model__" if path.is_dir() else path).read_bytes()
        program = paddle.base.core.ProgramDesc(content)
        if path.stem in FETCHES:
            set_fetches(program, FETCHES[path.stem])
            content = program.serialize_to_string()
        self.fetches = [op.input("X")[0] for op in ops_of(program, "fetch")]
        self.folder = work / path.stem
        self.folder.mkdir()
        (self.folder / "__model__").write_bytes(content)
        self.program = self.folder / "__model__"
        if any(op.has_attr("fuse_activation") and op.attr("fuse_activation") for op in ops_of(program)):
            self.program = self.folder / "plain"  # run-program does not take them
            self.program.write_bytes(without_fused_functions(program).serialize_to_string())
        if path.is_dir():
            case = json.loads((path / "case.json").read_text())
            self.feeds, self.params = case_feeds(case, path), case_params(case)
        else:
            self.feeds, self.params = made_feeds(program), made_params(program)
        if self.params:
            with open(self.folder / "params", "wb") as file:
                np.savez(file, **self.params)
        self.tools = tools

    def results(self):
        """Arrays by name, computed by run-program."""
        feed, out = self.folder / "feed.npz", self.folder / "out.npz"
        np.savez(feed, **{f.name: f.array for f in self.feeds})
        lods = [f"--lod={f.name}={','.join(map(str, level))}" for f in self.feeds for level in f.lod]
        params = ["--params", self.folder / "params"] if self.params else []
        done = subprocess.run([self.tools / "run-program", "--program", self.program, *params, "--feed", feed,
                               *lods, "-o", out, "-q"], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"run-program ended with {done.returncode}: {done.stderr.strip()}")
        return dict(np.load(out))

    def compare(self, got, want):
        """None, or the first difference."""
        for name in self.fetches:
            values = want[name]
            atol = cases.MODEL_TOLERANCE * max(1e-30, float(np.abs(values).max(initial=0)))
            found = got[name]
            if name in UNORDERED:
                found, values = np.sort(found, axis=-2), np.sort(values, axis=-2)
            if difference := cases.close(found, values, cases.MODEL_TOLERANCE, atol):
                return f"{name}: {difference}"
        return None
