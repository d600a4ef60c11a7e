"""Every fault that is planted: the table behind `make seen-to-fail`.

A row names functions of the product whose replacements break a promise, the tests that must then fail, and words that
they must say. `tools/seen_to_fail.py` plants them and looks. A function that the product does not have any more makes
tests/chaos/test_fault_table.py fail.
"""

from __future__ import annotations

import importlib

from planted.fault import Planted

PARTS = ("operations", "leases", "storage", "http", "server", "worker", "restarts", "containers", "texts")


def rows_of(part: str) -> list[Planted]:
    """The faults of one part of the product: `PLANTED` of the module of that name."""
    rows: list[Planted] = importlib.import_module(f"planted.{part}").PLANTED
    return rows


def every_row() -> list[tuple[str, int, Planted]]:
    """Each fault, with the part and the place in it by which `hook` finds it again."""
    return [(part, number, planted) for part in PARTS for number, planted in enumerate(rows_of(part))]


def every_fault() -> list[Planted]:
    return [planted for _, _, planted in every_row()]
