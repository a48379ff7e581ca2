#!/usr/bin/env python3
"""Exports models and single ops with migrate, runs them in ONNX Runtime and compares with the original's results.

    check_onnx.py --bin build/ci/tools --shared ../shared [--opset 17] [--only NAME] [--models-only] [--floors FILE]

Needs numpy, onnx and onnxruntime. For each model and op it prints how many cases are equal, refused by migrate (with
the first reason), not implemented by the runtime for an element type, or different. Fails if a case differs, migrate
fails in another way than by refusing, or fewer cases are equal than the floors say.
"""
import argparse
import concurrent.futures
import pathlib
import sys
import tempfile
import zipfile

import numpy as np
import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as state

import export_cases as cases

VERDICTS = ("equal", "refused", "no kernel", "differs", "failed")
# What a runtime says about an element type or rank that it has no kernel for.
NO_KERNEL = ("NOT_IMPLEMENTED", "Type Error", "not supported")
# Outputs that models do not use and that ONNX has no operator for.
NOT_COMPUTED = {"lstm": {"Cell"}, "lrn": {"MidOut"}}


def values_of(feeds):
    """Arrays by input name, with the offsets of LoD."""
    values = {}
    for feed in feeds:
        values[feed.name] = feed.array
        for level, offsets in enumerate(feed.lod):
            values[f"{feed.name}.lod{level}"] = np.array(offsets, np.int64)
    return values


def run(path, feeds):
    """Results by name. Feeds that the model does not read are left out."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    wanted = {i.name for i in session.get_inputs()}
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(names, {k: v for k, v in values_of(feeds).items() if k in wanted})))


def check_model(tool, folder, work, opset):
    feeds = cases.model_feeds(folder)
    out = work / f"{folder.name}.onnx"
    flags = ["--opset", str(opset)]
    try:
        cases.migrate(tool, "onnx", folder, out, flags)
        results = run(out, feeds)
    except (state.InvalidArgument, state.Fail):
        # Two models are fed other sizes than they declare, which the original does not check; one has squeeze ops
        # on axes whose extents are unknown in the file and are not 1.
        cases.migrate(tool, "onnx", folder, out, flags, [(f.name, f.array.shape) for f in feeds])
        results = run(out, feeds)
    return cases.compare_model(folder, results)


def check_case(tool, archive, number, work, opset):
    case = cases.OpCase(archive, number, work, NOT_COMPUTED)
    out = case.folder / "model.onnx"
    cases.migrate(tool, "onnx", case.folder, out, ["--opset", str(opset)])
    results = run(out, case.feeds())
    return case.compare(results, cases.lods_in(results))


def model_row(tool, folder, work, opset):
    row = cases.Row()
    row.add(*cases.verdict_of(lambda: check_model(tool, folder, work, opset), NO_KERNEL))
    return row


def op_row(tool, path, work, opset):
    row = cases.Row()
    with zipfile.ZipFile(path) as archive:
        numbers = cases.case_numbers(path)
        for number in numbers:
            verdict, why = cases.verdict_of(lambda n=number: check_case(tool, archive, n, work, opset), NO_KERNEL)
            row.add(verdict, why)
            if why and "the op has no counterpart" in why:
                row.count["refused"] = len(numbers)  # the other cases say the same
                break
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True, type=pathlib.Path, help="folder with migrate")
    parser.add_argument("--shared", required=True, type=pathlib.Path, help="folder with models and goldens")
    parser.add_argument("--opset", type=int, default=17)
    parser.add_argument("--only", help="comma-separated names of models and ops")
    parser.add_argument("--models-only", action="store_true")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--floors", type=pathlib.Path, help="JSON with the smallest numbers of equal models and cases")
    args = parser.parse_args()
    tool = str(args.bin / "migrate")
    only = set(args.only.split(",")) if args.only else None
    found = {"models": (model_row, cases.models_of(args.shared)),
             "ops": (op_row, [] if args.models_only else sorted(args.shared.glob("goldens/ops/*.npz")))}
    failures = 0
    equal = {}
    with tempfile.TemporaryDirectory() as work, concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for kind, (check, paths) in found.items():
            jobs = {p.stem: pool.submit(check, tool, p, pathlib.Path(work), args.opset)
                    for p in paths if not only or p.stem in only}
            total = cases.print_rows(kind, {name: job.result() for name, job in jobs.items()}, VERDICTS)
            equal[kind] = total["equal"]
            failures += total["differs"] + total["failed"]
    if args.floors:
        failures += cases.too_few(equal, args.floors, "onnx")
    print(f"{sum(equal.values())} passed, {failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
