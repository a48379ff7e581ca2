"""Runs the programs of make_loops.py in numpy, in float64; says which statement reads what no op has written."""
import make_loops
import numpy as np
from make_loops import Invalid

LARGEST, MOST_OPS = 30.0, 4000


class Scope:
    def __init__(self, block, parent=None):
        self.block, self.parent, self.values = block, parent, {}

    def home(self, name):
        scope = self
        while scope is not None and name not in scope.block.vars:
            scope = scope.parent
        return scope

    def get(self, name):
        scope = self.home(name)
        return None if scope is None else scope.values.get(name)

    def set(self, name, value):
        self.home(name).values[name] = value


class Machine:
    def __init__(self, root, values):
        self.ops_run, self.scope = 0, Scope(root)
        self.scope.values.update(values)

    def run(self, block, scope):
        for op in block.ops:
            self.ops_run += 1
            if self.ops_run > MOST_OPS:
                raise Invalid(op.statement, "too many ops")
            getattr(self, "on_" + op.kind)(op, scope)

    def value(self, op, scope, slot, at=0):
        value = scope.get(op.ins[slot][at])
        if value is None:
            raise Invalid(op.statement, f"{op.ins[slot][at]} has no value")
        return value

    def put(self, op, scope, value, slot="Out"):
        if isinstance(value, np.ndarray) and value.dtype == np.float64 and not np.abs(value).max() < LARGEST:
            raise Invalid(op.statement, "large value")
        scope.set(op.outs[slot][0], value)

    def on_tanh(self, op, scope):
        self.put(op, scope, np.tanh(self.value(op, scope, "X")))

    def on_square(self, op, scope):
        self.put(op, scope, self.value(op, scope, "X") ** 2)

    def on_assign(self, op, scope):
        self.put(op, scope, self.value(op, scope, "X"))

    def on_scale(self, op, scope):
        self.put(op, scope, self.value(op, scope, "X") * float(np.float32(op.attrs["scale"])) + float(np.float32(op.attrs["bias"])))

    def on_elementwise_mul(self, op, scope):
        self.put(op, scope, self.value(op, scope, "X") * self.value(op, scope, "Y"))

    def on_elementwise_add(self, op, scope):
        self.put(op, scope, self.value(op, scope, "X") + self.value(op, scope, "Y"))

    def on_mean(self, op, scope):
        self.put(op, scope, np.array([self.value(op, scope, "X").mean()]))

    def on_fill_constant(self, op, scope):
        self.put(op, scope, int(float(op.attrs["value"])))

    def on_increment(self, op, scope):
        self.put(op, scope, self.value(op, scope, "X") + 1)

    def on_less_than(self, op, scope):
        self.put(op, scope, self.value(op, scope, "X") < self.value(op, scope, "Y"))

    def on_logical_not(self, op, scope):
        self.put(op, scope, not self.value(op, scope, "X"))

    def on_cast(self, op, scope):
        self.put(op, scope, int(self.value(op, scope, "X")))

    def on_select_input(self, op, scope):
        self.put(op, scope, self.value(op, scope, "X", self.value(op, scope, "Mask")))

    def on_stack(self, op, scope):
        self.put(op, scope, np.stack([self.value(op, scope, "X", i) for i in range(len(op.ins["X"]))]), "Y")

    def on_reduce_sum(self, op, scope):
        self.put(op, scope, self.value(op, scope, "X").sum(axis=0))

    def on_write_to_array(self, op, scope):
        at = self.value(op, scope, "I")
        array = scope.get(op.outs["Out"][0]) or []
        if at > len(array):  # the original fills the gap with empty tensors
            raise Invalid(op.statement, "gap in an array")
        scope.set(op.outs["Out"][0], array[:at] + [self.value(op, scope, "X")] + array[at + 1:])

    def on_read_from_array(self, op, scope):
        array, at = self.value(op, scope, "X"), self.value(op, scope, "I")
        if at >= len(array):
            raise Invalid(op.statement, "element has no value")
        self.put(op, scope, array[at])

    def on_while(self, op, scope):
        while self.value(op, scope, "Condition"):
            self.run(op.body, Scope(op.body, scope))

    def on_conditional_block(self, op, scope):
        if self.value(op, scope, "Cond"):
            self.run(op.body, Scope(op.body, scope))

    def on_recurrent(self, op, scope):
        names = lambda attr: [n.strip(' "') for n in op.attrs[attr].strip("[]").split(",")]  # noqa: E731
        states = [self.value(op, scope, "initial_states", i) for i in range(len(op.ins["initial_states"]))]
        sequence = self.value(op, scope, "inputs")
        steps = range(len(sequence))
        outputs = {name: [None] * len(sequence) for name in op.outs["outputs"]}
        for t in reversed(steps) if op.attrs["reverse"] == "true" else steps:
            inside = Scope(op.body, scope)
            inside.values[op.ins["inputs"][0]] = sequence[t]
            inside.values.update(zip(names("ex_states"), states))
            self.run(op.body, inside)
            states = [inside.get(name) for name in names("states")]
            for name, values in outputs.items():
                values[t] = inside.get(name)
            if any(v is None for v in states + [v[t] for v in outputs.values()]):
                raise Invalid(op.statement, "state or output without a value")
        for name, values in outputs.items():
            scope.set(name, np.stack(values))


def start(plan):
    """Values of w and x."""
    rng = np.random.default_rng(plan["seed"])
    return {name: rng.uniform(-1.2, 1.2, (make_loops.ROWS, make_loops.COLUMNS)).astype("f4") for name in "wx"}


def losses(plan, w=None):
    """The losses in float64, for a value of w, and the text and feeds of the program. Raises Invalid."""
    root, counters = make_loops.emit(plan)
    values = start(plan)
    machine = Machine(root, {"x": values["x"].astype("f8"), "w": values["w"].astype("f8") if w is None else w, **counters})
    machine.run(root, machine.scope)
    feeds = dict(x=values["x"], **{name: np.array([value], "i8") for name, value in counters.items()})
    return [machine.scope.values[f"loss{i}"] for i in range(len(plan["losses"]))], make_loops.text(root), values, feeds


def without(statements, dropped):
    """The statements without one, which is compared by identity."""
    kept = []
    for s in statements:
        if s is not dropped:
            kept.append({k: without(v, dropped) if k in ("body", "then", "other") else v for k, v in s.items()} if any(k in s for k in ("body", "then")) else s)
    return kept


def repair(plan):
    """The plan without statements that cannot run; None if it is no good."""
    for _ in range(60):
        try:
            losses(plan)
            return plan
        except Invalid as e:
            if e.statement is None:
                return None
            plan = dict(plan, body=without(plan["body"], e.statement))
    return None
