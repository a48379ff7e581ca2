#!/usr/bin/env python3
"""Finds wording that a new reader stumbles over, and names the plain word (CONTRIBUTING.md, "Plain English").

    check_words.py [ROOT]

Looks at comments of C++ and Python sources and at the prose of Markdown pages (not at code, strings, code blocks or `code`).
Exit status: 0 clean, 1 findings (one line each).
"""
import os
import re
import sys

from check_tree import CODE, tracked_files

# what to avoid, and what to write
WORDS = [
    (r"\banew\b", "again, from scratch; of checkpoints: reshard"),
    (r"\bbehind (a|an|the|this|that|each|every|it|them)\b", "after; one past the end"),
    (r"\bso many\b", "that many"),
    (r"\b(nobody|somebody|whoever)\b", "no caller, the caller, any thread, no op"),
    (r"\bat home\b", "say where it is defined or runs"),
    (r"\b(is|are|was|were) told\b", "is notified, is reported, a warning is logged"),
    (r"\bstands? (in|at|for|beside|twice|there)\b", "is in, is listed, means"),
    (r"\bcomes? to no\b", "no longer takes part in"),
    (r"\bfrom then on\b", "afterwards"),
    (r"\bwithout a word\b", "silently"),
    (r"\btak(es?|en) (up|down)\b", "loads; records"),
    (r"\bmend(s|ed|ing)?\b", "fix"),
    (r"\bthe net alone\b", "the bare network"),
]
PATTERNS = [(re.compile(pattern, re.I), advice) for pattern, advice in WORDS]
EXEMPT = ("CONTRIBUTING.md", "tests/layers/check_words.py", "tests/layers/check_words_test.py")


def cpp_comments(lines):
    """(number, text) of each comment; `//` within a string literal is none."""
    for number, line in enumerate(lines, 1):
        plain = re.sub(r'"(\\.|[^"\\])*"', lambda m: " " * len(m.group()), line)
        at = plain.find("//")
        if at >= 0:
            yield number, line[at:]


def python_comments(lines):
    quoted = False
    for number, line in enumerate(lines, 1):
        quotes = line.count('"""')
        if quoted or quotes:
            yield number, line
        elif re.search(r"(^|\s)# ", line):
            yield number, line[line.index("#"):]
        if quotes % 2:
            quoted = not quoted


def prose(lines):
    fenced = False
    for number, line in enumerate(lines, 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced:
            yield number, re.sub(r"`[^`]*`", "", line)


def readers_text(path, lines):
    if path.endswith(CODE):
        return cpp_comments(lines)
    if path.endswith(".py"):
        return python_comments(lines)
    return prose(lines)


def check(root):
    """All findings."""
    findings = []
    for path in tracked_files(root):
        if not path.endswith(CODE + (".py", ".md")) or path in EXEMPT or path.startswith("tests/data/"):
            continue
        with open(os.path.join(root, path), encoding="utf-8") as f:
            lines = f.read().splitlines()
        for number, text in readers_text(path, lines):
            for pattern, advice in PATTERNS:
                found = pattern.search(text)
                if found:
                    findings.append(f"{path}:{number}: '{found.group()}'; write: {advice}")
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
