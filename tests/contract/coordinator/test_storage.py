"""The storage keeps its promises on SQLite and on PostgreSQL."""

from __future__ import annotations

import itertools
import shutil
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

from deborgen_coordinator.operations import metrics
from deborgen_coordinator.operations.maintenance.cleanup import Cleaner
from deborgen_coordinator.storage import sqlite
from deborgen_coordinator.storage.database import DatabaseDamaged, DatabaseUnavailable
from deborgen_coordinator.storage.store import Store
from deborgen_coordinator.storage.transactions import Tx
from support.in_process import InProcessCoordinator
from support.postgres import PostgresCluster
from support.waiting import wait_until


@pytest.fixture
def store(tmp_path: Path, database: str) -> Any:
    opened = Store(database, tmp_path)
    yield opened
    opened.close()


def add_submitter(name: str) -> Any:
    return lambda tx: tx.run("INSERT INTO submitter (name) VALUES (?)", (name,))


def names(store: Store) -> list[str]:
    return sorted(row[0] for row in store.read(lambda reader: reader.rows("SELECT name FROM submitter")))


def test_a_write_can_be_read(store: Store) -> None:
    store.write(add_submitter("alice"))
    assert names(store) == ["alice"]


def test_a_transaction_that_raises_is_undone_and_the_rest_of_its_group_is_kept(store: Store) -> None:
    """A first transaction holds the writer, so that the three behind it share one commit."""
    hold, entered = threading.Event(), threading.Event()
    caught: list[Exception] = []

    def waits(tx: Tx) -> None:
        entered.set()
        hold.wait(20)

    def fails(tx: Tx) -> None:
        add_submitter("bad")(tx)
        raise ValueError("no")

    def run(work: Any) -> None:
        try:
            store.write(work)
        except ValueError as error:
            caught.append(error)

    threads = [threading.Thread(target=run, args=(waits,), daemon=True)]
    threads[0].start()
    assert entered.wait(20)
    threads += [
        threading.Thread(target=run, args=(w,), daemon=True) for w in (add_submitter("a"), fails, add_submitter("b"))
    ]
    for thread in threads[1:]:
        thread.start()
    hold.set()
    for thread in threads:
        thread.join(20)
    assert names(store) == ["a", "b"]
    assert len(caught) == 1


def test_concurrent_writers_never_meet_a_lock(store: Store) -> None:
    def write(part: int) -> None:
        for n in range(20):
            store.write(add_submitter(f"{part}-{n}"))

    threads = [threading.Thread(target=write, args=(part,), daemon=True) for part in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(names(store)) == 320


def test_a_read_sees_one_snapshot_whatever_is_written_meanwhile(store: Store) -> None:
    with store.reading() as reader:
        reader.rows("SELECT name FROM submitter")
        store.write(add_submitter("later"))
        assert reader.rows("SELECT name FROM submitter") == []
    assert names(store) == ["later"]


def test_a_reader_cannot_write(store: Store) -> None:
    with pytest.raises(Exception, match=r"(?i)readonly|read-only"):
        store.read(lambda reader: reader.run("INSERT INTO submitter (name) VALUES ('x')"))
    assert names(store) == []


IMPOSSIBLE = {
    "a job in an unknown state": "UPDATE job SET state = 'lost'",
    "a terminal job that never ended": "UPDATE job SET state = 'succeeded', attempts = 1, ready = 0",
    "a queued job that has ended": "UPDATE job SET finished_at = 1",
    "a ready job that is running": (
        "UPDATE job SET state = 'running', started_at = 1, worker_id = 1, last_attempt = 1, attempts = 1"
    ),
    "a running job that was never started": "UPDATE job SET state = 'running', ready = 0",
    "more attempts used than made": "UPDATE job SET attempts = 5",
    "a run whose counts do not add up": "UPDATE run SET queued = 7",
    "a run that ended with a job to go": "UPDATE run SET finished_at = 1",
    "a second lease clock": "INSERT INTO lease_clock (id, value) VALUES (2, 0)",
    "a token of an unknown role": (
        "INSERT INTO token (id, role, name, digest, created_at) VALUES ('x', 'god', 'n', 'd', 0)"
    ),
    "an attempt of no job": (
        "INSERT INTO attempt (job_id, number, worker_id, session, claim_id, granted_clock, deadline_clock, lease_clock,"
        " started_at) VALUES (99, 1, 1, 's', 1, 0, 0, 0, 0)"
    ),
    "an ended attempt with a lease": "UPDATE attempt SET outcome = 'lost', finished_at = 1",
    "a live attempt without a lease": "UPDATE attempt SET lease_clock = NULL",
    "an unknown outcome": "UPDATE attempt SET outcome = 'fine', finished_at = 1, lease_clock = NULL",
    "a worker in an unknown state": "UPDATE worker SET state = 'resting'",
    "a blob of negative size": "INSERT INTO blob (digest, size, touched_at) VALUES ('x', -1, 0)",
}


@pytest.mark.parametrize("what", IMPOSSIBLE)
def test_the_database_refuses(pool: InProcessCoordinator, what: str) -> None:
    if "attempt" in IMPOSSIBLE[what].split()[1] or "attempt SET" in IMPOSSIBLE[what]:
        pool.submit()
        pool.worker().start()
    else:
        pool.worker()
        pool.submit()
    with pytest.raises(Exception, match=r"(?i)constraint"):
        pool.ctx.store.write(lambda tx: tx.run(IMPOSSIBLE[what]))


def test_sqlite_is_in_wal_mode_and_flushes_every_commit(tmp_path: Path) -> None:
    store = Store("", tmp_path)
    pragmas = store.write(
        lambda tx: [tx.one(f"PRAGMA {name}") for name in ("journal_mode", "synchronous", "foreign_keys")]
    )
    store.close()
    assert pragmas == [("wal",), (2,), (1,)]


def test_fault_44_a_damaged_database_file_is_refused(tmp_path: Path) -> None:
    """Seen to fail when the whole file is not checked."""
    Store("", tmp_path).close()
    path = tmp_path / "deborgen.sqlite"
    whole = path.read_bytes()
    for damaged in (whole[: len(whole) // 2], b"not a database at all" * 100, whole[:4096] + bytes(len(whole) - 4096)):
        path.write_bytes(damaged)
        for leftover in tmp_path.glob("deborgen.sqlite-*"):
            leftover.unlink()
        with pytest.raises(DatabaseDamaged):
            Store("", tmp_path)
    path.write_bytes(whole)
    store = Store("", tmp_path)
    for number in range(300):
        store.write(add_submitter(f"somebody with a long name, and number {number}"))
    store.close()
    # One page that nobody reads when the file is opened: only a look at all of it finds the damage.
    path.write_bytes(path.read_bytes()[:-4096] + b"\xff" * 4096)
    with pytest.raises(DatabaseDamaged):
        Store("", tmp_path)


def damage_last_page(path: Path) -> None:
    """Damage a page that is not read when the file is opened."""
    with sqlite3.connect(path, isolation_level=None) as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    other.close()
    with path.open("r+b") as file:
        file.seek(-4096, 2)
        file.write(b"\xff" * 4096)


def fill(store: Store) -> None:
    for number in range(300):
        store.write(add_submitter(f"somebody with a long name, and number {number}"))


def test_fault_44_a_large_file_is_served_at_once_and_damage_is_noticed_while_serving(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen to fail when the rest of a large file is never read."""
    monkeypatch.setattr(sqlite, "READ_AT_START", 0)
    pool = InProcessCoordinator(tmp_path)
    fill(pool.ctx.store)
    Cleaner(pool.ctx).run_once()
    assert pool.ctx.store.damage == ""
    damage_last_page(tmp_path / "deborgen.sqlite")
    Cleaner(pool.ctx).run_once()
    assert pool.ctx.store.damage
    with pytest.raises(DatabaseUnavailable, match="the database is damaged, and nothing is written to it"):
        metrics.check_health(pool.ctx)
    assert b"deborgen_database_damaged 1.0" in metrics.exposition(pool.ctx)
    pool.stop()


def test_fault_44_a_read_or_write_of_a_damaged_page_is_refused_and_stops_all_writing(tmp_path: Path) -> None:
    """Seen to fail when damage that a query meets is an error like any other."""
    store = Store("", tmp_path)
    fill(store)
    damage_last_page(tmp_path / "deborgen.sqlite")
    with pytest.raises(DatabaseUnavailable, match="damaged"):
        names(store)
    with pytest.raises(DatabaseUnavailable, match="nothing is written"):
        store.write(add_submitter("alice"))
    store.close()


def test_fault_44_a_large_truncated_file_is_refused_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen to fail when a large file that was cut is an error like any other."""
    store = Store("", tmp_path)
    fill(store)
    store.close()
    monkeypatch.setattr(sqlite, "READ_AT_START", 0)
    Store("", tmp_path).close()
    path = tmp_path / "deborgen.sqlite"
    path.write_bytes(path.read_bytes()[:-4096])
    with pytest.raises(DatabaseDamaged, match="malformed"):
        Store("", tmp_path)


def test_fault_42_a_file_that_another_process_keeps_locked_is_a_refusal_and_then_all_is_well(tmp_path: Path) -> None:
    """Seen to fail when an error of the database is passed on as it is."""
    store = Store("", tmp_path)
    intruder = sqlite3.connect(tmp_path / "deborgen.sqlite", isolation_level=None)
    intruder.execute("BEGIN IMMEDIATE")
    with pytest.raises(DatabaseUnavailable):
        store.write(add_submitter("alice"))
    assert names(store) == []
    intruder.execute("ROLLBACK")
    intruder.close()
    store.write(add_submitter("bob"))
    assert names(store) == ["bob"]
    store.close()


def test_an_interrupted_write_leaves_no_thread_waiting(tmp_path: Path, database: str) -> None:
    store = Store(database, tmp_path)

    def interrupted(tx: Tx) -> None:
        add_submitter("alice")(tx)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.write(interrupted)
    thread = threading.Thread(target=lambda: store.write(add_submitter("bob")), daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()
    assert names(store) == ["bob"]
    store.close()


@pytest.mark.postgres
def test_a_commit_whose_answer_was_lost_is_looked_up_and_never_repeated(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection is cut just after, then just before, the server has committed."""
    import psycopg

    store = Store(postgres_url, tmp_path)
    real = Tx.commit
    cuts = iter(["after", "before"])

    def cut(tx: Tx) -> None:
        when = next(cuts, None)
        if when != "before":
            real(tx)
        if when:
            tx.connection.close()
            raise psycopg.OperationalError("the line was cut")

    monkeypatch.setattr(Tx, "commit", cut)
    store.write(add_submitter("after"))
    store.write(add_submitter("before"))
    assert names(store) == ["after", "before"]
    store.close()


@pytest.mark.postgres
def test_a_commit_that_never_reached_the_server_is_repeated_even_if_the_server_still_waits_for_it(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg

    store = Store(postgres_url, tmp_path)
    real = Tx.commit
    silent: list[Any] = []

    def cut(tx: Tx) -> None:
        if silent:
            return real(tx)
        silent.append(tx.connection)
        monkeypatch.setattr(tx.connection, "close", lambda: None)  # the server does not hear of it
        raise psycopg.OperationalError("the line was cut")

    monkeypatch.setattr(Tx, "commit", cut)
    thread = threading.Thread(target=lambda: store.write(add_submitter("alice")), daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()
    assert names(store) == ["alice"]
    store.close()


@pytest.mark.postgres
@pytest.mark.parametrize("strangers", [0, 100])
def test_a_commit_that_a_crash_of_postgres_lost_is_repeated_at_once(
    tmp_path: Path, own_postgres: PostgresCluster, monkeypatch: pytest.MonkeyPatch, strangers: int
) -> None:
    """Nothing of the transaction had reached the server's disk, so the server does not know its number any more, or has
    given it to a stranger, who has committed. Seen to fail when the server is asked by that number."""
    import psycopg

    with psycopg.connect(own_postgres.url(), autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET wal_writer_delay = '10s'")
    own_postgres.restart()
    store = Store(own_postgres.database(), tmp_path)
    real = Tx.commit

    def crash(tx: Tx) -> None:
        monkeypatch.setattr(Tx, "commit", real)
        own_postgres.restart("immediate")
        with psycopg.connect(own_postgres.url(), autocommit=True) as connection:
            for _ in range(strangers):
                connection.execute("SELECT pg_current_xact_id()")
        raise psycopg.OperationalError("the server is gone")

    monkeypatch.setattr(Tx, "commit", crash)
    store.write(add_submitter("alice"))
    assert names(store) == ["alice"]
    store.close()


def test_a_closed_writer_leaves_no_row_behind(tmp_path: Path, database: str) -> None:
    for name in ("alice", "bob"):
        store = Store(database, tmp_path)
        store.write(add_submitter(name))
        store.close()
    connection = store.database.connect(readonly=True)
    assert connection.rows("SELECT * FROM writer") == []
    connection.close()


def test_fault_68_text_with_nul_is_accepted_by_either_database(pool: InProcessCoordinator) -> None:
    """Seen to fail when NUL goes to PostgreSQL as it is."""
    pool.submit()
    worker = pool.worker()
    (attempt,) = worker.start()
    assert worker.beat(attempt, message="half\0way", progress=0.5) == {attempt: "continue"}
    worker.finish(attempt, "failed", reason="no\0thing")
    assert pool.job("1.1").reason in ("no\0thing", "no\ufffdthing")


@pytest.mark.postgres
def test_fault_45_postgres_restarted_under_load_loses_nothing(tmp_path: Path, own_postgres: PostgresCluster) -> None:
    """Seen to fail when work that the database interrupted counts as done."""
    store = Store(own_postgres.database(), tmp_path)
    acknowledged: list[str] = []
    refused: set[str] = set()
    enough = threading.Event()

    def write(part: int) -> None:
        for n in itertools.count():
            if enough.is_set():
                return
            try:
                store.write(add_submitter(f"{part}-{n}"))
            except DatabaseUnavailable:  # the restart took longer than the writer's patience: refused, so not lost
                refused.add(f"{part}-{n}")
            else:
                acknowledged.append(f"{part}-{n}")

    threads = [threading.Thread(target=write, args=(part,), daemon=True) for part in range(4)]
    for thread in threads:
        thread.start()
    try:
        for mode in ("fast", "immediate"):
            seen = len(acknowledged)
            wait_for_more(acknowledged, seen + 50)
            own_postgres.stop(mode)
            own_postgres.start()
        wait_for_more(acknowledged, len(acknowledged) + 50)
    finally:
        enough.set()
    for thread in threads:
        thread.join(60)
    found = set(names(store))
    assert set(acknowledged) <= found, "something acknowledged is lost"
    assert found - set(acknowledged) <= refused, "something was stored without being acknowledged"
    store.close()


@pytest.mark.postgres
def test_a_pooled_reader_is_replaced_after_a_restart_of_the_server(
    tmp_path: Path, own_postgres: PostgresCluster
) -> None:
    """Otherwise each pooled reader would refuse one request after the server is back."""
    store = Store(own_postgres.database(), tmp_path)
    store.write(add_submitter("ada"))
    assert names(store) == ["ada"]
    own_postgres.restart("fast")
    assert names(store) == ["ada"]
    store.close()


def wait_for_more(acknowledged: list[str], count: int) -> None:
    wait_until(lambda: len(acknowledged) >= count)


@pytest.mark.postgres
def test_a_commit_in_one_process_wakes_another(tmp_path: Path, postgres_url: str) -> None:
    heard: list[set[str]] = []
    listening = threading.Event()

    def hear(signals: set[str]) -> None:
        heard.append(signals)
        listening.set()

    one = Store(postgres_url, tmp_path)
    other = Store(postgres_url, tmp_path, hear)
    assert listening.wait(20)  # its first signal means that it is listening
    heard.clear()
    one.write(lambda tx: tx.wake("jobs"))
    wait_until(lambda: any("jobs" in signals for signals in heard))
    one.close()
    other.close()


def test_a_copy_of_the_file_taken_while_it_is_open_can_be_opened(tmp_path: Path) -> None:
    store = Store("", tmp_path / "a")
    store.write(add_submitter("alice"))
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    copy = Store("", tmp_path / "b")
    assert names(copy) == ["alice"]
    copy.close()
    store.close()
