"""The file of a job's own events: whatever the job does to it, lines keep their numbers, and reading is bounded."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deborgen_coordinator.http.decoding import convert, parse
from deborgen_coordinator.operations.attempts.program_events import _check_sizes
from deborgen_shared.messages import ProgramEvent, ProgramEvents
from deborgen_shared.program_events import EVENT_BYTES, EVENTS_PER_REQUEST, MOST_EVENTS
from deborgen_shared.strict_json import MAX_DEPTH, Unreadable
from deborgen_worker import event_file
from deborgen_worker.event_file import BLOCK, FILE_BYTES, LEVELS_AROUND, LINE_BYTES, EventFile, read_event


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / ".deborgen").mkdir()
    return tmp_path / ".deborgen" / "events.jsonl"


@pytest.fixture
def file(path: Path) -> EventFile:
    return EventFile(path.parent.parent)


def line(type_: str, **payload: Any) -> str:
    return json.dumps({"type": type_, "payload": payload}) + "\n"


def write(path: Path, text: str | bytes) -> None:
    with path.open("ab") as file:
        file.write(text.encode() if isinstance(text, str) else text)


def types(events: list[ProgramEvent | None]) -> list[str | None]:
    return [each.type if each is not None else None for each in events]


def drain(file: EventFile, ended: bool = False) -> list[str | None]:
    """The types of all events. Acknowledges batch after batch, like a coordinator that accepts everything."""
    found = []
    while batch := file.batch(ended):
        assert len(batch) <= EVENTS_PER_REQUEST
        found += types(batch)
        file.sent += len(batch)
    return found


def calls_of(name: str, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The calls of this function of `os` from now on."""
    calls: list[Any] = []
    real = getattr(os, name)

    def call(*args: Any, **how: Any) -> Any:
        calls.append(args)
        return real(*args, **how)

    monkeypatch.setattr(os, name, call)
    return calls


def test_whole_lines_are_read_as_they_come(path: Path, file: EventFile) -> None:
    assert file.batch() == []
    write(path, line("a", x=1) + '{"type": "b", ')
    assert file.batch() == [ProgramEvent(type="a", payload={"x": 1})]
    file.sent = 1
    assert file.batch() == []
    write(path, '"payload": {}}\n' + line("c"))
    assert types(file.batch()) == ["b", "c"]


def test_events_that_are_not_acknowledged_are_returned_again_with_later_ones(path: Path, file: EventFile) -> None:
    write(path, line("a"))
    assert types(file.batch()) == ["a"]
    write(path, line("b"))
    assert types(file.batch()) == ["a", "b"]
    file.sent = 1
    assert types(file.batch()) == ["b"]
    assert file.sent == 1


def test_an_unchanged_file_is_not_opened(path: Path, file: EventFile, monkeypatch: pytest.MonkeyPatch) -> None:
    write(path, line("a") + "half a line")
    drain(file)
    monkeypatch.setattr(event_file, "open_inside", lambda *_: pytest.fail("it was opened"))
    assert file.batch() == []


def test_a_job_that_writes_no_events_costs_one_system_call_per_round_and_one_at_its_end(
    file: EventFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = calls_of("stat", monkeypatch)
    monkeypatch.setattr(event_file, "open_inside", lambda *_: pytest.fail("it was opened"))
    assert file.batch() == []
    assert len(looks) == 1
    assert (file.has_much_unread, file.finish(), file.unsent, file.batch(ended=True)) == (False, "", False, [])
    assert len(looks) == 2


def test_the_last_line_needs_no_line_end_once_the_job_has_ended(path: Path, file: EventFile) -> None:
    write(path, line("a") + '{"type": "b"}')
    assert drain(file) == ["a"]
    assert file.finish() == ""
    assert file.unsent
    assert drain(file, ended=True) == ["b"]
    assert not file.unsent


BAD: dict[str, tuple[bytes, str]] = {
    "no JSON": (b"epoch 3", "is not JSON"),
    "half of an object": (b'{"type": "a"', "is not JSON"),
    "a list": (b"[]", "is not a JSON object"),
    "no type": (b'{"payload": {}}', "does not fit"),
    "an empty type": (b'{"type": ""}', "does not fit"),
    "a payload that is not an object": (b'{"type": "a", "payload": 3}', "does not fit"),
    "a key beside them": (b'{"type": "a", "loss": 0.5}', "'loss', which belongs in its payload"),
    "a key twice": (b'{"type": "a", "type": "b"}', "twice"),
    "NaN": (b'{"type": "a", "payload": {"loss": NaN}}', "NaN, which is not a JSON number"),
    "bytes that are not UTF-8": (b'{"type": "\xff"}', "is not UTF-8"),
    "NUL bytes, as a lost block leaves": (b"\0" * 100, "is not JSON"),
    "a NUL": (b'{"type": "\\u0000"}', "NUL"),
    "half of a surrogate pair": (b'{"type": "\\udfff"}', "surrogate"),
    "deep nesting": (b'{"type": "a", "payload": {"x": %s}}' % (b"[" * 62 + b"]" * 62), "nests deeper"),
    "too large an event": (json.dumps({"type": "a", "payload": {"x": "x" * EVENT_BYTES}}).encode(), "at most 4096"),
    "too long a line": (b'{"type": "a"%s}' % (b" " * LINE_BYTES), "more than 16384 bytes"),
    "a line longer than a block": (b"x" * (3 * BLOCK + 5), "more than 16384 bytes"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_line_that_is_not_an_event_keeps_its_number_and_causes_a_warning(
    path: Path, file: EventFile, what: str
) -> None:
    bad, words = BAD[what]
    write(path, line("a").encode() + bad + b"\n" + line("c").encode() + bad + b"\n")
    assert drain(file) == ["a", None, "c", None]
    note = file.finish()
    assert note.startswith("$DEBORGEN_EVENTS: 2 lines were left out: line 2 ")
    assert words in note
    assert note.isprintable()


def test_a_bad_line_is_counted_once_however_often_it_is_read(path: Path, file: EventFile) -> None:
    write(path, line("a") + "bad\n" + line("c"))
    drain(file)
    file.sent = 0
    assert drain(file) == ["a", None, "c"]
    assert file.finish().startswith("$DEBORGEN_EVENTS: 1 line was left out: line 2 is not JSON")


def test_an_empty_line_is_left_out_without_a_warning(path: Path, file: EventFile) -> None:
    write(path, line("a") + "\n \r\n" + line("b"))
    assert drain(file) == ["a", None, None, "b"]
    assert file.finish() == ""


@settings(max_examples=50, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(10**19), 10**19) | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_the_coordinator_accepts_every_event_that_the_worker_accepts(payload: Any) -> None:
    """The request is decoded as the coordinator decodes it."""
    try:
        event = read_event(json.dumps({"type": "a", "payload": {"x": payload}}).encode())
    except Unreadable:
        return
    body = convert(parse(msgspec.json.encode(ProgramEvents(session="s", events=[event], first=0))), ProgramEvents)
    _check_sizes(body.events)
    assert body.events == [event]


def test_the_worker_leaves_room_for_the_nesting_of_the_request() -> None:
    levels = MAX_DEPTH - LEVELS_AROUND - 2
    assert read_event(b'{"type": "a", "payload": {"x": %s}}' % (b"[" * levels + b"]" * levels))
    with pytest.raises(Unreadable):
        read_event(b'{"type": "a", "payload": {"x": %s}}' % (b"[" * (levels + 1) + b"]" * (levels + 1)))


# Restarts


@pytest.mark.parametrize("known", [0, 255, 256, 257, 700, 701])
def test_a_later_session_gives_every_event_the_number_it_had(path: Path, file: EventFile, known: int) -> None:
    """The coordinator has this many events from an earlier session. Seen to fail when bad lines have no number."""
    write(path, "".join("bad\n" if number % 7 == 3 else line(f"e{number}") for number in range(701)))
    first = file.batch()
    file.sent = max(known, len(first))
    expected = [None if number % 7 == 3 else f"e{number}" for number in range(file.sent, 701)]
    assert drain(file) == expected
    assert file.sent == 701
    assert file.finish().startswith("$DEBORGEN_EVENTS: 100 lines were left out: line 4 ")


def test_a_coordinator_with_a_restored_database_gets_the_events_it_lacks(path: Path, file: EventFile) -> None:
    write(path, "".join(line(f"e{number}") for number in range(600)))
    drain(file)
    write(path, line("last"))
    assert types(file.batch()) == ["last"]
    file.sent = 10
    assert drain(file) == [*[f"e{number}" for number in range(10, 600)], "last"]


# Limits


def test_no_more_lines_are_read_than_an_attempt_may_have_events(path: Path, file: EventFile) -> None:
    write(path, "".join(line(f"e{number}") for number in range(MOST_EVENTS + 5)))
    assert file.has_much_unread
    assert len(drain(file)) == MOST_EVENTS
    write(path, line("more"))
    assert file.batch() == []
    assert file.finish() == f"$DEBORGEN_EVENTS: was read only up to line {MOST_EVENTS}"
    assert not file.unsent
    assert file.batch(ended=True) == []


def test_the_maximum_number_of_lines_is_read_without_a_warning(path: Path, file: EventFile) -> None:
    write(path, "".join(line(f"e{number}") for number in range(MOST_EVENTS)).removesuffix("\n"))
    assert file.finish() == ""
    assert len(drain(file, ended=True)) == MOST_EVENTS


def bytes_read() -> int:
    """How many bytes this process has read so far."""
    return int(Path("/proc/self/io").read_text().split()[1])


def test_an_endless_line_is_read_once_and_up_to_the_limit(path: Path, file: EventFile) -> None:
    """Seen to fail when each round searches the line from its start."""
    before = bytes_read()
    write(path, line("a"))
    with path.open("ab") as endless:
        for _ in range(4):
            endless.truncate(endless.tell() + FILE_BYTES // 3)
            endless.seek(0, os.SEEK_END)
            drain(file)
    assert bytes_read() - before < FILE_BYTES + 30 * BLOCK
    note = file.finish()
    assert "1 line was left out: line 2 has more than 16384 bytes" in note
    assert "was read only up to line 2" in note
    assert bytes_read() - before < FILE_BYTES + 40 * BLOCK


def test_two_long_lines_do_not_hide_the_events_between_them(path: Path, file: EventFile) -> None:
    write(path, "x" * (2 * BLOCK) + "\n" + line("between") + "y" * (2 * BLOCK))
    assert "2 lines were left out" in file.finish()
    assert drain(file, ended=True) == [None, "between", None]


def test_a_long_line_is_skipped_again_when_the_lines_after_it_are_read_again(path: Path, file: EventFile) -> None:
    """Seen to fail when the search for the end of one long line goes on where that of another stopped."""
    write(path, line("a") + "x" * (2 * BLOCK) + "\n" + line("c") + "y" * (2 * BLOCK))
    assert types(file.batch()) == types(file.batch()) == ["a", None, "c"]
    write(path, "\n" + line("e"))
    assert drain(file) == ["a", None, "c", None, "e"]


def test_a_growing_long_line_is_skipped_once_it_ends(path: Path, file: EventFile) -> None:
    for _ in range(3):
        write(path, "x" * BLOCK)
        assert file.batch() == []
    write(path, "\n" + line("b"))
    assert drain(file) == [None, "b"]


# A hostile job


def test_links_pipes_and_folders_are_not_read(path: Path, file: EventFile, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(line("secret"))
    makers: list[Callable[[], None]] = [lambda: path.symlink_to(secret), lambda: os.mkfifo(path), path.mkdir]
    for make in makers:
        make()
        each = EventFile(tmp_path)
        assert each.batch() == []
        assert each.finish() == "$DEBORGEN_EVENTS: is not a regular file"
        assert each.batch(ended=True) == []
        assert not each.unsent
        path.rmdir() if path.is_dir() else path.unlink()


def test_a_link_in_the_path_is_not_followed(path: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "events.jsonl").write_text(line("secret"))
    path.parent.rmdir()
    path.parent.symlink_to(outside)
    file = EventFile(tmp_path)
    assert file.batch() == []
    assert "cannot be read" in file.finish()
    assert file.batch(ended=True) == []


def test_an_emptied_file_is_read_from_its_start_and_known_numbers_are_skipped(path: Path, file: EventFile) -> None:
    write(path, line("a") + line("b"))
    drain(file)
    path.write_text("")
    assert file.batch() == []
    write(path, line("x") + line("y") + line("z"))
    assert drain(file) == ["z"]
    assert file.finish() == "$DEBORGEN_EVENTS: was emptied or replaced, and events are missing"


@pytest.mark.parametrize("ended", [False, True])
def test_a_missing_file_causes_a_warning(path: Path, file: EventFile, ended: bool) -> None:
    write(path, line("a") + line("b"))
    file.batch()
    path.unlink()
    if not ended:
        assert file.batch() == []
    assert file.finish() == "$DEBORGEN_EVENTS: was emptied or replaced, and events are missing"
    assert file.batch(ended=True) == []
