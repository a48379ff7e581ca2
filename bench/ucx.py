#!/usr/bin/env python3
"""Transfer of values between a trainer and a pserver: calls by TCP and gRPC, and the least that UCX could cost.

    bench/ucx.py --bin-dir build/release [--mb 64] [--rounds 5] [-v]

Compiles bench/ucx_peer.cc and bench/ucx_stranger.cc, which need libucx-dev. In each round ps_wire_bench and every
transport of ucx_peer run once, in turn. Prints a JSON line per measurement and transport: the median time of an
exchange and the least processor time of both processes among the rounds, in microseconds, and both as a share of those
of calls by TCP. Then how long UCX takes to report a process that was killed (null: it does not within 30 s), and whether
a stranger that only knows the port of a UCX worker can write into its process. -v also prints every line of the
programs.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

from json_lines import json_lines

HERE = os.path.dirname(os.path.abspath(__file__))
UCX = ["ucx-tcp", "ucx-shm", "ucx-cma"]
PEERS = [["plain"], ["readv"], *([name] for name in UCX), *([name, "--hand-over"] for name in UCX)]


def lines_of(args, command):
    lines = json_lines(command)
    if args.v:
        print(*map(json.dumps, lines), sep="\n", flush=True)
    return lines


def compiled(name, work):
    """The program of bench/<name>.cc."""
    program = os.path.join(work, name)
    source = os.path.join(HERE, name + ".cc")
    libraries = ["-lucp", "-luct", "-lucs", "-lfmt"]
    done = subprocess.run(["c++", "-O2", "-std=c++20", "-I", os.path.dirname(HERE), source, "-o", program, *libraries], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{source} does not compile; it needs libucx-dev:\n{done.stderr[-2000:]}")
    return program


def median_us(line):
    return line["median"] if line["unit"] == "us" else 1e-3 * (line["mb"] << 20) / line["median"]


def measure(args, peer):
    """Wall and processor times of the rounds, by measurement and transport."""
    times = {}
    ours = [os.path.join(args.bin_dir, "bench/ps_wire_bench")]
    commands = [ours] + [[peer, "--transport", *words] for words in PEERS]
    for _ in range(args.rounds):
        for command in commands:
            for line in lines_of(args, command + ["--mb", str(args.mb), "--runs", str(args.runs), "--calls", str(args.calls)]):
                times.setdefault((line["name"], line["transport"]), []).append((median_us(line), line["processor_us"]))
    return {key: (statistics.median(wall for wall, _ in rounds), min(processor for _, processor in rounds)) for key, rounds in times.items()}


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--bin-dir", required=True)
    ap.add_argument("--mb", type=int, default=64)
    ap.add_argument("--rounds", type=int, default=5)
    ap.add_argument("--runs", type=int, default=7, help="transfers of the value in a round")
    ap.add_argument("--calls", type=int, default=2000, help="rows in a round")
    ap.add_argument("-v", action="store_true")
    args = ap.parse_args()
    with tempfile.TemporaryDirectory(prefix="millrace_ucx_bench") as work:
        peer, stranger = compiled("ucx_peer", work), compiled("ucx_stranger", work)
        times = measure(args, peer)
        for (name, transport), (wall, processor) in sorted(times.items()):
            tcp_wall, tcp_processor = times[name, "tcp"]
            print(json.dumps({"name": name, "transport": transport, "mb": args.mb, "median_us": round(wall, 1), "processor_us": round(processor, 1),
                              "median_to_tcp": round(wall / tcp_wall, 3), "processor_to_tcp": round(processor / tcp_processor, 3),
                              "load_average": round(os.getloadavg()[0], 1)}), flush=True)
        for name in UCX:
            print(*map(json.dumps, lines_of(args, [peer, "--transport", name, "--lost"])))
        print(*map(json.dumps, lines_of(args, [stranger])))


if __name__ == "__main__":
    main()
