"""Runs tests against mutants: each test first without a mutant, then the mutants against the tests that reach them."""
import concurrent.futures
import dataclasses
import os
import re
import resource
import shutil
import signal
import subprocess
import tempfile
import time

MEMORY = 8 << 30       # per process
FILE_SIZE = 512 << 20  # of a file that a test writes
CHUNK_S = 3.0          # tests of one program that run in one process
SLACK_S = 15.0         # time in addition to five times the usual one before a process counts as hung


@dataclasses.dataclass
class Test:
    """A case of a GoogleTest program (with `case`), or another command."""
    name: str
    command: list
    case: str = ""
    seconds: float = 0.0
    reached: set = dataclasses.field(default_factory=set)


def cases_of(program):
    """The cases of a GoogleTest program."""
    listing = subprocess.run([program, "--gtest_list_tests"], capture_output=True, text=True, check=True).stdout
    tests, suite = [], ""
    for line in listing.splitlines():
        word = line.split("#")[0].rstrip()
        if word.endswith(".") and not word.startswith(" "):
            suite = word
        elif word.startswith("  "):
            case = suite + word.strip()
            if "DISABLED_" not in case:
                tests.append(Test(f"{os.path.basename(program)}: {case}", [program], case))
    return tests


class Runs:
    """Processes with limits, each in a process group that is killed as a whole, with a separate folder for temporary
    files."""

    def __init__(self, root, work, build):
        self.root, self.build = root, build
        self.temporary = tempfile.mkdtemp(prefix="temporary-", dir=work)

    def run(self, command, seconds, variables):
        """Returns (exit code or None on time-out, output)."""
        folder = tempfile.mkdtemp(dir=self.temporary)
        env = dict(os.environ, MILLRACE_BIN_DIR=self.build + "/tools", TMPDIR=folder, **variables)

        def limits():
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_SIZE, FILE_SIZE))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

        output = os.path.join(folder, "output.txt")
        try:
            with open(output, "wb") as out:
                process = subprocess.Popen(command, cwd=self.root, env=env, stdin=subprocess.DEVNULL, stdout=out,
                                           stderr=subprocess.STDOUT, start_new_session=True, preexec_fn=limits)
            try:
                code = process.wait(timeout=max(seconds, 0.1))
            except subprocess.TimeoutExpired:
                code = None
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
            with open(output, "rb") as file:
                file.seek(max(0, os.path.getsize(output) - (1 << 20)))
                return code, file.read().decode("utf-8", "replace")
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def baseline(runs, tests, jobs):
    """Runs each test separately without a mutant: records its time and the sites it reaches; returns those that
    pass."""
    def one(test):
        command = test.command + ([f"--gtest_filter={test.case}"] if test.case else [])
        handle, reached = tempfile.mkstemp(dir=runs.temporary)
        os.close(handle)
        start = time.monotonic()
        code, output = runs.run(command, 300, {"MILLRACE_MUTANTS_REACHED": reached})
        test.seconds = time.monotonic() - start
        with open(reached, encoding="utf-8") as file:
            test.reached = {int(line) for line in file}
        os.remove(reached)
        if code != 0:
            print(f"{test.name}: fails without a mutant (exit {code}) and is left out: {output[-200:]!r}", flush=True)
        return code == 0

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        return [test for test, good in zip(tests, pool.map(one, tests)) if good]


def chunks(tests):
    """Tests, fastest first, in groups of one process each."""
    groups, open_group = [], {}
    for test in sorted(tests, key=lambda t: t.seconds):
        if not test.case:
            groups.append([test])
            continue
        group = open_group.get(test.command[0])
        if group is None or sum(t.seconds for t in group) + test.seconds > CHUNK_S or len(group) >= 100:
            group = open_group[test.command[0]] = []
            groups.append(group)
        group.append(test)
    return sorted(groups, key=lambda g: sum(t.seconds for t in g) / (1 if len(g) == 1 else 2))


class OneMutant:
    """A mutant, run against the tests that reach it."""

    def __init__(self, runs, number, seconds):
        self.runs, self.number, self.end = runs, number, time.monotonic() + seconds

    def against(self, group):
        """Runs a group; returns (outcome, output): 'passed', 'failed', 'hung' or 'late'."""
        command = list(group[0].command)
        if group[0].case:
            command += ["--gtest_filter=" + ":".join(t.case for t in group), "--gtest_fail_fast"]
        limit = SLACK_S + 5 * sum(t.seconds for t in group)
        left = self.end - time.monotonic()
        if left <= 0:
            return "late", ""
        code, output = self.runs.run(command, min(limit, left), {"MILLRACE_MUTANT": str(self.number)})
        if code is None:
            return ("hung" if limit <= left else "late"), output
        return ("passed" if code == 0 else "failed"), output

    @staticmethod
    def at_fault(group, output):
        """The test of a group that failed, or in which the program crashed."""
        for pattern in (r"^\[  FAILED  \] ([\w./]+)", r"^\[ RUN      \] ([\w./]+)"):
            found = re.findall(pattern, output, re.M)
            if found:
                name = found[0] if "FAILED" in pattern else found[-1]
                for test in group:
                    if test.case == name:
                        return test
        return group[0]

    def verdict(self, groups):
        """Returns (result, by)."""
        for group in groups:
            while group:
                what, output = self.against(group)
                if what == "passed":
                    break
                if what == "late":
                    return "survived", "no test of " + f"{sum(len(g) for g in groups)} fails within the time"
                test = self.at_fault(group, output)
                if what == "hung":
                    return "killed", "hangs: " + test.name
                if self.against([test])[0] in ("failed", "hung"):
                    return "killed", test.name
                group = [t for t in group if t is not test]  # a failure that does not repeat does not count
        return "survived", f"none of {sum(len(g) for g in groups)} tests that reach it fails"


def run_all(mutants, tests, root, work, build, args):
    """Yields (mutant, (result, by))."""
    if not mutants:
        return
    runs = Runs(root, work, build)
    start = time.monotonic()
    good = baseline(runs, tests, args.jobs)
    print(f"{mutants[0]['folder']}: {len(good)} of {len(tests)} tests pass without a mutant, alone and one after the other "
          f"{sum(t.seconds for t in good):.0f} s, here {time.monotonic() - start:.0f} s", flush=True)

    def one(mutant):
        reaching = [t for t in good if mutant["number"] in t.reached]
        if not reaching:
            return "survived", "no test reaches it"
        return OneMutant(runs, mutant["number"], args.minute).verdict(chunks(reaching))

    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        yield from zip(mutants, pool.map(one, mutants))
    shutil.rmtree(runs.temporary, ignore_errors=True)
