"""Output of a benchmark: one line of JSON per measurement."""
import json
import subprocess
import sys


def json_lines(command):
    """The lines of JSON that a command prints; exits the script if the command fails."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{command[0]}: exit status {done.returncode}: {(done.stderr or done.stdout).strip()[-800:]}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
