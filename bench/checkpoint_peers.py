#!/usr/bin/env python3
"""Saving and loading checkpoints compared with Paddle's save_combine and torch.save, alternating in one run (goal G7).

    bench/checkpoint_peers.py --bin-dir build/release --folder DIR --script ../shared/bench/peer_io.py [--paddle PYTHON] [--torch PYTHON]
                              [--mib 1024] [--rounds 3] [--runs 3]

Every round calls checkpoint_bench and then the script with each interpreter; the best median of all rounds counts.
Prints one line of JSON per case: seconds of millrace and of each peer, and their ratio (below 1: millrace is faster).
"""
import argparse
import json
import os

from json_lines import json_lines

# Names of the cases in checkpoint_bench and in the peers' script.
CASES = {"save": "save", "save, fsync": "save_fsync", "load, page cache": "load_cached", "load, cold": "load_cold"}
PEERS = {"paddle": "combine", "torch": "torch"}


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--bin-dir", required=True)
    ap.add_argument("--folder", required=True)
    ap.add_argument("--script", required=True)
    ap.add_argument("--paddle", help="interpreter with paddlepaddle")
    ap.add_argument("--torch", help="interpreter with torch")
    ap.add_argument("--mib", type=int, default=1024)
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--runs", type=int, default=3)
    args = ap.parse_args()
    best = {}

    def note(who, case, seconds):
        best[who, case] = min(seconds, best.get((who, case), seconds))

    for _ in range(args.rounds):
        for row in json_lines([os.path.join(args.bin_dir, "bench/checkpoint_bench"), "--folder", args.folder, "--mib", str(args.mib), "--runs", str(args.runs)]):
            if row["name"] in CASES:
                note("ours", row["name"], row["median_s"])
        for peer, form in PEERS.items():
            python = getattr(args, peer)
            if not python:
                continue
            names = {f"{form}_{theirs}": ours for ours, theirs in CASES.items()}
            for row in json_lines([python, args.script, "--peer", peer, "--mb", str(args.mib), "--dir", args.folder, "--reps", str(args.runs)]):
                if row["what"] in names:
                    note(peer, names[row["what"]], row["s_median"])
    for case in CASES:
        row = {"name": f"checkpoint {case}", "mib": args.mib, "unit": "s", "runs": args.rounds * args.runs, "median": best["ours", case]}
        for peer in PEERS:
            if (peer, case) in best:
                row[peer] = best[peer, case]
                row[f"to_{peer}"] = round(best["ours", case] / best[peer, case], 3)
        print(json.dumps(row))


if __name__ == "__main__":
    main()
