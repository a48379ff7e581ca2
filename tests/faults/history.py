#!/usr/bin/env python3
"""Records every call of a synchronous job while its connections are cut, and checks the record against a model.

    tests/faults/history.py --bin-dir build/dev/tools [--case ../shared/goldens/ps_sync/linear_exact_3s4t] [--steps 12] [--rounds 1] [--seed N]

The record is what all processes write with `--profile`: each call at the caller and at the server, with an id that is
the same for a repeated call. The model of a server and a trainer: fetch, then alternately send and fetch; the response
to a fetch after n sends is sent only when all trainers have sent n times; every call that a trainer got a response for
was carried out, on one server, and no other call was; a repeated call follows a failed one. The checker must also
refuse fifty records that were corrupted on purpose. Exit status: 0 all passed, 1 not. Needs numpy.
"""
import argparse
import collections
import copy
import json
import os
import random
import sys

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from job import Job  # noqa: E402

SEND, FETCH = "send-barrier", "fetch-barrier"
LIMIT = 90
CLOCK_US = 200  # events recorded before and after a lock may be in the wrong order by this much


def read(path):
    """Calls of the joined trace: [{id, name, trainer, server (pid), begin, end, ok, served}], in order of begin."""
    with open(path, encoding="utf-8") as f:
        events = json.load(f)["traceEvents"]
    # the arrow of a call directly follows it
    calls = []
    for before, event in zip(events, events[1:]):
        if event["ph"] not in "sf" or before["ph"] != "X" or event["cat"] == "read":
            continue
        calls.append({"id": event["id"], "name": before["name"], "trainer": before["args"]["trainer"], "pid": before["pid"], "begin": before["ts"],
                      "end": before["ts"] + before["dur"], "ok": before["args"]["ok"], "served": event["ph"] == "f"})
    return sorted(calls, key=lambda call: call["begin"])


def check(calls, trainers, servers, steps):
    """Contradictions to the model."""
    wrong = []
    made, served = collections.defaultdict(list), collections.defaultdict(list)
    for call in calls:
        (served if call["served"] else made)[call["id"]].append(call)
    for call_id, tries in made.items():
        if len({(t["trainer"], t["name"]) for t in tries + served.get(call_id, [])}) != 1:
            wrong.append(f"call {call_id} is two calls")
        if any(t["ok"] for t in tries[:-1]):
            wrong.append(f"call {call_id} was repeated after its answer")
        good = [s for s in served.get(call_id, []) if s["ok"]]
        if tries[-1]["ok"] and not any(s["end"] <= tries[-1]["end"] + CLOCK_US for s in good):
            wrong.append(f"call {call_id} has an answer that nobody gave")
        if len({s["pid"] for s in good}) > 1:
            wrong.append(f"call {call_id} was carried out by two servers")
        if not tries[-1]["ok"]:
            wrong.append(f"call {call_id} was never answered")
    wrong += [f"call {call_id} was answered but not made" for call_id in served if call_id not in made]
    # by server and trainer: each call at the time of its first successful response
    turns = collections.defaultdict(list)
    for call_id, answers in served.items():
        first = min((a for a in answers if a["ok"]), key=lambda a: a["end"], default=None)
        if first is not None and first["name"] in (SEND, FETCH):
            turns[first["pid"], first["trainer"]].append(first)
    sends = collections.defaultdict(list)  # by server and number: the time when each trainer's send began
    for (server, trainer), list_of in turns.items():
        list_of.sort(key=lambda call: call["end"])
        names = [call["name"] for call in list_of]
        if names != [FETCH, SEND] * steps + [FETCH]:
            wrong.append(f"trainer {trainer} at server {server}: {len(names)} calls, out of turn")
        for number, call in enumerate(c for c in list_of if c["name"] == SEND):
            sends[server, number].append(call["begin"])
    if len(turns) != trainers * servers:
        wrong.append(f"{len(turns)} pairs of trainer and server, expected {trainers * servers}")
    for (server, trainer), list_of in turns.items():
        for number, call in enumerate(c for c in list_of if c["name"] == FETCH):
            if number == 0:
                continue
            begun = sends[server, number - 1]
            if len(begun) != trainers:
                wrong.append(f"server {server}: {len(begun)} trainers sent step {number - 1}")
            elif call["end"] + CLOCK_US < max(begun):
                wrong.append(f"server {server}: trainer {trainer} has step {number} before all have sent")
    return wrong


def damage(calls, draw):
    """Makes an impossible record. \\returns it and a description of the change."""
    calls = copy.deepcopy(calls)
    acts = {
        "an answer vanishes": lambda: calls.remove(draw.choice([c for c in calls if c["served"] and c["ok"] and once(calls, c)])),
        "a call vanishes": lambda: calls.remove(draw.choice([c for c in calls if not c["served"] and c["ok"]])),
        "two calls change their ids": lambda: swap(calls, draw),
        "another server carries a call out, too": lambda: calls.append(elsewhere(calls, draw)),
        "a step is left early": lambda: early(calls, draw),
        "a send is a fetch": lambda: draw.choice([c for c in calls if c["served"] and c["name"] == SEND]).update(name=FETCH),
        "an answered call is repeated": lambda: calls.append(dict(draw.choice([c for c in calls if not c["served"] and c["ok"]]), begin=1e12, end=1e12)),
        "the last word of a call is an error": lambda: draw.choice([c for c in calls if not c["served"] and c["ok"]]).update(ok=False),
    }
    name = draw.choice(sorted(acts))
    acts[name]()
    return sorted(calls, key=lambda call: call["begin"]), name


def once(calls, call):
    return sum(c["id"] == call["id"] and c["served"] == call["served"] and c["ok"] for c in calls) == 1


def swap(calls, draw):
    a, b = draw.sample([c for c in calls if c["served"] and c["ok"] and once(calls, c)], 2)
    while (a["trainer"], a["name"]) == (b["trainer"], b["name"]):
        b = draw.choice([c for c in calls if c["served"] and c["ok"] and once(calls, c)])
    a["id"], b["id"] = b["id"], a["id"]


def elsewhere(calls, draw):
    call = draw.choice([c for c in calls if c["served"] and c["ok"]])
    return dict(call, pid=draw.choice(sorted({c["pid"] for c in calls if c["served"]} - {call["pid"]})))


def early(calls, draw):
    """A fetch of a later step ends before any trainer has sent."""
    fetches = collections.defaultdict(list)
    for c in calls:
        if c["served"] and c["name"] == FETCH and c["ok"]:
            fetches[c["pid"], c["trainer"]].append(c)
    call = draw.choice(fetches[draw.choice(sorted(fetches))][1:])
    call["end"] = call["begin"] = min(c["begin"] for c in calls) - 10 * CLOCK_US


def run(args, draw):
    with Job(args.bin_dir, args.case, args.steps, ["--transport", "tcp"],
             ["--transport", "tcp", "--deadline-ms", "60000", "--reconnect-timeout-ms", "20000"]).prepare() as job:
        for proxy in job.proxies:
            proxy.cut_after, proxy.jitter_cut = args.cut_after, random.Random(draw.random())
        want, files = job.reference(), []
        for role, count in (("server", len(job.servers)), ("trainer", len(job.trainers))):
            for k in range(count):
                files.append(f"{job.dir}/{role}_{k}.json")
                (job.start_server(k, wait=False, flags=["--profile", files[-1]]) if role == "server" else
                 job.start_trainer(k, flags=["--profile", files[-1]]))
        servers, trainers = job.wait_all(LIMIT)
        if servers + trainers != [0] * len(servers + trainers):
            return [f"servers {servers}, trainers {trainers}: {[p.text[-300:] for p in job.processes[1:]]}"], 0, []
        after = job.load("after.npz")
        wrong = [f"'{name}' is another" for name, value in want.items() if not np.array_equal(after[name], value)]
        job.run("job-report", ["--traces", *files, "-o", f"{job.dir}/job.json"])
        calls = read(f"{job.dir}/job.json")
        return wrong + check(calls, len(trainers), len(servers), args.steps), sum(p.cuts for p in job.proxies), calls


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    here = os.path.dirname(os.path.abspath(__file__))
    ap.add_argument("--bin-dir", required=True)
    ap.add_argument("--case", default=os.path.join(here, "../../../shared/goldens/ps_sync/linear_exact_3s4t"))
    ap.add_argument("--steps", type=int, default=12)
    ap.add_argument("--cut-after", type=int, default=150_000, help="bytes after which a connection ends")
    ap.add_argument("--rounds", type=int, default=1)
    ap.add_argument("--seed", type=int, default=1)
    args = ap.parse_args()
    draw = random.Random(args.seed)
    good = bad = 0
    for _ in range(args.rounds):
        wrong, cuts, calls = run(args, draw)
        repeats = len([c for c in calls if not c["served"] and not c["ok"]])
        print(f"{'FAIL' if wrong else 'ok  '} {len(calls)} calls made and answered, {cuts} cuts, {repeats} repeats {wrong[:5]}", flush=True)
        good, bad = good + (not wrong), bad + bool(wrong)
    trainers, servers = len({c["trainer"] for c in calls}), len({c["pid"] for c in calls if c["served"]})
    for _ in range(50):
        made, what = damage(calls, draw)
        found = check(made, trainers, servers, args.steps)
        if not found:
            print(f"FAIL not refused: {what}")
        good, bad = good + bool(found), bad + (not found)
    print(f"{good} passed, {bad} failed")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
