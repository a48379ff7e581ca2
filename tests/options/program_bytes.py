"""ProgramDesc messages read and written byte by byte: bytes that attributes.py does not change keep their order."""
import struct

LOD_TENSOR, SELECTED_ROWS, LOD_TENSOR_ARRAY = 7, 8, 13

KINDS = ["int", "float", "string", "ints", "floats", "strings", "bool", "bools", "block", "long", "blocks", "longs", "float64s",
         "var", "vars", "float64"]
FIELD = {"int": 3, "float": 4, "string": 5, "ints": 6, "floats": 7, "strings": 8, "bool": 10, "bools": 11, "block": 12, "long": 13,
         "longs": 15, "float64s": 16, "float64": 19}


def varint(value):
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def fields(data):
    """[(number, wire type, value, begin, end)] of a message; values of type 2 are bytes."""
    found, at = [], 0

    def take():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        begin = at
        key = take()
        number, wire = key >> 3, key & 7
        if wire == 0:
            value = take()
        elif wire == 2:
            size = take()
            value = data[at:at + size]
            at += size
        else:
            size = 4 if wire == 5 else 8
            value = data[at:at + size]
            at += size
        found.append((number, wire, value, begin, at))
    return found


def lump(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def encode_attr(name, kind, value):
    """OpDesc.Attr"""
    out = lump(1, name.encode()) + varint(2 << 3) + varint(KINDS.index(kind))
    plain, many = kind.rstrip("s"), kind.endswith("s")
    for item in value if many else [value]:
        number = FIELD[kind]
        if plain in ("int", "long", "bool", "block"):
            out += varint(number << 3) + varint(int(item))
        elif plain == "float":
            out += varint(number << 3 | 5) + struct.pack("<f", item)
        elif plain == "float64":
            out += varint(number << 3 | 1) + struct.pack("<d", item)
        else:
            out += lump(number, str(item).encode())
    return out


def signed(value):
    return value - (1 << 64) if value >= 1 << 63 else value


def decode_attr(data):
    """(name, kind, value)"""
    parts = fields(data)
    name = next(value for number, _, value, _, _ in parts if number == 1).decode()
    kind = KINDS[next(value for number, _, value, _, _ in parts if number == 2)]
    if kind not in FIELD:
        return name, kind, None
    items = []
    for number, wire, value, _, _ in parts:
        if number != FIELD[kind]:
            continue
        if wire == 0:
            items.append(bool(value) if kind.startswith("bool") else signed(value))
        elif wire == 5:
            items.append(struct.unpack("<f", value)[0])
        elif wire == 1:
            items.append(struct.unpack("<d", value)[0])
        elif kind in ("string", "strings"):
            items.append(value.decode(errors="replace"))
        else:  # packed
            step = {"floats": ("<f", 4), "float64s": ("<d", 8)}.get(kind)
            if step:
                items += [struct.unpack(step[0], value[i:i + step[1]])[0] for i in range(0, len(value), step[1])]
    if kind.endswith("s"):
        return name, kind, items
    return name, kind, items[0] if items else (False if kind == "bool" else "" if kind == "string" else 0)


def plain_kind(value):
    """Kind of an attribute with this value, unless a kind is given."""
    if isinstance(value, list):
        return plain_kind(value[0]) + "s" if value else "ints"
    return {bool: "bool", int: "int", float: "float", str: "string"}[type(value)]


def encode_op(op, inputs, outputs, attrs):
    """OpDesc; slots with names of vars, attributes as value or (kind, value)."""
    out = b""
    for number, slots in ((1, inputs), (2, outputs)):
        for slot, names in slots.items():
            out += lump(number, lump(1, slot.encode()) + b"".join(lump(2, name.encode()) for name in names))
    out += lump(3, op.encode())
    for name, value in attrs.items():
        kind, value = value if isinstance(value, tuple) else (plain_kind(value), value)
        out += lump(4, encode_attr(name, kind, value))
    return out


def encode_var(name, kind, dtype, dims, level):
    """VarDesc"""
    tensor = varint(1 << 3) + varint(dtype) + b"".join(varint(2 << 3) + varint(dim) for dim in dims)
    leveled = lump(1, tensor) + varint(2 << 3) + varint(level)
    held = lump(2, tensor) if kind == SELECTED_ROWS else lump(4 if kind == LOD_TENSOR_ARRAY else 3, leveled)
    return lump(1, name.encode()) + lump(2, varint(1 << 3) + varint(kind) + held)


def encode_program(variables, ops):
    """ProgramDesc of one block; variables: name -> (kind, element type, dims, LoD levels)."""
    block = varint(1 << 3) + varint(0) + varint(2 << 3) + varint(-1)
    block += b"".join(lump(3, encode_var(name, *described)) for name, described in variables.items())
    block += b"".join(lump(4, op) for op in ops)
    return lump(1, block)
