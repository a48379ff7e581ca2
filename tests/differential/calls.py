"""Calls of the tools under test, and the comparison of their results."""
import os
import re
import subprocess

import numpy as np

REFUSED = (3, 7)


class Finding(Exception):
    """An error of a case: the name of the check, and the text."""

    def __init__(self, check, text):
        super().__init__(f"{check}: {text}")
        self.check, self.text = check, text

    def kind(self):
        """Findings of one kind are equal except for names and numbers."""
        text = re.sub(r"'[^']*'", "'...'", self.text)
        return f"{self.check}: {re.sub(r'[0-9][0-9.e+-]*', '#', text)[:120]}"


class Tools:
    """The tools of a folder; every call has a time limit."""

    def __init__(self, folder, seconds=60):
        self.folder, self.seconds = folder, seconds

    def call(self, check, name, *words):
        """Status and message. A crash, a hang and an internal error are findings."""
        env = {k: v for k, v in os.environ.items() if not k.startswith(("PADDLE_", "FLAGS_"))}
        try:
            done = subprocess.run([os.path.join(self.folder, name), *map(str, words)], capture_output=True, text=True, timeout=self.seconds, env=dict(env, CPU_NUM="1"),
                                  stdin=subprocess.DEVNULL, errors="replace")
        except subprocess.TimeoutExpired:
            raise Finding(check, f"{name} has not ended after {self.seconds} s") from None
        said = done.stderr.strip()
        if done.returncode < 0 or done.returncode not in (0, 1, 2, 3, 4, 5, 6, 7):
            raise Finding(check, f"{name} ended with status {done.returncode}: {said[-600:]}")
        return done.returncode, said or done.stdout.strip()

    def must(self, check, name, *words):
        """As call(), but every exit status except 0 is a finding."""
        status, said = self.call(check, name, *words)
        if status:
            raise Finding(check, f"{name} refuses with status {status}: {said[-600:]}")
        return said


def load(path):
    with np.load(path) as stored:
        return {name: stored[name] for name in stored.files}


def off(got, want, floor):
    """The largest difference relative to the largest number."""
    got, want = np.asarray(got), np.asarray(want)
    if got.size != want.size:
        return f"has shape {list(got.shape)}, expected {list(want.shape)}"
    if not want.size:
        return 0.0
    got, want = got.astype("f8").reshape(want.shape), want.astype("f8")
    if not np.isfinite(got).all():
        return "is not finite"
    return float(np.abs(got - want).max() / max(np.abs(want).max(), floor))


def near(check, name, got, want, bound, floor):
    """Raises a finding unless a value is within its bound."""
    if got is None:
        raise Finding(check, f"'{name}' is missing")
    error = off(got, want, floor)
    if isinstance(error, str):
        raise Finding(check, f"'{name}' {error}")
    if not error <= bound:
        raise Finding(check, f"'{name}' is off by {error:.1e} of its largest element, at most {bound:.0e}")


def dense(values, name):
    """An array; selected rows are converted to a dense array."""
    value = values.get(name)
    if value is None or name + ".rows" not in values:
        return value
    out = np.zeros((int(values[name + ".height"]),) + value.shape[1:], value.dtype)
    np.add.at(out, values[name + ".rows"], value)
    return out


def text_form_returns(tools, check, program, work):
    """Binary to text to binary produces the same bytes."""
    text, back = os.path.join(work, "program.prog"), os.path.join(work, "program.pb")
    tools.must(check, "inspect-program", program, "-o", text, "--force", "-q")
    tools.must(check, "transpile-program", "--program", text, "--passes", "", "--format", "pb", "-o", back, "--force", "-q")
    with open(program, "rb") as a, open(back, "rb") as b:
        if a.read() != b.read():
            raise Finding(check, "binary, text, binary gives other bytes")
