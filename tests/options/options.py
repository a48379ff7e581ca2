#!/usr/bin/env python3
"""Checks the list of options (options.json) against the sources and against the effect of the options.

    options.py --bin DIR --shared DIR [--only WORD] [--jobs N]

options.json has a row for every flag of every tool, every field of a strategy or configuration, every environment
variable. A row says how the effect of the option is observed:

    {"test": FILE}                           by this test, which contains the option's name
    {"base": NAME, "flip": [ARGUMENTS...], "sees": HOW, "text": REGEX, "env": {...}}
                                             by a run: NAME of runs.py with additional arguments

An option that several commands read may have a list of rows.

HOW: "differs" - it succeeds with a different output than the run without them; "says" - it succeeds and warns, or logs,
with that text; "fails" - it is refused with that text. Options without effect are rows of the kind "says".

First the names: those that walk.py finds and those of the table must be the same. Then every flip is run.
Exit status: 0 all rows pass, 1 some do not. The last line is "N passed, M failed".
"""
import argparse
import concurrent.futures
import json
import os
import re
import sys

import runs
import walk

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def check_names(table, found):
    """A line for each name that is missing in the table, or that exists only there."""
    faults = []
    for kind in sorted(set(table) | set(found)):
        listed, real = set(table.get(kind, {})), set(found.get(kind, ()))
        faults += [f"{kind}: '{name}' is not in options.json" for name in sorted(real - listed)]
        faults += [f"{kind}: '{name}' of options.json is no option any more" for name in sorted(listed - real)]
    return faults


def check_test(name, row):
    """Error of a row that names a test."""
    path = os.path.join(ROOT, row["test"])
    if not os.path.exists(path):
        return f"there is no {row['test']}"
    with open(path, encoding="utf-8") as file:
        text = file.read()
    words = [row.get("as", name), row.get("as", name).replace("-", "_")]
    if any(re.search(r"(?<![\w-])" + re.escape(word) + r"(?![\w-])", text) for word in words):
        return None
    return f"{row['test']} does not mention it"


def check_flip(row, bench):
    """Error of a row that names a run."""
    plain = bench.plain(row["base"])
    if plain.code != runs.ENDS.get(row["base"], 0):
        return f"the run '{row['base']}' ends with {plain.code} by itself: {plain.said[-300:]}"
    flipped = bench.run(row["base"], row["flip"], row.get("env", {}))
    how, text = row["sees"], row.get("text", "")
    if how == "fails":
        if flipped.code in (0, 70) or flipped.code < 0:
            return f"expected a refusal, found exit {flipped.code}: {flipped.said[-300:]}"
    elif flipped.code != row.get("exit", 0):
        return f"expected exit {row.get('exit', 0)}, found {flipped.code}: {flipped.said[-300:]}"
    if how == "differs" and flipped.results == plain.results:
        return "it changes nothing"
    if text and not re.search(text, flipped.said):
        return f"expected '{text}' in: {flipped.said[-300:]}"
    if how == "says" and re.search(text, plain.said):
        return f"the run without it says '{text}', too"
    return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    parser.add_argument("--shared", required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    args = parser.parse_args()
    with open(os.path.join(ROOT, "tests/options/options.json"), encoding="utf-8") as file:
        table = json.load(file)
    faults = check_names(table, walk.all_names(ROOT, args.bin))
    rows = [(kind, name, row) for kind, names in table.items() for name, listed in names.items()
            for row in (listed if isinstance(listed, list) else [listed]) if args.only in f"{kind} {name}"]
    with runs.Bench(ROOT, os.path.abspath(args.bin), os.path.abspath(args.shared)) as bench:
        flips = [row for row in rows if "flip" in row[2]]
        for base in sorted({row["base"] for _, _, row in flips}):
            bench.plain(base)
        with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
            found = list(pool.map(lambda row: check_flip(row[2], bench), flips))
    judged = {id(row): fault for (_, _, row), fault in zip(flips, found)}
    for kind, name, row in rows:
        fault = judged[id(row)] if "flip" in row else check_test(name, row)
        if fault:
            faults.append(f"{kind} {name}: {fault}")
    for fault in faults:
        print(fault)
    print(f"{len(rows) - min(len(faults), len(rows))} passed, {len(faults)} failed")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
