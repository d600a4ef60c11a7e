"""Hours, pauses, settings, capacity, contact, the console: small and pure."""

from __future__ import annotations

import dataclasses
import io
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deborgen_worker.capacity import OVERTAKE_SECONDS, Amount, Ledger
from deborgen_worker.console import Console
from deborgen_worker.contact import Contact
from deborgen_worker.disk import Disk
from deborgen_worker.gate import Gate
from deborgen_worker.policy import PauseFile, outside
from deborgen_worker.settings import TABLE, SettingsError, WorkerSettings

ROOT = Path(__file__).resolve().parent.parent.parent.parent


@pytest.mark.parametrize(
    ("hours", "at", "open_"),
    [
        ("", "12:00", True),
        ("22:00-07:00", "23:30", True),
        ("22:00-07:00", "06:59", True),
        ("22:00-07:00", "07:00", False),
        ("22:00-07:00", "12:00", False),
        ("09:00-17:00", "09:00", True),
        ("09:00-17:00", "17:00", False),
    ],
)
def test_hours_may_span_midnight(hours: str, at: str, open_: bool) -> None:
    assert (outside(hours, datetime.fromisoformat(f"2026-01-01T{at}")) is None) is open_


@pytest.mark.parametrize(
    ("at", "since", "opens_in"), [("07:00:05", 5, 53995), ("21:59:59", 53999, 1), ("12:00", 18000, 36000)]
)
def test_outside_the_hours_it_is_known_since_when_and_until_when(at: str, since: float, opens_in: float) -> None:
    assert outside("22:00-07:00", datetime.fromisoformat(f"2026-01-01T{at}")) == (since, opens_in)


def test_a_pause_is_on_disk_and_ends_by_itself(tmp_path: Path) -> None:
    pauses = PauseFile(tmp_path, Disk())
    assert pauses.read(0) is None
    pauses.write(until=100.0, frozen=True)
    found = PauseFile(tmp_path, Disk()).read(99.0)
    assert found is not None
    assert (found.until, found.frozen) == (100.0, True)
    assert pauses.read(100.0) is None
    assert pauses.read(0.0) is None


def test_the_gate_gives_the_owners_reason_first() -> None:
    gate = Gate()
    gate.close("runner", "podman is down")
    gate.close("owner", "paused by its owner")
    assert (gate.state, gate.reason) == ("paused", "paused by its owner")
    gate.close("draining", "stopping")
    assert gate.state == "draining"
    for keeper in ("runner", "owner", "draining"):
        gate.open(keeper)
    assert (gate.state, gate.closed) == ("open", False)


@pytest.mark.parametrize(
    ("keeper", "state"),
    [
        ("leaving", "draining"),
        ("draining", "draining"),
        ("owner", "paused"),
        ("order", "paused"),
        ("hours", "closed"),
        ("disk", "closed"),
        ("runner", "closed"),
        ("token", "closed"),
        ("somebody else", "paused"),
    ],
)
def test_the_state_of_a_worker_follows_from_who_has_closed_its_gate(keeper: str, state: str) -> None:
    gate = Gate()
    gate.close(keeper, "for a reason")
    assert (gate.state, gate.closed) == (state, True)


def test_the_gate_gives_the_end_of_a_pause_while_the_pause_is_its_reason() -> None:
    """Seen to fail when it gives the end of any other closure."""
    gate = Gate()
    gate.close("disk", "full")
    gate.close("owner", "paused", 1_800_000_000.0)
    assert gate.until == datetime(2027, 1, 15, 8, 0, tzinfo=UTC)
    gate.close("draining", "stopping")
    assert gate.until is None, "it does not stop draining when the pause ends"
    gate.open("draining")
    gate.close("owner", "paused until resumed")
    assert gate.until is None
    gate.close("owner", "paused", 1_800_000_000.0)
    gate.open("owner")
    assert (gate.state, gate.until) == ("closed", None)


@pytest.mark.parametrize("seconds", [1e12, 1e300, float("inf"), float("nan"), -1e10])
def test_an_end_beyond_the_calendar_is_left_out(seconds: float) -> None:
    gate = Gate()
    gate.close("owner", "paused", seconds)
    assert (gate.state, gate.until) == ("paused", None)


def test_flags_win_over_the_environment_over_the_owners_file_over_the_rolled_out_one(tmp_path: Path) -> None:
    config = tmp_path / "worker.toml"
    config.write_text('name = "rolled"\ncpus = 8\nmemory = "8GiB"\nhours = "22:00-07:00"\nlabels = {site = "garage"}\n')
    (tmp_path / "worker.local.toml").write_text('cpus = 2\nmemory = "4GiB"\n')
    found = TABLE.load({"cpus": "1"}, {"DEBORGEN_WORKER_CPUS": "3", "DEBORGEN_WORKER_MEMORY": "2GiB"}, str(config))
    assert (found.cpus, found.memory, found.name, found.hours) == (1.0, 2 << 30, "rolled", "22:00-07:00")
    assert found.labels == {"site": "garage"}
    assert TABLE.load({}, {}, str(config)).cpus == 2.0


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"memory": "8"}, None),
        ({"memory": "8 gigs"}, "--memory: '8 gigs' is not a valid size"),
        ({"cpus": "none"}, "--cpus: 'none' is not a valid number"),
        ({"name": "a b"}, "--name: 'a b' is not a valid name"),
        ({"hours": "22-7"}, "write it like 22:00-07:00"),
        ({"runner": "docker"}, "is not a valid choice: it must be auto, podman, process or both"),
        ({"labels": "a"}, "--labels: 'a' is not a valid list of labels"),
    ],
)
def test_a_bad_setting_is_refused_by_name(flags: dict[str, str], words: str | None) -> None:
    if words is None:
        assert TABLE.load(flags, {}, None).memory == 8
        return
    with pytest.raises(SettingsError, match=re.escape(words)):
        TABLE.load(flags, {}, None)


def test_an_unknown_line_in_the_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "w.toml").write_text("cpu = 3\n")
    with pytest.raises(SettingsError, match="unknown setting 'cpu': did you mean 'cpus'"):
        TABLE.load({}, {}, str(tmp_path / "w.toml"))


def test_every_setting_is_a_flag_and_every_flag_a_setting() -> None:
    import argparse

    parser = argparse.ArgumentParser()
    TABLE.add_flags(parser)
    flags = {action.dest for action in parser._actions} - {"help", "config"}
    assert flags == {each.name for each in dataclasses.fields(WorkerSettings)}


cpus = st.floats(0.1, 4).map(lambda number: round(number, 2))
amounts = st.builds(Amount, cpus, st.integers(1, 4 << 30), st.integers(0, 2), st.integers(1, 100))


@given(st.lists(st.tuples(amounts, st.booleans()), max_size=30), st.integers(0, 4))
def test_running_jobs_never_exceed_what_is_offered(steps: list[tuple[Amount, bool]], slots: int) -> None:
    ledger = Ledger(Amount(4, 8 << 30, 2, 400), slots)
    now = 0.0
    for number, (amount, end) in enumerate(steps):
        now += 0.01
        asked = ledger.would_claim(now)
        assert asked is None or ledger.offered.covers(asked.amount)
        ledger.wait(str(number), amount)
        for name in list(ledger.waiting):
            ledger.start(name, now)
        assert ledger.free().covers(Amount())
        assert not slots or len(ledger.running) <= slots
        if end and ledger.running:
            ledger.release(next(iter(ledger.running)), now)


def short_ones(ledger: Ledger, count: int, now: float, seconds: float = 0.001) -> None:
    for number in range(count):
        ledger.wait(f"short{number}", Amount(1, 1, 0, 1))
        assert ledger.start(f"short{number}", now)
        ledger.release(f"short{number}", now, seconds)


def test_the_more_short_jobs_have_ended_the_more_are_prefetched() -> None:
    ledger = Ledger(Amount(2, 8 << 30, 0, 400))
    asked = []
    for number in range(6):
        found = ledger.would_claim(1.0)
        assert found is not None
        assert found.ahead == (number > 0)
        assert found.amount == ledger.offered
        asked.append(found.max_jobs)
        short_ones(ledger, 2 + 3 * number, 1.0)
    assert asked[1:] == [8, 28, 60, 104, 128]


def test_nothing_is_prefetched_after_a_break_or_a_long_job() -> None:
    ledger = Ledger(Amount(2, 8 << 30, 0, 400))
    short_ones(ledger, 40, 1.0)
    assert ledger.prefetch_limit(1.5) == 128
    assert ledger.prefetch_limit(2.1) == 0, "jobs after a break may be of another kind"
    short_ones(ledger, 1, 3.0)
    assert ledger.prefetch_limit(3.0) == 4, "the time before the break says nothing"
    short_ones(ledger, 1, 3.1, seconds=30.0)
    assert ledger.prefetch_limit(3.1) == 0
    short_ones(ledger, 40, 3.2)
    ledger.wait("long", Amount(1, 1, 0, 1))
    ledger.start("long", 3.2)
    short_ones(ledger, 1, 4.3)
    assert ledger.prefetch_limit(4.3) == 0, "a running job has turned out to be long"


def test_room_that_a_waiting_job_cannot_use_is_claimed_but_not_forever() -> None:
    """Small jobs fill the room that a large one leaves. Seen to fail when they may overtake it endlessly, and when the
    room that it cannot use is kept for it from the beginning."""
    ledger = Ledger(Amount(2, 8 << 30, 0, 400))
    for name, cpus in (("a", 1.0), ("large", 2.0), ("small", 0.25)):
        ledger.wait(name, Amount(cpus, 1, 0, 1))
    assert ledger.start("a", 1.0)
    assert not ledger.start("large", 1.0)
    asked = ledger.would_claim(1.5)
    assert asked is not None
    assert (asked.ahead, asked.amount.cpus) == (False, 0.75), "all but the share of the small one"
    assert ledger.would_claim(1.0 + OVERTAKE_SECONDS + 0.1) is None
    ledger.release("a", 4.0)
    assert ledger.start("large", 4.0)
    ledger.release("large", 14.0)
    asked = ledger.would_claim(14.0)
    assert asked is not None
    assert asked.amount.cpus == 1.75


def test_the_loss_of_the_coordinator_is_reported_once_and_so_is_its_return() -> None:
    said: list[str] = []
    woken: list[str] = []
    now = [0.0]
    contact = Contact(lambda: now[0], said.append, on_back=lambda: woken.append("x"))
    contact.ok("a")
    delays = [contact.failed("a", Exception("cut")) for _ in range(20)]
    assert sum("cannot reach" in line for line in said) == 1
    assert max(delays) <= 60
    assert max(delays) > 30
    assert delays[0] <= 0.25
    now[0] = 90.0
    contact.ok("b")
    assert "answers again, after 90 s" in said[-1]
    assert woken == ["x"]


def test_a_plain_console_repeats_itself_only_when_something_changed() -> None:
    stream = io.StringIO()
    console = Console(stream)
    for seconds in range(5):
        console.show(f"idle, waiting for work; last contact {seconds} s ago")
    console.show("running 1.1/1; last contact 0 s ago")
    assert len(stream.getvalue().splitlines()) == 2


def test_fault_37_nothing_that_a_terminal_would_obey_is_printed() -> None:
    """Seen to fail when a job's name goes to the terminal unchanged."""
    stream = io.StringIO()
    Console(stream).say("a\x1b[31mb\r\nc\x9b\u2028")
    assert stream.getvalue().endswith(" a␛[31mb␍↵c\\u009b\\u2028\n")
