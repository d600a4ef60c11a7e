"""`make fuzz MINUTES=10` or `make fuzz REQUESTS=1000000`: attack a pool on this machine, and say what was found.

It stops earlier on SIGTERM, and exits with 1 if there is a finding. Each is printed with the request that made it. The
same seed makes the same requests, as far as they do not depend on earlier answers.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import signal
import sys
import tempfile
from pathlib import Path

from fuzz.campaign import Campaign
from support.postgres import running_cluster


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=0.0, help="stop after this many minutes")
    parser.add_argument("--requests", type=int, default=0, help="stop after this many requests")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--postgres", action="store_true", help="use a private PostgreSQL server instead of SQLite")
    parser.add_argument("--keep", type=Path, help="keep the data and the logs of the pool in this new folder")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if not given.minutes and not given.requests:
        parser.error("give --minutes or --requests")
    with contextlib.ExitStack() as stack:
        folder = given.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="deborgen-fuzz-")))
        folder.mkdir(parents=True, exist_ok=True)
        database = stack.enter_context(running_cluster()).database() if given.postgres else ""
        campaign = Campaign(folder.resolve(), given.seed, database=database, loud=True)
        report = campaign.run(given.requests, 60 * given.minutes)
    print("\n" + "\n".join(report.lines()))
    sys.exit(1 if report.findings else 0)


if __name__ == "__main__":
    main()
