"""`python -m feedline` is the command `feedline`."""

from __future__ import annotations

import sys

from feedline.cli.main import run

if __name__ == "__main__":
    sys.exit(run())
