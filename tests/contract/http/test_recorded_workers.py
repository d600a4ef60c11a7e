"""Workers of earlier releases are understood: their recorded requests get the answers that they need.

The recordings are in `recorded/`, whose README says how they are made.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
import requests

from support.coordinator import Client, CoordinatorProcess
from support.recording import Entry, Replay, gist

RECORDINGS = sorted((Path(__file__).parent / "recorded").glob("worker-*.json"))

# What a worker of release 0.1 decodes: each field that has no default must be there, and each must be of its type. It
# ignores fields that it does not know.


class Registered(msgspec.Struct):
    lease_seconds: float
    heartbeat_seconds: float
    lost: list[str]


class Input(msgspec.Struct):
    step: str
    job: str
    path: str
    target: str
    sha256: str
    size: int


class Resources(msgspec.Struct):
    cpus: float = 1.0
    memory: int = 2**30
    gpus: int = 0
    disk: int = 2**31


class Pattern(msgspec.Struct):
    path: str
    when: Literal["success", "always"] = "success"


class File(msgspec.Struct):
    path: str
    sha256: str
    size: int
    mode: int = 0o644


class Spec(msgspec.Struct):
    name: str = "job"
    run: str | list[str] = ""
    image: str | None = None
    files: list[File] = []
    env: dict[str, str] = {}
    secrets: list[str] = []
    resources: Resources = msgspec.field(default_factory=Resources)
    requires: dict[str, str] = {}
    network: Literal["none", "internet"] = "none"
    timeout: float = 3600.0
    max_attempts: int = 1
    priority: int = 0
    artifacts: list[Pattern] = []
    result: str | None = None
    labels: dict[str, str] = {}


class Assignment(msgspec.Struct):
    attempt: str
    job: str
    number: int
    spec: Spec
    params: dict[str, Any]
    inputs: list[Input]
    secrets: dict[str, str]
    timeout_seconds: float
    lease_seconds: float
    name: str = ""
    submitter: str = ""


class Claimed(msgspec.Struct):
    assignments: list[Assignment]


class Orders(msgspec.Struct):
    pause: bool = False
    drain: bool = False


class HeartbeatAnswer(msgspec.Struct):
    attempts: dict[str, Literal["continue", "cancel", "stop"]]
    orders: Orders


class Finished(msgspec.Struct):
    results: dict[str, Literal["accepted", "stale", "already_recorded", "missing_blobs"]]
    missing: dict[str, list[str]] = {}


class LogSize(msgspec.Struct):
    size: int


class MissingBlob(msgspec.Struct):
    sha256: str
    url: str


class MissingBlobs(msgspec.Struct):
    missing: list[MissingBlob]


#: The answers that a worker of release 0.1 decodes, by the end of the path.
DECODED: dict[tuple[str, str], type] = {
    ("POST", "claim"): Claimed,
    ("POST", "heartbeat"): HeartbeatAnswer,
    ("POST", "finish"): Finished,
    ("POST", "log"): LogSize,
    ("POST", "missing"): MissingBlobs,
}


def decode(request: Entry, answer: requests.Response) -> Any:
    """The answer as the old worker decodes it; None if it reads only the status."""
    path = request["path"].partition("?")[0]
    if request["method"] == "PUT" and path.startswith("/v1/workers/"):
        return msgspec.json.decode(answer.content, type=Registered)
    kind = DECODED.get((request["method"], path.rpartition("/")[2]))
    return msgspec.json.decode(answer.content, type=kind) if kind and answer.status_code == 200 else None


def check(entry: Entry, answer: requests.Response) -> None:
    """The answer has the recorded status, the old worker can decode it, and it means what it meant then."""
    request = entry["request"]
    said = f"{request['method']} {request['path']}: {answer.status_code} {answer.text[:500]}"
    assert answer.status_code == entry["status"], said
    decoded = decode(request, answer)
    if entry["answer"] is not None:
        assert gist(answer.json()) == entry["answer"], said
    if answer.status_code == 204 and request["path"].endswith("/claim"):
        assert float(answer.headers["Retry-After"]) >= 0, "it would ask again at once, for ever"
    if request["method"] == "GET":
        assert hashlib.sha256(answer.content).hexdigest() == request["path"].rpartition("/")[2]
    if isinstance(decoded, Registered):
        assert 0 < decoded.heartbeat_seconds < decoded.lease_seconds
    if isinstance(decoded, MissingBlobs):
        assert all(each.url.endswith(f"/v1/blobs/{each.sha256}") for each in decoded.missing)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def fresh(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[CoordinatorProcess]:
    """A new coordinator, so that its runs get the numbers of the recording."""
    database = str(request.getfixturevalue("postgres_url")) if request.param == "postgres" else ""
    with CoordinatorProcess(tmp_path, database=database) as process:
        yield process


@pytest.fixture(params=RECORDINGS, ids=lambda path: path.stem)
def recorded(request: pytest.FixtureRequest) -> dict[str, Any]:
    return dict(json.loads(request.param.read_text()))


def act(person: Client, did: dict[str, Any]) -> None:
    """Do what a person did in the recording."""
    if "submits" in did:
        answer = person.post("/v1/runs", json=did["submits"])
    else:
        answer = person.post(f"/v1/jobs/{did['cancels']}/cancel", json={})
    assert answer.ok, answer.text


def named(story: list[Entry], path: str) -> list[Entry]:
    """The requests whose path ends with this text."""
    return [
        entry for entry in story if "request" in entry and entry["request"]["path"].partition("?")[0].endswith(path)
    ]


def test_a_recording_covers_a_whole_life(recorded: dict[str, Any]) -> None:
    """Otherwise the last test would prove less than it says."""
    story = recorded["story"]
    heartbeats = [entry["answer"]["attempts"] for entry in named(story, "/heartbeat")]
    assert any(entry["request"]["body"]["wait_seconds"] > 0 and "opens" in entry for entry in named(story, "/claim"))
    assert any(entry["request"]["body"].get("ahead") and entry["status"] == 200 for entry in named(story, "/claim"))
    assert any(entry.get("status") == 204 for entry in named(story, "/claim"))
    assert {word for answer in heartbeats for word in answer.values()} == {"continue", "cancel"}
    assert all("Deborgen-Session" in entry["request"]["headers"] for entry in named(story, "/log"))
    assert [entry["status"] for entry in story if entry.get("request", {}).get("path", "").startswith("/v1/blobs/")]
    outcomes = [each["outcome"] for entry in named(story, "/finish") for each in entry["request"]["body"]["results"]]
    assert set(outcomes) == {"succeeded", "canceled"}
    assert story[-1]["request"]["method"] == "DELETE"
    assert "dbg_" not in json.dumps(story), "no token is kept"


def test_an_older_workers_confirming_heartbeat_is_answered_continue(
    recorded: dict[str, Any],
) -> None:
    """Such a worker starts an attempt only after this answer. The test below checks that today's coordinator gives the
    same answers."""
    first: dict[str, str] = {}
    for entry in named(recorded["story"], "/heartbeat"):
        for attempt, word in entry["answer"]["attempts"].items():
            first.setdefault(attempt, word)
    assert len(first) >= 10
    assert set(first.values()) == {"continue"}


def test_an_older_workers_requests_get_answers_that_it_understands(
    recorded: dict[str, Any], fresh: CoordinatorProcess
) -> None:
    """Seen to fail when the header with the session does not count, when a field of an assignment is missing, and when
    a heartbeat that confirms an attempt is answered with `stop`.
    """
    person = fresh.client("submitter", "ada")
    token = fresh.token("worker", recorded["worker"])
    Replay(fresh.url, token, lambda did: act(person, did), check).play(recorded["story"])

    jobs = person.get("/v1/jobs?limit=1000").json()["items"]
    assert {job["name"]: job["state"] for job in jobs} == {
        "two-steps": "succeeded", "canceled": "canceled", "short": "succeeded",
    }  # fmt: skip
    assert all(job["attempts"] == 1 for job in jobs)
    made, used = (person.get(f"/v1/jobs/1.{index}").json() for index in (1, 2))
    assert (made["result"], [each["path"] for each in made["artifacts"]]) == ({"n": 7}, ["out.txt"])
    assert used["history"][0]["outcome"] == "succeeded"
    logs = [person.get(f"/v1/jobs/{job}/log").content for job in ("1.1", "1.2", "2.1", "3.12")]
    assert logs == [
        b"begun\nended\n",
        b"made\n",
        b"begun\n[deborgen: the attempt ended as canceled: canceled]\n",
        b"12\n",
    ]
    assert person.get(f"/v1/workers/{recorded['worker']}").json()["state"] == "left"
