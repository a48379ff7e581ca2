#!/usr/bin/env python3
"""Generates the cases of the differential tests with the original; started by run.py with the original's interpreter.

Reads lines of JSON on stdin, {"plan": ..., "out": FOLDER}, and responds to each with a line {"ok": true, ...} or {"ok":
false, "why": ...}. Every plan is built in a separate process, forked from this one, so that the original is imported
only once and its counters and crashes do not affect the next plan.

    oracle.py SHARED_TOOLS_FOLDER
"""
import gc
import json
import os
import signal
import sys
import time
import traceback
import types

sys.path.insert(0, sys.argv[1])
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

SECONDS = 120


def answer(request):
    if request["plan"].get("cluster"):
        from make_job import make
    else:
        from make_net import make
    return make(request["plan"], request["out"])


def in_child(request):
    """Runs answer() in a fork; a crash or a hang of the original is a result as well."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        signal.alarm(SECONDS)
        with open(request["out"] + ".log", "w", encoding="utf-8") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
            try:
                reply = dict(ok=True, **answer(request))
            except Exception as e:                       # any exception of the original
                where = traceback.extract_tb(e.__traceback__)[-1]
                reply = dict(ok=False, why=f"{type(e).__name__}: {str(e).strip()[-300:]} ({where.name})")
                traceback.print_exc()
            os.write(write, json.dumps(reply).encode())
        os._exit(0)
    os.close(write)
    text = b""
    while True:
        part = os.read(read, 65536)
        if not part:
            break
        text += part
    os.close(read)
    _, status = os.waitpid(child, 0)
    if text:
        return text.decode()
    return json.dumps(dict(ok=False, why=f"the original ended with status {status}"))


def main():
    import gen_training_goldens  # noqa: F401  loads the original, before the first fork
    import building, steps_control, steps_dense, steps_sequence  # noqa: F401, E401
    # Where Python created each op is left out of all programs, and collecting garbage would copy the pages that a fork shares.
    from paddle.base import framework
    framework.traceback = types.SimpleNamespace(extract_stack=list)
    gc.collect()
    gc.freeze()
    gc.disable()
    for line in sys.stdin:
        began = time.monotonic()
        reply = json.loads(in_child(json.loads(line)))
        print(json.dumps(dict(reply, seconds=round(time.monotonic() - began, 2))), flush=True)


if __name__ == "__main__":
    main()
