"""Blobs and artifacts over HTTP."""

from __future__ import annotations

import hashlib
import os
import random
import socket
from typing import Any

import pytest

from support.coordinator import Client, CoordinatorProcess
from support.scripted_worker import ScriptedWorker
from support.waiting import wait_until


@pytest.fixture
def ada(coordinator: CoordinatorProcess) -> Client:
    return coordinator.client("submitter", "ada")


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def stored_files(coordinator: CoordinatorProcess) -> set[str]:
    return {path.name for path in (coordinator.data_dir / "blobs").rglob("*") if path.is_file()}


def test_a_blob_is_put_once_and_fetched_whole_or_in_part(ada: Client) -> None:
    data = os.urandom(300_000)
    digest = digest_of(data)
    url = f"/v1/blobs/{digest}"
    assert ada.get(url).status_code == 404
    answer = ada.put(url, data=data)
    assert (answer.status_code, answer.json()) == (201, {"sha256": digest, "size": len(data)})
    assert ada.put(url, data=data).status_code == 201
    whole = ada.get(url)
    assert whole.content == data
    assert whole.headers["ETag"] == f'"{digest}"'
    assert whole.headers["X-Content-Type-Options"] == "nosniff"
    head = ada.head(url)
    assert (head.status_code, head.headers["Content-Length"]) == (200, "300000")
    assert "Upload-Offset" not in head.headers
    part = ada.get(url, headers={"Range": "bytes=100-199"})
    assert (part.status_code, part.content) == (206, data[100:200])
    assert part.headers["Content-Range"] == "bytes 100-199/300000"
    assert ada.get(url, headers={"Range": "bytes=299990-"}).content == data[-10:]
    assert ada.get(url, headers={"Range": "bytes=-10"}).content == data[-10:]
    assert ada.get(url, headers={"Range": "bytes=0-999999999"}).content == data
    assert ada.get(url, headers={"If-None-Match": f'"{digest}"'}).status_code == 304
    assert ada.get(url, headers={"Range": "bytes=0-9", "If-Range": '"other"'}).status_code == 200
    beyond = ada.get(url, headers={"Range": "bytes=300000-"})
    assert (beyond.status_code, beyond.json()["error"]["code"]) == (416, "range_not_satisfiable")
    assert beyond.headers["Content-Range"] == "bytes */300000"


@pytest.mark.parametrize(
    "value", ["bytes=", "bytes=-", "bytes=9-3", "bytes=a-b", "lines=1-2", "bytes=0-1,3-4", "bytes=" + "9" * 40 + "-"]
)
def test_a_range_that_makes_no_sense_is_ignored(ada: Client, value: str) -> None:
    data = b"0123456789"
    ada.put(f"/v1/blobs/{digest_of(data)}", data=data)
    answer = ada.get(f"/v1/blobs/{digest_of(data)}", headers={"Range": value})
    assert (answer.status_code, answer.content) == (200, data)


def test_the_empty_blob_is_a_blob(ada: Client) -> None:
    url = f"/v1/blobs/{digest_of(b'')}"
    assert ada.put(url, data=b"", headers={"Content-Length": "0"}).status_code == 201
    answer = ada.get(url)
    assert (answer.status_code, answer.content) == (200, b"")


def test_fault_40_bytes_with_another_digest_are_refused_and_nothing_is_kept(
    coordinator: CoordinatorProcess, ada: Client
) -> None:
    """Seen to fail when the digest of bytes is not checked."""
    data = os.urandom(100_000)
    digest = digest_of(data)
    before = stored_files(coordinator)
    answer = ada.put(f"/v1/blobs/{digest}", data=data[:-1] + bytes([data[-1] ^ 1]))
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "malformed")
    assert stored_files(coordinator) - {digest[:2]} == before - {digest[:2]}
    assert ada.head(f"/v1/blobs/{digest}").status_code == 404
    assert ada.put(f"/v1/blobs/{digest}", data=data).status_code == 201


def test_each_missing_blob_is_listed_once(ada: Client) -> None:
    data = b"here"
    ada.put(f"/v1/blobs/{digest_of(data)}", data=data)
    gone = digest_of(b"never sent")
    answer = ada.post("/v1/blobs/missing", json={"digests": [digest_of(data), gone, gone]}).json()
    assert answer == {"missing": [{"sha256": gone, "url": f"/v1/blobs/{gone}"}]}


def cut_upload(
    coordinator: CoordinatorProcess, method: str, digest: str, data: bytes, sent: int, headers: str = ""
) -> None:
    """Promise all of the data, send a part of it, and break the connection."""
    host, _, port = coordinator.url.removeprefix("http://").partition(":")
    token = coordinator.token("submitter", "ada")
    head = (
        f"{method} /v1/blobs/{digest} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Length: {len(data)}\r\n{headers}\r\n"
    )
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(head.encode() + data[:sent])


def test_fault_19_an_upload_cut_at_random_bytes_is_resumed_from_what_head_tells(
    coordinator: CoordinatorProcess, ada: Client
) -> None:
    """Seen to fail when an interrupted upload is discarded."""
    chance = random.Random(1919)
    data = chance.randbytes(3_000_000)
    digest = digest_of(data)
    url = f"/v1/blobs/{digest}"

    def offset() -> int:
        answer = ada.head(url)
        return int(answer.headers["Upload-Offset"]) if answer.status_code == 204 else 0

    sent = chance.randrange(1, 60_000)
    cut_upload(coordinator, "PUT", digest, data, sent)
    assert wait_until(lambda: offset() == sent)
    for _ in range(50):
        more = chance.randrange(1, 55_000)
        rest = data[sent:]
        cut_upload(coordinator, "PATCH", digest, rest, more, f"Upload-Offset: {sent}\r\n")
        sent += more
        assert wait_until(lambda: offset() == sent)  # noqa: B023
        assert ada.get(url).status_code == 404, "half a blob is never visible"
    answer = ada.patch(url, data=data[sent:], headers={"Upload-Offset": str(sent)})
    assert (answer.status_code, answer.json()["size"]) == (201, len(data))
    assert digest_of(ada.get(url).content) == digest
    again = ada.patch(url, data=data[sent:], headers={"Upload-Offset": str(sent)})
    assert again.status_code == 201, "the same once more does no harm"


def test_an_upload_may_come_in_parts_of_a_known_total(ada: Client) -> None:
    data = os.urandom(25_000)
    url = f"/v1/blobs/{digest_of(data)}"
    headers = {"Upload-Offset": "0", "Upload-Length": "25000"}
    first = ada.patch(url, data=data[:10_000], headers=headers)
    assert (first.status_code, first.headers["Upload-Offset"]) == (204, "10000")
    wrong = ada.patch(url, data=data[:10_000], headers=headers)
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (409, "upload_conflict")
    assert wrong.json()["error"]["offset"] == 10_000
    last = ada.patch(url, data=data[10_000:], headers={**headers, "Upload-Offset": "10000"})
    assert last.status_code == 201
    assert ada.get(url).content == data


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Upload-Offset": "-1"},
        {"Upload-Offset": "x"},
        {"Upload-Offset": "9" * 30},
        {"Upload-Offset": "0", "Upload-Length": "1"},
    ],
)
def test_a_patch_without_a_valid_offset_is_400(ada: Client, headers: dict[str, str]) -> None:
    answer = ada.patch(f"/v1/blobs/{'c' * 64}", data=b"some bytes", headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "malformed")


def test_artifacts_are_listed_and_fetched_by_path(coordinator: CoordinatorProcess, ada: Client) -> None:
    worker = ScriptedWorker(coordinator, "w1")
    run = ada.post("/v1/runs", json={"run": "true", "artifacts": ["out/**"]}).json()["id"]
    (assignment,) = worker.claim()
    contents = {"out/plot.png": os.urandom(70_000), "out/ünï cödé.txt": b"text", "out/<script>.html": b"<script>"}
    rows: list[dict[str, Any]] = [
        {"path": path, "sha256": digest_of(data), "size": len(data)} for path, data in sorted(contents.items())
    ]
    shown = [{**row, "uri": f"/v1/blobs/{row['sha256']}"} for row in rows]
    answer = worker.post(
        "finish",
        {"results": [{"attempt": assignment["attempt"], "outcome": "succeeded", "exit_code": 0, "artifacts": rows}]},
    )
    assert answer.json()["results"] == {assignment["attempt"]: "missing_blobs"}
    assert ada.get(f"/v1/jobs/{run}.1/artifacts").json()["items"] == [], "all or nothing"
    for data in contents.values():
        assert worker.http.put(f"/v1/blobs/{digest_of(data)}", data=data).status_code == 201
    assert worker.finish(assignment["attempt"], artifacts=rows) == "accepted"
    assert ada.get(f"/v1/jobs/{run}.1/artifacts").json() == {"items": shown, "next": None}
    for path, data in contents.items():
        answer = ada.get(f"/v1/jobs/{run}.1/artifacts/{path.replace('<', '%3C')}")
        assert answer.content == data
        assert answer.headers["Content-Type"] == "application/octet-stream"
        assert answer.headers["Content-Disposition"].startswith("attachment")
        assert "sandbox" in answer.headers["Content-Security-Policy"]
    part = ada.get(f"/v1/jobs/{run}.1/artifacts/out/plot.png", headers={"Range": "bytes=5-9"})
    assert (part.status_code, part.content) == (206, contents["out/plot.png"][5:10])
    assert ada.get(f"/v1/jobs/{run}.1/artifacts/out").status_code == 404


@pytest.mark.parametrize("path", ["../x", "/x", "a/../x", "a\\x", "C:x", "a//b", "y" * 300])
def test_fault_64_a_result_with_a_bad_artifact_path_is_refused(
    coordinator: CoordinatorProcess, ada: Client, path: str
) -> None:
    """Seen to fail when the paths of artifacts are not checked."""
    worker = ScriptedWorker(coordinator, "w1")
    data = b"artifact"
    worker.http.put(f"/v1/blobs/{digest_of(data)}", data=data)
    run = ada.post("/v1/runs", json={"run": "true"}).json()["id"]
    (assignment,) = worker.claim()
    row = {"path": path, "sha256": digest_of(data), "size": len(data)}
    result = {"attempt": assignment["attempt"], "outcome": "succeeded", "exit_code": 0, "artifacts": [row]}
    answer = worker.post("finish", {"results": [result]})
    assert answer.status_code in (400, 422), answer.text
    assert ada.get(f"/v1/jobs/{run}.1").json()["state"] == "running"
    worker.finish(assignment["attempt"])
