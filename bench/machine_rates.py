#!/usr/bin/env python3
"""Measures what the floor of a step is made of on this machine, and writes it as JSON: the fastest rate of float products that any
library reaches on one thread, and the rate of memory.

    machine_rates.py --bin-dir build/release [--cpu-isa NAME] [--torch PYTHON] [--output FILE]

Products: oneDNN and our own (product_bench), OpenBLAS (numpy of this Python), MKL (torch of --torch), over shapes of the nets. Memory:
bytes read and written by copying 256 MiB. Best of several rounds, so that other programs on the machine do not lower a floor.
With --cpu-isa the rate is that of product_bench, as the libraries of the peers take no such limit.
"""
import argparse
import json
import os
import subprocess
import sys
import time

SHAPES = [(1024, 1024, 1024), (64, 512, 784), (512, 400, 429), (1024, 768, 768), (1024, 3072, 768)]
OPENBLAS = """
import time, sys, json
import numpy as np
best = 0
for m, n, k in json.loads(sys.argv[1]):
    a, b = np.random.rand(m, k).astype("f4"), np.random.rand(k, n).astype("f4")
    out = np.empty((m, n), "f4")
    repeats = max(1, int(2e8 / (m * n * k)))
    for _ in range(7):
        start = time.perf_counter()
        for _ in range(repeats):
            np.dot(a, b, out)
        best = max(best, 2e-9 * m * n * k * repeats / (time.perf_counter() - start))
print(best)
"""
MKL = """
import torch
torch.set_num_threads(1)
np_dot = lambda a, b, out: torch.mm(a, b, out=out)
""" + OPENBLAS.replace('np.random.rand(m, k).astype("f4"), np.random.rand(k, n).astype("f4")', "torch.rand(m, k), torch.rand(k, n)").replace(
    'np.empty((m, n), "f4")', "torch.empty(m, n)").replace("np.dot(", "np_dot(")


def processor():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        lines = dict(line.split(":", 1) for line in file.read().split("\n\n")[0].splitlines())
    facts = {key.strip(): value.strip() for key, value in lines.items()}
    flags = set(facts.get("flags", "").split())
    kinds = [name for name, flag in (("AVX2", "avx2"), ("AVX-512", "avx512f"), ("VNNI", "avx512_vnni"), ("AMX", "amx_tile")) if flag in flags]
    return f"{facts.get('model name', 'unknown')} (family {facts.get('cpu family')}, model {facts.get('model')}; {', '.join(kinds)})"


def of_library(python, program):
    env = dict(os.environ, OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1", OMP_NUM_THREADS="1")
    done = subprocess.run([python, "-c", program, json.dumps(SHAPES)], capture_output=True, text=True, env=env)
    if done.returncode:
        sys.exit(f"machine_rates.py: {python}: {done.stderr.strip()[-300:]}")
    return float(done.stdout)


def of_ours(args):
    command = [os.path.join(args.bin_dir, "bench/product_bench")]
    for rows, columns, inner in SHAPES:
        command += ["--shape", f"{rows}x{columns}x{inner}"]
    if args.cpu_isa:
        command += ["--cpu-isa", args.cpu_isa]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"machine_rates.py: product_bench: {done.stderr.strip()}")
    return max(json.loads(line)["gflops"] for line in done.stdout.splitlines())


def of_memory():
    import numpy as np
    source = np.ones(1 << 26, "f4")
    target = np.zeros_like(source)
    best = 0
    for _ in range(9):
        start = time.perf_counter()
        np.copyto(target, source)
        best = max(best, 2e-9 * source.nbytes / (time.perf_counter() - start))
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin-dir", default="build/release")
    parser.add_argument("--cpu-isa")
    parser.add_argument("--torch", help="Python that has torch")
    parser.add_argument("--output")
    args = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    rates = {"oneDNN and our own": of_ours(args)}
    if not args.cpu_isa:
        rates["OpenBLAS"] = of_library(sys.executable, OPENBLAS)
        if args.torch:
            rates["MKL"] = of_library(args.torch, MKL)
    text = json.dumps({"processor": processor(), "cpu_isa": args.cpu_isa, "products_gflops": {k: round(v, 1) for k, v in rates.items()},
                       "gflops": round(max(rates.values()), 1), "memory_gb_per_s": round(of_memory(), 1)})
    print(text)
    if args.output:
        with open(args.output, "w", encoding="utf-8") as file:
            file.write(text + "\n")


if __name__ == "__main__":
    main()
