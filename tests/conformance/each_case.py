"""A checker's loop over cases."""


def run_cases(names, check):
    """Calls check(name), which returns what is wrong or nothing; prints that and a line of counts. Returns the exit status."""
    failed = 0
    for name in names:
        why = check(name)
        if why:
            failed += 1
            print(f"{name}:\n{why}", flush=True)
    print(f"{len(names) - failed} passed, {failed} failed")
    return 1 if failed or not names else 0
