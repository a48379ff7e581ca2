#!/usr/bin/env python3
"""Cases of fused, recurrent and recommendation ops in tests/data/ops, for which the reference corpus has none.

    <python with paddlepaddle 2.6.2> tests/conformance/fused_reference_cases.py --shared ../shared --output tests/data/ops [--only op,op]

Same format as goldens/ops of the corpus, generated with its generator (tools/gen_op_goldens.py), so that check_ops.py
and random_shapes.py can read them. Ops that the original has only on a GPU (plain_case()) have the values of
plain_fused.py. Neither the build nor its tests need the original. TABLE is a list of (op, function of the generator and
the op).
"""
import argparse
import os
import sys

import numpy as np

TABLE = []


def op(*names):
    def put(function):
        TABLE.extend((name, function) for name in names)
        return function
    return put


def lod(*lengths):
    return [[0, *(int(v) for v in np.cumsum(lengths))]]


LODS = (lod(3, 2, 4), lod(1, 1), lod(2, 6, 3, 1))


def seq(g, offsets, *width, **more):
    from gen_op_goldens import T
    return T(g.f(offsets[0][-1], *width, **more), offsets)


def first_states(g, offsets, size, *slots):
    return {slot: g.f(len(offsets[0]) - 1, size) for slot in slots}


@op("fusion_lstm", "fused_embedding_fc_lstm")
def lstms(g, o):
    from gen_op_goldens import T
    settings = ({}, {"use_peepholes": True}, {"is_reverse": True, "use_seq": False},
                {"use_peepholes": True, "is_reverse": True, "cell_activation": "sigmoid", "candidate_activation": "sigmoid"}, {"use_seq": False})
    for offsets in LODS:
        for k, chosen in enumerate(settings):
            attrs = {"use_peepholes": False, **chosen}
            rows, size = offsets[0][-1], 3
            ins = {"WeightH": g.f(size, 4 * size), "Bias": g.f(1, (7 if attrs["use_peepholes"] else 4) * size)}
            if o == "fusion_lstm":
                width = 5 if k % 2 else 16  # narrower and wider than four times the size
                ins.update(X=seq(g, offsets, width), WeightX=g.f(width, 4 * size))
            else:
                ins.update(Ids=T(g.i(rows, 1, hi=11), offsets), Embeddings=g.f(11, 4 * size))
            if k % 3:
                ins.update(first_states(g, offsets, size, "H0", "C0"))
            g.case(o, ins, attrs, grad=False, tag=f"{offsets} {attrs} {k % 3 > 0}")


# origin_mode is left out: the original's kernel reads it, but computes as if it were not set
@op("fusion_gru")
def fusion_gru(g, o):
    for offsets in LODS:
        for k, attrs in enumerate(({}, {"is_reverse": True}, {"use_seq": False}, {"use_seq": False, "is_reverse": True}, {"activation": "relu"})):
            width, size = 5 if k % 2 else 16, 3
            ins = {"X": seq(g, offsets, width), "WeightX": g.f(width, 3 * size), "WeightH": g.f(size, 3 * size)}
            if k != 1:
                ins["Bias"] = g.f(1, 3 * size)
            if k % 3:
                ins.update(first_states(g, offsets, size, "H0"))
            g.case(o, ins, attrs, grad=False, tag=f"{offsets} {attrs}")


@op("attention_lstm")
def attention_lstm(g, o):
    scores = ((), ("AttentionBias",), ("AttentionBias", "AttentionScalar"), ("AttentionScalar", "AttentionScalarBias"))
    for offsets in (*LODS, lod(2, 0, 3)):
        for k, slots in enumerate(scores):
            width, size = 5, 3
            ins = {"X": seq(g, offsets, width), "C0": g.f(len(offsets[0]) - 1, size), "AttentionWeight": g.f(width + size, 1),
                   "LSTMWeight": g.f(width + size, 4 * size), "LSTMBias": g.f(1, 4 * size), **{s: g.f(1, 1) for s in slots}}
            if k % 2:
                ins.update(first_states(g, offsets, size, "H0"))
            g.case(o, ins, {} if k % 2 else {"cell_activation": "relu", "candidate_activation": "sigmoid"}, grad=False, tag=f"{offsets} {slots}")


# sequences without rows are left out: for them the original returns uninitialized memory
@op("fusion_seqpool_concat", "fusion_seqpool_cvm_concat")
def pooled(g, o):
    for kind in ("SUM", "AVERAGE", "SQRT"):
        for parts in ((lod(3, 2), lod(1, 4)), (lod(3, 2),), (lod(1, 1, 2), lod(1, 2, 1), lod(4, 4, 4))):
            for width in (4, 7):
                ins = {"X": [seq(g, p, width, lo=0, hi=3) for p in parts]}
                if "cvm" in o:
                    ins["CVM"] = g.f(len(parts[0][0]) - 1, 2, lo=0, hi=2)
                g.case(o, ins, {"pooltype": kind}, grad=False, tag=f"{kind} {parts} {width}")


@op("fusion_seqconv_eltadd_relu")
def seqconv(g, o):
    for offsets in (*LODS, lod(2, 0, 3)):
        for length, start in ((3, -1), (2, 0), (4, -2), (5, -2), (3, 1)):
            g.case(o, {"X": seq(g, offsets, 3), "Filter": g.f(3 * length, 4), "Bias": g.f(1, 4)},
                   {"contextLength": length, "contextStart": start, "contextStride": 1}, grad=False, tag=f"{offsets} {length} {start}")


@op("fusion_seqexpand_concat_fc")
def seqexpand(g, o):
    for offsets in LODS:
        each = lod(*[1] * (len(offsets[0]) - 1))
        for k, function in enumerate(("identity", "relu", "sigmoid", "tanh")):
            ins = {"X": [seq(g, offsets, 3), seq(g, each, 2), seq(g, each, 4)], "FCWeight": g.f(9, 5)}
            if k % 2:
                ins["FCBias"] = g.f(1, 5)
            g.case(o, ins, {"fc_activation": function}, grad=False, tag=f"{offsets} {function}")


@op("fusion_repeated_fc_relu")
def repeated_fc(g, o):
    widths = [5, 3, 6, 4, 2]
    for count in (2, 3, 4):
        ins = {"X": g.f(4, widths[0]), "W": [g.f(*widths[k:k + 2]) for k in range(count)],
               "Bias": [g.f(1, widths[k + 1]) if k % 2 else g.f(widths[k + 1]) for k in range(count)]}
        g.case(o, ins, {}, {"ReluOut": count - 1}, grad=False, tag=str(count))
    g.case(o, {"X": seq(g, lod(1, 3), 5), "W": [g.f(5, 3), g.f(3, 2)], "Bias": [g.f(3), g.f(2)]}, {}, {"ReluOut": 1}, grad=False, tag="LoD")


@op("fusion_squared_mat_sub")
def squared(g, o):
    for scalar in (1.0, 0.5, -2.0):
        g.case(o, {"X": g.f(3, 4), "Y": g.f(4, 5)}, {"scalar": scalar}, grad=False, tag=str(scalar))
    g.case(o, {"X": seq(g, lod(1, 2), 4), "Y": g.f(4, 5)}, {"scalar": 2.0}, grad=False, tag="LoD")
    g.case(o, {"X": g.f(1, 7), "Y": g.f(7, 1)}, {"scalar": 2.0}, grad=False, tag="one")


TREE = np.array([[0, 0, 0, 1, 2], [0, 1, 0, 3, 4], [0, 1, 0, 5, 6], [0, 2, 1, 7, 8], [0, 2, 1, 9, 10], [0, 2, 2, 11, 12], [0, 2, 2, 13, 0],
                 [0, 3, 3, 14, 15], *([k, 3, (k + 7) // 2, 0, 0] for k in range(1, 7)), [7, 4, 7, 0, 0], [8, 4, 7, 0, 0]])


@op("tdm_child")
def tdm_child(g, o):
    from gen_op_goldens import T
    for kind, dtype in (("int32", 2), ("int64", 3)):
        outs = {"Child": kind, "LeafMask": kind}
        for shape in ((4, 1), (5,), (2, 3), (2, 3, 1)):
            g.case(o, {"X": g.i(*shape, hi=16, dt=kind), "TreeInfo": TREE.astype(kind)}, {"child_nums": 2, "dtype": dtype}, outs, grad=False, tag=f"{kind} {shape}")
        g.case(o, {"X": T(g.i(3, 1, hi=16), lod(1, 2)), "TreeInfo": TREE}, {"child_nums": 2, "dtype": dtype}, outs, grad=False, tag=f"LoD, i64 to {kind}")


@op("match_matrix_tensor")
def match_matrix(g, o):
    for of_x, of_y in ((lod(3, 2), lod(1, 4)), (lod(2), lod(3)), (lod(1, 2, 3), lod(3, 1, 2)), (lod(3, 0), lod(2, 1))):
        for channels in (1, 2, 3):
            g.case(o, {"X": seq(g, of_x, 4), "Y": seq(g, of_y, 4), "W": g.f(4, channels, 4)}, {"dim_t": channels}, tag=f"{of_x} {of_y} {channels}")


@op("var_conv_2d")
def var_conv(g, o):
    settings = ((1, 1, 3, 3, 1, 1), (2, 3, 3, 2, 1, 1), (1, 2, 2, 3, 2, 1), (2, 2, 5, 5, 2, 2), (1, 2, 1, 1, 3, 1))
    for heights, widths in (((3, 2), (1, 4)), ((5,), (6,)), ((2, 3, 4), (3, 3, 2)), ((3, 0), (2, 2))):
        for inputs, outputs, height, width, down, right in settings:
            offsets = lod(*(inputs * h * w for h, w in zip(heights, widths)))
            attrs = {"InputChannel": inputs, "OutputChannel": outputs, "KernelH": height, "KernelW": width, "StrideH": down, "StrideW": right}
            g.case(o, {"X": seq(g, offsets, 1), "ROW": seq(g, lod(*heights), 1), "COLUMN": seq(g, lod(*widths), 1),
                       "W": g.f(outputs, inputs * height * width)}, attrs, grad=["X", "W"], tag=f"{heights} {widths} {attrs}")


class PlainOp:
    """Inputs and attributes in the form of the numpy references."""

    def __init__(self, ins, attrs):
        self.ins, self.attrs, self.slots = ins, attrs, {slot: [slot] * len(vs) for slot, vs in ins.items()}

    def has(self, slot):
        return slot in self.ins

    def all(self, slot):
        return [v.a.astype("f8") if v.a.dtype.kind == "f" else v.a for v in self.ins[slot]]

    def __getitem__(self, slot):
        return self.all(slot)[0]


def written(o, names_in, names_out, feeds, attrs):
    """A program of one op."""
    import gen_op_goldens as generator
    program = generator.pb.ProgramDesc()
    block = program.blocks.add(idx=0, parent_idx=-1)
    for name in [n for slots in (names_in, names_out) for names in slots.values() for n in names]:
        var = block.vars.add(name=name)
        var.type.type = generator.pb.VarType.LOD_TENSOR
        tensor = var.type.lod_tensor.tensor
        tensor.data_type = generator.NP2PD[feeds[name].dtype] if name in feeds else generator.NP2PD["float32"]
        tensor.dims.extend(feeds[name].a.shape if name in feeds else ())
    desc = block.ops.add(type=o)
    for slots, given in ((desc.inputs, names_in), (desc.outputs, names_out)):
        for slot, names in given.items():
            slots.add(parameter=slot, arguments=names)
    kinds = {bool: (generator.pb.BOOLEAN, "b"), int: (generator.pb.INT, "i"), float: (generator.pb.FLOAT, "f"), str: (generator.pb.STRING, "s")}
    for name, value in attrs.items():
        kind, field = kinds[type(value)]
        setattr(desc.attrs.add(name=name, type=kind), field, value)
    return program.SerializeToString()


def plain_case(g, o, ins, attrs, outs, tag, wanted=None):
    """A case whose values come from plain_fused.py. wanted: the input whose gradient is computed, by differences."""
    import gen_op_goldens as generator
    import paddle
    import plain_fused
    ins = {slot: [generator.wrap(v) for v in generator.as_list(given)] for slot, given in ins.items()}
    if wanted:
        program, names_in, names_out, feeds = g._build(o, ins, attrs, outs, {}, {wanted})
    else:  # the original does not infer shapes of ops without a CPU kernel
        names_in = {slot: [f"{o}_{slot}{k}" for k in range(len(vs))] for slot, vs in ins.items()}
        names_out = {slot: [f"{o}_{slot}0"] for slot in ("Out", *outs)}
        feeds = {name: v for slot, vs in ins.items() for name, v in zip(names_in[slot], vs)}
    values = plain_fused.OPS[o](PlainOp(ins, attrs))
    member = generator.Member()
    meta = {"op": o, "tag": tag, "attrs_set": attrs, "n_forward_ops": 1, "inputs": names_in, "outputs": names_out, "feeds": [], "expects": [],
            "has_grad": wanted is not None}
    for slot, names in names_in.items():
        for k, name in enumerate(names):
            meta["feeds"].append(member.add(f"in/{slot}/{k}", name, slot, feeds[name]))
    for slot, names in names_out.items():
        value = generator.T(values[slot].astype("f4"), ins[list(ins)[0]][0].lod if slot == "Out" else None)
        entry = member.add(f"out/{slot}/0", names[0], slot, value)
        meta["expects"].append({**entry, "compare": "values", **generator.tol("float32", (1e-5, 1e-6))})
    if wanted:
        block = program.global_block()
        out = block.var(names_out["Out"][0])
        outer = generator.T(g.f(*values["Out"].shape), ins[list(ins)[0]][0].lod)
        out.desc.set_shape(list(values["Out"].shape))
        generator.make_var(block, out.name + "@GRAD", outer, stop_gradient=False)
        with paddle.static.program_guard(program, paddle.static.Program()):
            found = paddle.static.gradients([out], [block.var(names_in[wanted][0])], [block.var(out.name + "@GRAD")])[0]
        meta["feeds"].append(member.add("ograd/Out/0", out.name + "@GRAD", "Out", outer))
        entry = member.add(f"grad/{wanted}/0", found.name, wanted, generator.T(differences(o, ins, attrs, wanted, outer.a)))
        meta["expects"].append({**entry, "compare": "values", "grad_of": names_in[wanted][0], **generator.tol("float32", (1e-4, 1e-5))})
    meta["program_ops"] = [x.type for x in program.global_block().ops] if wanted else [o]
    stored = generator.strip(program) if wanted else written(o, names_in, names_out, feeds, attrs)
    g.store.setdefault(o, []).append((stored, member.arrays, meta))


def differences(o, ins, attrs, wanted, outer):
    """Gradient of sum(outer * Out) for an input, element by element."""
    import gen_op_goldens as generator
    import plain_fused
    at = ins[wanted][0].a.astype("f8")
    slope = np.zeros(at.shape)
    for place in np.ndindex(at.shape):
        sides = []
        for step in (1e-3, -1e-3):
            moved = at.copy()
            moved[place] += step
            made = plain_fused.OPS[o](PlainOp({**ins, wanted: [generator.T(moved)]}, attrs))
            sides.append((made["Out"] * outer).sum())
        slope[place] = (sides[0] - sides[1]) / 2e-3
    return slope.astype("f4")


@op("rank_attention")
def rank_attention(g, o):
    # one row more than ranks, so that every drawn number is a valid rank and a valid row
    for rows, width, columns, ranks, most in ((4, 2, 3, 3, 0), (3, 3, 2, 2, 7), (2, 1, 1, 1, 2)):
        places = np.zeros((rows, 1 + 2 * ranks), "int32")
        places[:, 0] = g.i(rows, lo=0, hi=ranks + 1)
        places[:, 1::2] = g.i(rows, ranks, lo=0, hi=ranks + 1)
        places[:, 2::2] = g.i(rows, ranks, hi=rows)
        ins = {"X": g.f(rows, width), "RankOffset": places, "RankParam": g.f(ranks * ranks * width, columns)}
        plain_case(g, o, ins, {"MaxRank": ranks, "MaxSize": most}, {"InputHelp": 1, "InsRank": 1}, f"{rows} {width} {columns} {ranks} {most}", "RankParam")


@op("multihead_matmul")
def multihead(g, o):
    for batch, length, width, heads, each in ((2, 4, 6, 3, 2), (1, 5, 4, 1, 4), (3, 1, 4, 2, 3)):
        for mask in (None, (batch, heads, length, length), (batch, 1, 1, length)):
            ins = {"Input": g.f(batch, length, width), "W": g.f(width, 3, heads, each), "Bias": g.f(3, heads, each)}
            if mask:
                ins["BiasQK"] = g.f(*mask)
            attrs = {"alpha": 0.5, "head_number": heads, "transpose_Q": False, "transpose_K": True, "transpose_V": False}
            plain_case(g, o, ins, attrs, {}, f"{batch} {length} {width} {heads} {each} {mask}")


@op("fused_fc_elementwise_layernorm")
def fc_and_norm(g, o):
    for shape, kept, axis in (((3, 4), 1, 1), ((2, 3, 4), 2, 2), ((2, 3, 4), 2, 1), ((2, 3, 4), 1, 1)):
        for function, slots in (("", ()), ("relu", ("Bias0",)), ("", ("Bias0", "Scale", "Bias1"))):
            columns = 5
            result = (*shape[:kept], columns)
            of_row = int(np.prod(result[axis:]))
            ins = {"X": g.f(*shape), "W": g.f(int(np.prod(shape[kept:])), columns), "Y": g.f(*result)}
            ins.update({s: g.f(columns if s == "Bias0" else of_row) for s in slots})
            attrs = {"x_num_col_dims": kept, "begin_norm_axis": axis, "activation_type": function, "epsilon": 1e-5}
            plain_case(g, o, ins, attrs, {"Mean": 1, "Variance": 1}, f"{shape} {kept} {axis} {function} {slots}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    sys.path.insert(0, os.path.join(args.shared, "tools"))
    import gen_op_goldens
    made = gen_op_goldens.Gen(False)
    for name, function in TABLE:
        if not args.only or name in args.only.split(","):
            made.seed(name)
            function(made, name)
    for gone in made.skipped:
        print("skipped", gone["op"], gone["tag"], gone["why"])
    size = made.write(args.output)
    print(f"{len(made.store)} ops, {sum(len(c) for c in made.store.values())} cases, {size} bytes")
    return 1 if made.skipped else 0


if __name__ == "__main__":
    sys.exit(main())
