"""The command-line tools, as console scripts of the package."""

import os
import sys


def main():
    """Becomes the tool of whose name the script is."""
    name = os.path.basename(sys.argv[0])
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin")
    program = os.path.join(folder, name if name in ("migrate", "transpile-program") else "millrace")
    os.execv(program, [name, *sys.argv[1:]])
