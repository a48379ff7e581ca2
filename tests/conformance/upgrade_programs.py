#!/usr/bin/env python3
"""Programs of older releases compute the same before and after upgrade-program, and a second upgrade changes nothing.

    upgrade_programs.py --bin-dir build/ci/tools --shared ../shared [--only SUBSTR]

Every program file of the models and of programs_only is upgraded. Models that have parameters run on their reference
inputs; the training references and the two training programs of the models run for one step. Outputs and all stored
values must be equal, byte for byte where no op was replaced, else within 1e-6 of the largest number. Exit status: 0 all
equal, 1 some not.
"""
import argparse
import glob
import os
import shutil
import subprocess
import sys
import tempfile

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from optimize import difference, model_jobs, training_jobs  # noqa: E402

SAME = 1e-6


def tool(args, name, *words):
    return subprocess.run([os.path.join(args.bin_dir, name), *words], capture_output=True, text=True, timeout=600)


def upgraded(args, path, out):
    """Upgrades a file; returns the error as text, or nothing."""
    done = tool(args, "transpile-program", "--program", path, "--passes", "upgrade-program", "-o", out, "-q", "--force")
    return "" if done.returncode == 0 else f"upgrade-program: exit status {done.returncode}: {done.stderr.strip()[-300:]}"


def check_file(args, path, work):
    once, twice = os.path.join(work, "once.pb"), os.path.join(work, "twice.pb")
    error = upgraded(args, path, once) or upgraded(args, once, twice)
    if error:
        return error
    with open(once, "rb") as one, open(twice, "rb") as other:
        return "" if one.read() == other.read() else "a second upgrade changes the program"


def run(args, job, feeds, work, out):
    kept, out = os.path.join(work, "kept_" + out), os.path.join(work, out)
    command = [*job, "--optimize", "false", "--threads", "1", "--seed", "3", "--output", out, "--force", "-q"]
    if "--model-dir" not in job:
        command += ["--save-persistables", kept]
    if feeds is not None:
        path = os.path.join(work, "feeds.npz")
        np.savez(path, **feeds)
        command += ["--feed", path]
    done = tool(args, "run-program", *command)
    if done.returncode:
        return None, f"run-program: exit status {done.returncode}: {done.stderr.strip()[-300:]}"
    values = {}
    for path in (out, kept):
        if os.path.exists(path):
            with np.load(path) as file:
                values.update({("", name): file[name] for name in file.files})
    return values, ""


def upgraded_job(args, job, work):
    """The job with its program replaced by the upgraded one, and the error."""
    job = list(job)
    if "--model-dir" in job:
        at = job.index("--model-dir") + 1
        copy = os.path.join(work, "model")
        os.makedirs(copy)
        error = ""
        for name in os.listdir(job[at]):
            if os.path.isdir(os.path.join(job[at], name)):
                continue
            source = os.path.join(os.path.abspath(job[at]), name)
            if name == "__model__":
                error = upgraded(args, source, os.path.join(copy, name))
            else:
                shutil.copyfile(source, os.path.join(copy, name))
        job[at] = copy
        return job, error
    at = job.index("--program") + 1
    error = upgraded(args, job[at], os.path.join(work, "main.pb"))
    job[at] = os.path.join(work, "main.pb")
    return job, error


def check_job(args, job, feeds, work):
    if "--steps" in job:
        job[job.index("--steps") + 1] = "1"
    before, error = run(args, job, feeds, work, "before.npz")
    if before is None:
        return error
    job, error = upgraded_job(args, job, work)
    if error:
        return error
    after, error = run(args, job, feeds, work, "after.npz")
    if after is None:
        return error
    # vars that the upgrade adds have no counterpart
    return difference(before, {name: after[name] for name in after if name in before or "@UPGRADED@" not in name[1]}, SAME) or ""


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--bin-dir", required=True)
    ap.add_argument("--shared", required=True)
    ap.add_argument("--only", default="")
    args = ap.parse_args()
    passed = failed = 0

    def report(name, error):
        nonlocal passed, failed
        passed += not error
        failed += bool(error)
        print(f"{'FAIL' if error else 'pass'}  {name}{': ' + error if error else ''}", flush=True)

    files = glob.glob(f"{args.shared}/models/programs_only/*.pb")
    files += [path for name in ("__model__", "main_program", "startup_program") for path in glob.glob(f"{args.shared}/models/*/{name}")]
    for path in sorted(files):
        if args.only in path:
            with tempfile.TemporaryDirectory() as work:
                report(os.path.relpath(path, args.shared), check_file(args, path, work))
    for pattern, jobs in (("models/*/case.json", model_jobs), ("goldens/training/*/config.json", training_jobs)):
        for path in sorted(glob.glob(os.path.join(args.shared, pattern))):
            if args.only not in path:
                continue
            for _, _, feeds, job in jobs(os.path.dirname(path)):
                with tempfile.TemporaryDirectory() as work:
                    report(os.path.basename(os.path.dirname(path)) + " runs alike", check_job(args, list(job), feeds, work))
    print(f"{passed} passed, {failed} failed")
    return failed > 0 or passed == 0


if __name__ == "__main__":
    sys.exit(main())
