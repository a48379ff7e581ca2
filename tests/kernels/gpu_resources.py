#!/usr/bin/env python3
"""What the CUDA compiler needs for each of millrace's GPU kernels, and limits for it.

    gpu_resources.py --nvcc NVCC --source kernels/gpu/cuda/launch.cu [--arch sm_90,sm_100] [-v]

Compiles the kernels to machine code for each architecture. No kernel may spill registers or use a stack frame, which
are slow memory; registers and shared memory are limited so that enough threads fit into a multiprocessor. -v prints a
line per kernel. Exit status: 0 within limits, 1 not, 77 the compiler does not know the architecture.
"""
import argparse
import concurrent.futures
import os
import re
import subprocess
import sys
import tempfile

# A kernel with 512 threads can have 128 registers a thread, one with 256 threads 255.
REGISTERS = {"run_rows": 96, "run_lanes": 96, "run_each": 96}
# sin, cos and tan of large numbers use a table on the stack.
ON_THE_STACK = re.compile(r"(Sin|Cos|Tan)E")
STACK_BYTES = 40
SHARED_BYTES = 16 * 1024
ENTRY = re.compile(r"Compiling entry function '(\S+)'")
FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers(?:.*?(\d+) bytes smem)?")


def kernels(text):
    """(name, frame, spills, registers, shared bytes) of each kernel in what the compiler prints."""
    found, name, frame, spills = [], None, 0, 0
    for line in text.splitlines():
        if match := ENTRY.search(line):
            name = match[1]
        elif match := FRAME.search(line):
            frame, spills = int(match[1]), int(match[2]) + int(match[3])
        elif (match := USED.search(line)) and name:
            found.append((name, frame, spills, int(match[1]), int(match[2] or 0)))
            name = None
    return found


def problems(kernel):
    name, frame, spills, registers, shared = kernel
    most = next((limit for kind, limit in REGISTERS.items() if kind in name), None)
    if most is None:
        yield f"is of no known kind ({', '.join(REGISTERS)})"
    elif registers > most:
        yield f"uses {registers} registers, limit {most}"
    if spills or frame > (STACK_BYTES if ON_THE_STACK.search(name) else 0):
        yield f"has a stack frame of {frame} bytes and spills {spills} bytes"
    if shared > SHARED_BYTES:
        yield f"uses {shared} bytes of shared memory, limit {SHARED_BYTES}"


def compiled(nvcc, source, arch):
    with tempfile.TemporaryDirectory() as work:
        command = [nvcc, "-std=c++20", "--expt-relaxed-constexpr", "-O3", "--fmad=false", "-I.", f"-arch={arch}", "-cubin", "--resource-usage",
                   "-o", os.path.join(work, "kernels.cubin"), source]
        return subprocess.run(command, capture_output=True, text=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nvcc", required=True)
    parser.add_argument("--source", required=True)
    parser.add_argument("--arch", default="sm_90,sm_100")
    parser.add_argument("-v", action="store_true")
    args = parser.parse_args()
    bad = 0
    archs = args.arch.split(",")
    with concurrent.futures.ThreadPoolExecutor() as pool:
        results = list(pool.map(lambda arch: compiled(args.nvcc, args.source, arch), archs))
    for arch, done in zip(archs, results):
        said = done.stdout + done.stderr
        if done.returncode:
            print(f"{arch}: {said.strip()[-400:]}")
            return 77 if "Unsupported gpu architecture" in said else 1
        found = kernels(said)
        if not found:
            print(f"{arch}: the compiler named no kernel")
            return 1
        for kernel in found:
            if args.v:
                print(arch, *kernel)
            for problem in problems(kernel):
                print(f"{arch}: {kernel[0]} {problem}")
                bad += 1
        print(f"{arch}: {len(found)} kernels, at most {max(k[3] for k in found)} registers, {max(k[4] for k in found)} bytes of shared memory")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
