"""What a benchmark prints: a line of JSON a measurement."""
import json
import subprocess
import sys


def json_lines(command):
    """The lines of JSON that a command prints; ends the script where it fails."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{command[0]}: exit status {done.returncode}: {(done.stderr or done.stdout).strip()[-800:]}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
