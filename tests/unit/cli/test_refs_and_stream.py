"""References to runs and jobs, and the stream of events."""

from __future__ import annotations

import pytest

from deborgen.errors import WrongUsage
from deborgen.live import time_left
from deborgen.refs import Ref, parse
from deborgen.stream import parse as parse_stream


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("42", Ref(42)),
        ("42.7", Ref(42, 7)),
        ("42.7/2", Ref(42, 7, 2)),
        ("last", Ref(None)),
        ("last.3", Ref(None, 3)),
    ],
)
def test_a_reference_is_understood(text: str, meant: Ref) -> None:
    assert parse(text) == meant


@pytest.mark.parametrize("text", ["", "0", "x", "42.", "42.0", "42/1", "-1", "4 2", "42.7/0", "../1", "९"])
def test_an_invalid_reference_is_refused(text: str) -> None:
    with pytest.raises(WrongUsage) as refusal:
        parse(text)
    assert refusal.value.exit_code == 2


def test_a_stream_is_parsed_wherever_it_is_cut() -> None:
    data = b"retry: 2000\n\n: quiet\n\nid: 1\nevent: a\ndata: {\ndata: }\n\nid: 2\r\ndata:x\r\n\r\nid: 3\ndata: lost"
    whole = ["{\n}", "x"]
    for cut in range(len(data)):
        assert list(parse_stream([data[:cut], data[cut:]])) == whole


def test_the_time_left_follows_the_pace() -> None:
    assert time_left(elapsed=0.0, ended=0, still_open=90) is None
    assert time_left(elapsed=9.0, ended=30, still_open=60) == pytest.approx(18.0)
    assert time_left(elapsed=9.0, ended=90, still_open=0) is None
