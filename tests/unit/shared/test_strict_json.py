"""Strict JSON with levels around it: what the coordinator's own tests of bodies do not reach."""

from __future__ import annotations

import pytest

from deborgen_shared.strict_json import MAX_DEPTH, Unreadable, parse


def nested(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


@pytest.mark.parametrize("around", [0, 2, 10])
def test_a_value_may_nest_as_deep_as_the_levels_around_it_leave_room(around: int) -> None:
    assert parse(nested(MAX_DEPTH - around), around)
    with pytest.raises(Unreadable, match=f"nests deeper than {MAX_DEPTH - around} levels"):
        parse(nested(MAX_DEPTH - around + 1), around)
