#!/usr/bin/env python3
"""Checks the list of op attributes (op_attributes.json) against the schemas and against what the attributes do.

    attributes.py --bin DIR --shared DIR [--search] [--only OP] [--jobs N]

A row of the table says who sees the attribute:

    {"case": K, "flip": VALUE, "sees": "differs"}  with this value the K-th reference case of the op has other results
    {"case": K, "flip": VALUE, "sees": "refused"}  with this value it is an error
    {"read": FILE}                                 no reference case shows it; this source reads it
    {"none": REASON}                               it has no effect
    {"run": NAME, ...}                             a run of attribute_runs.py shows it, which tries these rows

First the names: those of docs/ops.md (which a test keeps equal to the schemas) and those of the table must be the same.
Then every flip is run, and every source is looked at. --search finds anew what the table says and writes it.
Exit status: 0 all hold, 1 some do not. The last line is "N passed, M failed".
"""
import argparse
import concurrent.futures
import glob
import json
import os
import re
import struct
import subprocess
import sys
import tempfile

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TABLE = os.path.join(ROOT, "tests/options/op_attributes.json")
LIMIT = ["--max-tensor-bytes", str(1 << 28), "--threads", "1"]
SECONDS_A_CASE = 5
CHUNK = 60
MOST_TURNS = 40

# Words that an attribute of this name may have; any other string is tried as one that is none.
WORDS = {"pooling_type": ["avg", "max"], "pooltype": ["AVERAGE", "SUM", "MAX"], "padding_algorithm": ["SAME", "VALID"],
         "data_format": ["NHWC", "NCHW"], "data_layout": ["NHWC", "NCHW"], "mode": ["reflect", "edge", "channel", "min"],
         "interp_method": ["nearest", "bilinear"], "code_type": ["decode_center_size"], "curve": ["PR"],
         "match_type": ["per_prediction"], "activation": ["tanh"], "gate_activation": ["tanh"], "reduction": ["sum", "none"],
         "unary": ["scale"], "overwrite": ["x"], "Scale": ["x"]}

KINDS = ["int", "float", "string", "ints", "floats", "strings", "bool", "bools", "block", "long", "blocks", "longs", "float64s",
         "var", "vars", "float64"]
FIELD = {"int": 3, "float": 4, "string": 5, "ints": 6, "floats": 7, "strings": 8, "bool": 10, "bools": 11, "long": 13,
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
        if plain in ("int", "long", "bool"):
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


def types_of(op):
    return {op, op + "_grad"}


def attr_in(program, op, attr):
    """(kind, value) that the program gives the attribute; None where it does not."""
    for number, _, block, _, _ in fields(program):
        if number != 1:
            continue
        for inner, _, desc, _, _ in fields(block):
            if inner != 4:
                continue
            parts = fields(desc)
            if next(value for n, _, value, _, _ in parts if n == 3).decode() != op:
                continue
            for n, _, value, _, _ in parts:
                if n == 4:
                    name, kind, found = decode_attr(value)
                    if name == attr:
                        return kind, found
    return None


def with_attr(program, op, attr, kind, new):
    """The program with another value of the attribute in the op and in its gradient."""
    out = b""
    for number, _, block, begin, end in fields(program):
        if number != 1:
            out += program[begin:end]
            continue
        changed = b""
        for inner, _, desc, first, last in fields(block):
            parts = fields(desc) if inner == 4 else []
            if inner != 4 or next(value for n, _, value, _, _ in parts if n == 3).decode() not in types_of(op):
                changed += block[first:last]
                continue
            kept = b"".join(desc[b:e] for n, _, value, b, e in parts if n != 4 or decode_attr(value)[0] != attr)
            changed += lump(4, kept + lump(4, encode_attr(attr, kind, new)))
        out += lump(1, changed)
    return out


def other_values(name, kind, value):
    """Values to try instead, the likeliest first."""
    plain = kind.rstrip("s")
    if plain == "bool":
        return [[not v for v in value] + ([] if value else [True])] if kind == "bools" else [not value]
    if kind in ("int", "long"):
        return [v for v in (value + 1, value - 1, value + 2, 0) if v != value]
    if kind in ("float", "float64"):
        return [value * 1.5 + 0.25, -value - 1.0, 0.0]
    if kind == "string":
        return [word for word in WORDS.get(name, []) if word != value] + ["no such word"]
    if kind in ("ints", "longs"):
        lists = [[v + 1 for v in value], value[::-1], value[:-1], [1], [0], [2, 1], []]
        return [found for found in lists if found != value]
    if kind in ("floats", "float64s"):
        return [found for found in ([v * 1.5 + 0.25 for v in value], value[:-1], [0.5], []) if found != value]
    return [["no such word"]]


def parse_default(text):
    """(kind, value) of a default as docs/ops.md prints it."""
    text = text.strip()
    if text in ("true", "false"):
        return "bool", text == "true"
    listed = re.fullmatch(r"(ints|longs|floats|float64s|strings|bools)?\[(.*)\]", text)
    if listed:
        items = [item.strip() for item in listed[2].split(",") if item.strip()]
        kind = listed[1] or ("strings" if items and items[0].startswith('"') else
                             "bools" if items and items[0] in ("true", "false") else
                             "floats" if any(re.search(r"[.e]", item) for item in items) else "ints")
        return kind, [json.loads(item) if kind in ("strings", "bools") else float(item) if "float" in kind else int(item.rstrip("l"))
                      for item in items]
    if text.startswith('"'):
        return "string", text.strip('"')
    if re.fullmatch(r"-?\d+l", text):
        return "long", int(text[:-1])
    if re.fullmatch(r"-?\d+", text):
        return "int", int(text)
    try:
        return "float", float(text.rstrip("df"))
    except ValueError:
        return None


def schemas():
    """op -> attribute -> (kind, default) or None."""
    ops = {}
    with open(os.path.join(ROOT, "docs/ops.md"), encoding="utf-8") as file:
        for line in file:
            if not line.startswith("| `"):
                continue
            cells = re.split(r"(?<!\\) \| ?", line.strip().strip("|"))
            op, text = cells[0].strip().strip("`"), cells[4]
            ops[op] = {}
            for part in re.split(r", (?=[A-Za-z_]\w*(?: = |! ))", text.strip()):
                if match := re.match(r"(\w+) = (.*)$", part):
                    ops[op][match[1]] = parse_default(match[2])
                elif match := re.match(r"(\w+)! (\w+)$", part):
                    ops[op][match[1]] = (match[2], None)
    return ops


class Cases:
    """The reference cases, read once an op."""

    def __init__(self, shared):
        sys.path.insert(0, os.path.join(shared, "tools"))
        import check_ops  # the checker of the references knows their form
        self.form, self.folder, self.known = check_ops, os.path.join(shared, "goldens/ops"), {}

    def of(self, op):
        if op not in self.known:
            path = os.path.join(self.folder, op + ".npz")
            if not os.path.exists(path):  # ops that the references lack
                path = os.path.join(ROOT, "tests/data/ops", op + ".npz")
            self.known[op] = self.form.load(path) if os.path.exists(path) else []
        return self.known[op]

    def job(self, folder, tag, op, index, program):
        meta, arrays = self.of(op)[index]
        base = os.path.join(folder, tag)
        with open(base + ".pb", "wb") as file:
            file.write(program)
        feed = os.path.join(folder, f"{op}.{index}.in.npz")
        if not os.path.exists(feed):
            np.savez(feed, **self.form.feed_members(meta, arrays))
        return {"program": base + ".pb", "feed": feed, "fetch": self.form.fetch_names(meta, False), "output": base + ".out.npz"}


def outcome(job, answer):
    if not answer.get("ok"):
        return "refused", answer.get("error", "")
    with np.load(job["output"], allow_pickle=False) as file:
        return "ran", {name: (str(file[name].dtype), file[name].shape, file[name].tobytes()) for name in file.files}


def run_chunk(tools, folder, tag, jobs):
    """Outcomes in order; a job that ends the process is one that crashed."""
    done, rest = [], list(jobs)
    while rest:
        path = os.path.join(folder, f"{tag}.{len(done)}.jsonl")
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(job) + "\n" for job in rest)
        command = [os.path.join(tools, "run-program"), "--batch", path] + LIMIT
        try:
            ran = subprocess.run(command, capture_output=True, text=True, errors="replace",
                                 timeout=SECONDS_A_CASE * len(rest) + 20)
            text = ran.stdout
        except subprocess.TimeoutExpired as late:
            text = (late.stdout or b"").decode(errors="replace")
        answers = [json.loads(line) for line in text.splitlines() if line.startswith("{") and line.endswith("}")]
        done += [outcome(job, answer) for job, answer in zip(rest, answers)]
        if len(answers) < len(rest):
            done.append(("crashed", ""))
        rest = rest[len(answers) + 1:] if len(answers) < len(rest) else []
    return done


class Runner:
    def __init__(self, tools, folder, jobs):
        self.tools, self.folder, self.jobs, self.count = tools, folder, jobs, 0

    def run(self, jobs):
        chunks = [jobs[i:i + CHUNK] for i in range(0, len(jobs), CHUNK)]
        self.count += 1
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            parts = pool.map(lambda pair: run_chunk(self.tools, self.folder, f"{self.count}.{pair[0]}", pair[1]), enumerate(chunks))
            return [found for part in parts for found in part]


def reading_sources():
    """attribute -> sources that read it, schemas left out."""
    found = {}
    for folder in ("kernels", "executor", "ps", "ops", "transpiler", "fleet"):
        for path in sorted(glob.glob(os.path.join(ROOT, folder, "**", "*.*"), recursive=True)):
            if not path.endswith((".cc", ".h")):
                continue
            with open(path, encoding="utf-8") as file:
                text = file.read()
            # what declares: .attr("name", ...) of a schema
            text = re.sub(r'\.attr\(\s*"\w+"', "", text)
            text = re.sub(r'\.required_attr\w*(?:<[^>]*>)?\(\s*"\w+"', "", text)
            for name in set(re.findall(r'"(\w+)"', text)):
                found.setdefault(name, []).append(os.path.relpath(path, ROOT))
    return found


def likeliest(op, attr, sources):
    """A source that reads the attribute and names the op, or stands beside one that does; None where there is none."""
    name = '"' + op + '"'
    found = []
    for path in sources.get(attr, []):
        with open(os.path.join(ROOT, path), encoding="utf-8") as file:
            if name in file.read():
                return path
        for other in glob.glob(os.path.join(ROOT, os.path.dirname(path), "*.cc")):
            with open(other, encoding="utf-8") as file:
                if name in file.read():
                    found.append(path)
                    break
    return found[0] if found else None


def bases(cases, runner, wanted):
    """Outcomes of reference cases as they are: {(op, case)}."""
    keys = sorted(wanted)
    jobs = [cases.job(runner.folder, f"{op}.{k}", op, k, cases.of(op)[k][1]["program"].tobytes()) for op, k in keys]
    return dict(zip(keys, runner.run(jobs)))


def flip_job(cases, folder, op, attr, row, tag, default):
    program = cases.of(op)[row["case"]][1]["program"].tobytes()
    given = attr_in(program, op, attr)
    kind = given[0] if given else default[0]
    return cases.job(folder, tag, op, row["case"], with_attr(program, op, attr, kind, row["flip"]))


def candidates(cases, op, attr, default):
    """Rows to try."""
    rows = []
    for k, (_, arrays) in enumerate(cases.of(op)):
        program = arrays["program"].tobytes()
        given = attr_in(program, op, attr)
        if given is None and (default is None or default[1] is None or default[0] not in FIELD):
            continue
        kind, value = given or default
        if kind not in FIELD:
            continue
        rows += [(i, k, new) for i, new in enumerate(other_values(attr, kind, value))]
    return [{"case": k, "flip": new} for _, k, new in sorted(rows, key=lambda row: row[:2])][:MOST_TURNS]


def search(cases, runner, ops, old):
    sources = reading_sources()
    table = {op: {} for op in ops}
    open_rows = {(op, attr): candidates(cases, op, attr, default) for op, attrs in ops.items() for attr, default in attrs.items()}
    plain = bases(cases, runner, {(op, row["case"]) for (op, _), rows in open_rows.items() for row in rows})
    refused = {}
    for turn in range(max((len(rows) for rows in open_rows.values()), default=0)):
        trying = [(key, rows[turn]) for key, rows in open_rows.items() if turn < len(rows) and key[1] not in table[key[0]]]
        jobs = [flip_job(cases, runner.folder, op, attr, row, f"s{turn}.{i}", ops[op][attr])
                for i, ((op, attr), row) in enumerate(trying)]
        for ((op, attr), row), (how, what) in zip(trying, runner.run(jobs)):
            if plain[op, row["case"]][0] != "ran":
                continue
            if how == "ran" and what != plain[op, row["case"]][1]:
                table[op][attr] = {**row, "sees": "differs"}
            elif how == "refused":
                refused.setdefault((op, attr), {**row, "sees": "refused"})
            elif how == "crashed":
                print(f"{op} {attr} = {row['flip']} in case {row['case']}: crashed")
        print(f"turn {turn}: {len(trying)} tried", flush=True)
    for op, attrs in ops.items():
        for attr in attrs:
            if attr in table[op]:
                continue
            if (op, attr) in refused:
                table[op][attr] = refused[op, attr]
            elif {"none", "run"} & set(old.get(op, {}).get(attr, {})):
                table[op][attr] = old[op][attr]
            elif reader := likeliest(op, attr, sources):
                table[op][attr] = {"read": reader}
            else:
                table[op][attr] = {"none": "?"}
    return {op: dict(sorted(attrs.items())) for op, attrs in table.items() if attrs}


def write(table):
    with open(TABLE, "w", encoding="utf-8") as file:
        file.write("{\n" + ",\n".join(
            f" {json.dumps(op)}: {{\n" + ",\n".join(f"  {json.dumps(attr)}: {json.dumps(row)}" for attr, row in attrs.items()) + "\n }"
            for op, attrs in sorted(table.items())) + "\n}\n")


def check(cases, runner, ops, table):
    faults = []
    for op in sorted(set(ops) | set(table)):
        for attr in sorted(set(ops.get(op, {})) ^ set(table.get(op, {}))):
            faults.append(f"{op} {attr}: " + ("not in op_attributes.json" if attr in ops.get(op, {}) else "no attribute any more"))
    rows = [(op, attr, row) for op, attrs in table.items() for attr, row in attrs.items() if attr in ops.get(op, {})]
    flips = [row for row in rows if "case" in row[2]]
    sources = reading_sources()
    plain = bases(cases, runner, {(op, row["case"]) for op, _, row in flips})
    found = runner.run([flip_job(cases, runner.folder, op, attr, row, f"c{i}", ops[op][attr])
                        for i, (op, attr, row) in enumerate(flips)])
    for (op, attr, row), (how, what) in zip(flips, found):
        seen = "differs" if how == "ran" and what != plain[op, row["case"]][1] else "nothing" if how == "ran" else how
        if seen != row["sees"]:
            faults.append(f"{op} {attr} = {row['flip']} in case {row['case']}: {seen}, expected {row['sees']}"
                          + (f": {what[-200:]}" if how == "refused" else ""))
    for op, attr, row in rows:
        if "read" in row and row["read"] not in sources.get(attr, []):
            faults.append(f"{op} {attr}: {row['read']} does not read it")
        if "none" in row and len(row["none"]) < 8:
            faults.append(f"{op} {attr}: no reason is given")
    return len(rows), faults


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    parser.add_argument("--shared", required=True)
    parser.add_argument("--search", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    args = parser.parse_args()
    table = {}
    if os.path.exists(TABLE):
        with open(TABLE, encoding="utf-8") as file:
            table = json.load(file)
    ops = {op: attrs for op, attrs in schemas().items() if args.only in ("", op)}
    cases = Cases(os.path.abspath(args.shared))
    with tempfile.TemporaryDirectory(prefix="millrace_attributes_") as folder:
        runner = Runner(os.path.abspath(args.bin), folder, args.jobs)
        if args.search:
            found = search(cases, runner, ops, table)
            write({**table, **found} if args.only else found)
            return 0
        count, faults = check(cases, runner, ops, {op: attrs for op, attrs in table.items() if args.only in ("", op)})
    for fault in faults:
        print(fault)
    print(f"{count - min(count, len(faults))} passed, {len(faults)} failed")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
