#!/usr/bin/env python3
"""Tries op attributes on runs of programs: attributes of ops that use files, other blocks or other processes.

    attribute_runs.py --bin DIR --shared DIR [--only OP]

Rows of op_attributes.json that name a run:

    {"run": NAME, "flip": VALUE, "sees": "differs"}   with this value the run ends as without it, but with different output
    {"run": NAME, "flip": VALUE, "sees": "refused"}   with this value it fails with an error that contains the attribute's name, or "text"

A run (run_table.py) is a folder of programs, and commands with their expected exit status. The programs are text in
tests/options/programs (NAME.txt, or a folder NAME), or programs that transpile-program generates from stored ones, as
text. A flip sets one attribute of the ops of one type to another value in all programs of the run, or in those that the
row names ("in": "pserver_*"); "op" is another type in which to flip it. The compared output is the files that the
commands write, and what they print. Every run is done twice without a flip, and must have the same output both times.
Exit status: 0 all rows pass, 1 some do not. The last line is "N passed, M failed".
"""
import argparse
import concurrent.futures
import dataclasses
import fnmatch
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

from run_table import make_inputs, make_runs
from runs import content, without_times

SECONDS = 60
AT_ONCE = 8  # most runs wait: for each other's processes, or for a server that does not exist

# An op begins a line; strings are skipped as a whole.
OP = re.compile(r"^  (\w+)(?= )", re.M)
TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|[{}\[\]()\n,]|[^"{}\[\]()\n,]+')


@dataclasses.dataclass
class Seen:
    code: int
    said: str
    results: dict


def op_end(text, begin):
    """End of the op that begins there: the end of its line, except for line breaks inside braces and brackets."""
    depth, at = 0, begin
    while match := TOKEN.match(text, at):
        token = match[0]
        if token == "\n" and depth == 0 and not text[begin:at].rstrip().endswith((",", "->")):
            return at
        depth += (token in "{[(") - (token in ")]}") if len(token) == 1 else 0
        at = match.end()
    return len(text)


def split_attrs(body):
    """[(name, value)] of the text between the braces of an op."""
    parts, depth, part = [], 0, ""
    for token in TOKEN.findall(body):
        depth += (token in "{[(") - (token in ")]}") if len(token) == 1 else 0
        if token == "," and depth == 0:
            parts.append(part)
            part = ""
        else:
            part += token
    parts.append(part)
    return [tuple(word.strip() for word in part.split(":", 1)) for part in parts if part.strip()]


def kind_of(text):
    """The kind of a value in the text form."""
    text = text.strip()
    if typed := re.match(r"(\w+)\[", text):
        return typed[1]
    if text.startswith("["):
        return kind_of(text[1:].split(",")[0].rstrip("]")) + "s"
    if text.startswith(('"', "^")):
        return "string" if text[0] == '"' else "block"
    if text in ("true", "false"):
        return "bool"
    return "long" if re.fullmatch(r"-?\d+l", text) else "int" if re.fullmatch(r"-?\d+", text) else "float"


def value_text(kind, value):
    """A value of a row in the text form."""
    if kind.endswith("s"):
        return "[" + ", ".join(value_text(kind[:-1], item) for item in value) + "]" if value else f"{kind}[]"
    if kind in ("block", "long"):
        return f"^{value}" if kind == "block" else f"{value}l"
    return json.dumps(value) if kind in ("string", "bool") else repr(float(value)) if kind == "float" else repr(value)


def schema_kinds(root):
    """(op, attribute) -> kind, from docs/ops.md, which a test keeps equal to the schemas."""
    kinds = {}
    with open(os.path.join(root, "docs/ops.md"), encoding="utf-8") as file:
        for line in file:
            if not line.startswith("| `"):
                continue
            cells = re.split(r"(?<!\\) \| ?", line.strip().strip("|"))
            for part in re.split(r", (?=[A-Za-z_]\w*(?: = |! ))", cells[4].strip()):
                if match := re.match(r"(\w+)(?: = (.*)|! (\w+))$", part):
                    kinds[cells[0].strip().strip("`"), match[1]] = match[3] or kind_of(match[2])
    return kinds


def with_attr(text, op, attr, kind, new):
    """(program, ops that were changed): every op of the type with another value of the attribute."""
    out, last, count = "", 0, 0
    for match in OP.finditer(text, text.index("\nblock 0")):
        if match[1] != op or match.start() < last:
            continue
        end = op_end(text, match.start())
        line = text[match.start():end]
        brace = line.find("{")
        attrs = split_attrs(line[brace + 1:line.rindex("}")]) if brace >= 0 else []
        attrs = [pair for pair in attrs if pair[0] != attr] + [(attr, value_text(kind, new))]
        head = (line[:brace] if brace >= 0 else line).rstrip()
        out += text[last:match.start()] + head + " {" + ", ".join(f"{name}: {value}" for name, value in attrs) + "}"
        last, count = end, count + 1
    return out + text[last:], count


class Runs:
    """Generates programs and input once, and tries rows on them."""

    def __init__(self, root, tools, shared):
        self.root, self.tools, self.shared = root, tools, shared
        self.folder = tempfile.mkdtemp(prefix="millrace_attribute_runs_")
        self.count = 0
        self.known, self.plain = {}, {}
        make_inputs(self.folder, shared)
        self.runs = make_runs()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.folder, ignore_errors=True)

    def command(self, words, job, out):
        places = {"in": self.folder, "job": job, "out": out, "root": self.root, "shared": self.shared}
        words = [re.sub(r"\{(in|job|out|root|shared)\}", lambda match: places[match[1]], word) for word in words]
        return [os.path.join(self.tools, words[0])] + [
            os.path.join(self.tools, word[1:]) if word.startswith("@") else word for word in words[1:]]

    def programs(self, name):
        """Texts of a run by their path in its folder; other required files as bytes."""
        if name in self.known:
            return self.known[name]
        run, found = self.runs[name], {}
        if run.made:
            job = os.path.join(self.folder, "made_" + re.sub(r"\W", "_", name))
            os.mkdir(job)
            for words in run.made:
                done = self.execute(words, job, job, {})
                if done.returncode != 0:
                    raise RuntimeError(f"{' '.join(words)}: {done.returncode}: {done.stderr[-800:]}")
            where = job
        else:
            where = os.path.join(self.root, "tests/options/programs", run.programs)
        if os.path.isfile(where + ".txt"):
            with open(where + ".txt", encoding="utf-8") as file:
                found["program"] = file.read()
        for folder, _, names in os.walk(where):
            for file_name in sorted(names):
                path = os.path.join(folder, file_name)
                with open(path, "rb") as file:
                    data = file.read()
                place = os.path.relpath(path, where)
                if data.startswith(b"# millrace"):
                    found[re.sub(r"\.txt$", "", place)] = data.decode()
                else:
                    found[place] = data
        self.known[name] = found
        return found

    def execute(self, words, job, out, env):
        clean = {key: value for key, value in os.environ.items()
                 if not key.startswith(("PADDLE_", "FLAGS_", "TRAINING_", "POD_", "CPU_NUM"))}
        return subprocess.run(self.command(words, job, out), capture_output=True, text=True, errors="replace", timeout=SECONDS,
                              env={**clean, **env})

    def run(self, name, programs):
        run = self.runs[name]
        folder = tempfile.mkdtemp(dir=self.folder)
        job, out = os.path.join(folder, "job"), os.path.join(folder, "out")
        os.mkdir(out)
        for place, data in programs.items():
            path = os.path.join(job, place)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(data.encode() if isinstance(data, str) else data)
        said, printed, code = "", "", 0
        for words in run.commands:
            done = self.execute(words, job, out, run.env)
            said, code = said + done.stdout + done.stderr, done.returncode
            # first the folder: a random name may look like a time
            printed += without_times((done.stdout + (done.stderr if run.says else "")).replace(folder, ""))
            if code != 0:
                break
        results = {"printed": re.sub(r"step \d+/.*", "", printed)}
        for place, _, names in os.walk(out):
            for file_name in names:
                path = os.path.join(place, file_name)
                if file_name.endswith(".log"):
                    with open(path, encoding="utf-8", errors="replace") as file:
                        said += file.read()
                else:
                    results[os.path.relpath(path, out)] = content(path)
        shutil.rmtree(folder, ignore_errors=True)
        return Seen(code, said, results)

    def prepare(self, name):
        """Error of the run without a flip, which must end as expected, twice with the same output."""
        programs = self.programs(name)
        first, second = self.run(name, programs), self.run(name, programs)
        self.plain[name] = first
        if first.code != self.runs[name].end:
            return f"it ends with {first.code} by itself: {first.said[-600:]}"
        if first.results != second.results:
            differing = sorted(key for key in set(first.results) | set(second.results)
                               if first.results.get(key) != second.results.get(key))
            return f"it gives something else every time: {differing}"
        return None

    def try_row(self, op, attr, row, kind):
        """(compared output, messages)"""
        programs, count = dict(self.programs(row["run"])), 0
        for place, text in programs.items():
            if isinstance(text, str) and fnmatch.fnmatch(place, row.get("in", "*")):
                programs[place], changed = with_attr(text, row.get("op", op), attr, kind, row["flip"])
                count += changed
        if count == 0:
            return "no such op", ""
        seen, plain = self.run(row["run"], programs), self.plain[row["run"]]
        if seen.code == 70 or seen.code < 0:
            return "crashed", seen.said
        if self.runs[row["run"]].end == seen.code:
            return ("nothing" if seen.results == plain.results else "differs"), seen.said
        return ("refused" if seen.code != 0 else "ran"), seen.said

    def check(self, rows, kinds):
        """Errors of rows [(op, attr, row)] with "run"; kinds: of attributes, by (op, attr)."""
        names = sorted({row["run"] for _, _, row in rows})
        unknown = [f"there is no run '{name}'" for name in names if name not in self.runs]
        if unknown:
            return unknown
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            broken = {name: fault for name, fault in zip(names, pool.map(self.prepare, names)) if fault}
            able = [entry for entry in rows if entry[2]["run"] not in broken]
            found = list(pool.map(lambda entry: self.try_row(*entry, kinds[entry[0], entry[1]]), able))
        faults = [f"the run '{name}': {fault}" for name, fault in broken.items()]
        for (op, attr, row), (how, said) in zip(able, found):
            where = f"{op} {attr} = {row['flip']} in the run '{row['run']}'"
            if how != row["sees"]:
                faults.append(f"{where}: {how}, expected {row['sees']}" + (f": {said[-300:]}" if said else ""))
            elif how == "refused" and not re.search(row.get("text", re.escape(attr)), said):
                faults.append(f"{where}: expected '{row.get('text', attr)}' in: {said[-400:]}")
        return faults


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    parser.add_argument("--shared", required=True)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    with open(os.path.join(root, "tests/options/op_attributes.json"), encoding="utf-8") as file:
        table = json.load(file)
    rows = [(op, attr, row) for op, attrs in table.items() for attr, row in attrs.items()
            if "run" in row and args.only in ("", op)]
    with Runs(root, os.path.abspath(args.bin), os.path.abspath(args.shared)) as runs:
        faults = runs.check(rows, schema_kinds(root))
    for fault in faults:
        print(fault)
    print(f"{max(0, len(rows) - len(faults))} passed, {len(faults)} failed")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
