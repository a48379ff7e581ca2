#!/usr/bin/env python3
"""Everything that millrace writes opens in netron.

    check_netron.py --bin build/ci/tools --netron FOLDER [--shared ../shared]

Writes programs, ONNX models, PIR programs and parameters (safetensors, npz, the original's combined file) of the models
in tests/data, and with --shared of the published ones and of transpiled jobs; then opens each file with the readers of
netron (--netron: the folder of its scripts, from its Python package), by node, as its page does. Exit status: 0, all
open; 1, some don't; 77, there is no node.
"""
import argparse
import collections
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
REFUSED = 7


def tool(tools, name, *args):
    """True if the tool did it, False if it refused."""
    done = subprocess.run([tools / name, *map(str, args), "-q"], capture_output=True, text=True, check=False)
    if done.returncode not in (0, REFUSED):
        raise RuntimeError(f"{name} {' '.join(map(str, args))} ended with {done.returncode}: {done.stderr.strip()}")
    return done.returncode == 0


def write_model(tools, folder, out):
    """All forms of a model folder. Yields pairs of kind and file."""
    out.mkdir()
    if tool(tools, "migrate", "--to", "pir", folder, "-o", out / "model"):
        yield "PIR", out / "model.json"
        if (out / "model.pdiparams").exists():
            yield "parameters", out / "model.pdiparams"
            # a program again, with parameters in all forms
            if tool(tools, "migrate", "--to", "program", out / "model.json", "-o", out / "program"):
                yield "program", out / "program/__model__"
                for form, suffix in (("safetensors", "safetensors"), ("npz", "npz")):
                    file = out / f"params.{suffix}"
                    tool(tools, "checkpoint", "convert", out / "program/__params__", "--program",
                         out / "program/__model__", "--to", form, "-o", file)
                    yield form, file
    if tool(tools, "migrate", "--to", "onnx", folder, "-o", out / "model.onnx"):
        yield "ONNX", out / "model.onnx"


def write_job(tools, folder, out):
    """The programs of a distributed job. Yields pairs of kind and file."""
    out.mkdir()
    tool(tools, "transpile-program", "--program", folder / "main.pb", "--startup", folder / "startup.pb", "--pservers", "a:1,b:1",
         "--trainers", 2, "-o", out)
    for file in sorted(out.rglob("__model__")):
        yield "program of a job", file


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True, type=pathlib.Path, help="folder with the tools")
    parser.add_argument("--netron", required=True, type=pathlib.Path, help="folder with netron's scripts")
    parser.add_argument("--shared", type=pathlib.Path, help="folder with models and goldens")
    args = parser.parse_args()
    node = shutil.which("node")
    if node is None:
        print("skipped: node is missing")
        return 77
    models = sorted(p.parent for p in pathlib.Path("tests/data/models").glob("*/__model__"))
    jobs = []
    if args.shared:
        # one of them is stored without its parameters
        models += sorted(p.parent for p in args.shared.glob("models/*/outputs") if p.parent.name != "picodet_control_flow")
        jobs = sorted(p.parent for p in args.shared.glob("goldens/transpiler/*/startup.pb"))
    with tempfile.TemporaryDirectory() as name:
        work, files = pathlib.Path(name), []
        for number, folder in enumerate(models):
            files += write_model(args.bin, folder, work / f"model{number}")
        for number, folder in enumerate(jobs[::10]):
            files += write_job(args.bin, folder, work / f"job{number}")
        done = subprocess.run([node, HERE / "netron_open.mjs", args.netron, *(f for _, f in files)], capture_output=True, text=True, check=False)
    if done.stderr:
        print(done.stderr.strip())
    lines = done.stdout.splitlines()
    opened, failed = collections.Counter(), 0
    for (kind, file), line in zip(files, lines):
        if not line.startswith(f"{file}: ") or ": error: " in line or ", 0 nodes" in line:
            print(f"{kind}: {line}")
            failed += 1
        else:
            opened[kind] += 1
    failed += len(files) - len(lines)
    for kind, count in sorted(opened.items()):
        print(f"{kind}: {count} open")
    print(f"{sum(opened.values())} passed, {failed} failed")
    return 1 if failed or not files else 0


if __name__ == "__main__":
    sys.exit(main())
