"""What each statement of storage/hot.py costs: built by Peewee each time, and compiled once.

    python benchmarks/statements.py [--times 2000]

Each statement runs on SQLite, in a transaction that is undone, with the values of the test that compares the two ways.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from contract.coordinator.test_hot import SAMPLES, stocked
from deborgen_coordinator.storage import hot
from deborgen_coordinator.storage.database import DatabaseConnection
from support.in_process import InProcessCoordinator


def microseconds(connection: DatabaseConnection, execute: Any, times: int) -> float:
    """The best of three rounds. Each execution is undone, so that a row can be inserted again."""
    best = float("inf")
    for _ in range(3):
        began = time.perf_counter()
        for _ in range(times // 3):
            connection.driver.execute("SAVEPOINT one")
            cursor = execute()
            if cursor.description:
                cursor.fetchall()
            connection.driver.execute("ROLLBACK TO one")
            connection.driver.execute("RELEASE one")
        best = min(best, (time.perf_counter() - began) / (times // 3) * 1e6)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=2000)
    times = parser.parse_args().times
    with tempfile.TemporaryDirectory() as folder:
        pool = InProcessCoordinator(Path(folder))
        connection = stocked.__wrapped__(pool).store.database.connect(readonly=False)  # type: ignore[attr-defined]
        pool.stop()
        connection.begin_writing("benchmark")
        nothing = microseconds(connection, lambda: connection.driver.execute("SELECT 1"), times)
        print(f"{'statement':28} {'built':>8} {'compiled':>8}   microseconds, without the savepoint's {nothing:.0f}")
        for name, statement in hot.statements().items():
            values = SAMPLES[name]
            built = microseconds(connection, lambda: connection.execute(statement.build(*values)), times)  # noqa: B023
            compiled = microseconds(connection, lambda: statement._execute(connection, values), times)  # noqa: B023
            print(f"{name:28} {built - nothing:8.0f} {compiled - nothing:8.0f}")
        connection.run("ROLLBACK")
        connection.close()


if __name__ == "__main__":
    main()
