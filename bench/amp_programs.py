#!/usr/bin/env python3
"""Makes bench programs of mixed precision, for `gpu_peers.py --precision amp_f16,amp_bf16`.

    amp_programs.py --bench DIR --out DIR [--nets mlp,resnet50_64,bert_mini,...] [--types f16,bf16]

DIR is the reference material's folder bench, whose make_programs.py builds the nets; here their optimizers are decorated
for mixed precision (level O1, a dynamic scale of the loss with f16), and the results are OUT/NET_amp_f16 and so on.
Needs PaddlePaddle 2.6.
"""
import argparse
import os
import sys


def decorated(build, paddle, dtype):
    def made(b):
        xs, ys, prediction, loss, optimizer = build(b)
        scaled = dtype == "float16"
        return xs, ys, prediction, loss, paddle.static.amp.decorate(
            optimizer, init_loss_scaling=32768.0 if scaled else 1.0, use_dynamic_loss_scaling=scaled, level="O1",
            dtype=dtype)
    return made


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--nets", default="mlp,lenet,resnet18_64,resnet50_64,bert_mini,bert_base_l2")
    parser.add_argument("--types", default="f16,bf16")
    args = parser.parse_args()
    sys.path.insert(0, args.bench)
    import make_programs
    import paddle
    from paddle.static.amp import fp16_lists

    # a build for the processor says of every op that it has no kernel of 16-bit floats
    fp16_lists._get_unsupported_list = lambda dtype: (set(), set())
    for net in args.nets.split(","):
        build, rows = make_programs.NETS[net]
        for short in args.types.split(","):
            dtype = {"f16": "float16", "bf16": "bfloat16"}[short]
            name = f"{net}_amp_{short}"
            make_programs.NETS[name] = (decorated(build, paddle, dtype), rows)
            make_programs.make(name, args.out)


if __name__ == "__main__":
    sys.exit(main())
