#!/usr/bin/env python3
"""Steps of the bench programs on a GPU, beside PyTorch on the same GPU in the same run.

    gpu_peers.py --bin RUN_PROGRAM --bench DIR [--nets mlp:128,resnet50_64:64,...] [--precision f32,tf32,amp_f16,...]
                 [--compile] [--infer] [--amp DIR] [--devices gpu:0] [--json FILE]

DIR is the reference material's folder bench: programs/, and peer_torch.py with the same nets in PyTorch (other weights,
equal work). Precisions amp_f16 and amp_bf16 run the programs that amp_programs.py has made in the folder of --amp,
beside autocast of PyTorch. Both sides get their batch from the processor's memory in every step and hand back the loss (inference: one
output). Prints a line per net and precision with median milliseconds per step, and the ratios to PyTorch; --json appends
all numbers as lines of JSON. Needs PyTorch with CUDA.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

from run_step import batch


def is_amp(precision):
    return precision.startswith("amp_")


def run_millrace(args, folder, net, rows, precision):
    with tempfile.TemporaryDirectory() as work:
        feeds = os.path.join(work, "feeds.npz")
        np.savez(feeds, **batch(net, rows, args.infer))
        folder, precision = (os.path.join(args.amp, f"{net['net']}_{precision}"), "f32") if is_amp(precision) else (folder, precision)
        command = [args.bin, "--program", os.path.join(folder, "infer.pb" if args.infer else "main.pb"), "--startup",
                   os.path.join(folder, "startup.pb"), "--feed", feeds, "--benchmark", str(args.steps), "--warmup", "10",
                   "--devices", args.devices, "--precision", precision]
        if not args.infer and net["loss"]:
            command += ["--fetch", net["loss"]]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        if done.returncode:
            raise RuntimeError(done.stderr.strip()[-500:])
        result = json.loads(done.stdout)
        return result["ms"]["p50"], result


def torch_step(args, net, rows, precision, compiled):
    import torch
    import torch.nn.functional as F

    sys.path.insert(0, args.bench)
    import peer_torch

    tf32 = precision == "tf32"
    half = {"amp_f16": torch.float16, "amp_bf16": torch.bfloat16}.get(precision)
    autocast = lambda: torch.autocast("cuda", dtype=half, enabled=half is not None)
    scaler = torch.amp.GradScaler("cuda", enabled=half is torch.float16)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
    torch.manual_seed(7)
    model, kind = peer_torch.build(net["net"])
    tables = [feed["high"] for feed in net["feeds"] if net["net"].startswith("ctr_dnn") and "high" in feed and feed["infer"]]
    if tables:  # a copy of the net may have more rows
        model = peer_torch.Ctr(rows=max(tables))
    model = model.cuda()
    given = batch(net, rows, args.infer)
    names = [f["name"] for f in net["feeds"] if f["infer"]]
    inputs = [torch.from_numpy(given[n]) for n in names]
    labels = [torch.from_numpy(v) for n, v in given.items() if n not in names]
    call = torch.compile(model) if compiled else model
    if args.infer or kind is None:
        model.eval()

        def step():
            with torch.inference_mode(), autocast():
                return float(call(*[x.cuda(non_blocking=True) for x in inputs]).reshape(-1)[0])
        return step
    optimizers = peer_torch.optimizers(model, kind)

    def step():
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none=True)
        with autocast():
            out = call(*[x.cuda(non_blocking=True) for x in inputs])
            y = labels[0].cuda(non_blocking=True)
            loss = F.cross_entropy(out, y.view(-1)) if y.dtype == torch.int64 else F.mse_loss(out, y)
        scaler.scale(loss).backward()
        for optimizer in optimizers:
            scaler.step(optimizer)
        scaler.update()
        return float(loss.detach())
    return step


def time_torch(args, net, rows, precision, compiled):
    step = torch_step(args, net, rows, precision, compiled)
    for _ in range(10):
        step()
    times = []
    for _ in range(args.steps):
        start = time.perf_counter()
        step()
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--bench", required=True)
    parser.add_argument("--nets", default="mlp:128,resnet18_64:64,resnet50_64:64")
    parser.add_argument("--precision", default="f32,tf32")
    parser.add_argument("--amp", help="folder of the programs of mixed precision")
    parser.add_argument("--devices", default="gpu:0")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--compile", action="store_true", help="also beside torch.compile")
    parser.add_argument("--infer", action="store_true", help="inference in place of training")
    parser.add_argument("--json")
    args = parser.parse_args()
    if any(is_amp(p) for p in args.precision.split(",")) and (args.amp is None or args.infer):
        parser.error("precisions amp_... need --amp, and are for training")
    failed = 0
    print(f"{'net':14} {'batch':>5} {'math':8} {'ours ms':>9} {'eager ms':>9} {'ratio':>6} {'compiled':>9} {'ratio':>6}  ops gpu/cpu")
    for entry in args.nets.split(","):
        name, _, rows = entry.partition(":")
        folder = os.path.join(args.bench, "programs", name)
        with open(os.path.join(folder, "net.json"), encoding="utf-8") as file:
            net = json.load(file)
        rows = int(rows or net["batch"])
        for precision in args.precision.split(","):
            line = {"net": name, "batch": rows, "precision": precision, "mode": "infer" if args.infer else "train"}
            try:
                line["ours_ms"], details = run_millrace(args, folder, net, rows, precision)
                line["gpu"] = details.get("gpu")
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                print(f"{name} {precision}: millrace: {error}")
                failed += 1
                continue
            try:
                line["eager_ms"] = time_torch(args, net, rows, precision, False)
                if args.compile:
                    line["compiled_ms"] = time_torch(args, net, rows, precision, True)
            except Exception as error:  # a peer that fails is reported, and is no failure of ours
                print(f"{name} {precision}: torch: {str(error)[-300:]}")
            ratio = lambda key: f"{line[key]:9.3f} {line['ours_ms'] / line[key]:6.2f}" if key in line else f"{'-':>9} {'-':>6}"
            on = line["gpu"] or {}
            print(f"{name:14} {rows:5} {precision:8} {line['ours_ms']:9.3f} {ratio('eager_ms')} {ratio('compiled_ms')}  "
                  f"{on.get('ops_on_gpu', '?')}/{on.get('ops_on_cpu', '?')}", flush=True)
            if args.json:
                with open(args.json, "a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
