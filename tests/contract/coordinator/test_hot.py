"""Each compiled statement does what the plain query does, and nothing else is compiled or written by hand."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
from peewee import BigAutoField

from deborgen_coordinator.operations.context import Context
from deborgen_coordinator.storage import hot
from deborgen_coordinator.storage.database import DatabaseConnection
from deborgen_coordinator.storage.models import TABLES, Job
from support.in_process import InProcessCoordinator

STORAGE = Path(hot.__file__).parent
RUN, JOB, OTHER = 1, (1 << 20) + 1, (1 << 20) + 2
DIGEST, SPEC, CLASS = "d" * 64, "e" * 64, "f" * 64

#: For each statement, values with which it finds or changes something in the pool of `stocked`.
SAMPLES: dict[str, tuple[Any, ...]] = {
    "token_numbered": ("t1",), "worker_named": ("pc1",), "lock_worker": ("pc1",), "lease_clock": (),
    "claim_of": (1, "first"), "any_ready": (), "avoided_subjects": (1, 5.0), "experience": ("image a", 1),
    "first_of_lane": (1, 1, 0, 5), "start_job": (1, 5.0, OTHER), "add_claim": (1, "second", 5.0),
    "add_attempt": (OTHER, 1, 1, "s", 1, 1.0, 2.0, 3.0, 4.0), "runs_among(1)": (RUN,), "runs_among(3)": (RUN, 2, 77),
    "move_run": (-1, 0, 1, 0, 0, -1, 5.0, RUN), "record_heartbeat": ("paused", "lunch", None, "{}", None, 1.0, 2.0, 1),
    "live_attempts_of": (1,), "renew_lease": (99.0, 1.0, 50.0, JOB, 1, 1, "session"),
    "set_progress": (0.5, "half", JOB), "attempt_numbered": (JOB, 1),
    "end_attempt": ("failed", "no", 9.0, 1, 2.0, 3.0, 4, "image", DIGEST, 6, 7.0, 1, JOB, 1),
    "finish_job": ("failed", "no", 1, "{}", "[]", 9.0, None, JOB, 1), "finish_jobs_of_only_step": (1, RUN),
    "charge": (2.5, 1), "add_usage": (300, 300, 1, 1, 1, 1, 2.0, 3.0, 4.0, 5.0),
    "add_log_chunk": (JOB, 1, 0, b"bytes\xff"), "set_log_size": (6, JOB, 1),
    "find_blob": (DIGEST,), "lock_blob": (DIGEST,), "add_artifact": (JOB, 1, "out", DIGEST, 3),
    "submission_under": (1, "key"), "add_submission": (1, "other", DIGEST, RUN),
    "spec_numbered": (1,), "needs_of_class": (1,), "spec_under": (SPEC,), "class_under": (CLASS,),
    "add_spec": (DIGEST, "{}", 1), "add_spec_file": (1, DIGEST),
    "add_run": ("name", 1, "{}", "[]", None, 2, 1, 5.0, None, 0, "local", None, None),
    "add_label": (RUN, "project", "thesis"), "add_step": (2, 7, "b", "[]", 1, 1, 2, 2, 2, 0),
    "add_job": ((2 << 20) + 9, 1, 1, 1, 1, 0, "{}", 1, "queued"),
    "expired_attempts": (1e9, 5), "overdue_attempts": (1e9, 5), "wake_jobs": (1e9,), "stop_avoiding": (1e9,),
    "silent_workers": (1e9,), "lock_lease_clock": (), "move_lease_clock": (5.0, "me"),
    "add_event": (1.0, "job.queued", OTHER, None, "pc1", "person:alice", None, "queued", None),
}  # fmt: skip


@pytest.fixture
def stocked(pool: InProcessCoordinator) -> Context:
    """A pool with two runs, a worker that holds the first job, and a blob."""
    pool.submit({"sweep": {"grid": {"n": [1, 2, 3]}}}, key="key")
    pool.submit(by="bob")
    worker = pool.worker()
    [attempt] = worker.claim(request="first")
    worker.beat(attempt)

    def touch(tx: Any) -> None:
        tx.run("INSERT INTO blob (digest, size, touched_at) VALUES (?, 3, 0)", (DIGEST,))
        tx.run("INSERT INTO token (id, role, name, digest, created_at) VALUES ('t1', 'viewer', 'v', ?, 0)", (DIGEST,))
        tx.run("UPDATE spec SET digest = ? WHERE id = 1", (SPEC,))
        tx.run("UPDATE class SET digest = ? WHERE id = 1", (CLASS,))
        tx.run("UPDATE attempt SET session = 'session'")
        columns = "subject, worker_id, failures, avoid_clock, reason, at"
        tx.run(f"INSERT INTO experience ({columns}) VALUES ('image a', 1, 2, 9, 'no', 3)")
        columns = "begin, length, worker_id, submitter_id, attempts, succeeded, seconds, cores, gpus, memory"
        tx.run(f"INSERT INTO usage ({columns}) VALUES (300, 300, 1, 1, 1, 0, 1, 1, 1, 1)")
        tx.run("UPDATE job SET avoid = 1, avoid_clock = 5 WHERE id = ?", (OTHER + 1,))
        tx.run("UPDATE job SET ready = 0, wait_clock = 5 WHERE id = ?", ((2 << 20) + 1,))

    pool.ctx.store.write(touch)
    return pool.ctx


def everything(connection: DatabaseConnection) -> list[Any]:
    return [sorted(map(str, connection.rows(model.select()))) for model in TABLES]


def rows_and_effect(connection: DatabaseConnection, execute: Any) -> Any:
    """The rows of a statement and its effect on the database; the effect is undone."""
    for model in TABLES:
        if isinstance(model._meta.primary_key, BigAutoField):
            connection.reset_counter(model)  # which PostgreSQL does not undo
    connection.begin_writing("test")
    try:
        cursor = execute()
        rows = [tuple(map(str, row)) for row in cursor.fetchall()] if cursor.description else cursor.rowcount
        return rows, everything(connection)
    finally:
        connection.run("ROLLBACK")


@pytest.mark.parametrize("name", sorted(hot.statements()))
def test_a_compiled_statement_does_what_the_plain_query_does(stocked: Context, name: str) -> None:
    statement, values = hot.statements()[name], SAMPLES[name]
    connection = stocked.store.database.connect(readonly=False)
    before = everything(connection)
    compiled = rows_and_effect(connection, lambda: statement._execute(connection, values))
    plain = rows_and_effect(connection, lambda: connection.execute(statement.build(*values)))
    connection.close()
    assert compiled == plain
    assert compiled[0] not in ([], 0) or compiled[1] != before, "the sample finds nothing, so it shows nothing"


def test_the_lanes_are_the_first_ready_jobs_of_each_submitter_and_class(pool: InProcessCoordinator) -> None:
    for by in ("alice", "bob", "carol"):
        for cpus in (1, 2):
            pool.submit(resources={"cpus": cpus}, by=by)
            pool.submit(resources={"cpus": cpus}, by=by, priority=5)

    def look(reader: DatabaseConnection) -> Any:
        lane = (Job.job_class, Job.submitter, Job.avoid)
        ready = reader.rows(Job.select(*lane, Job.rank, Job.id).where(Job.ready == 1).order_by(*lane, Job.rank, Job.id))
        first: dict[Any, Any] = {}
        for job_class, submitter, avoid, rank, job in ready:
            first.setdefault((job_class, submitter, avoid), (rank, job, job_class, submitter, avoid))
        return reader.rows(hot.LANES), list(first.values())

    lanes, plain = pool.ctx.store.read(look)
    assert len(lanes) == 6
    assert lanes == plain


def texts(path: Path) -> list[str]:
    """The strings of a module that are not documentation."""
    tree = ast.parse(path.read_text())
    docs = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs
    ]


#: The modules that may contain SQL: for transactions, pragmas, locks, the schema's version and migrations.
MAY_CONTAIN_SQL = {"sqlite.py", "postgres.py", "database.py", "schema.py", "hot.py"}


def test_no_other_module_of_storage_contains_sql() -> None:
    verbs = ("SELECT ", "INSERT ", "UPDATE ", "DELETE ", "WITH ", "CREATE ", "ALTER ", "PRAGMA ")
    found = [
        f"{path.name}: {text}"
        for path in sorted(STORAGE.glob("*.py"))
        if path.name not in MAY_CONTAIN_SQL
        for text in texts(path)
        if text.lstrip().startswith(verbs)
    ]
    assert found == []
