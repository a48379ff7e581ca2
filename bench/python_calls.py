"""Cost of the Python package: import, and the call of a program with one op.

usage: python_calls.py [--calls N]
"""

import argparse
import subprocess
import sys
import time


def import_seconds():
    code = "import time; t = time.perf_counter(); import millrace; print(time.perf_counter() - t)"
    return min(float(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout)
               for _ in range(5))


def call_seconds(calls):
    import millrace

    program = millrace.Program()
    program.root.add_var("x", "f32", (1,))
    program.root.add_op("scale", {"X": "x"}, {"Out": "x"}, {"scale": 1.0})
    prepared = millrace.Executor().prepare(program, millrace.Scope())
    import numpy

    feeds = {"x": numpy.zeros(1, "float32")}
    best = float("inf")
    for _ in range(5):
        begin = time.perf_counter()
        for _ in range(calls):
            prepared.run(feeds, ["x"])
        best = min(best, (time.perf_counter() - begin) / calls)
    return best


def main():
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--calls", type=int, default=20000)
    args = flags.parse_args()
    print(f"import millrace            {import_seconds() * 1e3:7.1f} ms")
    print(f"a call, one feed, one op   {call_seconds(args.calls) * 1e6:7.2f} us")


if __name__ == "__main__":
    main()
