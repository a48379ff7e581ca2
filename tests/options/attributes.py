#!/usr/bin/env python3
"""Checks the list of op attributes (op_attributes.json) against the schemas and against the effect of the attributes.

    attributes.py --bin DIR --shared DIR [--search] [--only OP,OP] [--jobs N]

A row of the table says how the effect of the attribute is observed:

    {"case": K, "flip": VALUE, "sees": "differs"}  with this value the K-th reference case of the op has different results
    {"case": K, "flip": VALUE, "sees": "refused"}  with this value it is an error
    {"none": REASON}                               it has no effect
    {"run": NAME, ...}                             a run of attribute_runs.py shows it, which tries these rows

K is a number, or the name of a case of made_cases.py. An op X -> Out without a case has one, "plain". "with": {ATTRIBUTE:
VALUE} sets other attributes beforehand, "arguments": [...] are additional arguments of run-program. Cases that rows name are run twice without a flip: if values
differ between both runs, only shapes are compared.

The rows of an op are below its name, those of its gradient op below "OP gradient": there only the gradient op is flipped,
and the forward op keeps its value.

First the names: those of docs/ops.md (which a test keeps equal to the schemas) and those of the table must be the same. Then every flip is run. --search tries values for every row without a case, and writes the results. Exit status: 0
all rows pass, 1 some do not. The last line is "N passed, M failed".
"""
import argparse
import concurrent.futures
import json
import os
import re
import subprocess
import sys
import tempfile

import numpy as np

import made_cases
from program_bytes import FIELD, decode_attr, encode_attr, fields, lump

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TABLE = os.path.join(ROOT, "tests/options/op_attributes.json")
OF_GRADIENT = " gradient"  # ends the keys of rows of gradient ops
LIMIT = ["--max-tensor-bytes", str(1 << 28), "--threads", "1"]
SECONDS_A_CASE = 5
CHUNK = 60
MOST_TURNS = 40

# Strings that an attribute of this name may have; any other string is tried as an invalid one.
WORDS = {"pooling_type": ["avg", "max"], "pooltype": ["AVERAGE", "SUM", "MAX"], "padding_algorithm": ["SAME", "VALID"],
         "data_format": ["NHWC", "NCHW"], "data_layout": ["NHWC", "NCHW"], "mode": ["reflect", "edge", "channel", "min", "nearest"],
         "interp_method": ["nearest", "bilinear"], "code_type": ["decode_center_size"], "curve": ["PR"],
         "match_type": ["per_prediction", "bipartite"], "activation": ["tanh", "relu", "elu", "identity"], "reduction": ["sum", "none"],
         "unary": ["scale"], "overwrite": ["x"], "Scale": ["x"], "Reduce": ["add", "multiply", "assign"], "activation_type": ["relu", ""],
         "ap_type": ["11point", "integral"], "chunk_scheme": ["IOE", "IOBES", "plain"], "combiner": ["average", "sqrt"],
         "dropout_implementation": ["upscale_in_train", "downgrade_in_infer"], "fc_activation": ["tanh", "relu"],
         "functor_list": [["elementwise_mul", "tanh"], ["elementwise_mul_grad", "tanh_grad"]], "mining_type": ["hard_example"],
         "padding_mode": ["border", "reflection"], "regularization_method": ["l2_decay", [""], ["l2_decay"], ["l2_decay", "l2_decay"]],
         "unpooling_type": ["max"], "steps": [["tanh X=x0 -> Out=t", "elementwise_mul X=t Y=x1 -> Out=t"]], "atol": ["10"], "rtol": ["10"],
         "str_value": ["7"], "whole_operands": [["X"]], **{name: ["sigmoid", "relu", "tanh"] for name in
                                ("gate_activation", "cell_activation", "candidate_activation", "proj_activation")}}

def type_of(desc):
    return next(value for number, _, value, _, _ in desc if number == 3).decode()


def attr_in(program, types, attr):
    """(kind, value) of the attribute in the first of these ops; None if the program does not set it."""
    for number, _, block, _, _ in fields(program):
        if number != 1:
            continue
        for inner, _, desc, _, _ in fields(block):
            parts = fields(desc) if inner == 4 else []
            if inner != 4 or type_of(parts) not in types:
                continue
            for n, _, value, _, _ in parts:
                if n == 4:
                    name, kind, found = decode_attr(value)
                    if name == attr:
                        return kind, found
    return None


def types_in(program):
    """Types of the ops of a program."""
    return {type_of(fields(desc)) for number, _, block, _, _ in fields(program) if number == 1
            for inner, _, desc, _, _ in fields(block) if inner == 4}


def with_attr(program, types, attr, kind, new):
    """The program with another value of the attribute in the ops of these types."""
    out = b""
    for number, _, block, begin, end in fields(program):
        if number != 1:
            out += program[begin:end]
            continue
        changed = b""
        for inner, _, desc, first, last in fields(block):
            parts = fields(desc) if inner == 4 else []
            if inner != 4 or type_of(parts) not in types:
                changed += block[first:last]
                continue
            kept = b"".join(desc[b:e] for n, _, value, b, e in parts if n != 4 or decode_attr(value)[0] != attr)
            changed += lump(4, kept + lump(4, encode_attr(attr, kind, new)))
        out += lump(1, changed)
    return out


def other_values(name, kind, value):
    """Other values to try, the most promising first."""
    plain = kind.rstrip("s")
    if plain == "bool":
        return [[not v for v in value] + ([] if value else [True])] if kind == "bools" else [not value]
    if kind in ("int", "long", "block"):
        return [v for v in (value + 1, value - 1, value + 2, 0) if v != value]
    if kind in ("float", "float64"):
        return [value * 1.5 + 0.25, -value - 1.0, 0.0]
    if kind == "string":
        return [word for word in WORDS.get(name, []) if isinstance(word, str) and word != value] + ["no such word"]
    if kind in ("ints", "longs"):
        lists = [[v + 1 for v in value], value[::-1], value[:-1], [1], [0], [2, 1], []]
        return [found for found in lists if found != value]
    if kind in ("floats", "float64s"):
        return [found for found in ([v * 1.5 + 0.25 for v in value], value[:-1], [0.5], []) if found != value]
    return [words for words in WORDS.get(name, []) if isinstance(words, list) and words != value] + [["no such word"]]


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
    """op -> attribute -> (kind, default) or None; op -> (type of its gradient op, whether a rule makes it); ops X -> Out."""
    ops, gradients, plain = {}, {}, set()
    with open(os.path.join(ROOT, "docs/ops.md"), encoding="utf-8") as file:
        for line in file:
            if not line.startswith("| `"):
                continue
            cells = re.split(r"(?<!\\) \| ?", line.strip().strip("|"))
            op, text, gradient = cells[0].strip().strip("`"), cells[4], cells[5].strip()
            ops[op] = {}
            gradients[op] = (op + "_grad", True) if gradient == "rule" else (gradient, False)
            if [cell.strip() for cell in cells[2:4]] == ["X", "Out"]:
                plain.add(op)
            for part in re.split(r", (?=[A-Za-z_]\w*(?: = |! ))", text.strip()):
                if match := re.match(r"(\w+) = (.*)$", part):
                    ops[op][match[1]] = parse_default(match[2])
                elif match := re.match(r"(\w+)! (\w+)$", part):
                    ops[op][match[1]] = (match[2], None)
    return ops, gradients, plain


class Cases:
    """The reference cases and those of made_cases.py, read once per op."""

    def __init__(self, shared, plain):
        """plain: op -> whether its "plain" case, for lack of others, has a gradient op"""
        self.plain = plain
        sys.path.insert(0, os.path.join(shared, "tools"))
        import check_ops  # the checker of the references can read their form
        # the second folder has cases that the references lack
        self.form, self.folders, self.known = check_ops, (os.path.join(shared, "goldens/ops"), os.path.join(ROOT, "tests/data/ops")), {}

    def of(self, op):
        """number or name -> (program, feed, names to fetch)"""
        if op not in self.known:
            listed = []
            for folder in self.folders:
                path = os.path.join(folder, op + ".npz")
                listed += self.form.load(path) if os.path.exists(path) else []
            self.known[op] = {k: (arrays["program"].tobytes(), self.form.feed_members(meta, arrays), self.form.fetch_names(meta, False))
                              for k, (meta, arrays) in enumerate(listed)}
            self.known[op].update({case.name: case.build() for case in made_cases.CASES.get(op, [])})
            if not self.known[op] and op in self.plain:
                self.known[op] = {"plain": made_cases.plain(op, self.plain[op]).build()}
        return self.known[op]

    def job(self, folder, tag, op, row, program):
        key = row["case"]
        _, feed, fetch = self.of(op)[key]
        base = os.path.join(folder, tag)
        with open(base + ".pb", "wb") as file:
            file.write(program)
        path = os.path.join(folder, f"{op}.{key}.in.npz")
        if not os.path.exists(path):
            np.savez(path, **feed)
        return {"program": base + ".pb", "feed": path, "fetch": fetch, "output": base + ".out.npz",
                "arguments": row.get("arguments", [])}


class Table:
    """Rows of ops, or of their gradient ops (suffix OF_GRADIENT), with their programs and cases."""

    def __init__(self, suffix, cases, ops, types):
        self.suffix, self.cases, self.types = suffix, cases, types  # types: op -> types of the ops that a flip changes
        self.ops = {op: attrs for op, attrs in ops.items() if op in types}
        self.rows = {key.removesuffix(OF_GRADIENT): attrs for key, attrs in self.stored().items() if self.has(key)}

    def has(self, key):
        return key.endswith(OF_GRADIENT) == bool(self.suffix)

    @staticmethod
    def stored():
        """The rows of the file."""
        with open(TABLE, encoding="utf-8") as file:
            return json.load(file)

    def base(self, op, row):
        """The program of a row before its flip."""
        program = self.cases.of(op)[row["case"]][0]
        for attr, value in row.get("with", {}).items():
            given = attr_in(program, {op}, attr) or self.ops[op][attr]
            program = with_attr(program, self.all_types(op), attr, given[0], value)
        return program

    def all_types(self, op):
        return {op, op + "_grad"} | self.types[op]

    def flipped(self, op, attr, row):
        program = self.base(op, row)
        given = attr_in(program, self.types[op], attr) or attr_in(program, {op}, attr) or self.ops[op][attr]
        return with_attr(program, self.types[op], attr, given[0], row["flip"])

    def candidates(self, op, attr):
        """Rows to try."""
        rows, default = [], self.ops[op][attr]
        for k, (program, _, _) in self.cases.of(op).items():
            if not self.types[op] & types_in(program):
                continue
            given = attr_in(program, self.types[op], attr) or default
            if given is None or given[1] is None or given[0] not in FIELD:
                continue
            rows += [(i, k, new) for i, new in enumerate(other_values(attr, *given))]
        rows.sort(key=lambda row: row[0])  # the most promising values of all cases first
        return [{"case": k, "flip": new} for _, k, new in rows][:MOST_TURNS]

    def write(self, found):
        rows = {key: attrs for key, attrs in self.stored().items() if not self.has(key)}
        rows.update({op + self.suffix: attrs for op, attrs in {**self.rows, **found}.items()})
        with open(TABLE, "w", encoding="utf-8") as file:
            file.write("{\n" + ",\n".join(
                f" {json.dumps(op)}: {{\n" + ",\n".join(f"  {json.dumps(attr)}: {json.dumps(row)}" for attr, row in attrs.items()) + "\n }"
                for op, attrs in sorted(rows.items())) + "\n}\n")


def outcome(job, answer):
    if not answer.get("ok"):
        return "refused", answer.get("error", "")
    with np.load(job["output"], allow_pickle=False) as file:
        return "ran", {name: (str(file[name].dtype), file[name].shape, file[name].tobytes()) for name in file.files}


def run_alone(tools, job):
    """Outcome of a job that needs separate arguments."""
    command = [os.path.join(tools, "run-program"), "--program", job["program"], "--feed", job["feed"], "--fetch", ",".join(job["fetch"]),
               "--output", job["output"], "--force"]
    ran = subprocess.run(command + job["arguments"], capture_output=True, text=True, errors="replace", timeout=60)
    return ("crashed", "") if ran.returncode < 0 else outcome(job, {"ok": ran.returncode == 0, "error": ran.stderr})


def run_chunk(tools, folder, tag, jobs):
    """Outcomes in order; a job that ends the process has crashed."""
    done, rest = [], list(jobs)
    while rest:
        path = os.path.join(folder, f"{tag}.{len(done)}.jsonl")
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(json.dumps({name: value for name, value in job.items() if name != "arguments"}) + "\n" for job in rest)
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
        """Outcomes in order."""
        together = [i for i, job in enumerate(jobs) if not job["arguments"]]
        chunks = [together[i:i + CHUNK] for i in range(0, len(together), CHUNK)] + [[i] for i, job in enumerate(jobs) if job["arguments"]]
        self.count += 1
        found = {}
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            for chunk, part in zip(chunks, pool.map(lambda pair: self.chunk(f"{self.count}.{pair[0]}", [jobs[i] for i in pair[1]]), enumerate(chunks))):
                found.update(zip(chunk, part))
        return [found[i] for i in range(len(jobs))]

    def chunk(self, tag, jobs):
        return [run_alone(self.tools, jobs[0])] if jobs[0]["arguments"] else run_chunk(self.tools, self.folder, tag, jobs)


def key_of(op, row):
    """Common data of rows with the same base."""
    return op, str(row["case"]), json.dumps([row.get("with", {}), row.get("arguments", [])], sort_keys=True)


def bases(table, runner, wanted):
    """Outcomes of cases without a flip, for [(op, row)]; "unsteady" and the shapes if values differ between two
    runs."""
    listed = list({key_of(op, row): (op, row) for op, row in wanted}.items())
    found = []
    for turn, order in enumerate((listed, listed[::-1])):
        jobs = [table.cases.job(runner.folder, f"b{turn}.{i}", op, row, table.base(op, row)) for i, (_, (op, row)) in enumerate(order)]
        found.append({key: result for (key, _), result in zip(order, runner.run(jobs))})
    return {key: ("unsteady", shapes_of(what)) if how == "ran" and what != found[1][key][1] else (how, what)
            for key, (how, what) in found[0].items()}


def shapes_of(what):
    return {name: member[:2] for name, member in what.items()}


def seen_of(plain, flipped):
    """Effect of a flip: "differs", "refused", "crashed" or "nothing"."""
    (ran, before), (how, what) = plain, flipped
    if how == "ran":
        return "nothing" if (shapes_of(what) if ran == "unsteady" else what) == before else "differs"
    return how


def search(table, runner):
    found = {op: {} for op in table.ops}
    open_rows = {(op, attr): table.candidates(op, attr) for op, attrs in table.ops.items() for attr in attrs
                 if not {"case", "run"} & set(table.rows.get(op, {}).get(attr, {}))}
    plain = bases(table, runner, [(op, row) for (op, _), rows in open_rows.items() for row in rows])
    refused = {}
    for turn in range(max((len(rows) for rows in open_rows.values()), default=0)):
        trying = [(key, rows[turn]) for key, rows in open_rows.items() if turn < len(rows) and key[1] not in found[key[0]]]
        jobs = [table.cases.job(runner.folder, f"s{turn}.{i}", op, row, table.flipped(op, attr, row))
                for i, ((op, attr), row) in enumerate(trying)]
        for ((op, attr), row), outcome_of in zip(trying, runner.run(jobs)):
            if plain[key_of(op, row)][0] not in ("ran", "unsteady"):
                continue
            seen = seen_of(plain[key_of(op, row)], outcome_of)
            if seen == "differs":
                found[op][attr] = {**row, "sees": "differs"}
            elif seen == "refused":
                refused.setdefault((op, attr), {**row, "sees": "refused"})
            elif seen == "crashed":
                print(f"{op} {attr} = {row['flip']} in case {row['case']}: crashed")
        print(f"turn {turn}: {len(trying)} tried", flush=True)
    for op, attrs in table.ops.items():
        for attr in attrs:
            old = table.rows.get(op, {}).get(attr, {})
            if attr in found[op]:
                continue
            if (op, attr) in refused:
                found[op][attr] = refused[op, attr]
            elif {"none", "case", "run"} & set(old):
                found[op][attr] = old
            else:
                found[op][attr] = {"none": "?"}
    return {op: dict(sorted(attrs.items())) for op, attrs in found.items() if attrs}


def check(table, runner, only):
    faults = []
    listed = {op: attrs for op, attrs in table.rows.items() if not only or op in only}
    name = os.path.basename(TABLE)
    for op in sorted(set(table.ops) | set(listed)):
        for attr in sorted(set(table.ops.get(op, {})) ^ set(listed.get(op, {}))):
            faults.append(f"{op}{table.suffix} {attr}: " + (f"not in {name}" if attr in table.ops.get(op, {}) else f"no attribute any more, but in {name}"))
    rows = [(op, attr, row) for op, attrs in listed.items() for attr, row in attrs.items() if attr in table.ops.get(op, {})]
    flips = [row for row in rows if "case" in row[2]]
    plain = bases(table, runner, [(op, row) for op, _, row in flips])
    found = runner.run([table.cases.job(runner.folder, f"c{i}", op, row, table.flipped(op, attr, row))
                        for i, (op, attr, row) in enumerate(flips)])
    for (op, attr, row), outcome_of in zip(flips, found):
        before = plain[key_of(op, row)]
        seen = seen_of(before, outcome_of)
        if before[0] not in ("ran", "unsteady"):
            faults.append(f"{op}{table.suffix} case {row['case']}: {before[0]} as it is: {before[1]}")
        elif seen != row["sees"]:
            faults.append(f"{name}: {op}{table.suffix} {attr} = {row['flip']} in case {row['case']}: {seen}, expected {row['sees']}"
                          + (f": {outcome_of[1][-200:]}" if seen == "refused" else ""))
    for op, attr, row in rows:
        if not {"case", "run", "none"} & set(row):
            faults.append(f"{name}: {op}{table.suffix} {attr}: nobody sees it")
        if "none" in row and len(row["none"]) < 8:
            faults.append(f"{name}: {op}{table.suffix} {attr}: no reason is given")
    return len(rows), faults


def tables(shared, only):
    ops, gradients, plain = schemas()
    ops = {op: attrs for op, attrs in ops.items() if not only or op in only}
    cases = Cases(os.path.abspath(shared), {op: gradients[op] == (op + "_grad", False) for op in plain})
    grads = {}
    for op in ops:
        # gradients may consist of forward ops, whose rows are in the first table
        gradient, by_rule = gradients[op]
        if gradient and (not by_rule or any(gradient in types_in(program) for program, _, _ in cases.of(op).values())):
            grads[op] = {gradient}
    return Table("", cases, ops, {op: {op, op + "_grad"} for op in ops}), Table(OF_GRADIENT, cases, ops, grads)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    parser.add_argument("--shared", required=True)
    parser.add_argument("--search", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    args = parser.parse_args()
    only = set(args.only.split(",")) - {""}
    count, faults = 0, []
    with tempfile.TemporaryDirectory(prefix="millrace_attributes_") as folder:
        runner = Runner(os.path.abspath(args.bin), folder, args.jobs)
        for table in tables(args.shared, only):
            if args.search:
                found = search(table, runner)
                table.rows = table.rows if only else {}
                table.write(found)
            else:
                rows, wrong = check(table, runner, only)
                count, faults = count + rows, faults + wrong
    if args.search:
        return 0
    for fault in faults:
        print(fault)
    print(f"{count - min(count, len(faults))} passed, {len(faults)} failed")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
