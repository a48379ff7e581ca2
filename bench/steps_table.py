#!/usr/bin/env python3
"""Writes what the peer comparison printed as a table into a page.

    compare.py --nets mlp,lenet --peers torch:train --rounds 5 ... --ours "bench/run_step.py ..." >steps.jsonl
    bench/steps_table.py --write docs/performance.md steps.jsonl...

A line a net and mode: processor time of a step on one thread, median of the rounds, of the peer and of millrace, and the
median over the rounds of their ratio, beside the goal. Peak memory is that of the process.
"""
import argparse
import json

from page import write_table

GOALS = {"train": {"linreg": 0.2, "mlp": 0.5, "lenet": 0.45, "word2vec": 0.45, "ctr_dnn": 0.45, "ctr_dnn_adam": 0.5, "bert_mini": 0.45,
                   "resnet18_64": 0.65, "bert_base_l2": 0.55},
         "infer": {"mlp": 1.05, "resnet18_64": 0.9, "bert_mini": 1.0, "resnet50_224": 1.0, "mobilenet_224": 1.0}}


def rows(files):
    found = {}
    for name in files:
        with open(name, encoding="utf-8") as file:
            for line in file:
                row = json.loads(line)
                who, mode = row["peer"].split(":")
                found.setdefault((mode, row["net"]), {})["ours" if who == "ours" else "peer"] = dict(row, who=who)
    return found


def table(found):
    lines = ["| net | mode | batch | peer | peer ms | ours ms | ratio | goal | peer MiB | ours MiB | MiB ratio |", "|" + "---|" * 11]
    for (mode, net), pair in found.items():
        if len(pair) < 2:
            continue
        peer, ours = pair["peer"], pair["ours"]
        goal = GOALS.get(mode, {}).get(net, "")
        lines.append(f"| {net} | {mode} | {ours['batch']} | {peer['version']} | {peer['cpu_ms_median']:.3g} | {ours['cpu_ms_median']:.3g} | "
                     f"{ours['x_cpu']:.2f} | {goal} | {peer['rss_mb']:.0f} | {ours['rss_mb']:.0f} | {ours['rss_mb'] / peer['rss_mb']:.2f} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--write")
    args = parser.parse_args()
    text = table(rows(args.files))
    if not args.write:
        print(text)
        return
    write_table(args.write, "steps", text)


if __name__ == "__main__":
    main()
