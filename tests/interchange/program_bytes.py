"""Makes inference programs of single ops: edits a serialized ProgramDesc on the level of the wire format."""

BLOCKS, VARS, OPS = 1, 3, 4  # field numbers of ProgramDesc and BlockDesc
FEED_MINIBATCH, FETCH_LIST = 9, 10  # VarType.Type


def _varint(number):
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def _message(field, content):
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _number(field, value):
    return _varint(field << 3) + _varint(value)


def _read_varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def _fields(data):
    """(field number, content or None, bytes with tag) of each field in order."""
    at = 0
    while at < len(data):
        begin = at
        tag, at = _read_varint(data, at)
        content = None
        if tag & 7 == 0:
            _, at = _read_varint(data, at)
        elif tag & 7 == 2:
            size, at = _read_varint(data, at)
            content = data[at:at + size]
            at += size
        else:
            at += 4 if tag & 7 == 5 else 8
        yield tag >> 3, content, data[begin:at]


def _slot(field, name, var):
    return _message(field, _message(1, name.encode()) + _message(2, var.encode()))


def _holder_op(kind, inputs, outputs, col):
    attr = _message(1, b"col") + _number(2, 0) + _number(3, col)
    return _message(OPS, _slot(1, *inputs) + _slot(2, *outputs) + _message(3, kind) + _message(4, attr))


def _holder_var(name, kind):
    return _message(VARS, _message(1, name.encode()) + _message(2, _number(1, kind)) + _number(3, 1))


def inference_program(program, ops, feeds, fetches):
    """The first `ops` ops of block 0, with feed and fetch ops for these vars."""
    out = b""
    first = True
    for field, content, raw in _fields(program):
        if field != BLOCKS or not first:
            out += raw
            continue
        first = False
        block = _holder_var("feed", FEED_MINIBATCH) + _holder_var("fetch", FETCH_LIST)
        for col, name in enumerate(feeds):
            block += _holder_op(b"feed", ("X", "feed"), ("Out", name), col)
        seen = 0
        for inner, _, inner_raw in _fields(content):
            seen += inner == OPS
            if inner != OPS or seen <= ops:
                block += inner_raw
        for col, name in enumerate(fetches):
            block += _holder_op(b"fetch", ("X", name), ("Out", "fetch"), col)
        out += _message(BLOCKS, block)
    return out
