"""Nobody can use up alone what many people need."""

from __future__ import annotations

import pytest

from deborgen_coordinator.connections import examine_head
from deborgen_coordinator.framing import MIN_BYTES_PER_SECOND, STALL_SECONDS, Pace, TooSlow
from deborgen_coordinator.shares import Share, Turns


def test_one_person_gets_at_most_a_quarter() -> None:
    share = Share(8)
    assert [share.take("mallory") for _ in range(3)] == [True, True, False]
    assert [share.take(person) for person in ("a", "b", "c", "a", "b", "c", "d")] == [True] * 6 + [False]
    share.give_back("mallory")
    assert [share.take("mallory"), share.take("mallory")] == [True, False]


def test_an_amount_above_a_quarter_can_be_taken_by_a_person_who_has_nothing() -> None:
    share = Share(100)
    assert share.take("anna", 60)
    assert not share.take("anna", 1)
    assert not share.take("bob", 60)
    share.give_back("anna", 60)
    assert share.take("bob", 60)


def test_a_share_of_very_little_is_at_least_one() -> None:
    assert Share(1).take("anna")
    assert not Share(0).take("anna")


def test_people_take_turns_and_nobody_has_more_than_their_part() -> None:
    turns: Turns[str] = Turns(3, 2)
    assert [turns.start("mallory", f"m{at}") for at in range(5)] == [True, True, False, False, False]
    assert turns.start("anna", "a0")
    assert [turns.start("anna", "a1"), turns.start("bob", "b0")] == [False, False]
    assert turns.end("mallory") == ["m2"]
    assert turns.end("anna") == ["a1"]
    assert turns.end("mallory") == ["b0"]
    assert turns.end("bob") == ["m3"]
    assert turns.end("anna") == []
    assert turns.end("mallory") == ["m4"]


def test_a_person_who_has_a_full_part_is_passed_over() -> None:
    turns: Turns[str] = Turns(2, 1)
    assert turns.start("mallory", "m0")
    assert not turns.start("mallory", "m1")
    assert turns.start("anna", "a0")
    assert not turns.start("bob", "b0")
    assert turns.end("anna") == ["b0"]
    assert turns.end("mallory") == ["m1"]


WORKER = b"Authorization: Bearer dbg_worker_4f2a_secret"


@pytest.mark.parametrize(
    "call", [b"POST /v1/workers/w1/heartbeat", b"POST /v1/workers/w1/finish", b"PUT /v1/workers/w1"]
)
def test_the_calls_that_keep_leases_alive_are_recognised_by_path_and_token(call: bytes) -> None:
    assert examine_head(call + b" HTTP/1.1\r\nHost: x\r\n" + WORKER + b"\r\n").renews
    assert not examine_head(
        call + b" HTTP/1.1\r\nHost: x\r\n" + WORKER.replace(b"worker", b"submitter") + b"\r\n"
    ).renews
    assert not examine_head(call + b" HTTP/1.1\r\nHost: x\r\n").renews


@pytest.mark.parametrize(
    "call",
    [
        b"POST /v1/workers/w1/claim",
        b"DELETE /v1/workers/w1",
        b"POST /v1/workers/w1/heartbeat/x",
        b"PUT /v1/workers/a/b",
    ],
)
def test_other_calls_of_workers_keep_no_leases_alive(call: bytes) -> None:
    assert not examine_head(call + b" HTTP/1.1\r\nHost: x\r\n" + WORKER + b"\r\n").renews


def test_a_token_counts_for_the_same_person_however_it_is_written() -> None:
    spellings = [b"Authorization: Bearer t0ken", b"authorization:bearer   t0ken", b"AUTHORIZATION: \tBEARER t0ken \t"]
    assert {examine_head(b"GET / HTTP/1.1\r\n" + each + b"\r\n").person for each in spellings} == {b"t0ken"}
    assert examine_head(b"GET / HTTP/1.1\r\nHost: x\r\n").person == b""


def test_bytes_must_move_with_the_lowest_rate_in_each_stretch_of_waiting() -> None:
    pace = Pace()
    enough = int(STALL_SECONDS * MIN_BYTES_PER_SECOND)
    pace.note(0, STALL_SECONDS - 1)
    pace.note(enough, 1)
    pace.note(enough - 1, STALL_SECONDS - 1)
    with pytest.raises(TooSlow):
        pace.note(0, 1)
