"""The output of commands: harmless on a terminal, complete in a pipe."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from deborgen import output


def test_a_log_is_decoded_correctly_wherever_the_chunks_are_cut() -> None:
    data = "grün ✓\r\nnext\rover\n".encode() + b"\xff\x1b[31m"
    for cut in range(len(data) + 1):
        stream = output.InertStream()
        text = stream.feed(data[:cut]) + stream.feed(data[cut:]) + stream.feed(b"", final=True)
        assert text == "grün ✓\nnext\nover\n\ufffd␛[31m"


def test_tabs_within_a_value_do_not_add_columns() -> None:
    line = output.tsv(["a\tb", "c\nd", "e\\f", None, True, 1.5, {"x": 1, "y": "z"}, ["p", "q"]])
    assert line == "a\\tb\tc\\nd\te\\\\f\t\ttrue\t1.5\tx=1 y=z\tp,q"


def test_in_a_pipe_a_table_is_tab_separated_with_full_values(capsys: pytest.CaptureFixture[str]) -> None:
    output.table(["name", "size"], [["long and whole", 1024]], shown={"size": output.size})
    assert capsys.readouterr().out == "name\tsize\nlong and whole\t1024\n"


def test_data_goes_to_stdout_and_messages_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    output.write("data\n")
    output.say("words")
    output.hint("next")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("data\n", "words\nnext\n")


def test_on_a_terminal_all_output_is_inert(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(output, "on_terminal", lambda: True)
    output.write("a\x9b2J\n")
    output.json("name", "\u202e")
    assert capsys.readouterr().out == 'a\\u009b2J\n{\n  "version": 1,\n  "name": "\\u202e"\n}\n'


def test_json_carries_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    output.json("runs", [])
    assert capsys.readouterr().out == '{\n  "version": 1,\n  "runs": []\n}\n'


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0.0s"), (0.44, "0.4s"), (12.4, "12s"), (200, "3m 20s"), (7500, "2h 5m"), (349200, "4d 1h"), (None, "")],
)
def test_durations_read_well(value: float | None, text: str) -> None:
    assert output.seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 B"), (512, "512 B"), (1536, "1.5 KiB"), (1 << 30, "1 GiB"), (8 << 30, "8 GiB"), (300 << 20, "300 MiB")],
)
def test_sizes_read_well(value: int, text: str) -> None:
    assert output.size(value) == text


def test_ages_and_counts_read_well() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert output.age(now - timedelta(minutes=3), now) == "3m 0s ago"
    assert output.age(None) == "never"
    assert [output.counted(n, "job") for n in (0, 1, 10000)] == ["0 jobs", "1 job", "10,000 jobs"]
