"""The worker's output as JSON, one object per line."""

from __future__ import annotations

import io
import json
from typing import Any

import msgspec

from deborgen_shared.messages import Assignment
from deborgen_worker.console import Console

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def assignment(attempt: str, traceparent: str = "") -> Assignment:
    body = {
        "attempt": attempt, "job": "42.7", "number": 2, "spec": {}, "params": {}, "inputs": [], "secrets": {},
        "timeout_seconds": 1, "lease_seconds": 1,
    } | ({"traceparent": traceparent} if traceparent else {})  # fmt: skip
    return msgspec.convert(body, Assignment)


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_each_line_is_an_object_with_the_fields_of_the_coordinators_log() -> None:
    console = Console(stream := io.StringIO(), json_for="desk-3")
    console.say("taking no new work: \x1b[31mpaused\nby its owner")
    console.assigned([assignment("42.7/2", TRACE), assignment("1.1/1")])
    console.say("the coordinator refused the result of 42.7/2: too late")
    console.show("open; 1 job; 12:00")
    console.show("open; 1 job; 12:01")
    console.ended(["42.7/2"])
    found = lines(stream)
    assert [line["message"] for line in found] == [
        "taking no new work: \x1b[31mpaused\nby its owner", "42.7/2 was assigned to this worker",
        "1.1/1 was assigned to this worker", "the coordinator refused the result of 42.7/2: too late",
        "open; 1 job; 12:00", "42.7/2 has ended",
    ]  # fmt: skip
    same = {(line["level"], line["logger"], line["worker"]) for line in found}
    assert same == {("info", "deborgen.worker", "desk-3")}
    of_attempt = {"run": 42, "job": "42.7", "attempt": "42.7/2", "lease": "42.7/2", "traceparent": TRACE}
    assert [line for line in found if of_attempt.items() <= line.items()] == [found[1], found[3], found[5]]
    assert "traceparent" not in found[2]
    assert "attempt" not in found[0] | found[4]


def test_a_path_or_a_number_is_not_taken_for_an_attempt() -> None:
    console = Console(stream := io.StringIO(), json_for="desk-3")
    console.say("see /var/1.2/3 and v1.2/3.4")
    assert "attempt" not in lines(stream)[0]


def test_for_people_nothing_more_is_said_about_attempts() -> None:
    console = Console(stream := io.StringIO())
    console.assigned([assignment("42.7/2", TRACE)])
    console.ended(["42.7/2"])
    assert stream.getvalue() == ""
