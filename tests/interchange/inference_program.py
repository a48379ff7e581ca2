"""Makes inference programs of single ops: edits a serialized ProgramDesc on the level of the wire format."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "options"))
from program_bytes import fields, lump, varint  # noqa: E402

BLOCKS, VARS, OPS = 1, 3, 4  # field numbers of ProgramDesc and BlockDesc
FEED_MINIBATCH, FETCH_LIST = 9, 10  # VarType.Type


def _number(field, value):
    return varint(field << 3) + varint(value)


def _slot(field, name, var):
    return lump(field, lump(1, name.encode()) + lump(2, var.encode()))


def _holder_op(kind, inputs, outputs, col):
    attr = lump(1, b"col") + _number(2, 0) + _number(3, col)
    return lump(OPS, _slot(1, *inputs) + _slot(2, *outputs) + lump(3, kind) + lump(4, attr))


def _holder_var(name, kind):
    return lump(VARS, lump(1, name.encode()) + lump(2, _number(1, kind)) + _number(3, 1))


def inference_program(program, ops, feeds, fetches):
    """The first `ops` ops of block 0, with feed and fetch ops for these vars."""
    out = b""
    first = True
    for field, _, content, begin, end in fields(program):
        if field != BLOCKS or not first:
            out += program[begin:end]
            continue
        first = False
        block = _holder_var("feed", FEED_MINIBATCH) + _holder_var("fetch", FETCH_LIST)
        for col, name in enumerate(feeds):
            block += _holder_op(b"feed", ("X", "feed"), ("Out", name), col)
        seen = 0
        for inner, _, _, inner_begin, inner_end in fields(content):
            seen += inner == OPS
            if inner != OPS or seen <= ops:
                block += content[inner_begin:inner_end]
        for col, name in enumerate(fetches):
            block += _holder_op(b"fetch", ("X", name), ("Out", "fetch"), col)
        out += lump(BLOCKS, block)
    return out
