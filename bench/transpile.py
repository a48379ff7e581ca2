#!/usr/bin/env python3
"""Times transpile-program from files to files, and its stages, over programs of growing size.

    transpile.py --bin-dir build/release [--data ../shared/bench/data] [--servers 2,16,64,256] [--rounds 5]
                 [--write docs/performance.md] [--check]

For each program and number of servers: wall and processor time and peak memory of transpile-program with two trainers,
everything verified and written, median of the rounds (wall also the best); and the stages inside one process
(bench/transpile_bench), compared with protobuf, which parses and serializes the same bytes in the same run. Prints one
JSON line per case; with --write also the table between the markers of the document. --check runs the smallest case once
and checks only exit codes. Exit status: 0, or 1 if a run failed or a limit of performance_goals.md was missed.
"""
import argparse
import gzip
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from page import write_table

LIMITS = {("fc_10k", 16): 600.0, ("fc_100k", 16): 6000.0}  # wall ms, goal G5
LIMITS_MIB = {("fc_100k", 16): 2048}


def unpack(source, target):
    opener = gzip.open if source.endswith(".gz") else open
    with opener(source, "rb") as src, open(target, "wb") as out:
        shutil.copyfileobj(src, out)
    return target


def inputs(data, work):
    """name -> (main, startup)"""
    found = {}
    for name in ("fc_2k", "tr_2k", "fc_5k", "fc_10k"):
        pair = []
        for part in ("main", "startup"):
            for ending in (".pb", ".pb.gz"):
                path = os.path.join(data, f"{name}_{part}{ending}")
                if os.path.exists(path):
                    pair.append(unpack(path, os.path.join(work, f"{name}_{part}.pb")))
        if len(pair) == 2:
            found[name] = tuple(pair)
    return found


def run_tool(tool, main, startup, servers, out):
    endpoints = ",".join(f"127.0.0.1:{6000 + i}" for i in range(servers))
    begin = time.perf_counter()
    p = subprocess.Popen([tool, "--program", main, "--startup", startup, "--pservers", endpoints, "--trainers", "2",
                          "--trainer-id", "all", "-q", "-o", out])
    _, status, usage = os.wait4(p.pid, 0)
    wall = (time.perf_counter() - begin) * 1000
    p.returncode = os.waitstatus_to_exitcode(status)
    if p.returncode != 0:
        sys.exit(f"transpile-program: exit {p.returncode}")
    return wall, (usage.ru_utime + usage.ru_stime) * 1000, usage.ru_maxrss / 1024


def stages(bench, arguments, servers, rounds):
    p = subprocess.run([bench, *arguments, "--servers", str(servers), "--runs", str(rounds)], capture_output=True, text=True)
    if p.returncode != 0:
        sys.exit(f"transpile_bench: exit {p.returncode}: {p.stderr.strip()[:500]}")
    return json.loads(p.stdout)


def measure(tool, bench, name, pair, generate, servers, rounds):
    with tempfile.TemporaryDirectory() as work:
        runs = [run_tool(tool, *pair, servers, os.path.join(work, str(i))) for i in range(rounds)]
    inner = stages(bench, ["--generate", str(generate)] if generate else list(pair), servers, rounds)
    row = {"name": "transpile-program", "program": name, "ops": inner["ops"], "servers": servers, "trainers": 2, "unit": "ms",
           "wall": round(statistics.median(r[0] for r in runs), 1), "best": round(min(r[0] for r in runs), 1),
           "cpu": round(statistics.median(r[1] for r in runs), 1), "peak_mib": round(max(r[2] for r in runs)),
           "runs": rounds, **{k: inner[k] for k in ("import", "verify", "transpile", "export", "protobuf_parse_serialize",
                                                    "bytes_in", "bytes_out")}}
    row["limit"], row["limit_mib"] = LIMITS.get((name, servers)), LIMITS_MIB.get((name, servers))
    print(json.dumps(row), flush=True)
    return row


def table(rows):
    head = ["program", "ops", "servers", "wall ms", "best", "cpu ms", "peak MiB", "import", "verify", "transpile", "export",
            "protobuf", "MB out", "limit"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for r in rows:
        cells = [r["program"], r["ops"], r["servers"], r["wall"], r["best"], r["cpu"], r["peak_mib"], r["import"], r["verify"], r["transpile"],
                 r["export"], r["protobuf_parse_serialize"], round(r["bytes_out"] / 1e6, 1), r["limit"] or ""]
        lines.append("| " + " | ".join(str(c) for c in cells) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin-dir", required=True)
    parser.add_argument("--data", default="../shared/bench/data")
    parser.add_argument("--servers", default="2,16,64,256")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--write")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    tool = os.path.join(args.bin_dir, "tools/transpile-program")
    bench = os.path.join(args.bin_dir, "bench/transpile_bench")
    servers = [2] if args.check else [int(s) for s in args.servers.split(",")]
    rounds = 1 if args.check else args.rounds
    rows = []
    with tempfile.TemporaryDirectory() as work:
        cases = [(name, pair, 0) for name, pair in inputs(args.data, work).items()]
        if args.check:
            cases = cases[:1]
        else:
            made = [os.path.join(work, n) for n in ("fc_100k_main.pb", "fc_100k_startup.pb")]
            subprocess.run([bench, "--generate", "100000", "--save", *made], check=True)
            cases.append(("fc_100k", tuple(made), 100000))
        for name, pair, generate in cases:
            rows += [measure(tool, bench, name, pair, generate, s, rounds) for s in servers]
    if args.write:
        write_table(args.write, "transpile", table(rows))
    missed = [r for r in rows if r["wall"] > (r["limit"] or r["wall"]) or r["peak_mib"] > (r["limit_mib"] or r["peak_mib"])]
    for r in missed:
        print(f"limit missed: {r['program']} with {r['servers']} servers took {r['wall']} ms of {r['limit']} and "
              f"{r['peak_mib']} MiB of {r['limit_mib'] or 'any'}", file=sys.stderr)
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
