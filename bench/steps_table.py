#!/usr/bin/env python3
"""Writes the output of the peer comparison as a table into a page.

    compare.py --nets mlp,lenet --peers torch:train,paddle3:train,ours:train --rounds 5 ... --ours "bench/run_step.py ..." >steps.jsonl
    bench/steps_table.py --write docs/performance.md steps.jsonl...

One row per net and mode: processor time of a step on one thread, median of the rounds, of millrace and of the fastest
peer of the run, and their ratio with the goal. `of floor` is the fraction of the step that a perfect program would need
on the machine of the goals: its multiplications at full rate, its parameters read from memory once. Peak memory is that
of the process, compared with PyTorch's (goal 0.6 for training) and Paddle's (0.4).
"""
import argparse
import json

from page import write_table

GOALS = {"train": {"linreg": 0.2, "mlp": 0.5, "lenet": 0.45, "word2vec": 0.45, "ctr_dnn": 0.45, "ctr_dnn_adam": 0.5, "bert_mini": 0.45,
                   "resnet18_64": 0.65, "resnet50_64": 0.5, "bert_base_l2": 0.55},
         "infer": {"mlp": 1.05, "resnet18_64": 0.9, "bert_mini": 1.0, "resnet50_224": 1.0, "mobilenet_224": 1.0}}
FLOOR_MS = {"train": {"mlp": 1.1, "lenet": 0.7, "word2vec": 1.4, "ctr_dnn": 8.4, "ctr_dnn_adam": 10.4, "bert_mini": 100, "resnet18_64": 38,
                      "resnet50_64": 87, "bert_base_l2": 416},
            "infer": {"mlp": 0.36, "resnet18_64": 10.1, "bert_mini": 29.7, "resnet50_224": 278, "mobilenet_224": 39}}


def rows(files):
    found = {}
    for name in files:
        with open(name, encoding="utf-8") as file:
            for line in file:
                row = json.loads(line)
                who, mode = row["peer"].split(":")
                mode = "train" if mode.startswith("train") else "infer"
                found.setdefault((mode, row["net"]), {})[who] = row
    return found


def memory_ratio(ours, peers, name):
    sizes = [row["rss_mb"] for who, row in peers.items() if who.startswith(name)]
    return f"{ours['rss_mb'] / min(sizes):.2f}" if sizes else ""


def table(found):
    lines = ["| net | mode | batch | ours ms | of floor | fastest peer | peer ms | ratio | goal | MiB | of PyTorch's | of Paddle's |", "|" + "---|" * 12]
    for (mode, net), peers in found.items():
        ours = peers.pop("ours", None)
        if ours is None or not peers:
            continue
        best = min(peers.values(), key=lambda row: row["cpu_ms_median"])
        mine = ours["cpu_ms_median"]
        floor = FLOOR_MS[mode].get(net)
        flag = " (MKL_DEBUG_CPU_TYPE=5)" if best["peer"].split(":")[0].endswith("M") else ""
        lines.append(f"| {net} | {mode} | {ours['batch']} | {mine:.3g} | {f'{floor / mine:.2f}' if floor else ''} | {best['version']}{flag} | "
                     f"{best['cpu_ms_median']:.3g} | {mine / best['cpu_ms_median']:.2f} | {GOALS[mode].get(net, '')} | {ours['rss_mb']:.0f} | "
                     f"{memory_ratio(ours, peers, 'torch')} | {memory_ratio(ours, peers, 'paddle')} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--write")
    parser.add_argument("--table", default="steps", help="name of the table in the page")
    args = parser.parse_args()
    text = table(rows(args.files))
    if not args.write:
        print(text)
        return
    write_table(args.write, args.table, text)


if __name__ == "__main__":
    main()
