"""Valid requests, one kind per call of the contract: what the fuzzer starts from before it spoils them."""

from __future__ import annotations

import base64
import gzip
import hashlib
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from deborgen_shared import contract, headers
from deborgen_shared.calls import JSON, Call
from deborgen_shared.states import Role
from fuzz.known import SECRETS, Known

#: Request ids come from a small set, so that they are repeated.
REQUEST_IDS = 40
#: A person may have few unfinished uploads. With more blobs than this, all further ones would be refused.
RESUMED = 8
ROOM = {"cpus": 8, "memory": 2**36, "gpus": 1, "disk": 2**36}
#: The value of every secret. Only assignments may contain it.
SECRET_VALUE = "the value of a secret of the fuzzer"
#: No real worker has this label, so jobs that require it are left to workers that the fuzzer plays.
PLAYED = {"fuzz": "played"}


@dataclass
class Draft:
    """A request that is not yet bytes."""

    call: Call[Any]
    path: str
    query: list[tuple[str, str]] = field(default_factory=list)
    headers: list[tuple[str, str]] = field(default_factory=list)
    #: Bytes are sent as they are, everything else as JSON.
    body: Any = None


def draft(rng: random.Random, known: Known, call: Call[Any]) -> Draft:
    """A request that the coordinator would accept, if what it names exists."""
    path = call.path
    for name in call.path_names:
        path = path.replace(f"{{{name}}}", known.name_in_path(rng, name))
    made = Draft(call, path, _query(rng, known, call))
    if call.takes is not None and call.takes is not bytes:
        made.body = BODIES[call.method, call.path](rng, known)
        made.headers.append((headers.CONTENT_TYPE, JSON))
    elif call is contract.APPEND_LOG:
        text = b"line of a log\n" * rng.choice((0, 1, 5, 5000))
        made.body = gzip.compress(text) if rng.random() < 0.5 else text
        if made.body != text:
            made.headers.append((headers.CONTENT_ENCODING, "gzip"))
    elif call.takes is bytes:
        made.body = blob = known.blob(rng, RESUMED) if call is contract.PATCH_BLOB else known.blob(rng)
        made.path = call.path.format(sha256=hashlib.sha256(blob).hexdigest())
        if call is contract.PATCH_BLOB:
            start = rng.choice((0, 0, 1, len(blob) // 2))
            made.body = blob[start : start + rng.choice((0, 1, len(blob)))]
            made.headers += [(headers.UPLOAD_OFFSET, str(start)), (headers.UPLOAD_LENGTH, str(len(blob)))]
    if "number" in call.path_names:
        job, _, attempt_number = known.attempt(rng).partition("/")
        made.path = call.path.format(job=job, number=attempt_number)
    if headers.IDEMPOTENCY_KEY in call.headers and rng.random() < 0.3:
        made.headers.append((headers.IDEMPOTENCY_KEY, f"key-{rng.randrange(50)}"))
    if headers.ORIGIN in call.headers and rng.random() < 0.1:
        made.headers.append((headers.ORIGIN, '{"bridge": "rabbitmq", "correlation_id": "order 7"}'))
    if headers.RANGE in call.headers and rng.random() < 0.5:
        made.headers.append((headers.RANGE, f"bytes={rng.randrange(10)}-{rng.choice(('', '3', '99999999'))}"))
    if headers.IF_NONE_MATCH in call.headers and rng.random() < 0.2:
        made.headers.append((rng.choice((headers.IF_NONE_MATCH, headers.IF_RANGE)), f'"{known.digest(rng)}"'))
    if call is contract.LIST_EVENTS and rng.random() < 0.02:
        made.headers.append((headers.ACCEPT, contract.EVENT_STREAM))
    return made


def _query(rng: random.Random, known: Known, call: Call[Any]) -> list[tuple[str, str]]:
    if call is contract.APPEND_LOG:
        return [("offset", str(rng.choice((0, 0, 14, 70)))), ("session", known.session_id(rng))]
    found = {
        "limit": str(rng.choice(LIMITS)), "cursor": rng.choice(known.cursors), "state": rng.choice(STATES),
        "run": str(known.run(rng)), "job": known.job(rng), "worker": known.worker(rng), "attempt": "1",
        "after": rng.choice(("0", "100", "now")),
        "before": rng.choice(("0", "100", "10000000")), "offset": str(rng.choice((0, 3, 10**9))),
        "submitter": "fuzz-submitter",
        "label": rng.choice(("project", "project=thesis")), "format": rng.choice(("json", "csv")), "retries": "1",
        "session": known.session_id(rng), "follow": "1", "shared": "1", "replaced": "1",
        "by": rng.choice(("person", "machine", "both")), "since": "2026-11-01",
    }  # fmt: skip
    rare = {"follow": 0.02}
    fields = call.query.__struct_fields__
    return [(name, found[name]) for name in fields if rng.random() < rare.get(name, 0.3)]


#: Long pages are asked for seldom: they cost much.
LIMITS = (1,) * 30 + (2,) * 30 + (20,) * 30 + (1000,)
STATES = ("queued", "running", "succeeded", "failed", "canceled")


def job_file(rng: random.Random, known: Known) -> dict[str, Any]:
    """A job file as it is submitted. Most jobs are left to played workers."""
    body: dict[str, Any] = {
        "run": rng.choice(("true", "echo hello", ["true", "a"])),
        "timeout": "5s",
        "max_attempts": 1,
    }
    digest = known.digest(rng)
    more: dict[str, Any] = {
        "name": "pendulum", "env": {"A": "1", "B": 2.5}, "resources": {"cpus": 0.5, "memory": "64MiB", "disk": "64MiB"},
        "labels": {"project": "thesis", "n": 1}, "priority": rng.randrange(-5, 5), "network": "none",
        "artifacts": ["out/*", {"path": "core", "when": "always"}], "result": "metrics.json",
        "image": "python:3.12-slim", "secrets": [rng.choice(SECRETS)],
        "retry": {"program": True, "backoff": "0s"}, "sweep": {"grid": {"a": [1, 2], "b": ["x", "y"]}},
        "files": [{"path": "data/a.txt", "sha256": digest, "size": known.blobs[digest], "mode": 420}],
    }  # fmt: skip
    body |= {key: more[key] for key in rng.sample(list(more), rng.randrange(4))}
    if "sweep" in body and rng.random() < 0.5:
        body["run"] = "echo ${{ a }} $DEBORGEN_PARAM_B"
        body["sweep"] = {"cases": [{"a": 1, "b": "x"}, {"a": "é", "b": None}], "exclude": [{"a": 1}]}
    if rng.random() < 0.2:
        body = {"steps": [{"id": "one", **body}, {"id": "two", "run": "true", "needs": ["one"], "timeout": "5s"}]}
        body["labels"] = body["steps"][0].pop("labels", {})
    if rng.random() < 0.95:
        body["requires"] = PLAYED
    return body


def _register(rng: random.Random, known: Known) -> dict[str, Any]:
    session = known.session_id(rng) if rng.random() < 0.7 else f"session-{rng.randrange(10**9)}"
    held = [known.attempt(rng) for _ in range(3)] if rng.random() < 0.1 else list(dict.fromkeys(known.attempts))
    labels = {"runner.process": True, "runner.container": True, "network.internet": True, **PLAYED}
    return {
        "session": session, "version": "0.1", "hostname": "host", "labels": labels, "capacity": ROOM,
        "holding": held, "metrics": METRICS,
        "gone": [known.attempt(rng)] if rng.random() < 0.1 else [],
    }  # fmt: skip


METRICS = {
    "load": 0.5, "memory_free": 2**30, "disk_free": 2**33, "temperature": 50.5,
    "gpus": [{"name": "rtx", "memory_free": 2**30, "busy": 0.5}],
}  # fmt: skip


def _claim(rng: random.Random, known: Known) -> dict[str, Any]:
    return {"session": known.session_id(rng), "wait_seconds": rng.choice((0, 0, 0, 0.05)), **_next_claim(rng)}


def _next_claim(rng: random.Random) -> dict[str, Any]:
    number = f"request-{rng.randrange(REQUEST_IDS)}"
    return {"request_id": number, "free": ROOM, "max": rng.choice((1, 4, 16)), "ahead": rng.random() < 0.2}


def _heartbeat(rng: random.Random, known: Known) -> dict[str, Any]:
    held = [
        {
            "attempt": known.attempt(rng),
            "progress": 0.5,
            "message": "half",
            "began_seconds_ago": 1.5,
            "standing": "frozen",
        }
        for _ in range(rng.randrange(4))
    ]
    return {
        "session": known.session_id(rng), "holding": held, "state": rng.choice(("open", "paused", "yielding")),
        "reason": "lunch",
        "until": "2030-01-31T18:00:00Z", "free": ROOM, "metrics": METRICS,
    }  # fmt: skip


def _finish(rng: random.Random, known: Known) -> dict[str, Any]:
    results: list[dict[str, Any]] = []
    for _ in range(rng.randrange(1, 4)):
        outcome = rng.choice(("succeeded", "failed", "timeout", "out_of_memory", "canceled", "error", "released"))
        result = {
            "attempt": known.attempt(rng), "outcome": outcome, "reason": "so", "seconds": 1.5, "cpu_seconds": 1,
            "peak_memory": 2**20, "log_size": 5, "result": {"loss": 0.5, "name": "x", "n": "NaN"}, "warnings": ["hm"],
        }  # fmt: skip
        if outcome in ("succeeded", "failed"):
            result["exit_code"] = int(outcome == "failed")
        if rng.random() < 0.5:
            result["log"] = {"offset": 0, "data": base64.b64encode(b"hello").decode()}
        if rng.random() < 0.3:
            digest = known.digest(rng)
            result["artifacts"] = [{"path": "out/plot.png", "sha256": digest, "size": known.blobs[digest]}]
        results.append(result)
    body: dict[str, Any] = {"session": known.session_id(rng), "results": results}
    return body | ({"claim": _next_claim(rng)} if rng.random() < 0.5 else {})


def _events(rng: random.Random, known: Known) -> dict[str, Any]:
    events = [{"type": "epoch", "payload": {"n": 1, "loss": {"a": [0.5]}}}, None][: rng.randrange(3)]
    return {"session": known.session_id(rng), "first": rng.choice((0, 0, 1, 2)), "events": events}


def _commit(rng: random.Random, known: Known) -> dict[str, Any]:
    commit = f"{rng.getrandbits(160):040x}"
    return {"session": known.session_id(rng), "repo": "https://example.org/a", "ref": "main", "commit": commit}


def _checkpoint(rng: random.Random, known: Known) -> dict[str, Any]:
    files = [
        {"path": f"state/{n}", "sha256": known.digest(rng), "size": 5, "mode": 0o600} for n in range(rng.randrange(3))
    ]
    return {"session": known.session_id(rng), "number": rng.choice((1, 1, 2, 3)), "files": files}


ROLES = [str(role) for role in Role]
_BODIES: list[tuple[Call[Any], Callable[[random.Random, Known], Any]]] = [
    (contract.SUBMIT, job_file),
    (contract.CHECK, job_file),
    (contract.CANCEL_RUN, lambda rng, known: {"reason": "enough"}),
    (contract.CANCEL_JOB, lambda rng, known: {"reason": "enough"}),
    (contract.RETRY_RUN, lambda rng, known: {"only": rng.choice(("failed", "canceled", "all"))}),
    (contract.MISSING_BLOBS, lambda rng, known: {"digests": [known.digest(rng) for _ in range(rng.randrange(5))]}),
    (contract.COMPLETE_BLOB, lambda rng, known: {"upload": f"{rng.randrange(3):032x}", "parts": []}),
    (contract.STEER_WORKER, lambda rng, known: {"paused": rng.random() < 0.2, "drain": rng.random() < 0.1}),
    (contract.CREATE_TOKEN, lambda rng, known: {"role": rng.choice(ROLES), "name": "fuzz", "expires_in_seconds": 60.5}),
    (contract.SET_SECRET, lambda rng, known: {"value": SECRET_VALUE, "shared": rng.random() < 0.3}),
    (contract.PUT_CURSOR, lambda rng, known: {"seq": rng.randrange(9), "was": rng.choice((None, 1, 2))}),
    (contract.REGISTER, _register),
    (contract.CLAIM, _claim),
    (contract.HEARTBEAT, _heartbeat),
    (contract.FINISH, _finish),
    (contract.APPEND_EVENTS, _events),
    (contract.PIN_COMMIT, _commit),
    (contract.SAVE_CHECKPOINT, _checkpoint),
]
BODIES = {(call.method, call.path): made for call, made in _BODIES}
_WITHOUT = [
    call.path for call in contract.CALLS if call.takes not in (None, bytes) and (call.method, call.path) not in BODIES
]
assert not _WITHOUT, f"add a body for {_WITHOUT}, so that the fuzzer can make these calls"
