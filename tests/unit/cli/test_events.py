"""How `deborgen events` writes one event on a terminal."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from deborgen.commands.events import _sentence
from deborgen_shared.messages import Event


def shown(**data: Any) -> str:
    """The line of a program's event, without the time at the beginning."""
    event = Event(
        seq=7, time=datetime.now(UTC), type="job.event", run=1, job="1.1", attempt="1.1/1", worker="pc1",
        actor="worker:pc1", old_state=None, new_state=None, data=data,
    )  # fmt: skip
    return _sentence(event).partition("job.event")[2].strip()


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        ({"loss": 0.5, "layers": [1, 2]}, 'epoch  {"loss":0.5,"layers":[1,2]}'),
        ({}, "epoch"),
    ],
)
def test_an_event_of_a_program_shows_its_type_and_its_payload(payload: dict[str, Any], words: str) -> None:
    assert shown(type="epoch", payload=payload, number=3) == f"1.1/1       on pc1  {words}"


def test_an_event_of_a_program_cannot_control_the_terminal() -> None:
    line = shown(type="\x1b[2J\nnext", payload={"\x9b31m": "\u202eturned\x07"}, number=0)
    assert line.isprintable()
    assert line.endswith('␛[2J↵next  {"\\u009b31m":"\\u202eturned\\u0007"}')
