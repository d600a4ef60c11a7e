"""Every bug that is planted: the table behind `make seen-to-fail`.

A row names functions of the product whose replacements break a promise, the tests that must then fail, and a pattern
for their output. `tools/seen_to_fail.py` plants each row and runs its tests. A row whose function is missing makes
tests/chaos/test_fault_table.py fail.
"""

from __future__ import annotations

import importlib

from planted.bug import Planted

PARTS = (
    "operations",
    "leases",
    "storage",
    "http",
    "server",
    "worker",
    "restarts",
    "ends",
    "containers",
    "texts",
    "members",
    "pages",
    "queue",
    "repositories",
    "builds",
)


def rows_of(part: str) -> list[Planted]:
    """The bugs of one part of the product: `PLANTED` of the module of that name."""
    rows: list[Planted] = importlib.import_module(f"planted.{part}").PLANTED
    return rows


def every_row() -> list[tuple[str, int, Planted]]:
    """Each bug, with its part and its number there, by which `hook` finds it."""
    return [(part, number, planted) for part in PARTS for number, planted in enumerate(rows_of(part))]


def every_bug() -> list[Planted]:
    return [planted for _, _, planted in every_row()]
