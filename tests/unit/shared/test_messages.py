"""Every message of the contract survives encoding to JSON and decoding again."""

from __future__ import annotations

import inspect
import types
from datetime import UTC, date, datetime
from enum import StrEnum
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest
from msgspec import Struct

from deborgen_shared import messages
from deborgen_shared.states import Availability, WorkerState

MESSAGES = [
    kind
    for _, kind in inspect.getmembers(messages, inspect.isclass)
    if issubclass(kind, Struct) and kind.__module__ == messages.__name__ and kind is not messages.Page
]

#: Sample texts for the patterns in messages.py: at least one of them matches each pattern.
TEXTS = ["solver:1", "desk-3", "1.1/1", "2c" * 32, "2c" * 16, "text with \u00e9 and \n"]
PLAIN: dict[Any, Any] = {
    str: "text with \u00e9 and \n",
    bytes: b"\x00\xff",
    bool: True,
    int: 7,
    float: 0.5,
    date: date(2026, 1, 31),
    datetime: datetime(2026, 1, 31, 12, 0, 0, 123456, tzinfo=UTC),
    Any: {"any": ["thing", 1, None]},
    types.NoneType: None,
}


def sample(kind: Any) -> Any:
    """A value of the type with everything filled in: every list has an item, and every optional field has a value."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _fitting(kind) if parts[0] is str else sample(parts[0])
    if origin is Literal:
        return parts[-1]
    if origin in (Union, types.UnionType):
        return sample(parts[0])
    if origin is list:
        return [sample(parts[0])]
    if origin is dict:
        return {sample(parts[0]): sample(parts[1])}
    if inspect.isclass(kind) and issubclass(kind, Struct):
        return build(kind)
    if inspect.isclass(kind) and issubclass(kind, StrEnum):
        return list(kind)[-1]
    return PLAIN[kind]


def _fitting(annotated: Any) -> Any:
    """The first sample text that matches the pattern and the length limits."""
    for text in TEXTS:
        try:
            return msgspec.convert(text, annotated)
        except msgspec.ValidationError:
            continue
    raise AssertionError(f"no text of the samples fits {get_args(annotated)[1]}")


def build(kind: type[Struct]) -> Struct:
    return kind(**{field.name: sample(field.type) for field in msgspec.structs.fields(kind)})


def test_there_are_messages_to_check() -> None:
    assert len(MESSAGES) > 40


@pytest.mark.parametrize("kind", MESSAGES, ids=lambda kind: kind.__name__)
def test_every_message_survives_encoding_and_decoding(kind: type[Struct]) -> None:
    """Seen to fail when a message adds to one of its texts each time it is read."""
    message = build(kind)
    raw = msgspec.json.encode(message)
    assert msgspec.json.decode(raw, type=kind) == message
    names = {field.encode_name for field in msgspec.structs.fields(kind)}
    assert set(msgspec.json.decode(raw)) == names, "every field is on the wire"


@pytest.mark.parametrize("kind", MESSAGES, ids=lambda kind: kind.__name__)
def test_a_missing_field_decodes_as_its_default(kind: type[Struct]) -> None:
    needed = {field.name: sample(field.type) for field in msgspec.structs.fields(kind) if field.required}
    message = kind(**needed)
    assert msgspec.json.decode(msgspec.json.encode(message), type=kind) == message
    assert msgspec.convert(msgspec.to_builtins(needed), kind, strict=False) == message


#: The coordinator infers these states; no worker reports them.
CONCLUDED = {WorkerState.RESTING, WorkerState.OFFLINE, WorkerState.LEFT}


def test_a_worker_may_report_every_state_that_it_can_know() -> None:
    said = get_args(get_type_hints(messages.Heartbeat)["state"])
    assert set(said) == set(WorkerState) - CONCLUDED
    assert set(Availability) == (set(said) - {"open"}) | {"free", "busy", "offline"}


@pytest.mark.parametrize("state", [*sorted(CONCLUDED), "", "OPEN", "free", None, 1])
def test_a_worker_may_report_no_other_state(state: Any) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"session": "s", "state": state}, messages.Heartbeat)


@pytest.mark.parametrize(
    "until",
    [
        "2026-01-31T12:00:00",
        "tomorrow",
        1_800_000_000,
        "0001-01-01T00:00:00+14:00",
        "9999-12-31T23:59:59-14:00",
    ],
)
def test_until_must_have_a_time_zone_and_a_year_in_range(until: Any) -> None:
    """Seen to fail when every year is accepted: the coordinator cannot show some of them."""
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"session": "s", "until": until}, messages.Heartbeat)


#: None of these can be true of a machine.
NONSENSE: list[Any] = [
    {"load": -1}, {"load": 1e7}, {"load": "3"}, {"load": True}, {"load": float("nan")}, {"load": float("inf")},
    {"memory_free": -1}, {"memory_free": 1.5}, {"memory_free": 2**61}, {"disk_free": "much"},
    {"temperature": -300}, {"temperature": 1e5}, {"temperature": [50]},
    {"gpus": {}}, {"gpus": [7]}, {"gpus": [{}] * 65}, {"gpus": [{"name": "x" * 201}]}, {"gpus": [{"busy": 1.1}]},
    {"gpus": [{"busy": -0.1}]}, {"gpus": [{"memory_free": -1}]}, [], 3, "fine",
]  # fmt: skip


@pytest.mark.parametrize("metrics", NONSENSE, ids=str)
def test_impossible_metrics_are_refused(metrics: Any) -> None:
    for kind in (messages.Register, messages.Heartbeat):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert({"session": "s", "metrics": metrics}, kind)
