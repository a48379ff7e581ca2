#!/usr/bin/env python3
"""Fails if a reference checker passes fewer cases than the recorded floor.

    ratchet.py NAME FLOORS.json -- CHECKER... (is run with --json FILE or prints its result as JSON)

FLOORS.json: {"NAME": passed cases}. Cases above the floor count as passed; raise the floor then. The last line is "N
passed, M failed"; M is the number of cases missing to the floor.
"""
import json
import subprocess
import sys
import tempfile


def passed_of(result):
    total = result.get("total")
    return total["passed"] if isinstance(total, dict) else result["passed"]


def main():
    name, floors_path = sys.argv[1:3]
    command = sys.argv[sys.argv.index("--") + 1:]
    with open(floors_path, encoding="utf-8") as file:
        floor = json.load(file)[name]
    with tempfile.NamedTemporaryFile("r", suffix=".json") as out:
        to_file = "{json}" in command
        done = subprocess.run([out.name if word == "{json}" else word for word in command], capture_output=True, text=True)
        text = out.read() if to_file else done.stdout
    try:
        passed = passed_of(json.loads(text))
    except (ValueError, KeyError):
        print(done.stdout[-2000:], done.stderr[-2000:], sep="\n")
        print("no result of the checker")
        return 1
    print(f"{name}: {passed} cases pass, the floor is {floor}" + ("; raise it" if passed > floor else ""))
    missing = max(0, floor - passed)
    if missing:
        print("\n".join(line for line in done.stdout.splitlines()[-400:] if "FAIL" in line or line.startswith(" "))[-6000:])
    print(f"{passed} passed, {missing} failed")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
