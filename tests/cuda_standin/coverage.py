#!/usr/bin/env python3
"""Lines of kernels/gpu that the tests without a GPU execute, by gcov.

    coverage.py [--shared DIR] [--build build/coverage] [--jobs N] [--again]

Builds with counters for kernels/gpu in a folder of its own, runs the tests of the stand-in and of the emulated device,
then programs and operators of --shared if it exists, and prints for each source the share of its lines and those that
were not executed. --again only repeats the report. Needs gcov; takes minutes.
"""
import argparse
import collections
import glob
import gzip
import json
import os
import stat
import subprocess
import sys
import tempfile

ROOT = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
TARGETS = ["millrace_standin", "inspect-program", "gpu_executor_test", "kernels_gpu_functors_test", "kernels_gpu_collectives_test"]
TESTS = "^(standin_[rlpce].*|standin_device_test|gpu_executor_test|kernels_gpu_(functors|collectives))"
# The compiler of a source of kernels/gpu, or of several of them at once, gets --coverage.
LAUNCHER = """#!/bin/sh
case " $* " in
*" -c "*kernels/gpu/*|*" -c "*Unity/unity_sources_gpu_*) exec ccache "$@" --coverage ;;
esac
exec ccache "$@"
"""


def run(*command, **more):
    print("+", *command[:8], file=sys.stderr)
    return subprocess.run(command, cwd=ROOT, check=True, **more)


def build(folder, jobs):
    os.makedirs(folder, exist_ok=True)
    launcher = os.path.join(folder, "compiler")
    with open(launcher, "w", encoding="utf-8") as file:
        file.write(LAUNCHER)
    os.chmod(launcher, os.stat(launcher).st_mode | stat.S_IXUSR)
    flags = [f"-DCMAKE_{kind}_LINKER_FLAGS=--coverage" for kind in ("EXE", "MODULE", "SHARED")]
    run("cmake", "--preset", "ci", "-B", folder, f"-DCMAKE_CXX_COMPILER_LAUNCHER={launcher}", *flags,
        env={**os.environ, "CCACHE_BASEDIR": ROOT, "CCACHE_NOHASHDIR": "1"}, stdout=subprocess.DEVNULL)
    run("cmake", "--build", folder, "-j", str(jobs), "--target", *TARGETS,
        env={**os.environ, "CCACHE_BASEDIR": ROOT, "CCACHE_NOHASHDIR": "1"}, stdout=subprocess.DEVNULL)


def execute(folder, shared, jobs):
    for path in glob.glob(f"{folder}/**/*.gcda", recursive=True):
        os.remove(path)
    run("ctest", "--test-dir", folder, "-R", TESTS, "-j", str(jobs), "--output-on-failure")
    if not os.path.isdir(shared):
        return
    tool = f"{folder}/standin/run-program"
    for devices in ("gpu:0", "gpu:emulated"):
        run(sys.executable, "-B", "tests/conformance/gpu_programs.py", "--bin", tool, "--shared", shared, "--devices",
            devices, "--nets", "mlp,lenet,resnet18_64", "--batch", "2", "--steps", "1")
        wrapper = f"{folder}/{devices.replace(':', '-')}/run-program"  # the checker asks for this name
        os.makedirs(os.path.dirname(wrapper), exist_ok=True)
        with open(wrapper, "w", encoding="utf-8") as file:
            file.write(f'#!/bin/sh\nexec "{tool}" --devices {devices} "$@"\n')
        os.chmod(wrapper, 0o755)
        # some references are wrong, so the exit status says nothing
        subprocess.run([sys.executable, f"{shared}/tools/check_ops.py", "--bin", wrapper, "--jobs", str(jobs)], cwd=ROOT,
                       stdout=subprocess.DEVNULL, check=False)


def counts(folder):
    """{source: {line: times}} of kernels/gpu, over all objects."""
    lines = collections.defaultdict(lambda: collections.defaultdict(int))
    with tempfile.TemporaryDirectory() as work:
        for path in glob.glob(f"{folder}/**/*.gcda", recursive=True):
            subprocess.run(["gcov", "--json-format", path], cwd=work, check=True, capture_output=True)
            for report in glob.glob(f"{work}/*.gcov.json.gz"):
                with gzip.open(report, "rt") as file:
                    found = json.load(file)
                os.remove(report)
                for source in found["files"]:
                    name = os.path.relpath(os.path.join(found["current_working_directory"], source["file"]), ROOT)
                    if name.startswith("kernels/gpu/"):
                        for line in source["lines"]:
                            lines[name][line["line_number"]] += line["count"]
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", default=os.path.join(ROOT, "../shared"))
    parser.add_argument("--build", default=os.path.join(ROOT, "build/coverage"))
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--again", action="store_true")
    args = parser.parse_args()
    folder = os.path.abspath(args.build)
    if not args.again:
        build(folder, args.jobs)
        execute(folder, os.path.abspath(args.shared), args.jobs)
    good = total = 0
    for name, lines in sorted(counts(folder).items()):
        missed = sorted(line for line, times in lines.items() if times == 0)
        good, total = good + len(lines) - len(missed), total + len(lines)
        share = 100 * (len(lines) - len(missed)) / len(lines)
        print(f"{share:6.1f} %  {len(lines):4} lines  {name}" + (f"  not: {', '.join(map(str, missed))}" if missed else ""))
    print(f"{good} of {total} lines, {100 * good / total:.1f} %" if total else "nothing was measured")
    return 0 if total else 1


if __name__ == "__main__":
    sys.exit(main())
