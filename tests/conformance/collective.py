#!/usr/bin/env python3
"""Runs the collective programs of the references with several processes and compares them with one process on the whole batch.

    tests/conformance/collective.py --bin-dir build/ci/tools --dir ../shared/goldens/transpiler [--ranks 2,4] [--engine auto,gloo]

Each case is transpiled for 2 and 4 trainers (for the number of trainers of the reference, the reference's program
runs), started by `launch`, and trained for three steps, each rank on its share of the rows. The mean of the losses and
every persistable var must equal those of one process that trains the untranspiled program on all rows. Then the ranks
run again with a checkpoint after every step, stop before the last step and continue, from a shared folder and from
separate folders: with the same bits. Engine mpi: the ranks are started by mpirun. Engine netns: two ranks in two
network namespaces that are connected by a virtual cable, with Gloo; skipped if namespaces cannot be created. Engine
nccl: one emulated GPU per rank (tests/conformance/gpu_programs.py). Last line: "N passed, M failed".
Needs numpy.
"""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../executor/collective"))
import namespaces  # noqa: E402

STEPS, ROWS = 3, 8
TYPES = {"f32": np.float32, "f64": np.float64, "i64": np.int64, "i32": np.int32}
FEED = re.compile(r"^  var (\S+): (\w+)\(([^)]*)\).*need_check_feed", re.M)


def run(args, env=None, limit=120):
    done = subprocess.run(args, capture_output=True, text=True, timeout=limit, env={**os.environ, **(env or {})})
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, args[:12]))} ... exited with {done.returncode}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done.stdout


def feeds_of(tools, program, ranks):
    """Steps of feeds for all rows; labels are small numbers."""
    text = run([f"{tools}/inspect-program", program, "--format", "text"])
    rng = np.random.RandomState(7)
    steps = []
    for _ in range(STEPS):
        step = {}
        for name, dtype, dims in FEED.findall(text):
            shape = [ROWS * ranks if d.strip() == "-1" else int(d) for d in dims.split(",") if d.strip()]
            if dtype.startswith("i"):
                step[name] = rng.randint(0, 10, shape).astype(TYPES[dtype])
            else:
                step[name] = rng.uniform(-1, 1, shape).astype(TYPES[dtype])
        steps.append(step)
    if not steps[0]:
        raise RuntimeError(f"{program}: no var that is fed was found")
    return steps


def loss_of(tools, program):
    text = run([f"{tools}/inspect-program", program, "--format", "text"])
    return re.search(r"^  (?:reduce_)?mean X=\S+ -> Out=(\S+)", text, re.M)[1]


def save_feeds(path, steps, part, parts):
    rows = {}
    for i, step in enumerate(steps):
        for name, value in step.items():
            count = len(value) // parts
            rows[f"step{i}/{name}"] = value[part * count:(part + 1) * count]
    np.savez(path, **rows)


def programs(args, case, config, ranks, work):
    """Paths of the programs of each rank, with {rank} in the names."""
    call, own = config["call"], config["config"]
    endpoints = [f"127.0.0.1:{7000 + i}" for i in range(ranks)]
    reference = call["trainers"].split(",") == endpoints and own["mode"] == "collective"
    if reference:
        return f"{case}/trainer.pb", f"{case}/trainer_startup.pb"
    for rank in range(ranks):
        fields = dict(own, trainers=",".join(endpoints), trainer_id=rank, current_endpoint=endpoints[rank],
                      parameter_order=config["parameter_order"])
        fields.pop("wait_port", None)
        path = f"{work}/config{rank}.json"
        with open(path, "w", encoding="utf-8") as file:
            json.dump(fields, file)
        run([f"{args.bin_dir}/transpile-program", "--program", f"{case}/main.pb", "--startup", f"{case}/startup.pb",
             "--config", path, "-o", f"{work}/rank{rank}"])
    return work + "/rank{rank}/trainer_{rank}/__model__", work + "/rank{rank}/trainer_{rank}/__startup__"


def check(args, case, ranks, engine):
    tools = args.bin_dir
    with open(f"{case}/config.json", encoding="utf-8") as file:
        config = json.load(file)
    with tempfile.TemporaryDirectory() as work:
        steps = feeds_of(tools, f"{case}/main.pb", ranks)
        loss = loss_of(tools, f"{case}/main.pb")
        run([f"{tools}/run-program", "--program", f"{case}/main.pb", "--startup", f"{case}/startup.pb", "--fetch", loss,
             "--save-persistables", f"{work}/start.npz", "--steps", "1", "--feed", feeds(f"{work}/first.npz", steps[0])])
        start = f"{work}/params.npz"
        run_startup_values(tools, case, work, start, steps)
        save_feeds(f"{work}/all.npz", steps, 0, 1)
        run([f"{tools}/run-program", "--program", f"{case}/main.pb", "--params", start, "--feed-steps", f"{work}/all.npz",
             "--steps", str(STEPS), "--fetch", loss, "--output", f"{work}/one.npz", "--save-persistables", f"{work}/one_after.npz"])
        main, startup = programs(args, case, config, ranks, work)
        for rank in range(ranks):
            save_feeds(f"{work}/feeds{rank}.npz", steps, rank, ranks)
        command = [f"{tools}/run-program", "--program", main, "--startup", startup, "--params", start, "--feed-steps",
                   work + "/feeds{rank}.npz", "--steps", str(STEPS), "--fetch", loss, "--output", work + "/out{rank}.npz",
                   "--save-persistables", work + "/after{rank}.npz", "--engine", "gloo" if engine == "netns" else engine, "--wait-ms",
                   "20000", "--threads", "1"]
        if engine == "nccl":
            command[0] = args.gpu_bin or command[0]
            command += ["--devices", args.gpu_devices]
        if engine == "netns":
            run_in_namespaces(command)
        else:
            run_ranks(tools, work, command, ranks, engine)
        compare(work, ranks, loss)
        if engine != "netns":
            check_resumed(tools, work, command, ranks, engine)


def run_ranks(tools, work, command, ranks, engine):
    if engine == "mpi":
        run(["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(ranks), *command])
    else:
        run([f"{tools}/launch", "--nproc_per_node", str(ranks), "--log_dir", f"{work}/log", "--", *command])


def check_resumed(tools, work, command, ranks, engine):
    """The ranks write a checkpoint together and continue from it: each with the same bits as without the
    interruption."""
    for folder in ("one", "own{rank}"):
        # the last occurrence of an option counts
        saving = ["--checkpoint-dir", f"{work}/{folder}", "--save-every", "1", "--resume", "auto", "--force"]
        again = [word.replace("/after{rank}", "/again{rank}").replace("/out{rank}", "/more{rank}") for word in command] + saving
        run_ranks(tools, work, again + ["--max-steps", str(STEPS - 1)], ranks, engine)
        run_ranks(tools, work, again, ranks, engine)
        for rank in range(ranks):
            run([f"{tools}/checkpoint", "diff", f"{work}/after{rank}.npz", f"{work}/again{rank}.npz"])
            if np.load(f"{work}/more{rank}.npz").files != [n for n in np.load(f"{work}/out{rank}.npz").files if n.startswith(f"step{STEPS - 1}/")]:
                raise RuntimeError("the second run has not gone on from step 2")
        others = [word for rank in range(1, ranks) for word in ("--beside", f"{work}/own{rank}")]
        run([f"{tools}/checkpoint", "verify", f"{work}/{folder}".format(rank=0)] + (others if "{" in folder else []))


def run_in_namespaces(command):
    """Two ranks that know only each other's addresses."""
    endpoints = ",".join(f"{host}:6170" for host in namespaces.HOSTS)
    ranks = []
    for rank, name in enumerate(namespaces.NAMES):
        words = [word.replace("{rank}", str(rank)) for word in command]
        ranks.append(subprocess.Popen(["ip", "netns", "exec", name, *words, "--rank", str(rank), "--endpoints", endpoints],
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    for rank, process in enumerate(ranks):
        output = process.communicate(timeout=120)[0]
        if process.returncode != 0:
            raise RuntimeError(f"rank {rank} exited with {process.returncode}:\n{output[-3000:]}")


def can_make_namespaces():
    try:
        namespaces.make()
        return True
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"skipped: no network namespaces here: {getattr(error, 'stderr', error)}")
        return False


def feeds(path, step):
    np.savez(path, **step)
    return path


def run_startup_values(tools, case, work, start, steps):
    """Values after only the startup program. A step of the main program with rate 0 would change statistics, so random
    ones of the same shapes are used."""
    shapes = np.load(f"{work}/start.npz")
    rng = np.random.RandomState(11)
    values = {}
    for name in shapes.files:
        value = shapes[name]
        if "learning_rate" in name:
            values[name] = np.full_like(value, 0.1)
        elif "velocity" in name or "moment" in name:
            values[name] = np.zeros_like(value)
        else:
            values[name] = rng.uniform(-0.3, 0.3, value.shape).astype(value.dtype)
    np.savez(start, **values)


def compare(work, ranks, loss):
    one, after = np.load(f"{work}/one.npz"), np.load(f"{work}/one_after.npz")
    outs = [np.load(f"{work}/out{rank}.npz") for rank in range(ranks)]
    afters = [np.load(f"{work}/after{rank}.npz") for rank in range(ranks)]
    for step in range(STEPS):
        name = f"step{step}/{loss}"
        mean = np.mean([np.mean(out[name]) for out in outs])
        np.testing.assert_allclose(mean, np.mean(one[name]), rtol=1e-5, atol=1e-6, err_msg=name)
    for name in after.files:
        for rank, values in enumerate(afters):
            # accumulators of local_sgd differ between ranks
            if "velocity" in name:
                continue
            np.testing.assert_allclose(values[name], after[name], rtol=1e-5, atol=1e-6, err_msg=f"{name} of rank {rank}")


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--bin-dir", required=True)
    ap.add_argument("--dir", required=True)
    ap.add_argument("--ranks", default="2,4")
    ap.add_argument("--engine", default="shm,gloo,mpi", help="of shm, gloo, mpi, netns and nccl")
    ap.add_argument("--gpu-bin", help="run-program of the ranks of engine nccl, if another one")
    ap.add_argument("--gpu-devices", default="gpu:emulated", help="their --devices, for example gpu:{rank}")
    ap.add_argument("-v", "--verbose", action="store_true")
    args = ap.parse_args()
    passed = failed = 0
    engines = args.engine.split(",")
    if "netns" in engines and not can_make_namespaces():
        engines.remove("netns")
    names = sorted(n for n in os.listdir(args.dir) if n.startswith(("nccl2_", "collective_")))
    for name in names:
        for ranks in map(int, args.ranks.split(",")):
            for engine in engines:
                if ("hierarchical" in name and ranks < 4) or (engine == "netns" and ranks != 2):
                    continue
                try:
                    check(args, os.path.join(args.dir, name), ranks, engine)
                    passed += 1
                    if args.verbose:
                        print(f"ok   {name} ranks={ranks} engine={engine}")
                except Exception as error:  # a case that fails must not end the others
                    failed += 1
                    print(f"FAIL {name} ranks={ranks} engine={engine}: {error}")
    print(f"{passed} passed, {failed} failed")
    return failed > 0 or passed == 0


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    finally:
        if shutil.which("ip"):
            for each in namespaces.NAMES:
                namespaces.ip("netns", "del", each, check=False)
