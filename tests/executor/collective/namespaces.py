#!/usr/bin/env python3
"""Two ranks in two network namespaces, joined by a virtual cable, pass the checks of a group over Gloo; when the cable is cut,
both name the other within the deadline.

    tests/executor/collective/namespaces.py COLLECTIVE_RANK

Exit status 77 (skipped) if namespaces cannot be created or this build has no Gloo.
"""
import os
import subprocess
import sys
import time

SKIPPED = 77
NAMES = [f"mr{os.getpid()}a", f"mr{os.getpid()}b"]
HOSTS = ["10.211.7.1", "10.211.7.2"]


def ip(*words, check=True):
    return subprocess.run(["ip", *words], check=check, capture_output=True, text=True)


def make():
    for name in NAMES:
        ip("netns", "add", name)
    ip("link", "add", "mr0", "netns", NAMES[0], "type", "veth", "peer", "name", "mr0", "netns", NAMES[1])
    for name, host in zip(NAMES, HOSTS):
        ip("-n", name, "addr", "add", f"{host}/24", "dev", "mr0")
        ip("-n", name, "link", "set", "mr0", "up")
        ip("-n", name, "link", "set", "lo", "up")


def start(program, check, timeout_ms):
    endpoints = ",".join(f"{host}:6170" for host in HOSTS)
    return [subprocess.Popen(["ip", "netns", "exec", name, program, check, str(rank), "2", "gloo", endpoints, str(timeout_ms)],
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            for rank, name in enumerate(NAMES)]


def main():
    program = sys.argv[1]
    try:
        make()
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"skipped: no network namespaces here: {getattr(error, 'stderr', error)}")
        return SKIPPED
    ranks = start(program, "suite", 30000)
    outputs = [rank.communicate(timeout=90)[0] for rank in ranks]
    if "no Gloo" in outputs[0]:
        print("skipped: this build has no Gloo")
        return SKIPPED
    for rank, output in zip(ranks, outputs):
        assert rank.returncode == 0 and "all fine" in output, output
    ranks = start(program, "steps", 1500)
    time.sleep(2)
    ip("-n", NAMES[0], "link", "set", "mr0", "down")
    for rank, process in enumerate(ranks):
        output = process.communicate(timeout=60)[0]
        assert process.returncode == 5, output
        assert f"lost rank {1 - rank}" in output, output
    print("2 passed, 0 failed")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    finally:
        for each in NAMES:
            ip("netns", "del", each, check=False)
