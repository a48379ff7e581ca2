#!/usr/bin/env python3
"""Shows, for each operator reference that run-program differs from on purpose, which of the two is right.

    reference_differences.py GOLDENS_OPS [--bin run-program]

Every case of docs/decisions/0005-reference-differences.md is computed again in float64 by the formula of the op or, for
the recurrent ops, by finite differences of a plain forward loop. The reference must disagree with that; with --bin the
tool must agree. The last line is "N passed, M failed". Needs numpy.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

import numpy as np


class Case:
    """One case of a reference file."""

    def __init__(self, folder, op, index):
        self.op, self.index = op, index
        with np.load(os.path.join(folder, op + ".npz"), allow_pickle=False) as archive:
            prefix = f"case{index}/"
            self.arrays = {n[len(prefix):]: archive[n] for n in archive.files if n.startswith(prefix)}
        self.meta = json.loads(self.arrays["meta"].tobytes())
        self.feeds = {e["name"]: e for e in self.meta["feeds"]}
        self.wants = {e["name"]: self.arrays[e["member"]] for e in self.meta["expects"] if "member" in e}

    def feed(self, slot, k=0):
        return self.arrays[self.feeds[f"{self.op}_{slot}{k}"]["member"]]

    def attr(self, name):
        return self.meta["attrs_set"][name]

    def run(self, binary):
        """The values that the tool computes."""
        with tempfile.TemporaryDirectory() as folder:
            program, feed, out = (os.path.join(folder, n) for n in ("p.pb", "in.npz", "out.npz"))
            with open(program, "wb") as file:
                file.write(self.arrays["program"].tobytes())
            members = {}
            for name, entry in self.feeds.items():
                members[name] = self.arrays[entry["member"]]
                if entry["kind"] == "selected_rows":
                    members[name + ".rows"] = np.asarray(entry["rows"], np.int64)
                    members[name + ".height"] = np.asarray(entry["height"], np.int64)
            np.savez(feed, **members)
            subprocess.run([binary, "--program", program, "--feed", feed, "--fetch", ",".join(self.wants), "--output", out], check=True,
                           stdout=subprocess.DEVNULL)
            with np.load(out) as archive:
                return {n: archive[n] for n in archive.files}


def gather_gradient(case):
    """Each gradient goes to the selected element, in every row of the dims before the axis."""
    axis = int(case.feed("Axis")[0]) if "gather_Axis0" in case.feeds else case.attr("axis")
    x = np.zeros(case.feed("X").shape)
    grad = case.arrays[case.feeds["gather_Out0@GRAD"]["member"]].astype(float)
    np.add.at(x, (slice(None),) * axis + (case.feed("Index").ravel(),), grad)
    return {"gather_X0@GRAD": x}


def split_parts(case):
    """The parts joined along the axis are X."""
    x, axis, sections = case.feed("X").astype(float), case.attr("axis"), list(case.attr("sections"))
    if -1 in sections:
        sections[sections.index(-1)] = x.shape[axis] - sum(s for s in sections if s >= 0)
    parts = np.split(x, np.cumsum(sections)[:-1], axis=axis)
    return {f"split_Out{k}": part for k, part in enumerate(parts)}


def momentum_rows(case):
    """A sparse gradient equals the dense one with its rows, in any order of the rows."""
    entry, attrs = case.feeds["momentum_Grad0"], case.meta["attrs_set"]
    param, velocity = case.feed("Param").astype(float), case.feed("Velocity").astype(float)
    rate, mu = float(case.feed("LearningRate")[0]), np.float32(attrs["mu"]).astype(float)
    grad = np.zeros_like(param)
    np.add.at(grad, entry["rows"], case.arrays[entry["member"]].astype(float))
    if attrs.get("regularization_method") == "l2_decay":
        grad += np.float32(attrs["regularization_coeff"]).astype(float) * param
    velocity = mu * velocity + grad
    step = grad + mu * velocity if attrs["use_nesterov"] else velocity
    return {"momentum_Param0": param - rate * step, "momentum_Velocity0": velocity}


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def cell(mode, gates_in, hidden, state, weight, bias):
    """One time step of one example: new hidden value and cell state."""
    recurrent = weight @ hidden + bias
    if mode in ("RNN_TANH", "RNN_RELU"):
        total = gates_in + recurrent
        return (np.tanh(total) if mode == "RNN_TANH" else np.maximum(total, 0)), state
    if mode == "LSTM":
        i, f, g, o = np.split(gates_in + recurrent, 4)
        state = sigmoid(f) * state + sigmoid(i) * np.tanh(g)
        return sigmoid(o) * np.tanh(state), state
    (a, b, c), (x, y, z) = np.split(gates_in, 3), np.split(recurrent, 3)
    reset, update = sigmoid(a + x), sigmoid(b + y)
    return (1 - update) * np.tanh(c + reset * z) + update * hidden, state


def rnn_out(case, values):
    """From a padded batch: time steps after the end of an example are zero, and the reverse direction starts at the
    end."""
    attrs, lengths = case.meta["attrs_set"], case.feed("SequenceLength")
    layers, directions = attrs["num_layers"], 2 if attrs["is_bidirec"] else 1
    weights = [values[f"rnn_WeightList{k}"] for k in range(4 * layers * directions)]
    biases = weights[2 * layers * directions:]
    inputs = values["rnn_Input0"]
    for layer in range(layers):
        steps, batch = inputs.shape[:2]
        out = np.zeros((steps, batch, attrs["hidden_size"] * directions))
        for direction in range(directions):
            k = layer * directions + direction
            for b in range(batch):
                hidden = values["rnn_PreState0"][k, b]
                state = values["rnn_PreState1"][k, b] if "rnn_PreState1" in values else None
                order = range(lengths[b]) if direction == 0 else reversed(range(lengths[b]))
                for t in order:
                    gates_in = weights[2 * k] @ inputs[t, b] + biases[2 * k]
                    hidden, state = cell(attrs["mode"], gates_in, hidden, state, weights[2 * k + 1], biases[2 * k + 1])
                    out[t, b, direction * len(hidden):(direction + 1) * len(hidden)] = hidden
        inputs = out
    return inputs


def rnn_gradients(case):
    """Finite differences of the sum of Out times its gradient."""
    values = {n: case.arrays[e["member"]].astype(float) for n, e in case.feeds.items() if e["dtype"] == "float32"}
    weights = values.pop("rnn_Out0@GRAD")

    def total():
        return float((rnn_out(case, values) * weights).sum())

    found = {"rnn_Out0": rnn_out(case, values)}
    for name, array in values.items():
        grad = np.zeros_like(array)
        for at in np.ndindex(array.shape):
            kept, step = array[at], 1e-6
            array[at] = kept + step
            above = total()
            array[at] = kept - step
            grad[at] = (above - total()) / (2 * step)
            array[at] = kept
        found[name + "@GRAD"] = grad
    return found


CASES = ([("gather", k, gather_gradient) for k in (3, 6, 8)] + [("split", k, split_parts) for k in (3, 4)] +
         [("momentum", k, momentum_rows) for k in (21, 26, 31, 36)] + [("rnn", k, rnn_gradients) for k in (4, 9, 14, 19)])


def disagreement(found, right):
    """Largest error over all values that were computed, relative to 1 + the value."""
    errors = [np.abs(found[n].astype(float) - v) / (1 + np.abs(v)) for n, v in right.items() if n in found]
    return max(float(e.max()) for e in errors if e.size)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("goldens")
    parser.add_argument("--bin", default="")
    args = parser.parse_args()
    passed = failed = 0
    for op, index, formula in CASES:
        case = Case(args.goldens, op, index)
        right = formula(case)
        reference = disagreement(case.wants, right)
        ours = disagreement(case.run(args.bin), right) if args.bin else 0.0
        good = reference > 1e-3 > 100 * ours
        passed, failed = passed + good, failed + (not good)
        print(f"{'ok  ' if good else 'FAIL'}  {op} #{index}: the reference is off by {reference:.2g}" + (f", run-program by {ours:.2g}" if args.bin else ""))
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
