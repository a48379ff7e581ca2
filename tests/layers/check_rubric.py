#!/usr/bin/env python3
"""Measures the sources, prints the numbers and fails where one is worse than its limit.

    check_rubric.py [ROOT] [--list]

--list also prints the longest functions, the headers with few comments and all duplicates. Product sources are the .h,
.cc and .cu files of the layers (cmake/layers.txt) but tests, bench and examples.

- Length of functions: the 95th percentile. A function is a `{` after a parameter list, outside other functions; its
  length counts lines from the first of its signature to the closing brace.
- Comments of headers: lines with a comment (of their own or after code), divided by lines that are not blank; over all
  headers of the product outside tools, and in each layer.
- Test code: lines of C++ in tests divided by lines of product sources. The limit is what the tree has, not a half,
  because most tests are data for a few C++ drivers: rows of op cases, programs and the text they must become, arrays
  that the original computed; tools and whole jobs are tested from outside, in Python. The output counts these, too.
- Duplicates: pairs of places with at least 60 equal tokens in a row (comments and preprocessor lines left out, names
  and literals compared as they are). A longer run is one pair; a run that occurs n times is n - 1 pairs. What is left
  is listed in docs/decisions/0027-code-that-is-shared.md; runs of 100 are counted again.

Cycles between files and between folders are found by check_layers.py. Exit status: 0 clean, 1 a limit is missed, 2 the
tree could not be read.
"""
import bisect
import os
import re
import sys

from check_layers import read_ranks
from check_tree import tracked_files

FUNCTION_P95 = 40
HEADER_COMMENTS = 0.355
HEADER_COMMENTS_LAYER = 0.315
TEST_LINES = 0.255
DUPLICATE_PAIRS = {60: 15, 100: 3}  # tokens of a run: pairs

NOT_PRODUCT = ("tests", "bench", "examples")
CODE = (".h", ".cc", ".cu", ".cuh")
# A comment, a literal (raw strings first), or a preprocessor line: all that is no code, or whose braces do not count.
NO_CODE = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"([^(\s]*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-zA-Z_])\'(?:\\.|[^\'\\\n])+\''
    r"|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.S | re.M)
TOKEN = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'|[A-Za-z_]\w*|\d[\w.\']*|::|->|[^\s\w]')
SCOPE = re.compile(r'^(inline |export )?namespace\b|^extern "|^(template <.*> ?)?(typedef )?(class|struct|union)\b[^()]*$|'
                   r'^(template <.*> ?)?(class|struct)\b.*\b(final|:) ')


def blanked(text, keep_literals):
    """`text` without comments and preprocessor lines, with spaces for literals unless they are kept; same lines."""
    def blank(m):
        found = m.group()
        if found[0] in "\"'R":
            return found if keep_literals else '"' + re.sub(r"[^\n]", " ", found[1:-1]) + '"'
        return re.sub(r"[^\n]", " ", found)
    return NO_CODE.sub(blank, text)


def is_function(head):
    """Whether the code before a `{`, back to the previous statement, is the head of a function."""
    if "(" not in head or SCOPE.match(head) or re.match(r"(enum|return|using)\b", head):
        return False
    depth, plain = 0, re.sub(r"operator ?(\(\)|[^\s(]+)", "operator", head)
    for c in plain:
        depth += (c in "(<") - (c in ")>")
        if c == "=" and depth == 0:
            return False  # an initializer or a lambda that is kept
    return True


def functions(text):
    """(first line, lines) of each function of a source."""
    code = blanked(text, keep_literals=False)
    code = re.sub(r"\b(public|private|protected):", lambda m: " " * len(m.group()), code)
    found, stack, start, parens = [], [], 0, 0  # stack: for each open brace the start of its function, or None
    for m in re.finditer(r"[{}();]", code):
        at, c = m.start(), m.group()
        within = any(s is not None for s in stack)
        if c in "()":
            parens += 1 if c == "(" else -1
        elif c == "{":
            head = " ".join(code[start:at].split())
            body = not within and parens == 0 and at > 0 and code[at - 1] in " \n" and is_function(head)
            stack.append((start + len(code[start:at]) - len(code[start:at].lstrip())) if body else None)
            if body or (not within and parens == 0 and SCOPE.match(head)):
                start = at + 1
        elif c == "}":
            begin = stack.pop() if stack else None
            if begin is not None:
                first = code.count("\n", 0, begin) + 1
                found.append((first, code.count("\n", 0, at) + 2 - first))
            if not within or begin is not None:
                start = at + 1
        elif parens == 0 and not within:
            start = at + 1
    return found


def comment_lines(text):
    """(lines with a comment, lines that are not blank)."""
    count = 0
    marks = set()
    for m in NO_CODE.finditer(text):
        if m.group().startswith(("//", "/*")):
            first = text.count("\n", 0, m.start())
            marks.update(range(first, first + m.group().count("\n") + 1))
    for number, line in enumerate(text.split("\n")):
        if line.strip():
            count += 1
        else:
            marks.discard(number)
    return len(marks), count


def find_duplicates(sources):
    """(tokens, path, line, other path, other line) of each pair of equal runs, the longest first."""
    ids, tokens, lines, starts, paths = {}, [], [], [], []
    for path in sorted(sources):
        starts.append(len(tokens))
        paths.append(path)
        for number, line in enumerate(blanked(sources[path], keep_literals=True).split("\n"), 1):
            for word in TOKEN.findall(line):
                tokens.append(ids.setdefault(word, len(ids) + 1))
                lines.append(number)
        tokens.append(-len(paths))  # ends every run
        lines.append(0)
    n, size, mod = len(tokens), min(DUPLICATE_PAIRS), (1 << 61) - 1
    top, value, seen, covered, found = pow(1000003, size, mod), 0, {}, 0, []
    for end, token in enumerate(tokens):
        value = (value * 1000003 + token - (tokens[end - size] * top if end >= size else 0)) % mod
        begin = end - size + 1
        if begin < 0:
            continue
        earlier = seen.setdefault(value, begin)
        if begin < covered or earlier + size > begin or tokens[earlier:earlier + size] != tokens[begin:end + 1]:
            continue
        length = size
        while begin + length < n and earlier + length < begin and tokens[earlier + length] == tokens[begin + length]:
            length += 1
        covered = begin + length
        where = [(paths[bisect.bisect_right(starts, at) - 1], lines[at]) for at in (earlier, begin)]
        found.append((length, *where[0], *where[1]))
    return sorted(found, key=lambda row: (-row[0], row[1:]))


def read(root, paths):
    texts = {}
    for path in paths:
        with open(os.path.join(root, path), encoding="utf-8") as f:
            texts[path] = f.read()
    return texts


def line_count(texts):
    return sum(t.count("\n") for t in texts.values())


class Report:
    """Prints each number with its limit, and remembers whether one was missed."""

    def __init__(self):
        self.missed = 0

    def number(self, what, value, limit, good):
        self.missed += not good
        print(f"{'ok  ' if good else 'FAIL'} {what}: {value} (limit {limit})")


def check_functions(report, product, listing):
    lengths = sorted((count, path, first) for path, text in product.items() for first, count in functions(text))
    if not lengths:
        return
    p95 = lengths[-(-95 * len(lengths) // 100) - 1][0]
    what = f"lines of a function, 95th percentile of {len(lengths)}, longest {lengths[-1][0]}"
    report.number(what, p95, f"at most {FUNCTION_P95}", p95 <= FUNCTION_P95)
    for count, path, first in reversed(lengths[-20:] if listing else []):
        print(f"    {path}:{first}: {count} lines")


def check_comments(report, headers, listing):
    shares = {}
    for path, text in headers.items():
        counts = comment_lines(text)
        for key in ("", path.split("/")[0]):
            old = shares.get(key, (0, 0))
            shares[key] = (old[0] + counts[0], old[1] + counts[1])
        if listing and counts[0] < HEADER_COMMENTS_LAYER * counts[1]:
            print(f"    {path}: {counts[0]} of {counts[1]} lines have comments")
    for layer, (marked, lines) in sorted(shares.items()):
        limit = HEADER_COMMENTS_LAYER if layer else HEADER_COMMENTS
        what = f"comments of headers, {layer or 'all'}, {marked} of {lines} lines"
        report.number(what, f"{marked / max(lines, 1):.3f}", f"at least {limit}", marked >= limit * lines)


def check_tests(report, root, files, product):
    tests = [p for p in files if p.startswith("tests/")]
    cpp = line_count(read(root, [p for p in tests if p.endswith(CODE)]))
    python = line_count(read(root, [p for p in tests if p.endswith((".py", ".sh"))]))
    golden = line_count(read(root, [p for p in tests if p.endswith((".test", ".txt", ".json", ".expected"))
                                    and not p.endswith("CMakeLists.txt")]))
    data = sum(p.startswith("tests/data/") for p in tests)
    lines = line_count(product)
    what = (f"lines of C++ in tests, {cpp} to {lines} (beside them {python} lines of Python and shell, {golden} lines of "
            f"expected text, {data} files of data)")
    report.number(what, f"{cpp / max(lines, 1):.3f}", f"at least {TEST_LINES}", cpp >= TEST_LINES * lines)


def check_duplicates(report, product, listing):
    found = find_duplicates(product)
    missed = report.missed
    for size, limit in DUPLICATE_PAIRS.items():
        pairs = sum(row[0] >= size for row in found)
        report.number(f"pairs of duplicated runs of {size} tokens", pairs, f"at most {limit}", pairs <= limit)
    for length, path, line, other, other_line in found if listing or report.missed > missed else []:
        print(f"    {path}:{line} = {other}:{other_line}, {length} tokens")


def check(root, listing=False):
    """The number of limits that are missed."""
    layers = [folder for folder in read_ranks(root) if folder not in NOT_PRODUCT]
    if not layers:
        raise OSError(f"{root}: cmake/layers.txt is missing or empty")
    files = tracked_files(root)
    product = read(root, [p for p in files if p.split("/")[0] in layers and p.endswith(CODE)])
    report = Report()
    check_functions(report, product, listing)
    headers = {p: t for p, t in product.items() if p.endswith(".h") and not p.startswith("tools/")}
    check_comments(report, headers, listing)
    check_tests(report, root, files, product)
    check_duplicates(report, product, listing)
    return report.missed


def main():
    words = [a for a in sys.argv[1:] if a != "--list"]
    root = words[0] if words else os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
    try:
        missed = check(root, "--list" in sys.argv)
    except (OSError, ValueError) as e:
        print(f"error: {e}", file=sys.stderr)
        return 2
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
