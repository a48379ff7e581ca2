"""The runs of attribute_runs.py: their programs, inputs and expected ends."""
import dataclasses
import itertools
import json
import os

import numpy as np


@dataclasses.dataclass
class Run:
    commands: list              # of arguments; {in}: shared input, {job}: folder of the programs, {out}: compared output, @: a tool
    programs: str = ""          # folder in tests/options/programs
    made: list = None           # commands that generate them in {job} instead
    end: int = 0                # status of the last command
    says: bool = False          # also compare stderr
    env: dict = dataclasses.field(default_factory=dict)


# Short time-outs for servers and ranks that do not exist.
IMPATIENT = ["--deadline-ms", "4000", "--reconnect-timeout-ms", "500", "--start-timeout-ms", "4000"]


def write_json(folder, name, content):
    with open(os.path.join(folder, name + ".json"), "w", encoding="utf-8") as file:
        json.dump(content, file)


def make_configs(folder, shared):
    """Input files of transpile-program."""
    for case in ("ps_sync/emb_prefetch_adagrad_2s2t", "ps_sync/emb_shared_sgd_2s2t", "ps_sync/dist_table_sgd_2s2t",
                 "ps_async/async_sparse_3s3t", "ps_async/async_merge4_2s2t", "ps_async/geo_sparse_2s2t", "ps_async/dc_asgd_2s1t"):
        with open(os.path.join(shared, "goldens", case, "config.json"), encoding="utf-8") as file:
            read = json.load(file)
        config = dict(read["config"])
        if "sync_mode" in config:
            config["config_sync_mode"] = config.pop("sync_mode")
        config.update(read["call"], **{key: read[key] for key in ("transpiler", "random_seed", "parameter_order")})
        write_json(folder, os.path.basename(case), config)
        if case.endswith("emb_shared_sgd_2s2t"):
            write_json(folder, "typed", {**config, "sparse_tables": {"shared_emb": {}}})
    write_json(folder, "min", {"losses": ["mean_0.tmp_0"], "optimizer": [{"type": "adam", "learning_rate": 0.1, "loss": "mean_0.tmp_0"}]})
    write_json(folder, "backward", {"losses": ["loss"], "optimizer": [{"type": "sgd", "learning_rate": 0.1, "loss": "loss"}]})
    counts = {"sparse_accessor_class": "DownpourCtrAccessor", "sparse_shard_num": 100, "sparse_embedx_dim": 8,
              "sparse_optimizer": "adagrad", "sparse_learning_rate": 0.05}
    for name, tables in (("fleet", {"emb": counts}), ("fleet_plain", {})):
        write_json(folder, name, {"mode": "sync", "pservers": "127.0.0.1:6174,127.0.0.1:6175", "trainers": 2,
                                  "fleet_desc_configs": tables})


def make_inputs(folder, shared):
    make_configs(folder, shared)
    for rank in (0, 1):
        x = np.array([[1 + rank, 2], [3, 4 - 5 * rank]], dtype=np.float32)
        np.savez(os.path.join(folder, f"ranks{rank}.npz"), **{"step0/x": x})
    np.savez(os.path.join(folder, "statistics.npz"), **{name: np.full(2, value, np.float32) for name, value in
             {"size": 10, "sum": 3, "squares": 20, "scale": 1, "bias": 0, "mean": 0, "variance": 1}.items()})
    clicks, lines = {}, {}
    line = np.linspace(-1, 1, 5 * 13, dtype=np.float32).reshape(5, 13)
    y = np.linspace(0, 1, 5, dtype=np.float32).reshape(5, 1)
    for trainer, step in itertools.product(range(2), range(3)):
        base = f"t{trainer}/step{step}/"
        clicks[base + "emb_slot0"] = np.array([[3], [5], [7 + step], [3]], dtype=np.int64) + 10 * trainer  # trainers have no row in common
        clicks[base + "dense"] = np.linspace(-1, 1, 16, dtype=np.float32).reshape(4, 4) * (trainer + 1)
        clicks[base + "label"] = np.array([[0], [1], [1], [0]], dtype=np.int64)
        lines[base + "x"], lines[base + "y"] = line * (1 + trainer + step), y
    np.savez(os.path.join(folder, "clicks.npz"), **clicks)
    np.savez(os.path.join(folder, "lines.npz"), **lines)
    for rank in range(4):  # sums of float32 whose order is visible
        np.savez(os.path.join(folder, f"lines{rank}.npz"), **{"step0/x": line * 10.0 ** rank, "step0/y": y})


def alone(programs, *more, **how):
    """One process."""
    return Run([["run-program", "--program", "{job}/program", "-o", "{out}/o.npz", "--threads", "1", *more]], programs, **how)


def inproc(programs, *more, **how):
    """A handwritten job."""
    return Run([["run-program", "--cluster", "inproc", "--transpiled", "{job}", "-o", "{out}/o.npz", "--threads", "2", *IMPATIENT,
                 *more]], programs, **how)


def job_of(case, *more, loss=None, steps=3, config=None, **how):
    """A job that transpile-program generates, with all its processes in one. Losses of asynchronous jobs depend on
    timing."""
    stored = "{shared}/goldens/" + case
    config = "{in}/" + (config or os.path.basename(case)) + ".json"
    cut = ["transpile-program", "--program", stored + "/main.pb", "--startup", stored + "/startup.pb", "--config", config,
           "--trainer-id", "all", "--format", "text", "-o", "{job}"]
    words = ["run-program", "--cluster", "inproc", "--transpiled", "{job}", "--params", stored + "/init.npz", "--feed-steps",
             stored + "/feeds.npz", "--steps", str(steps), "--save-persistables", "{out}/p.npz", "--threads", "2", *IMPATIENT, *more]
    return Run([words + (["--fetch", loss, "-o", "{out}/o.npz"] if loss else [])], made=[cut],
               env={"CPU_NUM": "1", "FLAGS_communicator_max_merge_var_num": "1", **how.pop("env", {})}, **how)


def cut(stored, startup, *how):
    """Output of transpile-program for a program whose ops are flipped."""
    return Run([["transpile-program", "--program", "{job}/main", "--startup", startup, *how, "-o", "{out}/job"]],
               made=[["transpile-program", "--program", stored, "--passes", "", "--format", "text", "-o", "{job}/main"]])


def cut_for_fleet(case, settings):
    stored = "{shared}/goldens/fleet/" + case
    return cut(stored + "/origin_main.pb", stored + "/origin_startup.pb", "--minimize", "{in}/min.json", "--fleet",
               "{in}/" + settings + ".json")


def launched(programs, ranks, *more, **how):
    return Run([["launch", "--nproc_per_node", str(ranks), "--log_dir", "{out}/log", "--", "@run-program", "--threads", "1",
                 "--engine", "shm", "--rendezvous", "{job}/meet", "--wait-ms", "5000", "--join-ms", "5000",
                 "-o", "{out}/o{rank}.npz", *more]], programs, **how)


def parts():
    """Four ranks that sum in two levels."""
    fit = "{root}/tests/data/fit_a_line/"
    ends = [f"127.0.0.1:{6401 + rank}" for rank in range(4)]
    made = [["transpile-program", "--program", fit + "main.pb", "--startup", fit + "startup.pb", "--mode", "nccl2", "--trainers",
             ",".join(ends), "--trainer-id", str(rank), "--current-endpoint", ends[rank], "--use-hierarchical-allreduce", "true",
             "--hierarchical-allreduce-inter-nranks", "2", "--format", "text", "-o", "{job}/rank" + str(rank)] for rank in range(4)]
    return launched("", 4, "--program", "{job}/rank{rank}/trainer_{rank}/__model__", "--startup",
                    "{job}/rank{rank}/trainer_{rank}/__startup__", "--seed", "3", "--feed-steps", "{in}/lines{rank}.npz",
                    "--fetch", "mean_0.tmp_0", "--save-persistables", "{out}/p{rank}.npz", made=made)


def make_runs():
    ranks = "sum,max,min,prod,list,rsum,rmax,rmin,rprod,given,all,part,old,old_given,here,calc,comm,wait,waited"
    prefetch = "{shared}/goldens/ps_sync/emb_prefetch_adagrad_2s2t/"
    return {
        "print": alone("print", "--fetch", "y", "--steps", "2", says=True),
        "assert": alone("assert", end=4, says=True),
        "save": alone("save", "--fetch", "x", "--steps", "2", "--allow-dir", "{out}"),
        "files": alone("files", "--fetch", "part,x1,w1,rows", "--allow-dir", "{out}"),
        "blocks": alone("blocks", "--fetch", "x,y,z,out"),
        "feeds": alone("feeds", "--feed", "a=2xf32=random:1", "--feed", "b=2xf32=random:2"),
        "feeds v2": alone("feeds_v2", "--feed", "a=2xf32=random:1", "--feed", "b=2xf32=random:2"),
        "ranks": launched("ranks", 2, "--startup", "{job}/rank{rank}/startup", "--program", "{job}/main", "--endpoints",
                          "here:0,here:1", "--feed-steps", "{in}/ranks{rank}.npz", "--fetch", ranks),
        "sync": job_of("ps_sync/emb_prefetch_adagrad_2s2t", loss="mean_0.tmp_0,embedding_0.tmp_0"),
        "async": job_of("ps_async/async_sparse_3s3t"),
        "merge": job_of("ps_async/async_merge4_2s2t", steps=4, env={"FLAGS_communicator_max_merge_var_num": "4",
                                                                     "FLAGS_communicator_send_queue_size": "4"}),
        "geo": job_of("ps_async/geo_sparse_2s2t"),
        "dc asgd": job_of("ps_async/dc_asgd_2s1t"),
        "table": job_of("ps_sync/dist_table_sgd_2s2t", loss="mean_0.tmp_0"),
        "typed": job_of("ps_sync/emb_shared_sgd_2s2t", loss="mean_0.tmp_0", config="typed"),
        "statistics": alone("statistics", "--params", "{in}/statistics.npz", "--feed", "x=4x2xf32=random:1", "--fetch", "z", "--devices",
                            "cpu:2"),
        "rows": alone("rows", "--fetch", "d0,d1"),
        "declared": alone("declared", "--fetch", "x"),
        "memory": alone("memory", "--fetch", "y"),
        "remote": alone("remote", "--fetch", "a,b,c,d"),
        "classes": alone("classes", "--fetch", "cost,out"),
        "python": Run([["transpile-program", "--program", "{job}/program", "--startup", "{root}/tests/data/fit_a_line/startup.pb",
                        "--minimize", "{in}/backward.json", "--backward-only", "true", "-o", "{out}/job"]], "python"),
        "fleet": Run([["run-program", "--cluster", "inproc", "--transpiled", "{job}", "--feed-steps", "{in}/clicks.npz", "--steps", "3",
                       "--fetch", "mean_0.tmp_0", "-o", "{out}/o.npz", "--save-persistables", "{out}/p.npz", "--threads", "2",
                       "--allow-dir", "{out}", "--save-params", "{out}/saved", *IMPATIENT]], made=[
                           ["transpile-program", "--program", "{shared}/goldens/fleet/ctr_accessor_async/origin_main.pb", "--startup",
                            "{shared}/goldens/fleet/ctr_accessor_async/origin_startup.pb", "--minimize", "{in}/min.json", "--fleet",
                            "{in}/fleet.json", "--format", "text", "-o", "{job}"]]),
        "fleet lookups": cut_for_fleet("entry_showclick_async", "fleet_plain"),
        "fleet slots": cut_for_fleet("ctr_accessor_async", "fleet"),
        "lookups": cut(prefetch + "main.pb", prefetch + "startup.pb", "--pservers", "127.0.0.1:6174,127.0.0.1:6175", "--trainers", "2"),
        "parts": parts(),
        "federated": Run([["run-program", "--cluster", "inproc", "--transpiled", "{job}", "--feed-steps", "{in}/lines.npz", "--steps",
                           "2", "--seed", "3", "--fetch", "mean_0.tmp_0", "-o", "{out}/o.npz", "--save-persistables", "{out}/p.npz",
                           "--threads", "2", *IMPATIENT]],
                         made=[["transpile-program", "--program", "{root}/tests/data/fit_a_line/main.pb", "--startup",
                                "{root}/tests/data/fit_a_line/startup.pb", "--transpiler", "federated", "--pservers", "127.0.0.1:6174",
                                "--trainers", "2", "--trainer-id", "all", "--format", "text", "-o", "{job}"]]),
        "heter": inproc("heter", "--fetch", "y,z,old,back"),
        "saving": inproc("saving", "--fetch", "w", "--allow-dir", "{out}", "--save-params", "{out}/saved", "--save-programs",
                         "{job}/save_programs,{job}/save_rows"),
        "phases": inproc("phases", "--fetch", "now", "--steps", "2"),
    }
