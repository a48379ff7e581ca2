#!/usr/bin/env python3
"""Random nets, random jobs and random operator cases, generated with the original (paddlepaddle 2.6.2), compared with
millrace.

    run.py --seed 123 --oracle PYTHON            one net and one job of a seed; --kind net or job for one of them
    run.py --seeds 0:1000 --oracle PYTHON        many; --shrink FOLDER stores every failing one after shrinking
    run.py --kind op --seeds 0:5000 --oracle PYTHON   operator cases; with one --seed, --store FOLDER stores it
    run.py --kind gradients --seeds 0:1000       programs with loops and branches: gradients against central differences;
                                                 needs no original
    run.py --kind fleet --seeds 0:300            fleet jobs: against one process, and continued by other servers; needs
                                                 no original
    run.py --kind checkpoint --seeds 0:300       chains of jobs and runs that hand on their state, against one process that
                                                 never stopped; needs no original
    run.py --make-oracle FOLDER                  an interpreter with the original, for --oracle: FOLDER/bin/python
    run.py --replay FOLDER [--only NAME]         stored cases; needs no original

Further: --programs-only (jobs are transpiled and compared, but not trained), --bin-dir (build/ci/tools), --shared
(../shared), --jobs N, --keep FOLDER (files of failing seeds), --store FOLDER (passing seeds are stored as cases as
well), --devices gpu:emulated (operator cases run GPU kernels), --json FILE. The checks and the known differences:
docs/fidelity.md. Needs numpy and protobuf. Exit status: 0 nothing found, 1 findings, 2 nothing could be run.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.dont_write_bytecode = True

import cases  # noqa: E402
import check_checkpoint  # noqa: E402
import check_fleet  # noqa: E402
import check_job  # noqa: E402
import check_loops  # noqa: E402
import check_net  # noqa: E402
import check_op  # noqa: E402
import plans  # noqa: E402
import shrink  # noqa: E402
from calls import Finding, Tools  # noqa: E402


def make_oracle(folder):
    """The original in a separate venv, with numpy 1, which it requires."""
    if not os.path.exists(f"{folder}/bin/python"):
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    subprocess.run([f"{folder}/bin/python", "-m", "pip", "install", "--quiet", "paddlepaddle==2.6.2", "numpy<2", "setuptools"], check=True)


class Oracle:
    """A process that has imported the original; one for each thread of this one."""

    def __init__(self, python, tools):
        env = dict(os.environ, PYTHONHASHSEED="0", OMP_NUM_THREADS="1", GLOG_minloglevel="3", PYTHONDONTWRITEBYTECODE="1")
        self.process = subprocess.Popen([python, "-W", "ignore", f"{HERE}/oracle.py", tools], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)

    def make(self, plan, out):
        self.process.stdin.write(json.dumps(dict(plan=plan, out=out)) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the original's process has ended with status {self.process.wait()}")
        return json.loads(line)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Runner:
    def __init__(self, args):
        self.args, self.tools, self.local = args, Tools(args.bin_dir, args.timeout), threading.local()
        self.oracles, self.lock = [], threading.Lock()
        sys.path.insert(0, f"{args.shared}/tools")
        import check_transpiler
        self.judge = check_transpiler

    def oracle(self):
        if not hasattr(self.local, "oracle"):
            self.local.oracle = Oracle(self.args.oracle, f"{self.args.shared}/tools")
            with self.lock:
                self.oracles.append(self.local.oracle)
        return self.local.oracle

    def check(self, kind, folder, work):
        """Returns the counts, or the finding."""
        try:
            if kind == "job":
                return check_job.check(self.tools, folder, work, self.judge, train=not self.args.programs_only), None
            return check_net.check(self.tools, folder, work, self.judge), None
        except Finding as e:
            return {}, e

    def one_plan(self, kind, plan, keep=None):
        """(result of the original, counts, finding) of a plan; its files go to keep."""
        with tempfile.TemporaryDirectory() as work:
            folder = f"{work}/case"
            reply = self.oracle().make(plan, folder)
            counts, finding = {}, None
            if os.path.exists(f"{folder}/config.json"):
                os.makedirs(f"{work}/run")
                counts, finding = self.check(kind, folder, f"{work}/run")
                if keep:
                    shutil.copytree(folder, keep, dirs_exist_ok=True)
            return reply, counts, finding

    def one_seed(self, kind, seed):
        plan = plans.job_plan(seed) if kind == "job" else plans.net_plan(seed)
        name = f"{kind}_{seed}"
        reply, counts, finding = self.one_plan(kind, plan, f"{self.args.keep}/{name}" if self.args.keep else None)
        if finding and self.args.shrink:
            wanted = finding.kind()

            def fails(less):
                _, _, other = self.one_plan(kind, less)
                return other is not None and other.kind() == wanted
            small = shrink.shrink(plan, fails)
            self.store(self.args.shrink, kind, name, small)
        elif not finding and self.args.store and reply.get("usable"):
            self.store(self.args.store, kind, name, plan)
        return dict(name=name, reply=reply, counts=counts, finding=str(finding) if finding else "", kind=finding.kind() if finding else "")

    def store(self, root, kind, name, plan):
        with tempfile.TemporaryDirectory() as work:
            self.oracle().make(plan, f"{work}/case")
            os.makedirs(f"{root}/{kind}s", exist_ok=True)
            cases.pack(f"{work}/case", f"{root}/{kind}s/{name}.tar.xz")


def replay(args):
    """Stored cases; each prints a line only if it fails."""
    runner = Runner(args)
    names = [(kind, name) for kind in ("net", "job") if os.path.isdir(f"{args.replay}/{kind}s") for name in cases.stored(f"{args.replay}/{kind}s")
             if args.only in (None, name)]

    def one(item):
        kind, name = item
        with tempfile.TemporaryDirectory() as work:
            cases.unpack(f"{args.replay}/{kind}s/{name}.tar.xz", f"{work}/case")
            os.makedirs(f"{work}/run")
            return name, runner.check(kind, f"{work}/case", f"{work}/run")[1]
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for name, finding in pool.map(one, names):
            if finding:
                failed += 1
                print(f"{name}: {finding}", flush=True)
    stored_ops = 0
    if os.path.isdir(f"{args.replay}/ops") and not args.only:
        wrong, stored_ops = check_op.replay(args, check_ops_of(args), f"{args.replay}/ops")
        for name, why in wrong.items():
            print(f"{name}: {'; '.join(why)}", flush=True)
        failed += len(wrong)
    stored_plans = 0
    for kind, checker in (("gradients", check_loops), ("fleet", check_fleet.PLANS), ("checkpoint", check_checkpoint.PLANS)):
        if not os.path.isdir(f"{args.replay}/{kind}") or args.only:
            continue
        wrong, count = checker.replay(args, f"{args.replay}/{kind}")
        for name, why in wrong.items():
            print(f"{name}: {why}", flush=True)
        failed, stored_plans = failed + len(wrong), stored_plans + count
    stored_others = stored_ops + stored_plans
    print(f"{len(names) + stored_others - failed} passed, {failed} failed")
    return 2 if not names and not stored_others else int(failed > 0)


def summary(results, seconds):
    counts, kinds, refusals = collections.Counter(), collections.Counter(), collections.Counter()
    for result in results:
        counts[result["name"].split("_")[0] + "s"] += 1
        if not result["reply"].get("usable"):
            refusals[(result["reply"].get("why") or result["reply"].get("reason"))[:100]] += 1
        for key, n in result["counts"].items():
            if key != "differences":
                counts[f"{result['name'].split('_')[0]}: {key}"] += n
        if result["finding"]:
            kinds[result["kind"]] += 1
    print(f"\n{seconds:.0f} s; " + ", ".join(f"{k} {v}" for k, v in sorted(counts.items())))
    print(f"not usable, for the original fails or its numbers are chaotic: {sum(refusals.values())}")
    for kind, n in kinds.most_common():
        print(f"{n:5d}  {kind}")
    bad = sum(1 for r in results if r["finding"])
    print(f"{len(results) - bad} passed, {bad} failed")
    return bad


def run_seeds(args):
    runner, began, results = Runner(args), time.monotonic(), []
    todo = [(kind, seed) for seed in seeds_of(args) for kind in (("net", "job") if args.kind == "both" else (args.kind,))]
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for result in pool.map(lambda item: runner.one_seed(*item), todo):
            results.append(result)
            if result["finding"] or args.seed is not None:
                print(f"{result['name']}: {result['finding'] or result['reply']} {result['counts'] if args.seed is not None else ''}", flush=True)
    for oracle in runner.oracles:
        oracle.close()
    if args.json:
        with open(args.json, "w", encoding="utf-8") as f:
            json.dump(results, f, indent=1)
    return int(summary(results, time.monotonic() - began) > 0)


def check_ops_of(args):
    """The checker of the operator references."""
    sys.path.insert(0, f"{args.shared}/tools")
    import check_ops
    return check_ops


def seeds_of(args):
    return range(args.seed, args.seed + 1) if args.seed is not None else range(*(int(v) for v in args.seeds.split(":")))


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--seed", type=int)
    ap.add_argument("--seeds", metavar="A:B")
    ap.add_argument("--kind", choices=["net", "job", "both", "op", "gradients", "fleet", "checkpoint"], default="both")
    ap.add_argument("--programs-only", action="store_true", help="jobs are transpiled and compared, but not trained")
    ap.add_argument("--oracle", metavar="PYTHON")
    ap.add_argument("--make-oracle", metavar="FOLDER")
    ap.add_argument("--replay", metavar="FOLDER")
    ap.add_argument("--only", metavar="NAME", help="with --replay: one net or job")
    ap.add_argument("--bin-dir", default="build/ci/tools")
    ap.add_argument("--devices", default="cpu:1", help="where operator cases run: also gpu:emulated, or a GPU")
    ap.add_argument("--shared", default="../shared")
    ap.add_argument("--jobs", type=int, default=2)
    ap.add_argument("--timeout", type=float, default=60)
    for name in ("--shrink", "--store", "--keep"):
        ap.add_argument(name, metavar="FOLDER")
    ap.add_argument("--json", metavar="FILE")
    args = ap.parse_args()
    args.shared, args.bin_dir = os.path.abspath(args.shared), os.path.abspath(args.bin_dir)
    if args.make_oracle:
        make_oracle(args.make_oracle)
        return 0
    if args.replay:
        return replay(args)
    if (args.seed is None) == (args.seeds is None) or not (args.oracle or args.kind in ("gradients", "fleet", "checkpoint")):
        ap.error("--seed N or --seeds A:B, with --oracle or --kind gradients, fleet or checkpoint; or --replay, or --make-oracle")
    if args.kind == "gradients":
        return int(check_loops.run(args, seeds_of(args)) > 0)
    if args.kind == "fleet":
        return int(check_fleet.PLANS.run(args, seeds_of(args)) > 0)
    if args.kind == "checkpoint":
        return int(check_checkpoint.PLANS.run(args, seeds_of(args)) > 0)
    if args.kind == "op":
        return int(check_op.run(args, seeds_of(args), check_ops_of(args)) > 0)
    return run_seeds(args)


if __name__ == "__main__":
    sys.exit(main())
