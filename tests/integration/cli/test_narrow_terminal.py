"""A narrow terminal: what matters stays whole, and the rest is shortened, or left out with a note."""

from __future__ import annotations

import pytest

from support.person import Person
from support.pool import Pool

from .screen import Open, Terminal

WIDTHS = ["60", "80", "110"]

WIDE = """
name: a-sweep-with-a-rather-long-name
labels: {project: thesis}
run: |
  printf '{"energy": 0.1234567890123, "count": 123456789.25}' > "$DEBORGEN_RESULT"
  test ${{ seed }} -gt 6 || exit 3
artifacts: [a-file-with-a-long-name-that-no-job-ever-makes/*.png]
sweep:
  grid: {alpha: [0.123456789012], method: [the-long-name-of-a-method], seed: {from: 1, to: 12}}
"""


@pytest.fixture(scope="module")
def wide(anna: Person) -> str:
    """An ended run of twelve jobs with long parameters: the first six failed, the others have a warning."""
    return anna.submit(WIDE, "--wait", code=14)


def shown(terminal: Terminal, code: int = 0) -> str:
    """What the terminal shows in the end."""
    assert terminal.end() == code
    return terminal.screen.text


def too_wide(text: str, columns: str) -> list[str]:
    return [line for line in text.splitlines() if len(line) > int(columns)]


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize("verb", ["show", "results"])
def test_ids_states_and_numbers_are_whole(wide: str, terminal: Open, verb: str, columns: str) -> None:
    """Seen to fail in release 0.1, which showed ids as `1…`, and when text loses its end: no row shows its seed."""
    lines = shown(terminal(verb, wide, COLUMNS=columns)).splitlines()
    head = next(number for number, line in enumerate(lines) if line.startswith("JOB"))
    rows = lines[head : head + 13]
    assert too_wide("\n".join(rows), columns) == []
    for index, row in enumerate(rows[1:], 1):
        assert row.split()[:2] == [f"{wide}.{index}", "failed" if index <= 6 else "succeeded"]
        assert f"={index} " in row if verb == "show" else f" {index} " in row, "the parameter that varies is seen"
    if verb == "results":
        assert rows[1].split()[-1 if columns == "60" else 5] == "123456789", (
            "a number keeps all digits before its point"
        )
    else:
        assert rows[1].split()[-3:] == ["exit", "code", "3"]
    left_out = [line for line in lines if line.startswith("left out to fit this terminal: ")]
    missing = {"show": "seconds", "results": "worker"}[verb]
    assert (missing.upper() in lines[head]) != bool(left_out and missing in left_out[0]), (
        "a note names what is left out"
    )


@pytest.mark.parametrize("columns", WIDTHS)
def test_a_machine_keeps_its_name_and_its_availability(terminal: Open, columns: str) -> None:
    """Seen to fail in release 0.1, which showed the state of a machine as `o…`."""
    head, row, *_ = shown(terminal("workers", COLUMNS=columns)).splitlines()
    assert head.split()[:3] == ["WORKER", "AVAILABILITY", "CPUS"]
    assert row.split()[0] == "box"
    assert row.split()[2] in ("0/2", "1/2", "2/2")
    assert too_wide(f"{head}\n{row}", columns) == []


@pytest.mark.parametrize("verb", ["show", "results"])
def test_of_thousands_of_rows_a_terminal_shows_the_first_and_the_last(anna: Person, terminal: Open, verb: str) -> None:
    """Seen to fail in release 0.1, which scrolled through all rows."""
    run = anna.submit("run: ls\nrequires: {moon: full}\nsweep: {grid: {n: {from: 1, to: 5000}}}\n")
    words = ["--limit", "5000"] if verb == "show" else []
    lines = shown(terminal(verb, run, *words)).splitlines()
    ids = [line.split()[0] for line in lines if line.startswith((f"{run}.", "…"))]
    assert ids == [*(f"{run}.{n}" for n in range(1, 101)), "…", *(f"{run}.{n}" for n in range(4981, 5001))]
    assert any(line.startswith("4,880 rows in the middle left out: a pipe shows all of them") for line in lines)
    assert len(anna.rows(verb, run, *words)) == 5000


def test_a_column_without_a_value_takes_no_room(anna: Person, terminal: Open) -> None:
    """Seen to fail when an empty column of reasons stands beside parameters that are cut."""
    run = anna.submit("run: 'true'\nsweep: {grid: {n: [1, 2]}}\n", "--wait")
    assert "REASON" not in shown(terminal("show", run))
    assert "reason" in anna.out("show", run).splitlines()[0].split("\t")


@pytest.mark.parametrize("columns", ["60", "110"])
def test_the_end_of_watch_fits_and_its_commands_are_whole(wide: str, terminal: Open, columns: str) -> None:
    """Seen to fail when the line of commands was cut at the edge of the terminal, and a warning lost its job."""
    text = shown(terminal("watch", wide, COLUMNS=columns), code=14)
    assert too_wide(text, columns) == []
    for command in (f"deborgen logs {wide}.1", f"deborgen why {wide}.1", f"deborgen retry {wide} --failed"):
        assert command in text
    assert f"✗ 6 jobs: exit code 3 (first: {wide}.1)" in text
    (warning,) = [line for line in text.splitlines() if line.startswith("  ! ")]
    assert warning.startswith("  ! 6 jobs: artifact 'a-file")
    assert warning.endswith(f" matched nothing (first: {wide}.7)")


def test_watch_says_that_no_worker_can_run_the_job(anna: Person, terminal: Open) -> None:
    """Seen to fail when watch showed only the number of queued jobs."""
    run = anna.submit("run: ls\nrequires: {moon: full}\n")
    said = f"{run}.1: Queued: no worker can run it right now. Next: deborgen why {run}"
    watching = terminal("watch", run, COLUMNS="110")
    watching.until(lambda screen: said in screen.text)
    plain = terminal("watch", run, TERM="dumb")
    plain.until(lambda screen: said in screen.text)
    anna.out("cancel", run)
    assert watching.end() == plain.end() == 11


def test_show_of_a_waiting_job_says_when_it_is_tried_again(anna: Person, terminal: Open) -> None:
    """Seen to fail when show printed only the reason. The script is shown line by line."""
    run = anna.submit("run: |\n  echo first\n  exit 3\nretry: {program: true, backoff: 3h}\n")
    anna.out("logs", "-f", f"{run}.1/1")
    text = shown(terminal("show", run))
    if "next try" not in text:  # the end of the attempt had not arrived yet
        terminal("why", run).until(lambda screen: "next try in 3h" in screen.text)
        text = shown(terminal("show", run))
    assert "command     echo first\n            exit 3\n" in text
    assert "why         Queued: attempt 1 on box ended: exit code 3; next try in 3h." in text


def test_results_say_that_no_row_matches_and_suggest_no_best_of_nothing(
    pool: Pool, anna: Person, terminal: Open
) -> None:
    """Seen to fail when an empty table was all that was shown, and when `--best` of a column of NaN was suggested."""
    text = "run: |\n  printf '{\"loss\": NaN}' > $DEBORGEN_RESULT\nsweep: {grid: {n: [1, 2]}}\n"
    run = anna.submit(text, "--wait")
    assert f"no job of run {run} matches" in shown(terminal("results", run, "--where", "n=7"))
    assert "nan" in shown(terminal("results", run))
    assert "--best" not in shown(terminal("results", run))
