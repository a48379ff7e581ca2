#!/usr/bin/env python3
"""Runs clang-tidy over the sources of one build folder and caches clean results.

    tidy.py BUILD_DIR [--jobs N] [--minutes M] [PATH_PREFIX ...]

A source is checked again only if it, a header of the tree that it includes, its flags or .clang-tidy changed (the
user's cache folder holds one empty file for each clean state, shared by all clones). With --minutes no new source is
started after that time; the number of sources that were not reached is printed. Prints the findings, then "N passed, N
failed". Exit status: 0 all clean, 1 findings, 2 nothing to check.
"""
import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

ROOT = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.M)


def read(path):
    with open(path, "rb") as f:
        return f.read()


def closure(path, seen):
    """Adds `path` and all headers of the tree that it includes, directly or not, to `seen` (path -> bytes)."""
    if path in seen or not os.path.isfile(path):
        return seen
    seen[path] = read(path)
    for name in INCLUDE.findall(seen[path].decode(errors="replace")):
        closure(os.path.join(ROOT, name), seen)
    return seen


def state_of(entry, salt):
    """Hash of everything that the findings of one source depend on, except system headers."""
    digest = hashlib.sha256(salt + entry["command"].replace(ROOT, ".").encode())
    for path, data in sorted(closure(entry["file"], {}).items()):
        digest.update(os.path.relpath(path, ROOT).encode() + b"\0" + hashlib.sha256(data).digest())
    return digest.hexdigest()


def tidy(entry, build, cache, salt, end):
    """(source, findings): findings are empty if clean, None if there was no time left."""
    mark = os.path.join(cache, state_of(entry, salt))
    if os.path.exists(mark):
        return entry["file"], ""
    if time.monotonic() > end:
        return entry["file"], None
    run = subprocess.run(["clang-tidy", "-p", build, "--quiet", entry["file"]], capture_output=True, text=True)
    if run.returncode == 0 and "Error parsing" not in run.stderr:
        open(mark, "w").close()
        return entry["file"], ""
    return entry["file"], run.stdout + run.stderr


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("prefixes", nargs="*")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--minutes", type=float, default=float("inf"))
    args = parser.parse_intermixed_args()
    with open(os.path.join(args.build, "compile_commands.json"), encoding="utf-8") as f:
        entries = {e["file"]: e for e in json.load(f)}  # one entry per file
    wanted = tuple(os.path.join(ROOT, p) for p in args.prefixes) or (ROOT + "/",)
    generated = os.path.realpath(args.build) + "/"
    chosen = [e for p, e in sorted(entries.items()) if p.startswith(wanted) and not p.startswith(generated)]
    if not chosen:
        print("tidy.py: no source to check", file=sys.stderr)
        return 2
    cache = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "millrace-tidy")
    end = time.monotonic() + 60 * args.minutes
    os.makedirs(cache, exist_ok=True)
    version = subprocess.run(["clang-tidy", "--version"], capture_output=True, check=True).stdout
    salt = version + read(os.path.join(ROOT, ".clang-tidy"))
    failed = unreached = 0
    with ThreadPoolExecutor(args.jobs) as pool:
        for path, findings in pool.map(lambda e: tidy(e, args.build, cache, salt, end), chosen):
            if findings is None:
                unreached += 1
            elif findings:
                failed += 1
                print(f"== {os.path.relpath(path, ROOT)}\n{findings}", flush=True)
    if unreached:
        print(f"{unreached} of {len(chosen)} sources were not reached in {args.minutes:g} minutes")
    print(f"{len(chosen) - failed - unreached} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
