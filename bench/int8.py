#!/usr/bin/env python3
"""Times inference with 8-bit integers beside float, and beside ONNX Runtime with the same networks and parameters.

    bench/int8.py --bin-dir build/release --programs ../shared/bench/programs [--nets mlp,resnet18_64,bert_mini] [--rounds 3]

One thread. Each net gets the parameters of its startup program and scales from one batch (quantize-program, abs-max).
ONNX Runtime gets the same model (migrate --to onnx), quantized by its own quantize_static with scales for channels, from
the same batch. Rounds alternate; lines have the best medians of processor time, and how far the results are from float. Needs numpy;
ONNX Runtime and onnx are optional.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from run_step import batch  # noqa: E402


def tool(args, name, *flags):
    done = subprocess.run([os.path.join(args.bin_dir, "tools", name), *map(str, flags)], capture_output=True, text=True,
                          env=dict(os.environ, OMP_NUM_THREADS="1"))
    if done.returncode:
        sys.exit(f"{name}: {done.stderr.strip()}")
    return done.stdout


def ours(args, folder, feeds):
    steps = 3
    for _ in range(2):
        result = json.loads(tool(args, "run-program", "--model-dir", folder, "--feed", feeds, "--benchmark", steps, "--warmup", 3, "--threads", 1))
        steps = int(min(max(args.budget * 1e3 / max(result["ms"]["p50"], 1e-3), 5), 5000))
    return result["cpu_ms"]


class Peer:
    """ONNX Runtime with one model."""

    def __init__(self, path, values):
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self.session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.values = {each.name: values[each.name] for each in self.session.get_inputs()}
        self.version = ort.__version__

    def result(self):
        return self.session.run(None, self.values)[0]

    def time(self, budget):
        for _ in range(3):
            self.result()
        times, end = [], time.perf_counter() + budget
        while time.perf_counter() < end or len(times) < 5:
            start = time.process_time()
            self.result()
            times.append(time.process_time() - start)
        return 1e3 * float(np.median(times))


def quantised_onnx(path, values, out):
    import onnx
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    names = [each.name for each in onnx.load(path).graph.input]

    class Reader(CalibrationDataReader):
        batches = iter([{name: values[name] for name in names}])

        def get_next(self):
            return next(self.batches, None)

    prepared = path + ".prepared"  # with batch norms folded, as the peer advises
    quant_pre_process(path, prepared, skip_symbolic_shape=True)
    # probabilities of a thousand classes would be rounded to 0
    softmax = [node.name for node in onnx.load(prepared).graph.node if node.op_type == "Softmax"]
    quantize_static(prepared, out, Reader(), nodes_to_exclude=softmax, quant_format=QuantFormat.QDQ, per_channel=True, activation_type=QuantType.QUInt8,
                    weight_type=QuantType.QInt8)


def difference(a, b):
    return 100 * float(np.linalg.norm(a - b) / np.linalg.norm(a))


def measure(args, name):
    folder = os.path.join(args.programs, name)
    with open(os.path.join(folder, "net.json"), encoding="utf-8") as file:
        net = json.load(file)
    with tempfile.TemporaryDirectory() as work:
        feeds, model, small = (os.path.join(work, each) for each in ("feeds.npz", "model", "int8"))
        values = batch(net, net["batch"], True)
        np.savez(feeds, **values)
        os.makedirs(model)
        startup = os.path.join(folder, "startup.pb")
        tool(args, "run-program", "--program", os.path.join(folder, "infer.pb"), "--startup", startup, "--feed", feeds, "--steps", 1,
             "--seed", 5, "--save-params", os.path.join(model, "__params__"), "--output", os.path.join(work, "out.npz"))
        with open(os.path.join(folder, "infer.pb"), "rb") as source, open(os.path.join(model, "__model__"), "wb") as target:
            target.write(source.read())
        report = json.loads(tool(args, "quantize-program", "--model-dir", model, "--feed", feeds, "-o", small, "--json"))
        rows = {"float": lambda: ours(args, model, feeds), "int8": lambda: ours(args, small, feeds)}
        far = {"int8": 100 * max(each["relative"] for each in report["results"])}
        try:
            onnx, onnx8 = os.path.join(work, "m.onnx"), os.path.join(work, "m8.onnx")
            tool(args, "migrate", "--to", "onnx", model, "-o", onnx)
            quantised_onnx(onnx, values, onnx8)
            peers = Peer(onnx, values), Peer(onnx8, values)
            rows |= {"peer float": lambda: peers[0].time(args.budget), "peer int8": lambda: peers[1].time(args.budget)}
            far["peer int8"] = difference(peers[0].result(), peers[1].result())
        except ImportError as error:
            print(f"without ONNX Runtime: {error}", file=sys.stderr)
        best = {}
        for _ in range(args.rounds):
            for row, run in rows.items():
                best[row] = min(best.get(row, 1e9), run())
        print(json.dumps({"net": name, "batch": net["batch"], "ms": {row: round(value, 4) for row, value in best.items()},
                          "percent_from_float": {row: round(value, 3) for row, value in far.items()}}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin-dir", default="build/release")
    parser.add_argument("--programs", required=True)
    parser.add_argument("--nets", default="mlp,resnet18_64,bert_mini")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--budget", type=float, default=1, help="seconds of measured steps")
    args = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    for name in args.nets.split(","):
        measure(args, name)


if __name__ == "__main__":
    main()
