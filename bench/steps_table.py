#!/usr/bin/env python3
"""Turns the output of the peer comparison into a table: one row per net and mode.

    steps_table.py steps.jsonl... --rates rates.json [--write docs/performance.md --table NAME] [--against docs/performance.md]

A row has the processor time of a step on one thread, median of the rounds, of millrace and of the fastest peer of the run, and their
ratio. `of floor` is the fraction of the step that a perfect program would need on this machine: its multiplications at the fastest
rate of any library (machine_rates.py), and its parameters at the rate of memory; nets with Winograd convolutions can be above 1.
`goal` is the ratio of the performance goals, or 1.15 floors of this machine if that is larger, but never above 1 in training. `met`
compares both. Peak memory is that of the process, compared with PyTorch's and Paddle's.

--against fails (exit 1) if a ratio is more than 5 % worse than in the table of that page which comes from the same kind of processor,
and if that table lacks a row. Without such a table it says so.
"""
import argparse
import json
import sys

from page import read_table, table_of, write_table

GOALS = {"train": {"linreg": 0.2, "mlp": 0.5, "lenet": 0.45, "word2vec": 0.45, "ctr_dnn": 0.45, "ctr_dnn_adam": 0.5, "bert_mini": 0.45,
                   "resnet18_64": 0.65, "resnet50_64": 0.5, "bert_base_l2": 0.55},
         "infer": {"mlp": 1.05, "resnet18_64": 0.9, "bert_mini": 1.0, "resnet50_224": 1.0, "mobilenet_224": 1.0}}
# Multiplications of a step in GFLOP, and megabytes of parameters and of their updates that it moves.
WORK = {"train": {"mlp": (0.26, 0), "lenet": (0.165, 0), "word2vec": (0.33, 0), "ctr_dnn": (1.5, 60), "ctr_dnn_adam": (1.5, 120),
                  "bert_mini": (20.9, 330), "resnet18_64": (7.05, 240), "resnet50_64": (16.2, 540), "bert_base_l2": (89.3, 1080)},
        "infer": {"mlp": (0.085, 0), "resnet18_64": (2.37, 0), "bert_mini": (6.98, 0), "resnet50_224": (65.3, 0), "mobilenet_224": (9.2, 0)}}
WORSE = 1.05
HEAD = ["net", "mode", "batch", "ours ms", "of floor", "fastest peer", "peer ms", "ratio", "goal", "met", "MiB", "of PyTorch's", "of Paddle's"]


def measured(files):
    """(mode, net) -> peer -> row of the comparison."""
    found = {}
    for name in files:
        with open(name, encoding="utf-8") as file:
            for line in file:
                row = json.loads(line)
                who, mode = row["peer"].split(":")
                # a peer may run in several ways (train+nhwc)
                found.setdefault(("train" if mode.startswith("train") else "infer", row["net"]), {})[row["peer"] if who != "ours" else who] = row
    return found


def memory_ratio(ours, peers, name):
    sizes = [row["rss_mb"] for who, row in peers.items() if who.startswith(name)]
    return f"{ours['rss_mb'] / min(sizes):.2f}" if sizes else ""


def floor_ms(mode, net, rates):
    if net not in WORK[mode]:
        return None
    gflop, megabytes = WORK[mode][net]
    return 1e3 * gflop / rates["gflops"] + megabytes / rates["memory_gb_per_s"]


def goal_of(mode, net, floor, peer_ms):
    """The goal on this machine: where a peer is near the floor, no program can be at the ratio of the other machine."""
    plain = GOALS[mode].get(net)
    if plain is None or floor is None:
        return plain
    return max(plain, min(1.15 * floor / peer_ms, 1.0))


def rows(found, rates):
    for (mode, net), peers in found.items():
        ours = peers.pop("ours", None)
        if ours is None or not peers:
            continue
        best = min(peers.values(), key=lambda row: row["cpu_ms_median"])
        mine, other = ours["cpu_ms_median"], best["cpu_ms_median"]
        floor = floor_ms(mode, net, rates)
        goal = goal_of(mode, net, floor, other)
        who, how = best["peer"].split(":")
        name = best["version"] + (f" {how.split('+', 1)[1]}" if "+" in how else "") + (" (MKL_DEBUG_CPU_TYPE=5)" if who.endswith("M") else "")
        yield [net, mode, ours["batch"], f"{mine:.3g}", f"{floor / mine:.2f}" if floor else "", name, f"{other:.3g}", f"{mine / other:.2f}",
               f"{goal:.2f}" if goal else "", "" if goal is None else "yes" if mine <= goal * other else "no", f"{ours['rss_mb']:.0f}",
               memory_ratio(ours, peers, "torch"), memory_ratio(ours, peers, "paddle")]


def worse_than(page, name, lines):
    """A line for each row whose ratio is more than 5 % worse than in the page, or that the page lacks."""
    before = {(cells[0], cells[1]): cells for cells in read_table(page, name)}
    ratio = HEAD.index("ratio")
    found = []
    for cells in lines:
        old = before.get((cells[0], cells[1]))
        if old is None:
            found.append(f"{cells[0]}, {cells[1]}: the table {name} of {page} has no such row")
        elif float(cells[ratio]) > WORSE * float(old[ratio]):
            found.append(f"{cells[0]}, {cells[1]}: ratio {cells[ratio]}, in {page} {old[ratio]}")
    return found


def compare(page, processor, lines):
    """The exit status; prints what is worse."""
    name = table_of(page, processor)
    if name is None:
        print(f"{page} has no table of this processor ({processor}): nothing is compared")
        return 0
    found = worse_than(page, name, lines)
    print("\n".join(found) if found else f"no ratio is more than 5 % worse than in the table {name}")
    return 1 if found else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--rates", required=True, help="output of machine_rates.py from the same run")
    parser.add_argument("--write", help="page to write the table into")
    parser.add_argument("--against", help="page to compare the ratios with")
    parser.add_argument("--table", default="steps", help="name of the table to write")
    args = parser.parse_args()
    with open(args.rates, encoding="utf-8") as file:
        rates = json.load(file)
    lines = list(rows(measured(args.files), rates))
    text = "\n".join("| " + " | ".join(map(str, cells)) + " |" for cells in [HEAD, *lines]).split("\n")
    text.insert(1, "|" + "---|" * len(HEAD))
    processor = rates["processor"] + (f", up to {rates['cpu_isa']}" if rates["cpu_isa"] else "")
    print(f"{processor}: products {rates['gflops']} GFLOP/s "
          f"({', '.join(f'{name} {rate}' for name, rate in rates['products_gflops'].items())}), memory {rates['memory_gb_per_s']} GB/s")
    print("\n".join(text))
    met = [cells[HEAD.index("met")] for cells in lines]
    print(f"{met.count('yes')} of {len(met) - met.count('')} goals met")
    if args.write:
        write_table(args.write, args.table, processor + "\n\n" + "\n".join(text))
    sys.exit(compare(args.against, processor, lines) if args.against else 0)


if __name__ == "__main__":
    main()
