#!/usr/bin/env python3
"""Cost of an op and growth with the number of ops: chains of `scale` on one value, of 1,000 and 10,000 ops.

    growth.py --bin-dir build/release [--small 1000] [--large 10000] [--rounds 15] [--write docs/performance.md]

The script writes the programs in the text form. Prints one JSON line per chain: load (file to verified program), plan
(compilation and the memory of the first run), step, resident memory; medians of the rounds, in which both chains
alternate. Exit status: 0, or 1 if a limit of performance_goals.md is missed: 100 ns per op (G3); load and plan of the
large chain at most 1.2 times as much per op as of the small one, 0.3 s, and 2 KB of memory per op in addition to the
program, whose memory is that of inspect-program --verify (G4).
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

from page import write_table

KEYS = ("load_ms", "plan_ms", "step_us", "rss_mb")


def chain(ops):
    lines = ["# millrace program 1", "block 0 {"]
    lines += [f"  var x{i}: f32(1)" for i in range(ops + 1)]
    lines += [f"  scale X=x{i} -> Out=x{i + 1} {{scale: 1.0, bias: 0.5, bias_after_scale: true}}" for i in range(ops)]
    return "\n".join(lines + ["}", ""])


def peak_mb(command):
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{command[0]}: exit {process.returncode}")
    return usage.ru_maxrss / 1024


def prepare(args, work, ops):
    """Writes a chain. Returns the facts that do not depend on the run."""
    text, binary = os.path.join(work, f"{ops}.txt"), os.path.join(work, f"{ops}.pb")
    with open(text, "w", encoding="utf-8") as file:
        file.write(chain(ops))
    tools = os.path.join(args.bin_dir, "tools")
    subprocess.run([os.path.join(tools, "transpile-program"), "--program", text, "--passes", "", "--force", "-q", "--format", "pb", "-o", binary],
                   check=True)
    program_mb = peak_mb([os.path.join(tools, "inspect-program"), binary, "--verify"])
    return {"ops": ops, "file_bytes": os.path.getsize(binary), "program_mb": round(program_mb, 2)}


def run(args, work, ops):
    done = subprocess.run([os.path.join(args.bin_dir, "tools", "run-program"), "--program", os.path.join(work, f"{ops}.pb"), "--feed",
                           os.path.join(work, "x.npz"), "--fetch", f"x{ops}", "--benchmark", "200", "--threads", "1"],
                          capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr.strip())
    row = json.loads(done.stdout)
    return {"load_ms": row["load_ms"], "plan_ms": row["plan_ms"], "step_us": row["ms"]["p50"] * 1000, "rss_mb": row["peak_rss_mb"]}


def measure(args, work):
    """A row for each chain."""
    sizes = (args.small, args.large)
    rows = [prepare(args, work, ops) for ops in sizes]
    runs = [[run(args, work, ops) for ops in sizes] for _ in range(args.rounds)]
    for k, row in enumerate(rows):
        row.update({key: round(statistics.median(r[k][key] for r in runs), 2) for key in KEYS})
    return rows


def missed(small, large):
    ops, found = large["ops"], []
    grown = (large["load_ms"] + large["plan_ms"]) / (small["load_ms"] + small["plan_ms"]) / (ops / small["ops"])
    if grown > 1.2:
        found.append(f"load and plan grow {grown:.2f} times as fast as the ops")
    if large["load_ms"] + large["plan_ms"] > 300:
        found.append(f"load and plan take {large['load_ms'] + large['plan_ms']:.0f} ms")
    beyond = (large["rss_mb"] - small["rss_mb"] - large["program_mb"] + small["program_mb"]) * 2**20 / (ops - small["ops"])
    if beyond > 2000:
        found.append(f"{beyond:.0f} bytes per op in addition to the program")
    for row in (small, large):
        if row["step_us"] * 1000 / row["ops"] > 100:
            found.append(f"{row['step_us'] * 1000 / row['ops']:.0f} ns per op")
    return found


def table(rows):
    lines = ["| ops | file KB | load ms | plan ms | step us | ns an op | peak MiB | program alone |", "|" + "---|" * 8]
    for row in rows:
        lines.append(f"| {row['ops']} | {row['file_bytes'] / 1000:.0f} | {row['load_ms']} | {row['plan_ms']} | {row['step_us']:.0f} | "
                     f"{row['step_us'] * 1000 / row['ops']:.0f} | {row['rss_mb']:.1f} | {row['program_mb']:.1f} |")
    return "\n".join(lines)


def write_feed(path):
    import io
    import struct
    import zipfile
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }"
    header += b" " * (63 - (10 + len(header)) % 64) + b"\n"
    array = io.BytesIO(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + struct.pack("<f", 1.0))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x0.npy", array.getvalue())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin-dir", default="build/release")
    parser.add_argument("--small", type=int, default=1000)
    parser.add_argument("--large", type=int, default=10000)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--write")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        write_feed(os.path.join(work, "x.npz"))
        rows = measure(args, work)
    for row in rows:
        print(json.dumps(row))
    text = table(rows)
    if args.write:
        write_table(args.write, "growth", text)
    failures = missed(*rows)
    for line in failures:
        print(f"missed: {line}", file=sys.stderr)
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
