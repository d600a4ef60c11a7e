"""Strict JSON inside enclosing levels, which the coordinator's own tests of request bodies do not cover."""

from __future__ import annotations

import pytest

from deborgen_shared.strict_json import MAX_DEPTH, Unreadable, parse


def nested(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


@pytest.mark.parametrize("around", [0, 2, 10])
def test_the_enclosing_levels_count_towards_the_maximum_depth(around: int) -> None:
    assert parse(nested(MAX_DEPTH - around), around)
    with pytest.raises(Unreadable, match=f"nests deeper than {MAX_DEPTH - around} levels"):
        parse(nested(MAX_DEPTH - around + 1), around)
