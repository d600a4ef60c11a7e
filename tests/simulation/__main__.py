"""Simulate many seeds on all processors: `python -m simulation FIRST COUNT`, with `tests` as the path."""

from __future__ import annotations

import sys
import time

from support.simulation_seeds import run_seeds


def main() -> None:
    first, count = int(sys.argv[1]), int(sys.argv[2])
    began = time.monotonic()
    failures = run_seeds(range(first, first + count), progress=True)
    print(f"{count} seeds from {first} on in {time.monotonic() - began:.0f} s: {len(failures)} broke a rule")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
