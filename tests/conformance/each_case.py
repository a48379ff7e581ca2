"""The loops of checkers over their cases."""
import json
import os
import subprocess
import time


def run_cases(names, check):
    """Calls check(name), which returns an error text or nothing; prints it and a line of counts. Returns the exit
    status."""
    failed = 0
    for name in names:
        why = check(name)
        if why:
            failed += 1
            print(f"{name}:\n{why}", flush=True)
    print(f"{len(names) - failed} passed, {failed} failed")
    return 1 if failed or not names else 0


def run_checks(checks, only=""):
    """Calls check() of every (label, check) whose label contains the text; prints a line for each and a line of counts.
    Returns the exit status."""
    good = bad = 0
    for label, check in checks:
        if only not in label:
            continue
        why, began = "", time.monotonic()
        try:
            check()
            good += 1
        except (AssertionError, RuntimeError, OSError, subprocess.SubprocessError) as e:
            why, bad = ": " + " ".join(str(e).split())[:1500], bad + 1
        print(f"{'FAIL' if why else 'ok  '} {label} {time.monotonic() - began:.1f} s{why}", flush=True)
    print(f"{good} passed, {bad} failed")
    return int(bad > 0 or good == 0)


def transpiler_cases(shared, only, wanted):
    """Configurations of the transpiler references whose names contain the text and that are wanted, by name."""
    root, cases = f"{shared}/goldens/transpiler", {}
    for name in sorted(os.listdir(root)):
        path = f"{root}/{name}/config.json"
        if only in name and os.path.exists(path):
            with open(path, encoding="utf-8") as f:
                case = json.load(f)
            if wanted(name, case):
                cases[name] = case
    return cases
