#!/usr/bin/env python3
"""Checks docs/coverage.md: each row names a place that exists and a test that exists, or says "not there", "refused" or
"no effect"; no symbol has two rows in a section.

    check_coverage.py [ROOT] [--seeds FOLDER]

With --seeds: every function and class that the documents in the folder define has a row. Exit status: 0 clean, 1 findings
(one line each).
"""
import argparse
import os
import re
import sys

PAGE = "docs/coverage.md"
ROW = re.compile(r"^\| (`.+`) \| (.+) \| (.+) \|$")
DEFINITION = re.compile(r"^\s*(?:\|\s*)?(?:class|def) (?:paddle\.static\. )?(\w+)", re.M)


def read(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def rows_of(page):
    """(section, symbols, place, test) of each row."""
    section = ""
    for line in page.splitlines():
        if line.startswith("## "):
            section = line[3:]
        row = ROW.match(line)
        if row and not row[1].startswith("`symbol`"):
            yield section, re.findall(r"`([^`]+)`", row[1]), row[2], row[3]


def place_problem(root, place):
    if re.search(r"not there|refused|no effect", place):
        return None
    for path in re.findall(r"`([\w./-]+)`", place):
        if "/" in path and os.path.exists(os.path.join(root, path)):
            return None
    if re.search(r"`(Fleet|ParallelExecutor|ParallelOptions)::\w+`|constructor of `\w+`|`[a-z]+(-[a-z]+)?`", place):
        return None
    return f"no place of the tree in '{place}'"


def test_problem(root, test):
    found = re.match(r"`([\w./-]+)`: (\w+)$", test)
    if not found:
        return f"expected '`file`: test', found '{test}'"
    path = os.path.join(root, found[1])
    if not os.path.exists(path):
        return f"no such file: {found[1]}"
    return None if re.search(rf"\b{found[2]}\b", read(path)) else f"{found[1]} has no test {found[2]}"


def check(root, seeds=None):
    """All findings."""
    findings, seen = [], set()
    for section, symbols, place, test in rows_of(read(os.path.join(root, PAGE))):
        for symbol in symbols:
            if (section, symbol) in seen:
                findings.append(f"{PAGE}: {symbol}: two rows in '{section}'")
            seen.add((section, symbol))
        for problem in filter(None, (place_problem(root, place), test_problem(root, test))):
            findings.append(f"{PAGE}: {symbols[0]}: {problem}")
    known = {symbol for _, symbol in seen}
    for name in sorted(os.listdir(seeds)) if seeds else []:
        defined = set(DEFINITION.findall(read(os.path.join(seeds, name))))
        findings += [f"{PAGE}: no row for {symbol} of {name}" for symbol in sorted(defined - known)]
    return findings


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("root", nargs="?", default=os.path.join(os.path.dirname(__file__), "..", ".."))
    parser.add_argument("--seeds")
    args = parser.parse_args()
    findings = check(args.root, args.seeds)
    print("\n".join(findings + [f"{len(findings)} findings"]))
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
