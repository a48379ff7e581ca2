"""Layers of the original's static graph for control_flow_nets.py: plain ops with few attributes, in a type of choice."""
import warnings

warnings.filterwarnings("ignore")
import numpy as np
import numpy.random
import paddle
from paddle import static
from paddle.base import ParamAttr, core, unique_name
from paddle.base.layer_helper import LayerHelper
from paddle.base.proto import framework_pb2
from paddle.static.nn import control_flow as CF

paddle.enable_static()
CPU = core.CPUPlace()
WIDTH, ROWS, STEPS = 3, 2, 3
DTYPE = "float32"


def op(kind, ins, slot="Out", attrs=None):
    helper = LayerHelper(kind)
    made = helper.create_variable_for_type_inference(DTYPE)
    helper.append_op(type=kind, inputs={k: v if isinstance(v, list) else [v] for k, v in ins.items()}, outputs={slot: [made]},
                     attrs=attrs or {})
    return made


def par(name, *shape):
    return LayerHelper("param").create_parameter(attr=ParamAttr(name=name), shape=list(shape or (WIDTH, WIDTH)), dtype=DTYPE)


def data(name, shape, lod=0):
    return static.data(name, shape, DTYPE, lod_level=lod)


def mul(x, w):
    out = op("mul", {"X": x, "Y": w}, attrs={"x_num_col_dims": 1, "y_num_col_dims": 1})
    return out


def add(*xs):
    out = xs[0]
    for x in xs[1:]:
        out = op("elementwise_add", {"X": out, "Y": x}, attrs={"axis": -1})
    return out


def tanh(x):
    return op("tanh", {"X": x})


def scale(x, by):
    return op("scale", {"X": x}, attrs={"scale": float(by)})


def mean_square(x):
    return paddle.mean(op("square", {"X": x}))


def number(value):
    var = paddle.full([1], value, "int64")
    var.stop_gradient = True
    return var


def read(array, i):
    out = paddle.tensor.array_read(array, i)
    out.desc.set_shape([ROWS, WIDTH])
    return out


def write(x, i, array=None):
    return paddle.tensor.array_write(x, i, array)


def total(array, slots=STEPS):
    """Of all slots: the original cannot read a gradient that nobody has written."""
    return add(*[scale(read(array, number(k)), 1 + k) for k in range(slots)])


def sequence():
    """With a gradient: without one the original's recurrent_grad fails."""
    return op("mul", {"X": data("seq", [STEPS, ROWS, WIDTH]), "Y": par("ws")}, attrs={"x_num_col_dims": 2, "y_num_col_dims": 1})


class Loop:
    """for i in range(steps), with i in a var"""

    def __init__(self, steps=STEPS):
        self.i, self.n = number(0), number(steps)
        self.cond = paddle.less_than(self.i, self.n)
        self.loop = CF.While(self.cond)

    def block(self):
        return self.loop.block()

    def step(self):
        paddle.increment(self.i, 1)

    def end(self):
        paddle.assign(paddle.less_than(self.i, self.n), self.cond)


def recurrent(inputs, boots, body):
    """Appends a recurrent op; body(step inputs, states before) -> (states after, outputs). Returns the stacked outputs."""
    program = static.default_main_program()
    parent = program.current_block()
    block = program._create_block()
    ins = [block.create_var(name=v.name, shape=v.shape[1:], dtype=v.dtype) for v in inputs]
    before = [block.create_var(name=unique_name.generate("rnn_pre"), shape=v.shape, dtype=v.dtype) for v in boots]
    after, outputs = body(ins, before)
    made = {n for o in block.ops for n in o.output_arg_names} | {v.name for v in ins + before}
    params = []
    for o in block.ops:
        for n in o.input_arg_names:
            if n not in made and n not in params:
                params.append(n)
    program._rollback()
    outs = [parent.create_var(name=v.name, shape=[STEPS] + list(v.shape), dtype=v.dtype) for v in outputs]
    scopes = parent.create_var(name=unique_name.generate("rnn_scopes"), type=core.VarDesc.VarType.STEP_SCOPES)
    parent.append_op(type="recurrent",
                     inputs={"inputs": inputs, "initial_states": boots, "parameters": [parent._var_recursive(n) for n in params]},
                     outputs={"outputs": outs, "step_scopes": [scopes]},
                     attrs={"has_states": bool(boots), "ex_states": [v.name for v in before], "states": [v.name for v in after],
                            "sub_block": block, "reverse": False, "is_train": True})
    return outs


def flag(value=0.0):
    return paddle.less_than(paddle.full([1], value, "float32"), static.data("flag", [1], "float32"))


def bare(program_bytes):
    """Without the call stacks, which are most of it and differ from machine to machine."""
    program = framework_pb2.ProgramDesc.FromString(program_bytes)
    for block in program.blocks:
        for an_op in block.ops:
            kept = [a for a in an_op.attrs if a.name != "op_callstack"]
            del an_op.attrs[:]
            an_op.attrs.extend(kept)
    return program.SerializeToString(deterministic=True)


def run(program, feeds, params, fetch):
    """One op after another, by the original's first executor."""
    scope, place = core.Scope(), core.Place()
    for name, value in (feeds | params).items():
        scope.var(name).get_tensor().set(value, CPU)
    place.set_place(CPU)
    core.Executor(place).run(program.desc, scope, 0, False, True, list(fetch))
    return [np.array(scope.find_var(name).get_tensor()) for name in fetch]
