"""The words of the wire are typed once, in deborgen_shared. All other code imports them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from deborgen_shared import contract, headers
from deborgen_shared.errors import Code
from deborgen_shared.states import (
    Availability,
    CancelEffect,
    LeaseAnswer,
    Outcome,
    ResultAnswer,
    Role,
    RunAs,
    State,
    WorkerState,
)

ROOT = Path(__file__).resolve().parents[3]
PARTS = ("coordinator/src", "worker/src", "cli/src")
#: A migration describes a past state of the code, so it types the words of its time.
EXCEPTED = "storage/migrations/"

KINDS = (State, Outcome, Role, Code, WorkerState, Availability, RunAs, LeaseAnswer, ResultAnswer, CancelEffect)
WORDS = frozenset(str(word) for kind in KINDS for word in kind)
PATHS = frozenset(call.path for call in contract.CALLS)
HEADERS = frozenset(
    spelling.lower()
    for name in vars(headers)
    if name.isupper()
    for spelling in (getattr(headers, name), headers.environ_key(getattr(headers, name)))
)
VERSIONED = "/v1/"
#: A word in quotes, as in SQL, and a header at the beginning of a line, as in HTTP.
IN_SQL = re.compile("'(?:" + "|".join(sorted(WORDS)) + ")'")
IN_HTTP = re.compile(r"(?<=\r\n)(?:" + "|".join(sorted(HEADERS)) + "):", re.IGNORECASE)

#: Places where a word of the wire means something else: the file, the word, and its meaning there.
ALLOWED: dict[tuple[str, str], str] = {
    ("cli/src/deborgen/cli.py", "cancel"): "the name of a command",
    ("cli/src/deborgen/cli.py", "open"): "the name of a command",
    ("cli/src/deborgen/commands/open.py", "open"): "the name of a command",
    ("cli/src/deborgen/commands/logs.py", "failed"): "a verb in a sentence",
    ("cli/src/deborgen/commands/cancel.py", "cancel"): "the name of a command",
    ("cli/src/deborgen/commands/doctor.py", "open"): "the name of a check of the doctor",
    ("cli/src/deborgen/commands/events.py", "worker"): "the heading of a column",
    ("cli/src/deborgen/commands/init.py", "build"): "the name of an example",
    ("cli/src/deborgen/commands/init.py", "container"): "the name of an example",
    ("cli/src/deborgen/commands/list.py", "failed"): "the heading of a column",
    ("cli/src/deborgen/commands/list.py", "submitter"): "the heading of a column",
    ("coordinator/src/deborgen_coordinator/web/results.py", "worker"): "the name of a column",
    ("cli/src/deborgen/commands/run.py", "timeout"): "a field of the job file, and the option that fills it",
    ("cli/src/deborgen/commands/show.py", "submitter"): "the heading of a line",
    ("cli/src/deborgen/commands/show.py", "worker"): "the heading of a column",
    ("cli/src/deborgen/commands/why.py", "worker"): "the heading of a column",
    ("cli/src/deborgen/commands/workers.py", "running"): "the heading of a column",
    ("cli/src/deborgen/commands/workers.py", "worker"): "the heading of a column",
    ("cli/src/deborgen/errors.py", "canceled"): "what an exit code means, in words",
    ("cli/src/deborgen/output.py", "left"): "a side of a column",
    ("cli/src/deborgen/local_pool.py", "worker"): "the name of a process, of its log and of its folder",
    (
        "coordinator/src/deborgen_coordinator/request_threads.py",
        "error",
    ): "the key under which every refusal stands in its answer",
    (
        "coordinator/src/deborgen_coordinator/http/answers.py",
        "error",
    ): "the key under which every refusal stands in its answer",
    ("coordinator/src/deborgen_coordinator/bridges/rabbitmq/intake.py", "content_type"): "a property of a message",
    ("coordinator/src/deborgen_coordinator/bridges/rabbitmq/orders.py", "content_type"): "a property of a message",
    ("coordinator/src/deborgen_coordinator/bridges/rabbitmq/settings.py", "error"): "a level of the log",
    ("worker/src/deborgen_worker/console.py", "worker"): "a field of a line of the log",
    ("coordinator/src/deborgen_coordinator/operations/history.py", "worker"): "a field of an event",
    ("coordinator/src/deborgen_coordinator/operations/workers/steer.py", "paused"): "a field of an event",
    ("coordinator/src/deborgen_coordinator/operations/views.py", "submitter"): "a field of a job",
    ("coordinator/src/deborgen_coordinator/operations/views.py", "worker"): "a field of a job",
    ("coordinator/src/deborgen_coordinator/placement.py", "free"): "a word in a sentence about what a job lacks",
    ("coordinator/src/deborgen_coordinator/server.py", "timeout"): "a setting of Gunicorn's",
    ("coordinator/src/deborgen_coordinator/settings.py", "error"): "a level of the log",
    ("coordinator/src/deborgen_coordinator/storage/audit.py", "lost"): "a kind of what the audit finds",
    ("coordinator/src/deborgen_coordinator/storage/hot.py", "cancel_requested"): "a column",
    ("coordinator/src/deborgen_coordinator/storage/hot.py", "worker"): "a field of the value for an attempt",
    ("coordinator/src/deborgen_coordinator/storage/models.py", "submitter"): "a column of a key",
    ("coordinator/src/deborgen_coordinator/storage/models.py", "worker"): "a column of a key",
    ("coordinator/src/deborgen_coordinator/storage/sqlite.py", "malformed"): "SQLite's word for a damaged file",
    ("coordinator/src/deborgen_coordinator/storage/workers.py", "free"): "a column",
    ("coordinator/src/deborgen_coordinator/storage/writer.py", "error"): "an attribute",
    ("worker/src/deborgen_worker/__main__.py", "stop"): "the name of a command",
    ("worker/src/deborgen_worker/daemon.py", "stop"): "a command on the worker's control socket",
    (
        "worker/src/deborgen_worker/runners/podman/engine.py",
        "worker",
    ): "a key of the note about a worker's engine",
    ("worker/src/deborgen_worker/runners/supervisor.py", "stop"): "its own protocol; a bare script cannot import",
    ("worker/src/deborgen_worker/runners/unattended.py", "stop"): "a command for the supervisor",
    ("worker/src/deborgen_worker/service_manager.py", "stop"): "a word of systemd's for the job of a unit",
    ("worker/src/deborgen_worker/__main__.py", "error"): "a key of the answers on the worker's control socket",
    ("worker/src/deborgen_worker/__main__.py", "free"): "a field of the status on this machine",
    ("worker/src/deborgen_worker/__main__.py", "submitter"): "a field of the status and of the history on this machine",
    (
        "worker/src/deborgen_worker/owner.py",
        "running",
    ): "a stage of the attempt on its machine, which is not the job's state",
    ("worker/src/deborgen_worker/control.py", "error"): "a key of the answers on the worker's control socket",
    ("worker/src/deborgen_worker/daemon.py", "draining"): "a keeper of the gate",
    ("worker/src/deborgen_worker/owner.py", "free"): "a field of the status on this machine",
    ("worker/src/deborgen_worker/owner.py", "submitter"): "a field of the status on this machine",
    ("worker/src/deborgen_worker/gate.py", "draining"): "a keeper of the gate",
    ("worker/src/deborgen_worker/runners/podman/engine.py", "error"): "a field of Podman's answers",
    ("worker/src/deborgen_worker/runners/podman/reading.py", "paused"): "a word of Podman's for a container",
    ("worker/src/deborgen_worker/attempts.py", "stale"): "why a worker ends an attempt, in its journal",
    ("worker/src/deborgen_worker/spool.py", "stop"): "a record of the journal",
    (
        "worker/src/deborgen_worker/attempts.py",
        "running",
    ): "what a runner knows of an attempt; the supervisor answers with it",
    ("worker/src/deborgen_worker/runners/exits.py", "error"): "a field of the supervisor's records",
    ("worker/src/deborgen_worker/runners/builds/builder.py", "build"): "a command of Podman's",
    ("worker/src/deborgen_worker/runners/builds/runner.py", "timeout"): "a field of what the supervisor is asked",
    ("coordinator/src/deborgen_coordinator/operations/secrets.py", "build"): "a key of the job file",
    ("coordinator/src/deborgen_coordinator/operations/images.py", "build"): "a key of the job file",
    ("coordinator/src/deborgen_coordinator/operations/images.py", "'build'"): "a key of the job file, in a hint",
    ("coordinator/src/deborgen_coordinator/storage/images.py", "worker"): "a column of a key",
    ("worker/src/deborgen_worker/runners/supervision.py", "error"): "a field of the supervisor's records",
    ("worker/src/deborgen_worker/runners/supervision.py", "timeout"): "a field of what the supervisor is told",
    ("worker/src/deborgen_worker/runners/subprocess.py", "timeout"): "a field of what the supervisor is asked",
    # The supervisor has its own protocol, and imports only the standard library.
    ("worker/src/deborgen_worker/runners/processes.py", "error"): "a field of the supervisor's reports",
    ("worker/src/deborgen_worker/runners/supervisor.py", "error"): "a field of the supervisor's reports",
    ("worker/src/deborgen_worker/runners/supervisor.py", "running"): "a word of the supervisor's reports",
    ("worker/src/deborgen_worker/runners/programs.py", "timeout"): "a field of what the supervisor is told",
    ("worker/src/deborgen_worker/settings.py", "worker"): "the name of a worker whose machine has none",
    ("worker/src/deborgen_worker/spool.py", "submitter"): "a field of the history on this machine",
}


@dataclass(frozen=True, order=True)
class Typed:
    """A word of the wire that is typed as a string. A quoted word keeps its quotes and needs its own exception."""

    file: str
    line: int
    word: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.word!r}"


def typed_words(file: str, source: str) -> Iterator[Typed]:
    """Every word of the wire in the strings of a module, including those inside the braces of f-strings."""
    tree = ast.parse(source, file)
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            for word in words_of(node.value):
                yield Typed(file, node.lineno, word)


def words_of(text: str) -> list[str]:
    """The words of the wire that a string is or contains. A sentence for people may use any of them."""
    if text in WORDS or text in PATHS or text.startswith(VERSIONED) or text.lower() in HEADERS:
        return [text]
    return IN_SQL.findall(text) + IN_HTTP.findall(text)


def modules(part: str) -> list[Path]:
    return sorted(path for path in (ROOT / part).rglob("*.py") if EXCEPTED not in path.as_posix())


def typed_in(part: str) -> list[Typed]:
    return sorted(
        each
        for path in modules(part)
        for each in typed_words(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))
    )


@pytest.mark.parametrize("part", PARTS)
def test_no_word_of_the_wire_is_typed(part: str) -> None:
    assert modules(part), f"there is no module in {part}"
    typed = [str(each) for each in typed_in(part) if (each.file, each.word) not in ALLOWED]
    assert not typed, "import these from deborgen_shared, or say in ALLOWED what else they mean:\n" + "\n".join(typed)


def test_every_exception_is_needed() -> None:
    typed = {(each.file, each.word) for part in PARTS for each in typed_in(part)}
    unneeded = sorted(set(ALLOWED) - typed)
    assert not unneeded, f"these are no longer typed anywhere, so remove them from ALLOWED: {unneeded}"


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("if job.state == 'failed': pass", ["failed"]),
        ("outcome = 'out_of_memory'", ["out_of_memory"]),
        ("role: Literal['viewer'] = 'viewer'", ["viewer", "viewer"]),
        ("match code:\n    case 'superseded': pass", ["superseded"]),
        ("headers['content-type'] = JSON", ["content-type"]),
        ("key = environ['HTTP_IDEMPOTENCY_KEY']", ["HTTP_IDEMPOTENCY_KEY"]),
        ("path = f'/v1/jobs/{job}/later'", ["/v1/jobs/"]),
        ("path = f'{url}/health'", ["/health"]),
        ("label = f'{name} is {\"queued\"}'", ["queued"]),
        ("sql = \"UPDATE job SET state = 'running' WHERE state = 'queued'\"", ["'running'", "'queued'"]),
        ("sql = f\"SELECT {columns} FROM job WHERE state = 'canceled'\"", ["'canceled'"]),
        (r"head = f'HTTP/1.1 {status}\r\nContent-Type: {JSON}\r\n'", ["Content-Type:"]),
    ],
)
def test_a_typed_word_is_reported(source: str, words: list[str]) -> None:
    assert [each.word for each in typed_words("some.py", source)] == words


@pytest.mark.parametrize(
    "source",
    [
        '"""failed"""',
        'def f() -> None:\n    """running"""',
        "failed = job.failed",
        "say('the job failed')",
        "dict(timeout=3, worker=name)",
        "hint = 'GET /v1/runs lists all runs'",
        "state = State.FAILED",
    ],
)
def test_other_strings_are_not_reported(source: str) -> None:
    assert not list(typed_words("some.py", source))
