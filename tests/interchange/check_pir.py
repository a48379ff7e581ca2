#!/usr/bin/env python3
"""Exports models and single ops with migrate, runs them in release 3 of the original and compares the results.

    check_pir.py --bin build/ci/tools --shared ../shared [--only NAME] [--kinds models,programs,ops] [--sample N] [--floors FILE]

Needs numpy and paddlepaddle. For each model and op it prints how many cases are equal, refused by migrate (with the
first reason) or different. Each is run in a process of its own, as the runtime may crash. Fails if a case differs,
migrate fails in another way than by refusing, or fewer cases are equal than the floors say.
"""
import argparse
import json
import os
import pathlib
import sys
import tempfile
import zipfile

os.environ.setdefault("FLAGS_use_mkldnn", "0")
os.environ.setdefault("GLOG_minloglevel", "3")
import numpy as np  # noqa: E402
import paddle  # noqa: E402
import paddle.inference  # noqa: E402

import export_cases as cases  # noqa: E402
import made_models  # noqa: E402
import training_programs  # noqa: E402

VERDICTS = ("equal", "refused", "differs", "failed")
# Outputs that models do not use and that PIR has no result for.
NOT_COMPUTED = {}


def tensor_of(feed):
    tensor = paddle.base.core.DenseTensor()
    tensor.set(feed.array, paddle.CPUPlace())
    if feed.lod:
        tensor.set_lod([list(level) for level in feed.lod])
    return tensor


def run(prefix, feeds):
    """Arrays and LoD by name."""
    executor = paddle.static.Executor(paddle.CPUPlace())
    with paddle.static.scope_guard(paddle.static.Scope()):
        program, names, targets = paddle.static.load_inference_model(str(prefix), executor)
        values = {f.name: tensor_of(f) for f in feeds if f.name in names}
        results = executor.run(program, feed=values, fetch_list=targets, return_numpy=False)
    fetched = [op.attrs()["name"] for op in program.global_block().ops if op.name() == "pd_op.fetch"]
    return ({n: np.array(r) for n, r in zip(fetched, results)}, {n: r.lod() for n, r in zip(fetched, results)})


def predict(prefix, feeds):
    """As run(), by the predictor, which rewrites the program first. Arrays by name."""
    config = paddle.inference.Config(f"{prefix}.json", f"{prefix}.pdiparams")
    config.disable_gpu()
    config.disable_mkldnn()
    config.disable_glog_info()
    predictor = paddle.inference.create_predictor(config)
    for feed in feeds:
        handle = predictor.get_input_handle(feed.name)
        handle.copy_from_cpu(feed.array)
        if feed.lod:
            handle.set_lod([list(level) for level in feed.lod])
    predictor.run()
    return {name: predictor.get_output_handle(name).copy_to_cpu() for name in predictor.get_output_names()}


def check_model(tool, folder, work):
    feeds = cases.model_feeds(folder)
    prefix = work / folder.name
    cases.migrate(tool, "pir", folder, prefix, dims=[(f.name, f.array.shape) for f in feeds if not f.lod])
    return cases.compare_model(folder, run(prefix, feeds)[0]) or cases.compare_model(folder, predict(prefix, feeds))


def check_program(tools, path, work):
    """A program without parameters, compared with millrace."""
    model = made_models.MadeModel(tools, path, work)
    prefix = work / f"{path.stem}.pir"
    dims = [(f.name, f.array.shape) for f in model.feeds if not f.lod]
    cases.migrate(str(tools / "migrate"), "pir", model.folder, prefix, dims=dims)
    return model.compare(run(prefix, model.feeds)[0], model.results())


def check_case(tool, archive, number, work, training):
    case = cases.OpCase(archive, number, work, NOT_COMPUTED, training)
    prefix = case.folder / "model"
    cases.migrate(tool, "pir", case.folder, prefix)
    return case.compare(*run(prefix, case.feeds()))


def checks_of(kind, path, args, work):
    """Pairs of a number and a function."""
    if kind == "models":
        return [(0, lambda: check_model(args.tool, path, work))]
    if kind == "programs":
        return [(0, lambda: check_program(args.bin, path, work))]
    if kind == "training":
        case = training_programs.Reference(path, work)
        return [(0, lambda: case.check_main(args.tool)), (1, lambda: case.check_startup(args.tool))]
    if kind == "training_programs":
        return [(0, lambda: training_programs.Stored(args.bin, path, work).check())]
    archive = zipfile.ZipFile(path)
    numbers = cases.case_numbers(path)
    if args.sample:
        numbers = numbers[::max(1, len(numbers) // args.sample)][:args.sample]
    return [(n, lambda n=n: check_case(args.tool, archive, n, work, kind == "training_ops")) for n in numbers]


def in_child(checks):
    """Runs checks in a child process; yields the verdicts until one crashes it."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        with os.fdopen(writer, "w") as out:
            for _, check in checks:
                print(json.dumps(cases.verdict_of(check)), file=out, flush=True)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as lines:
        yield from map(json.loads, lines)
    os.waitpid(child, 0)


def row_of(kind, path, args, work):
    row = []
    checks = checks_of(kind, path, args, work)
    while checks:
        done = list(in_child(checks))
        row += done
        checks = checks[len(done):]
        if checks:
            row.append(("failed", "the runtime crashed"))
            checks = checks[1:]
    return row


def name_of(kind, path):
    """Programs of several folders have the same name."""
    return f"{path.parent.name}/{path.stem}" if kind == "training_programs" else path.stem


def rows_of(kind, paths, args, work):
    """Rows by name, made by several processes."""
    readers = []
    for job in range(args.jobs):
        reader, writer = os.pipe()
        if os.fork() == 0:
            os.close(reader)
            with os.fdopen(writer, "w") as out:
                for path in paths[job::args.jobs]:
                    print(json.dumps([name_of(kind, path), row_of(kind, path, args, work)]), file=out, flush=True)
            os._exit(0)
        os.close(writer)
        readers.append(reader)
    rows = {}
    for reader in readers:
        with os.fdopen(reader) as lines:
            for name, verdicts in map(json.loads, lines):
                row = rows.setdefault(name, cases.Row())
                for verdict in verdicts:
                    row.add(*verdict)
        os.wait()
    return dict(sorted(rows.items()))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True, type=pathlib.Path, help="folder with migrate")
    parser.add_argument("--shared", required=True, type=pathlib.Path, help="folder with models and goldens")
    parser.add_argument("--only", help="comma-separated names of models and ops")
    parser.add_argument("--kinds", default="models,programs,ops,training,training_programs,training_ops", help="what to check")
    parser.add_argument("--sample", type=int, default=0, help="cases of each op; 0: all")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--floors", type=pathlib.Path, help="JSON with the smallest numbers of equal models and cases")
    args = parser.parse_args()
    args.tool = str(args.bin / "migrate")
    only = set(args.only.split(",")) if args.only else None
    paddle.enable_static()
    found = {"models": cases.models_of(args.shared), "programs": made_models.programs_of(args.shared),
             "ops": sorted(args.shared.glob("goldens/ops/*.npz")),
             "training": sorted(p.parent for p in args.shared.glob("goldens/training/*/config.json")),
             "training_programs": training_programs.programs_of(args.tool, args.shared),
             "training_ops": sorted(args.shared.glob("goldens/ops/*.npz"))}
    failures = 0
    equal = {}
    for kind in args.kinds.split(","):
        with tempfile.TemporaryDirectory() as work:
            paths = [p for p in found[kind] if not only or only & {p.stem, p.parent.name}]
            total = cases.print_rows(kind, rows_of(kind, paths, args, pathlib.Path(work)), VERDICTS)
            equal[kind] = total["equal"]
            failures += total["differs"] + total["failed"]
    if args.floors:
        failures += cases.too_few(equal, args.floors, "pir-sample" if args.sample else "pir")
    print(f"{sum(equal.values())} passed, {failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
