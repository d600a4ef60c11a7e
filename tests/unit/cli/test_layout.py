"""Tables on a narrow terminal: ids, states and numbers stay whole."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deborgen import layout, output

JOBS = {"job": 7, "state": 9, "params": 60, "worker": 10, "exit_code": 9, "seconds": 7, "reason": 40}
TEXT = ("params", "reason")
SPARE = ("seconds", "worker", "exit_code")


def total(widths: dict[str, int]) -> int:
    return sum(widths.values()) + layout.GAP * (len(widths) - 1)


def test_a_table_that_fits_is_shown_whole() -> None:
    assert layout.fit(JOBS, 200, TEXT, SPARE) == JOBS


def test_text_shrinks_before_a_column_is_left_out() -> None:
    widths = layout.fit(JOBS, 110, TEXT, SPARE)
    assert list(widths) == list(JOBS)
    assert total(widths) == 110
    assert widths["params"] == widths["reason"], "the widest text shrinks first"


def test_if_short_text_is_not_enough_the_spare_columns_are_left_out_in_their_order() -> None:
    widths = layout.fit(JOBS, 60, TEXT, SPARE)
    assert list(widths) == ["job", "state", "params", "exit_code", "reason"]
    assert total(widths) == 60


@given(st.integers(1, 250), st.dictionaries(st.sampled_from(list(JOBS)), st.integers(1, 300), min_size=1))
def test_only_text_is_ever_shortened_and_the_table_fits(room: int, natural: dict[str, int]) -> None:
    widths = layout.fit(natural, room, TEXT, SPARE)
    assert next(iter(widths)) == next(iter(natural))
    for name, width in widths.items():
        assert width == natural[name] or name in TEXT
    assert total(widths) <= room or len(widths) == 1


def test_a_long_table_on_a_terminal_shows_its_head_and_its_tail(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(output, "on_terminal", lambda: True)
    output.table(["job"], [[f"1.{index}"] for index in range(1, 5001)])
    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == 1 + layout.FIRST_ROWS + 1 + layout.LAST_ROWS
    assert shown.out.split()[-1] == "1.5000"
    assert "4,880 rows" in shown.err


def test_a_narrow_terminal_is_told_which_columns_it_does_not_see(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(output, "on_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    output.table(["job", "state", "seed", "energy"], [["12.10000", "succeeded", 123456, 0.123456789012]])
    shown = capsys.readouterr()
    assert shown.out.splitlines()[1].split() == ["12.10000", "succeeded", "123456"]
    assert "energy" in shown.err
