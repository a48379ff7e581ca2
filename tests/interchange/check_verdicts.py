#!/usr/bin/env python3
"""Compares the verdicts of migrate FOLDER with what migrate --to and the loader of a format do.

    check_verdicts.py --bin build/ci/tools --shared ../shared --to pir|onnx

Needs paddlepaddle 3.3 or onnxruntime. Programs with the verdict yes must be written, and the loader must take them:
PaddlePaddle 3 reads the program with its parameters, ONNX Runtime makes a session. Programs with the verdict no must be
refused. Unknown verdicts, of models without parameters, are counted. Fails if a verdict is wrong.
"""
import argparse
import collections
import json
import os
import pathlib
import subprocess
import sys
import tempfile

NOT_WRITTEN = (3, 7)  # 3: a model without parameters, which are read before the ops are looked at


def load_pir(prefix):
    os.environ.setdefault("GLOG_minloglevel", "3")
    import paddle  # pylint: disable=import-outside-toplevel  # each format has an environment of its own
    paddle.enable_static()
    with paddle.static.scope_guard(paddle.static.Scope()):
        if pathlib.Path(f"{prefix}.pdiparams").exists():
            paddle.static.load_inference_model(str(prefix), paddle.static.Executor(paddle.CPUPlace()))
        else:
            paddle.base.core.deserialize_pir_program(f"{prefix}.json", paddle.static.Program())


def load_onnx(path):
    import onnxruntime  # pylint: disable=import-outside-toplevel
    onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


def wrong(tool, target, path, answer, work):
    """None, or what is wrong about the verdict."""
    out = work / f"out{len(list(work.iterdir()))}"
    done = subprocess.run([tool, "--to", target, path, "-o", out, "-q"], capture_output=True, text=True, check=False)
    first = done.stderr.strip().splitlines()[:1]
    if answer == "no":
        return None if done.returncode in NOT_WRITTEN else f"exit code {done.returncode}, expected a refusal: {first}"
    if done.returncode != 0:
        return f"exit code {done.returncode}: {first}"
    try:
        (load_pir if target == "pir" else load_onnx)(out)
    except Exception as error:  # pylint: disable=broad-except  # of the loaders, which have many types
        return f"the loader: {' '.join(str(error).split())[:300]}"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True, type=pathlib.Path, help="folder with migrate")
    parser.add_argument("--shared", required=True, type=pathlib.Path, help="folder with models")
    parser.add_argument("--to", required=True, choices=("pir", "onnx"), help="the format")
    args = parser.parse_args()
    tool = str(args.bin / "migrate")
    report = subprocess.run([tool, "--json", args.shared / "models"], capture_output=True, text=True, check=True)
    answers = collections.Counter()
    failures = 0
    with tempfile.TemporaryDirectory() as work:
        for program in json.loads(report.stdout)["programs"]:
            answer = program[args.to]["answer"]
            answers[answer] += 1
            if answer not in ("yes", "no"):
                continue
            if why := wrong(tool, args.to, program["path"], answer, pathlib.Path(work)):
                print(f"{program['path']}: the verdict is {answer}, but {why}")
                failures += 1
    print(", ".join(f"{count} {answer}" for answer, count in sorted(answers.items())))
    print(f"{answers['yes'] + answers['no'] - failures} passed, {failures} failed")
    return 1 if failures or not answers["yes"] else 0


if __name__ == "__main__":
    sys.exit(main())
