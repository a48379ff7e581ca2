"""The tools of a job with the flags that check_ps.py and check_fleet.py use, by the Python package: their references then
run through it.

usage: run_job.py transpile-program | pserver | run-program FLAGS
"""

import argparse
import json
import os
import pathlib
import sys
import threading

import numpy

import millrace
from run_program import feeds_of_steps, put, with_lods


def transpile_program(args):
    settings = json.loads(pathlib.Path(args.config).read_text())
    kind = settings.pop("transpiler")
    config_sync_mode = settings.pop("config_sync_mode", settings["sync_mode"])
    if config_sync_mode != settings["sync_mode"]:
        raise SystemExit("the package has one sync_mode for arguments and configuration")
    main, startup = (millrace.Program.read(path) for path in (args.program, args.startup))
    millrace.transpile(main, startup, args.o, transpiler=kind, **settings)


METHODS = {"sgd": millrace.optimizer.SGD, "momentum": millrace.optimizer.Momentum, "adam": millrace.optimizer.Adam}


def fleet_strategy(settings):
    configs = dict(settings["a_sync_configs"])
    return {"a_sync": settings["mode"] != "sync", "a_sync_configs": configs, "tables": settings["fleet_desc_configs"]}


def fleet_optimizer(settings):
    options = {"learning_rate": settings["learning_rate"]}
    if "schedule" in settings:
        # an object of 2.x: the caller sets the rate between steps
        options["learning_rate"] = millrace.optimizer.SteppedRate(initial_rate(settings["schedule"]))
    if "clip" in settings:
        options["clip"] = millrace.optimizer.ClipByGlobalNorm(settings["clip"]["clip_norm"])
    method = METHODS[settings["type"]]
    return millrace.minimize_options(method(settings["momentum"]) if "momentum" in settings else method(), **options)


def initial_rate(schedule):
    if schedule["type"] == "exponential_scheduler":
        return schedule["learning_rate"]
    rate = schedule.get("learning_rate", 1.0)  # noam, at its first step
    return rate * schedule["d_model"] ** -0.5 * schedule["warmup_steps"] ** -1.5


def fleet_programs(args):
    """The programs and descriptions of all processes; each finds its role in the environment, as under launch."""
    minimize, settings = (json.loads(pathlib.Path(path).read_text()) for path in (args.minimize, args.fleet))
    main, startup = (millrace.Program.read(path) for path in (args.program, args.startup))
    servers, made = settings["pservers"].split(","), {}
    os.environ.update({"PADDLE_PSERVERS_IP_PORT_LIST": settings["pservers"], "PADDLE_TRAINERS_NUM": str(settings["trainers"]),
                       "PADDLE_TRAINER_ENDPOINTS": settings["trainer_endpoints"]})
    for role, count in (("trainer", settings["trainers"]), ("pserver", len(servers))):
        for number in range(count):
            host, port = servers[number].split(":") if role == "pserver" else ("127.0.0.1", "0")
            os.environ.update({"TRAINING_ROLE": role.upper(), "PADDLE_TRAINER_ID": str(number), "POD_IP": host,
                               "PADDLE_PORT": port})
            process = millrace.Fleet()
            process.init()
            process.distributed_optimizer(fleet_optimizer(minimize["optimizer"][0]), **fleet_strategy(settings))
            process.minimize(main, startup, minimize["loss"])
            made[f"{role}_{number}"] = process
    for name, process in made.items():
        folder = pathlib.Path(args.o) / name
        folder.mkdir(parents=True)
        process.main_program.write(folder / "__model__")
        process.startup_program.write(folder / "__startup__")
        tables, runtime = process.description()
        (folder / "ps_desc.txt").write_text(tables)
        (folder / "runtime.json").write_text(runtime)


def files_of(args):
    files = millrace.RoleFiles()
    files.program, files.startup, files.params = args.program, args.startup, args.params
    files.slices = args.slices or ""
    return files


def pserver(args):
    server = millrace.ParameterServer(files_of(args), millrace.Connection(), endpoint=args.endpoint)
    server.on_ready(lambda endpoint: print("ready", endpoint, flush=True))
    server.serve()


def train(trainer, feeds, fetches):
    """Runs all steps. :returns: what was fetched, as members of an npz"""
    fetched = {}
    for step, batch in enumerate(feeds):
        for name, value in trainer.step(batch, fetches).items():
            put(fetched, f"step{step}/{name}", value)
    return fetched


def save(path, arrays):
    members = {}
    for name, value in arrays.items():
        put(members, name, value)
    numpy.savez(path, **members)


def cpu_num():
    return int(os.environ.get("CPU_NUM", "1"))


def communicator():
    return {name: value for name, value in os.environ.items() if name.startswith("FLAGS_communicator_")}


def run_trainer(args):
    trainer = millrace.Trainer(files_of(args), millrace.Connection(), trainer=args.trainer_id, cpu_num=cpu_num(),
                               communicator=communicator())
    numpy.savez(args.output, **train(trainer, feeds_of_steps(args.feed_steps, args.steps), args.fetch))
    gathered = trainer.finish(gather=args.save_persistables is not None)
    if args.save_persistables:
        save(args.save_persistables, gathered)


def run_cluster(args):
    """All servers and trainers in this process; members of the npz files begin with the trainer: t0/step1/x."""
    job, given = pathlib.Path(args.transpiled), with_lods(numpy.load(args.feed_steps))
    connection = millrace.Connection.in_process()
    servers, fetched, gathered, errors = [], {}, {}, []

    def with_params(files):
        files.params = args.params
        return files

    def run(number):
        try:
            own = {name.split("/", 1)[1]: value for name, value in given.items() if name.startswith(f"t{number}/")}
            batches = [{} for _ in range(args.steps)]
            for name, value in own.items():
                step, var = name.split("/", 1)
                batches[int(step.removeprefix("step"))][var] = value
            trainer = millrace.Trainer(with_params(millrace.trainer_files(job, number)), connection, trainer=number,
                                       cpu_num=cpu_num(), communicator=communicator())
            for name, value in train(trainer, batches, args.fetch).items():
                fetched[f"t{number}/{name}"] = value
            gathered.update(trainer.finish(gather=number == 0))
        except BaseException as error:
            errors.append(error)
            connection.close()

    for number in range(len(list(job.glob("pserver_*")))):
        servers.append(millrace.ParameterServer(with_params(millrace.server_files(job, number)), connection).start())
    trainers = [threading.Thread(target=run, args=(number,)) for number in range(len(list(job.glob("trainer_*"))))]
    for thread in trainers:
        thread.start()
    for thread in trainers:
        thread.join()
    if errors:
        raise errors[0]
    for server in servers:
        server.join()
    numpy.savez(args.output, **fetched)
    save(args.save_persistables, gathered)


def run_with_status(function, args):
    """Ends with the exit status of the tools for what is refused."""
    try:
        function(args)
    except (millrace.UnimplementedError, millrace.InvalidArgumentError) as error:
        print("error:", error, file=sys.stderr)
        raise SystemExit(7 if isinstance(error, millrace.UnimplementedError) else 3)


def main():
    flags = argparse.ArgumentParser()
    flags.add_argument("tool", choices=("transpile-program", "pserver", "run-program"))
    for flag in ("program", "startup", "config", "slices", "params", "endpoint", "transpiled", "cluster", "role",
                 "feed-steps", "output", "save-persistables", "trainer-id", "minimize", "fleet"):
        flags.add_argument("--" + flag)
    flags.add_argument("-o")
    flags.add_argument("--fetch", action="append", default=[])
    flags.add_argument("--steps", type=int, default=1)
    args = flags.parse_args()
    if args.tool == "transpile-program":
        return run_with_status(fleet_programs if args.fleet else transpile_program, args)
    if args.tool == "pserver":
        return pserver(args)
    if args.cluster:
        return run_cluster(args)
    args.trainer_id = int(args.trainer_id)
    return run_trainer(args)


if __name__ == "__main__":
    main()
