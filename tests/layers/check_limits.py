#!/usr/bin/env python3
"""Checks that the tree stays cheap to extend (docs/decisions/0026-sources-are-found.md).

    check_limits.py [ROOT]

The example of a plain op, docs/extending/op.diff, touches at most five files. All CMake files of the build together have at most
1000 lines; those of examples/ and python/ are projects of their own. Exit status: 0 clean, 1 findings (one line each).
"""
import os
import re
import sys

from check_tree import tracked_files

OP_DIFF, OP_FILES = "docs/extending/op.diff", 5
CMAKE_LINES, OTHER_PROJECTS = 1000, ("examples/", "python/")


def lines_of(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as file:
        return file.read().splitlines()


def check(root):
    """All findings."""
    findings = []
    touched = [line for line in lines_of(root, OP_DIFF) if re.match(r"diff --git ", line)]
    if len(touched) > OP_FILES:
        findings.append(f"{OP_DIFF}: touches {len(touched)} files, expected at most {OP_FILES}")
    cmake = [path for path in tracked_files(root) if path.endswith(("CMakeLists.txt", ".cmake")) and not path.startswith(OTHER_PROJECTS)]
    count = sum(len(lines_of(root, path)) for path in cmake)
    if count > CMAKE_LINES:
        findings.append(f"CMakeLists.txt and *.cmake: {count} lines, expected at most {CMAKE_LINES}")
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
