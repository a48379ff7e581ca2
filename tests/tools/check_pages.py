"""Pages of a large program: `inspect-program --format html` and `diff-program --format html` with a chain of `scale` ops.

usage: check_pages.py [--bin FOLDER] [--ops 10000] [--seconds 2]

Each page is written within --seconds of processor time. The page of the program has a row for each op and var, and its
search finds the right rows: its script is run by node (left out, and said so, where node is not installed). The page of
the comparison names the one changed op, with both values side by side.
"""

import argparse
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile

DIFFERENT = 1  # exit status of diff-program
SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "search_page.mjs")


def chain(ops, changed=None):
    lines = ["# millrace program 1", "block 0 {"]
    lines += [f"  var x{i}: f32(-1, 2)" for i in range(ops + 1)]
    lines += [f"  scale X=x{i} -> Out=x{i + 1} {{scale: {3.0 if i == changed else 2.0}}}" for i in range(ops)]
    return "\n".join(lines) + "\n}\n"


def run(command, status=0):
    """Standard output, and seconds of processor time: other work on the machine does not count."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != status:
        raise AssertionError(f"{' '.join(command)}: exit {done.returncode}, expected {status}: {done.stderr}")
    return done.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def equal(what, found, expected):
    if found != expected:
        raise AssertionError(f"{what}: expected {expected}, found {found}")


def check_time(what, seconds, limit):
    print(f"{what}: {seconds:.2f} s")
    if seconds > limit:
        raise AssertionError(f"{what}: expected at most {limit} s, found {seconds:.2f} s")


def check_program_page(args, folder, first):
    page = os.path.join(folder, "page.html")
    seconds = run([f"{args.bin}/inspect-program", first, "--format", "html", "-o", page])[1]
    check_time(f"page of {args.ops} ops", seconds, args.seconds)
    with open(page, encoding="utf-8") as file:
        text = file.read()
    equal("rows of ops", len(re.findall(r"<tr data-row=", text)), args.ops)
    rows = args.ops + args.ops + 1
    node = shutil.which("node")
    if node is None:
        print("search of the page: left out, node is not installed")
        return
    last = f"x{args.ops}"
    # The last var has a row of its own and is the output of the last op; no other name contains its name.
    for words, shown in ((last, f"2 of {rows} rows"), (f"scale {last}", f"1 of {rows} rows"),
                         ("nothing-has-this", f"0 of {rows} rows"), ("", "")):
        output, seconds = run([node, SCRIPT, page, words])
        equal(f"search for '{words}'", output.strip(), shown)
    check_time("search of the page, with node's start", seconds, args.seconds)


def check_comparison(args, folder, first):
    second = os.path.join(folder, "second.txt")
    changed = args.ops // 2
    with open(second, "w", encoding="utf-8") as file:
        file.write(chain(args.ops, changed))
    page, seconds = run([f"{args.bin}/diff-program", first, second, "--format", "html"], DIFFERENT)
    check_time(f"comparison of 2 x {args.ops} ops", seconds, args.seconds)
    rows = re.findall(r"<tr>(<td.*?)</tr>", page)
    cells = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in rows]
    equal("rows of the comparison", cells, [["0", str(changed), "scale", "attr scale", "2.0", "3.0"]])


def main():
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--bin", default=os.environ.get("MILLRACE_BIN_DIR", "build/ci/tools"))
    flags.add_argument("--ops", type=int, default=10000)
    flags.add_argument("--seconds", type=float, default=2.0)
    args = flags.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        first = os.path.join(folder, "first.txt")
        with open(first, "w", encoding="utf-8") as file:
            file.write(chain(args.ops))
        checks = (check_program_page, check_comparison)
        failed = 0
        for check in checks:
            try:
                check(args, folder, first)
            except AssertionError as error:
                failed += 1
                print(f"{check.__name__}: {error}")
    print(f"{len(checks) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
