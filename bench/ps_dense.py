#!/usr/bin/env python3
"""Dense push and pull between a trainer and pservers, compared with bare TCP and with Paddle in the same run (goal G9).

    bench/ps_dense.py --bin-dir build/release [--mb 64] [--runs 7] [--rounds 3] [--peer "PYTHON bench/peer_paddle_dense.py"]

Every round runs ps_wire_bench and then the peer, with one server and with two; of each the best median of all rounds
counts. Prints one line of JSON per transport and direction: GB/s of both, their ratio, and the ratio to bare TCP. With
--check one short run without the peer.
"""
import argparse
import json
import os
import shlex

from json_lines import json_lines


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--bin-dir", required=True)
    ap.add_argument("--mb", type=int, default=64)
    ap.add_argument("--runs", type=int, default=7)
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--peer", default="", help="command of the peer's script")
    ap.add_argument("--check", action="store_true")
    args = ap.parse_args()
    if args.check:
        args.mb, args.runs, args.rounds, args.peer = 1, 1, 1, ""
    size = ["--mb", str(args.mb), "--runs", str(args.runs)]
    ours, share, theirs = {}, {}, {"push": 0.0, "pull": 0.0}
    for _ in range(args.rounds):
        for servers in ("1", "2"):
            for row in json_lines([os.path.join(args.bin_dir, "bench/ps_wire_bench"), "--servers", servers, "--calls", "10" if args.check else "100", *size]):
                if row["unit"] == "GB/s":
                    key = row["transport"], row["name"].removeprefix("ps_wire_")
                    ours[key] = max(ours.get(key, 0.0), row["median"])
                    share[key] = max(share.get(key, 0.0), row["to_plain"])
            if not args.peer:
                continue
            row = json_lines([*shlex.split(args.peer), *size, "--servers", servers])[-1]
            theirs = {name: max(best, row[name]["median"]) for name, best in theirs.items()}
    for (transport, name), rate in ours.items():
        row = {"name": f"ps_dense_{name}", "transport": transport, "mb": args.mb, "unit": "GB/s", "median": round(rate, 3), "runs": args.runs * args.rounds,
               "to_plain": share[transport, name]}
        if theirs[name]:
            row.update(peer=round(theirs[name], 3), ratio=round(rate / theirs[name], 2))
        print(json.dumps(row))


if __name__ == "__main__":
    main()
