"""``python -m ferrane``: the command."""

from __future__ import annotations

import sys
from typing import NoReturn

from . import _native


def main() -> NoReturn:
    """Runs the command with the arguments of the process, and exits with its status."""
    sys.stdout.flush()
    sys.exit(_native.command(["ferrane", *sys.argv[1:]]))


if __name__ == "__main__":
    main()
