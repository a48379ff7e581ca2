#!/usr/bin/env python3
"""Compares the symbols that installed libraries export with a stored list.

    check_symbols.py LIBRARY_FOLDER [--write]

Looks at functions that the installed headers (cmake/public_headers.txt) declare, in libmillrace_transpiler.so,
libmillrace_runtime.so and libmillrace_distributed.so. A program that was linked with an earlier build needs each of
them with the same arguments. The list is symbols.txt next to this script; --write writes it, after a change of the
interface that the CHANGELOG mentions. Exit status: 0 equal, 1 a symbol is missing from a library or from the list (one
line each), 2 the libraries could not be read.
"""
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "../..")
LIST = os.path.join(HERE, "symbols.txt")
LIBRARIES = ("transpiler", "runtime", "distributed")
NO_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*', re.S | re.M)
OPEN = re.compile(r'namespace ([\w:]+) \{|(?:class|struct)(?: \[\[nodiscard\]\])? (\w+)(?: final)?(?: : [^{;]*)? \{|\{|\}|(operator\W{1,3}|~?\w+)\(')


def declared(text):
    """Qualified names of what a header declares with parentheses: "a::B::f"; also of macros' arguments and calls."""
    names, stack = set(), []
    for m in OPEN.finditer(NO_CODE.sub("", text)):
        if m[1] or m[2]:
            stack.append(m[1] or m[2])
        elif m[3]:
            names.add("::".join([s for s in stack if s] + [m[3]]))
        elif m[0] == "{":
            stack.append("")
        elif stack:
            stack.pop()
    return names


def public_names(root):
    with open(os.path.join(root, "cmake/public_headers.txt"), encoding="utf-8") as file:
        headers = [line.strip() for line in file if line.strip() and not line.startswith("#")]
    names = set()
    for header in headers:
        with open(os.path.join(root, header), encoding="utf-8") as file:
            names |= declared(file.read())
    return names


def name_of(symbol):
    """ "a::B::f" of "a::B::f(int) const"."""
    return re.sub(r"\[abi:\w+\]", "", symbol.split("(")[0])


def exported(library, names):
    done = subprocess.run(["nm", "-DC", "--defined-only", library], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(done.stderr.strip())
    found = set()
    for line in done.stdout.splitlines():
        _, kind, symbol = line.split(" ", 2)
        # other kinds are templates and inline functions, which a program may compile itself
        if kind == "T" and name_of(re.sub(r"@@.*", "", symbol)) in names:
            found.add(symbol)
    return found


def read_list(path):
    stored = {name: set() for name in LIBRARIES}
    with open(path, encoding="utf-8") as file:
        for line in file:
            if not line.startswith("#"):
                library, symbol = line.rstrip("\n").split(" ", 1)
                stored[library].add(symbol)
    return stored


def compare(stored, found):
    """Lines that say what differs."""
    for library in LIBRARIES:
        for symbol in sorted(stored[library] - found[library]):
            yield f"libmillrace_{library}.so: missing: {symbol}"
        for symbol in sorted(found[library] - stored[library]):
            yield f"libmillrace_{library}.so: not in tests/api/symbols.txt (check_symbols.py --write): {symbol}"


def main():
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        names = public_names(ROOT)
        found = {n: exported(os.path.join(sys.argv[1], f"libmillrace_{n}.so"), names) for n in LIBRARIES}
        if "--write" in sys.argv:
            with open(LIST, "w", encoding="utf-8") as file:
                file.write("# Functions of the installed headers, by library: check_symbols.py compares, --write writes.\n")
                file.writelines(f"{n} {symbol}\n" for n in LIBRARIES for symbol in sorted(found[n]))
        findings = list(compare(read_list(LIST), found))
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for line in findings:
        print(line)
    print(f"{sum(len(f) for f in found.values())} symbols, {len(findings)} findings", file=sys.stderr)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
