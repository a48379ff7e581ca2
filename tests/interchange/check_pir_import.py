#!/usr/bin/env python3
"""Imports PIR programs with migrate, runs them with run-program and compares with known results.

    check_pir_import.py --bin build/ci/tools --shared ../shared [--only NAME] [--kinds nets,layers,models,ops] [--sample N] [--floors FILE]

Two sources: the networks of paddle.vision and other layers, which release 3.3.1 of the original saves and runs here with made
parameters, and published models and operator cases that migrate has exported first. Needs numpy, and paddlepaddle for networks and layers. For each it
prints how many cases are equal, refused by migrate, without a kernel in run-program for an element type, or different.
Fails if a case differs, a tool fails in another way than by refusing, or fewer cases are equal than the floors say.
"""
import argparse
import concurrent.futures
import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile

import numpy as np

import export_cases as cases

os.environ.setdefault("FLAGS_use_mkldnn", "0")
os.environ.setdefault("GLOG_minloglevel", "3")

VERDICTS = ("equal", "refused", "no kernel", "differs", "failed")
NO_KERNEL = ("kernel for", "no kernel")
# The networks of paddle.vision.models, and the extents of the images that they are given: as small as they allow.
NETS = {"LeNet": (1, 28), "alexnet": (3, 224), "densenet121": (3, 64), "googlenet": (3, 224), "inception_v3": (3, 160),
        "mobilenet_v1": (3, 64), "mobilenet_v2": (3, 64), "mobilenet_v3_small": (3, 64), "mobilenet_v3_large": (3, 64),
        "resnet18": (3, 64), "resnext50_32x4d": (3, 64), "wide_resnet50_2": (3, 64), "shufflenet_v2_x0_25": (3, 64),
        "squeezenet1_0": (3, 64), "vgg11": (3, 64)}
FEW_NETS = ("LeNet", "googlenet", "mobilenet_v3_small", "shufflenet_v2_x0_25", "squeezenet1_0")


def import_and_run(tools, program, folder, feeds):
    """Arrays by name, with the LoD as name.lod0."""
    cases.migrate(str(tools / "migrate"), "program", program, folder)
    values = {f.name: f.array for f in feeds}
    values |= {f"{f.name}.lod{level}": np.array(offsets) for f in feeds for level, offsets in enumerate(f.lod)}
    np.savez(folder / "feeds.npz", **values)
    params = folder / "__params__"
    done = subprocess.run([tools / "run-program", "--program", folder / "__model__", *(["--params", params] if params.exists() else []),
                           *(["--feed", folder / "feeds.npz"] if values else []), "-o", folder / "out.npz", "-q", "--force", "--threads", "1"],
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"run-program ended with {done.returncode}: {done.stderr.strip()}")
    return dict(np.load(folder / "out.npz"))


def check_net(tools, name, work):
    """A network that the original saves and runs."""
    import paddle  # pylint: disable=import-outside-toplevel  # seconds, and only for this
    import paddle.vision.models as models  # pylint: disable=import-outside-toplevel
    channels, extent = NETS[name]
    paddle.seed(7)
    return check_saved(tools, name, getattr(models, name)(), (2, channels, extent, extent), work)


def layers_of(paddle):
    """Layers with forms of ops that the networks and the export lack, and the dims of their input."""
    nn, f = paddle.nn, paddle.nn.functional
    seq, image, matrix = (2, 5, 8), (2, 4, 8, 8), (3, 4)
    return {
        "lstm": (lambda: nn.LSTM(8, 6, 2, direction="bidirect"), seq),
        "gru": (lambda: nn.GRU(8, 6), seq),
        "simple_rnn": (lambda: nn.SimpleRNN(8, 6, time_major=True), seq),
        "encoder": (lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, activation="gelu"), 2), seq),
        "conv_transpose": (lambda: nn.Conv2DTranspose(4, 6, 3, stride=2, output_padding=1, groups=2), image),
        "group_norm": (lambda: nn.GroupNorm(2, 4), image),
        "instance_norm": (lambda: nn.InstanceNorm2D(4), image),
        "statistics": (lambda: nn.BatchNorm2D(4, use_global_stats=False), image),
        "masked": (lambda: lambda x: f.softmax(paddle.where(x > 0, x, paddle.full([3, 4], float("-inf")) + x) + x, 0).isnan(), matrix),
        "infinite": (lambda: lambda x: (paddle.full([3, 4], float("-inf")) + x, paddle.full([3, 4], float("nan")) + x), matrix),
        "constant": (lambda: lambda x: x * paddle.to_tensor(2.5) + paddle.to_tensor([1.0, 2.0, 3.0, 4.0]), matrix),
        "shape": (lambda: lambda x: paddle.shape(x), matrix),
        "negation": (lambda: lambda x: ~(x >= 0), matrix),
        "range": (lambda: lambda x: paddle.arange(0, 4, dtype="float32") * x, matrix),
        "largest": (lambda: lambda x: paddle.linalg.norm(x, float("inf"), 1), matrix),
        "interpolate": (lambda: lambda x: (f.interpolate(x, scale_factor=1.7, mode="bilinear"), f.interpolate(x, [5, 3], mode="area")), image),
        "pad": (lambda: lambda x: (f.pad(x, [1, 2, 0, 1], "reflect"), f.pad(x, [1, 2, 0, 1], "constant", 0.5)), image),
        "slices": (lambda: lambda x: (x[:, 1], x[..., -1] * 2, x[:, :, 1:-1, ::-1], x[:, None, 0] + 1), image)}


def check_layer(tools, name, work):
    """A layer or function that the original saves and runs."""
    import paddle  # pylint: disable=import-outside-toplevel  # seconds, and only for this
    paddle.seed(7)
    make, dims = layers_of(paddle)[name]
    made = make()

    class Function(paddle.nn.Layer):
        """A function as a layer."""

        def forward(self, x):
            return made(x)
    return check_saved(tools, name, made if isinstance(made, paddle.nn.Layer) else Function(), dims, work)


def check_saved(tools, name, net, dims, work):
    import paddle  # pylint: disable=import-outside-toplevel
    net.eval()
    x = np.random.RandomState(3).uniform(-1, 1, dims).astype(np.float32)
    want = paddle.utils.flatten(net(paddle.to_tensor(x)))
    paddle.jit.save(net, str(work / name), input_spec=[paddle.static.InputSpec([-1, *dims[1:]], "float32", "x")])
    got = import_and_run(tools, work / f"{name}.json", work / f"{name}.imported", [cases.Feed("x", x, [])])
    for k, tensor in enumerate(want):
        array = tensor.numpy()
        finite = np.abs(array[np.isfinite(array)].astype(np.float64))
        tolerance = cases.MODEL_TOLERANCE * float(finite.max()) if finite.size else 0
        if difference := cases.close(got[f"fetch_name_{k}"], array, 0, tolerance):
            return f"output {k}: {difference}"
    return None


def check_model(tools, folder, work):
    """A published model, exported and imported."""
    feeds = cases.model_feeds(folder)
    prefix, dims = work / folder.name, [(f.name, f.array.shape) for f in feeds if not f.lod]
    cases.migrate(str(tools / "migrate"), "pir", folder, prefix, dims=dims)
    return cases.compare_model(folder, import_and_run(tools, f"{prefix}.json", work / f"{folder.name}.imported", feeds))


def check_case(tools, archive, number, work):
    """An operator case, exported and imported; None if the export refuses it."""
    try:
        case = cases.OpCase(archive, number, work, {})
        cases.migrate(str(tools / "migrate"), "pir", case.folder, case.folder / "model")
    except cases.Refused:
        return None  # counted by check_pir.py
    feeds = case.feeds()

    def check():
        results = import_and_run(tools, case.folder / "model.json", case.folder / "imported", feeds)
        return case.compare(results, cases.lods_in(results))
    return cases.verdict_of(check, NO_KERNEL)


def op_row(tools, path, sample, work):
    row, numbers = cases.Row(), cases.case_numbers(path)
    if sample:
        numbers = numbers[::max(1, len(numbers) // sample)][:sample]
    with zipfile.ZipFile(path) as archive:
        for number in numbers:
            if verdict := check_case(tools, archive, number, work):
                row.add(*verdict)
    return row


def row_of(check):
    row = cases.Row()
    row.add(*cases.verdict_of(check, NO_KERNEL))
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True, type=pathlib.Path, help="folder with migrate and run-program")
    parser.add_argument("--shared", required=True, type=pathlib.Path, help="folder with models and goldens")
    parser.add_argument("--only", help="comma-separated names")
    parser.add_argument("--kinds", default="nets,layers,models,ops", help="what to check; few_nets: those of nets that take little time")
    parser.add_argument("--sample", type=int, default=0, help="cases of each op; 0: all")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--floors", type=pathlib.Path, help="JSON with the smallest numbers of equal nets, models and cases")
    args = parser.parse_args()
    tools, kinds, only = args.bin.resolve(), args.kinds.split(","), args.only.split(",") if args.only else None
    failures, equal, layers = 0, {}, []
    if "layers" in kinds:
        import paddle  # pylint: disable=import-outside-toplevel  # seconds, and only for this
        layers = list(layers_of(paddle))
    with tempfile.TemporaryDirectory() as name, concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        work = pathlib.Path(name)
        jobs = {"nets": {n: lambda n=n: row_of(lambda: check_net(tools, n, work)) for n in NETS},
                "few_nets": {n: lambda n=n: row_of(lambda: check_net(tools, n, work)) for n in FEW_NETS},
                "layers": {n: lambda n=n: row_of(lambda: check_layer(tools, n, work)) for n in layers},
                "models": {p.stem: lambda p=p: row_of(lambda: check_model(tools, p, work)) for p in cases.models_of(args.shared)},
                "ops": {p.stem: lambda p=p: op_row(tools, p, args.sample, work) for p in sorted(args.shared.glob("goldens/ops/*.npz"))}}
        for kind in kinds:
            wanted = {n: check for n, check in jobs[kind].items() if not only or n in only}
            if kind.endswith("nets") or kind == "layers":  # the original's modes belong to its process
                rows = {n: check() for n, check in wanted.items()}
            else:
                rows = {n: job.result() for n, job in {n: pool.submit(check) for n, check in wanted.items()}.items()}
            total = cases.print_rows(kind, rows, VERDICTS)
            equal[kind] = total["equal"]
            failures += total["differs"] + total["failed"]
    if args.floors:
        failures += cases.too_few(equal, args.floors, "pir_import-sample" if args.sample else "pir_import")
    print(f"{sum(equal.values())} passed, {failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
