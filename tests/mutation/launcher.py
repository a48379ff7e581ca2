"""Compiler launcher of mutation builds: sources with mutants are compiled without warnings; all others unchanged, so
that the
compiler cache has them.

    launcher.py SOURCE_ROOT COMPILER ARGUMENT...
"""
import os
import re
import shutil
import sys

MARK = "millrace_mutant("


def has_mutants(path):
    """Whether a source, or one that a unity source includes, has mutants."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError):
        return False
    return MARK in text or any(has_mutants(inner) for inner in re.findall(r'^#include "([^"]+\.cc)"', text, re.M))


def main():
    root, *command = sys.argv[1:]
    sources = [a for a in command if a.endswith((".cc", ".cxx")) and os.path.exists(a)]
    if any(has_mutants(source) for source in sources):
        command.append("-w")
    ccache = shutil.which("ccache")
    if ccache:
        os.environ.update(CCACHE_BASEDIR=root, CCACHE_NOHASHDIR="1")
        command.insert(0, ccache)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
