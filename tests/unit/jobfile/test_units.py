from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deborgen_shared.jobfile.units import format_duration, format_size, parse_duration, parse_size

KIB, MIB, GIB = 2**10, 2**20, 2**30


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("45m", 2700),
        ("2h", 7200),
        ("3d", 259200),
        ("1h30m", 5400),
        ("1.5h", 5400),
        ("0s", 0),
        ("0.5s", 0.5),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "count"),
    [("512MiB", 512 * MIB), ("8GiB", 8 * GIB), ("1.5GiB", 1536 * MIB), ("4KiB", 4096), ("1TiB", 2**40)],
)
def test_sizes(text: str, count: int) -> None:
    assert parse_size(text) == count
    assert isinstance(parse_size(text), int)


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (90, "write 90s, 90m or 90h (units: s m h d)"),
        ("90", "write 90s, 90m or 90h (units: s m h d)"),
        ("2 hours", "write 2h (units: s m h d)"),
        ("1 Hour 30 min", "write 1h30m (units: s m h d)"),
        ("5 days, 2 hrs and 3 secs", "write 5d2h3s (units: s m h d)"),
        ("soon", "write for example 90s, 45m, 2h or 1h30m (units: s m h d)"),
        ("30m1h", "write for example 90s, 45m, 2h or 1h30m (units: s m h d)"),
        ("", "write for example 90s, 45m, 2h or 1h30m (units: s m h d)"),
        (None, "write for example 90s, 45m, 2h or 1h30m (units: s m h d)"),
        (True, "write for example 90s, 45m, 2h or 1h30m (units: s m h d)"),
        (["1h"], "write for example 90s, 45m, 2h or 1h30m (units: s m h d)"),
        ("1h\n", "write 1h (units: s m h d)"),
        ("١h", "write for example 90s, 45m, 2h or 1h30m (units: s m h d)"),
    ],
)
def test_an_invalid_duration_gets_a_spelling_hint(value: Any, hint: str) -> None:
    with pytest.raises(ValueError) as refused:
        parse_duration(value)
    assert str(refused.value) == hint


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (512, "write 512MiB or 512GiB (units: KiB MiB GiB TiB)"),
        (2 * GIB, "write 2GiB (units: KiB MiB GiB TiB)"),
        ("8GB", "write 8GiB (units: KiB MiB GiB TiB)"),
        ("8 gib", "write 8GiB (units: KiB MiB GiB TiB)"),
        ("500m", "write 500MiB (units: KiB MiB GiB TiB)"),
        ("big", "write for example 512MiB or 8GiB (units: KiB MiB GiB TiB)"),
        ("-1GiB", "write for example 512MiB or 8GiB (units: KiB MiB GiB TiB)"),
    ],
)
def test_an_invalid_size_gets_a_spelling_hint(value: Any, hint: str) -> None:
    with pytest.raises(ValueError) as refused:
        parse_size(value)
    assert str(refused.value) == hint


@given(st.integers(0, 10**12).map(lambda thousandths: thousandths / 1000))
def test_a_formatted_duration_is_parsed_back(seconds: float) -> None:
    assert parse_duration(format_duration(seconds)) == pytest.approx(seconds, abs=0.001)


@given(st.integers(1, 1023), st.sampled_from(["KiB", "MiB", "GiB", "TiB"]))
def test_a_formatted_round_size_is_parsed_back(number: int, unit: str) -> None:
    assert format_size(parse_size(f"{number}{unit}")) == f"{number}{unit}"


def test_formats() -> None:
    assert [format_duration(x) for x in (0, 0.25, 59, 60, 3600, 5400, 90061, 86400)] == [
        *("0s", "0.25s", "59s", "1m", "1h", "1h30m", "1d1h1m1s", "1d")
    ]
    assert [format_size(x) for x in (0, 512, 1024, 1536 * MIB, 10**9)] == ["0B", "512B", "1KiB", "1.5GiB", "953.7MiB"]


@given(st.text() | st.integers() | st.floats() | st.none() | st.lists(st.integers()))
def test_any_value_is_parsed_or_raises_a_value_error_with_a_hint(value: Any) -> None:
    for read in (parse_duration, parse_size):
        try:
            said = f"write {read(value)}"
        except ValueError as error:
            said = str(error)
        assert said.startswith("write ")
