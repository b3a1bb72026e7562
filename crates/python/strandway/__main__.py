"""The command line: `python -m strandway`, and the script `strandway` that comes with the package."""

import signal
import sys

from . import _lab


def main() -> int:
    """Runs the command with the arguments of this process, and returns its exit status."""
    # Python, its options, and the script or `-m strandway`: all words before the command's own.
    program = [sys.executable, *sys.orig_argv[1 : len(sys.orig_argv) - len(sys.argv) + 1]]
    # The command handles Ctrl-C itself. Python's handler would wait for the next line of Python.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _lab.main(program, sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
