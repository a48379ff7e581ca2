#!/usr/bin/env python3
"""Checks formal rules of the tree, so that reviewers need not.

    check_tree.py [ROOT]

Sources: length, `#pragma once`, no `using namespace` in headers, no notes about later work. Folders: a README of at
most 30 lines. Markdown: links to files that exist. Everywhere: no absolute path of a developer's machine, no file over
3 MB.
Exit status: 0 clean, 1 findings (one line each).
"""
import os
import re
import subprocess
import sys

MAX_LINES = 500
MAX_BYTES = 3_000_000
README_LINES = 30
README_FOLDERS = "proto framework ops kernels transpiler io frontend interchange executor ps fleet jobs api tools python tests docs bench examples cmake scripts".split()
CODE = (".h", ".cc", ".cu", ".cuh")
TEXT = CODE + (".py", ".sh", ".md", ".txt", ".cmake", ".json", ".test", "/run", "Makefile")
MACHINE_PATH = re.compile(r"(^|[^\w./-])/(work|farm|root|home/\w+)/")
LATER = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")  # check_tree: these words are the pattern
LINK = re.compile(r"\]\(([^)#:\s]+)(#[^)]*)?\)")


def tracked_files(root):
    """Files that are tracked or not ignored by git; all files if there is no git."""
    git = subprocess.run(["git", "-C", root, "ls-files", "-co", "--exclude-standard"], capture_output=True, text=True)
    if git.returncode == 0:
        return sorted(p for p in set(git.stdout.splitlines()) if os.path.isfile(os.path.join(root, p)))
    return sorted(os.path.relpath(os.path.join(at, n), root) for at, _, names in os.walk(root) for n in names)


def line_findings(path, lines):
    for number, line in enumerate(lines, 1):
        where = f"{path}:{number}: "
        if MACHINE_PATH.search(line) and not path.startswith("tests/data/"):
            yield where + "absolute path of a machine"
        if path.endswith(CODE + (".py", ".sh")) and LATER.search(line) and "check_tree:" not in line:
            yield where + "note to do something later; do it or write it into docs/status.md"
        if path.endswith((".h", ".cuh")) and re.match(r"\s*using namespace ", line):
            yield where + "'using namespace' in a header"


def code_findings(path, lines):
    if len(lines) > MAX_LINES:
        yield f"{path}: {len(lines)} lines, expected at most {MAX_LINES}"
    if path.endswith((".h", ".cuh")) and "#pragma once" not in lines:
        yield f"{path}: no '#pragma once'"


def link_findings(root, path, lines):
    for number, line in enumerate(lines, 1):
        for target, _ in LINK.findall(line):
            if not os.path.exists(os.path.join(root, os.path.dirname(path), target)):
                yield f"{path}:{number}: link to {target}, which does not exist"


def markdown_findings(path, lines):
    """Headings and tables that a reader would see as running text, as after a formatter for C++."""
    fenced = False
    for number, line in enumerate(lines, 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        if fenced:
            continue
        if re.match(r"#+[^# ]", line):
            yield f"{path}:{number}: heading without a space after '#'"
        begins = line.startswith("|") and (number == 1 or not lines[number - 2].startswith("|"))
        if begins and not (number < len(lines) and re.match(r"\|( ?:?-+:? ?\|)+$", lines[number])):
            yield f"{path}:{number}: table without a line '|---|' after its first row"


def folder_findings(root):
    for folder in README_FOLDERS:
        readme = os.path.join(root, folder, "README.md")
        if not os.path.isdir(os.path.join(root, folder)):
            continue
        if not os.path.exists(readme):
            yield f"{folder}/README.md: missing"
            continue
        with open(readme, encoding="utf-8") as f:
            count = len(f.readlines())
        if count > README_LINES:
            yield f"{folder}/README.md: {count} lines, expected at most {README_LINES}"


def check(root):
    """All findings."""
    findings = list(folder_findings(root))
    for path in tracked_files(root):
        size = os.path.getsize(os.path.join(root, path))
        if size > MAX_BYTES:
            findings.append(f"{path}: {size} bytes, expected at most {MAX_BYTES}")
        if not path.endswith(TEXT):
            continue
        with open(os.path.join(root, path), encoding="utf-8") as f:
            lines = f.read().splitlines()
        findings += line_findings(path, lines)
        if path.endswith(CODE):
            findings += code_findings(path, lines)
        if path.endswith(".md"):
            findings += link_findings(root, path, lines)
            findings += markdown_findings(path, lines)
    return findings


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
    findings = check(root)
    for line in findings:
        print(line)
    print(f"{len(findings)} findings", file=sys.stderr)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
