"""`make soak MINUTES=30`: run the soak test, print the figures, and exit with 1 if anything was lost."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from support.soak import Soak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--database", default="", help="postgresql://… instead of SQLite")
    given = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="deborgen-soak-") as folder:
        soak = Soak(Path(folder), given.workers, given.seed, given.database)
        try:
            soak.run(60 * given.minutes)
            report = soak.report()
        finally:
            soak.close()
    report["seconds"] = round(time.monotonic() - began)
    print(json.dumps(report, indent=2))
    clean = bool(report["jobs"]) and not (
        report["lost"] or report["duplicated"] or report["unexpected"] or report["wrong"]
    )
    print(f"lost {report['lost']}, duplicated {report['duplicated']}, unexpected {report['unexpected']}")
    sys.exit(0 if clean else 1)


if __name__ == "__main__":
    main()
