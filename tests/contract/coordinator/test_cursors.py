"""Cursors: a program's place in the history, stored at the coordinator. And where a run came from."""

from __future__ import annotations

import pytest

from deborgen_coordinator.operations import cursors
from deborgen_coordinator.operations.runs import look, retry, submit
from deborgen_shared.errors import Code, Refusal
from deborgen_shared.messages import NewCursor, Origin, Retry
from support.in_process import InProcessCoordinator, person

ADA, BOB = person("ada"), person("bob")


def put(pool: InProcessCoordinator, seq: int, **more: int | None) -> int:
    return cursors.put(pool.ctx, ADA, "mirror", NewCursor(seq=seq, **more)).seq


def refused(pool: InProcessCoordinator, seq: int, **more: int | None) -> Code:
    with pytest.raises(Refusal) as caught:
        put(pool, seq, **more)
    return caught.value.code


def test_a_cursor_moves_only_from_where_it_is_said_to_be(pool: InProcessCoordinator) -> None:
    assert refused(pool, 5, was=4) is Code.INVALID_TRANSITION
    assert [put(pool, 5, was=None), put(pool, 5, was=None)] == [5, 5], "a repeat is answered as before"
    assert refused(pool, 6, was=None) is Code.INVALID_TRANSITION
    assert [put(pool, 9, was=5), put(pool, 9, was=5)] == [9, 9]
    assert refused(pool, 7, was=5) is Code.INVALID_TRANSITION
    assert cursors.get(pool.ctx, ADA, "mirror").seq == 9
    assert put(pool, 2) == 2


def test_everybody_has_cursors_of_their_own(pool: InProcessCoordinator) -> None:
    put(pool, 5)
    with pytest.raises(Refusal, match="you have no cursor mirror"):
        cursors.get(pool.ctx, BOB, "mirror")
    assert cursors.put(pool.ctx, BOB, "mirror", NewCursor(seq=1)).seq == 1
    assert cursors.get(pool.ctx, ADA, "mirror").seq == 5


def test_a_person_has_a_limited_number_of_cursors(pool: InProcessCoordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    put(pool, 5)
    monkeypatch.setattr(cursors, "MOST", 1)
    with pytest.raises(Refusal, match="you have 1 cursors already"):
        cursors.put(pool.ctx, ADA, "other", NewCursor(seq=1))
    assert put(pool, 6) == 6


def test_a_run_keeps_where_it_came_from_and_its_retry_does_not(pool: InProcessCoordinator) -> None:
    origin = Origin(bridge="rabbitmq", correlation_id="order 7 — ü", reply_to="answers")
    submit.submit(pool.ctx, person("alice"), {"run": "true"}, None, "", submit.RunSource(origin))
    pool.cancel("1")
    assert look.get_run(pool.ctx, 1).origin == origin
    again, _ = retry.retry_run(pool.ctx, person("alice"), 1, Retry(only="canceled"))
    assert not look.get_run(pool.ctx, again.id).origin
    assert "origin" not in pool.ctx.store.read(lambda reader: str(reader.rows("SELECT data FROM event")))
