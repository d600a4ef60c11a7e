"""HTTP to the coordinator, against a server that misbehaves on demand."""

from __future__ import annotations

import hashlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from deborgen import logs, transfers
from deborgen.connection import Connection
from deborgen.errors import HINTS, DeborgenError, InvalidJob, NotAllowed, NotFound, NotPossible, Unreachable
from deborgen.files import LocalFile
from deborgen_shared import contract
from deborgen_shared.client import transport
from deborgen_shared.client.blobs import digest_of
from deborgen_shared.client.transport import Trouble
from deborgen_shared.messages import MissingBlob

Reply = tuple[int, dict[str, str], bytes]
Handler = Callable[[BaseHTTPRequestHandler, bytes], Reply | None]


@contextmanager
def serving(handle: Handler) -> Iterator[tuple[str, list[SimpleNamespace]]]:
    """A server that answers every request with the handler's result; None cuts the connection."""
    seen: list[SimpleNamespace] = []

    class Request(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            seen.append(SimpleNamespace(command=self.command, path=self.path, headers=self.headers))
            reply = handle(self, body)
            if reply is None:
                self.close_connection = True
                return
            status, headers, content = reply
            self.send_response(status)
            for name, value in {"Content-Length": str(len(content)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)
                if len(content) != int(headers.get("Content-Length", len(content))):
                    self.close_connection = True

        do_GET = do_POST = do_PUT = do_PATCH = do_HEAD = do_DELETE = answer  # noqa: N815

        def log_message(self, *args: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Request)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", seen
    finally:
        server.shutdown()
        server.server_close()


def ok(value: Any, **headers: str) -> Reply:
    return 200, headers, json.dumps(value).encode()


def refusal(status: int, code: str) -> Reply:
    return status, {}, json.dumps({"error": {"code": code, "message": "no", "hint": "do so"}}).encode()


HEALTH = {"status": "ok", "version": "1"}
RUN = {
    "id": 1, "name": "", "submitter": "ada", "labels": {}, "state": "queued", "jobs": {"queued": 1}, "warnings": [],
    "created_at": "2026-01-01T00:00:00Z", "finished_at": None, "retry_of": None,
}  # fmt: skip


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (400, "malformed", DeborgenError),
        (401, "unauthenticated", NotAllowed),
        (403, "forbidden", NotAllowed),
        (404, "not_found", NotFound),
        (409, "invalid_transition", NotPossible),
        (422, "invalid_job", InvalidJob),
        (503, "unavailable", Unreachable),
        (429, "slow_down", Unreachable),
    ],
)
def test_a_refusal_is_an_error_with_its_exit_code(status: int, code: str, kind: type[DeborgenError]) -> None:
    with serving(lambda request, body: refusal(status, code)) as (url, _):
        with pytest.raises(kind) as error:
            Connection(url, "t", patience=0).call(contract.HEALTH)
        assert (error.value.message, error.value.code) == ("no", code)
        assert error.value.hint == HINTS.get(code, "do so"), "the command's own hint comes first"


def test_a_submit_whose_answer_was_lost_is_retried_with_the_same_key() -> None:
    lost = iter([None, refusal(503, "unavailable"), ok(RUN)])
    with serving(lambda request, body: next(lost)) as (url, seen):
        answer = Connection(url, "t").call(contract.SUBMIT, {"run": "true"}, key="k")
        assert answer.id == 1
        assert [request.headers["Idempotency-Key"] for request in seen] == ["k", "k", "k"]


def test_a_call_that_is_not_repeatable_is_not_retried() -> None:
    with serving(lambda request, body: None) as (url, seen):
        with pytest.raises(Unreachable):
            Connection(url, "t").call(contract.CREATE_TOKEN, {}, repeatable=False)
        assert len(seen) == 1


def test_a_refused_connection_is_reported_immediately() -> None:
    with serving(lambda request, body: None) as (url, _):
        pass
    with pytest.raises(Unreachable, match="nothing listens at"):
        Connection(url, "t").call(contract.HEALTH)


@pytest.mark.parametrize("trouble", [each for each in Trouble if each not in (Trouble.BUSY, Trouble.NONSENSE)])
def test_every_kind_of_trouble_with_the_connection_has_a_hint(trouble: Trouble) -> None:
    error = Connection("http://127.0.0.1:9", "t").explained(transport.NoAnswer("", trouble=trouble))
    assert isinstance(error, Unreachable)
    assert "127.0.0.1" in error.message
    assert error.hint


def test_an_address_that_is_not_a_coordinator_is_recognised() -> None:
    with (
        serving(lambda request, body: (200, {}, b"<html>router</html>")) as (url, _),
        pytest.raises(DeborgenError, match="does not understand"),
    ):
        Connection(url, "t").call(contract.HEALTH)


def test_a_redirect_is_followed_without_the_token() -> None:
    with serving(lambda request, body: ok(HEALTH)) as (storage, elsewhere):
        away = (302, {"Location": f"{storage}/bucket/x"}, b"")
        with serving(lambda request, body: away) as (url, here):
            Connection(url, "secret").call(contract.HEALTH)
            assert here[0].headers["Authorization"] == "Bearer secret"
            assert elsewhere[0].headers["Authorization"] is None
            with pytest.raises(NotAllowed, match="redirect"):
                Connection(url, "secret").call(contract.SUBMIT, {})
            assert len(elsewhere) == 1


def test_a_password_in_netrc_does_not_replace_the_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password wrong\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    with serving(lambda request, body: ok(HEALTH)) as (url, seen):
        Connection(url, "secret").call(contract.HEALTH)
        assert seen[0].headers["Authorization"] == "Bearer secret"


def test_an_upload_that_is_cut_resumes_where_it_stopped(tmp_path: Path) -> None:
    content = bytes(range(256)) * 4096
    path = tmp_path / "big"
    path.write_bytes(content)
    file = LocalFile("big", path, len(content), 0o644, digest_of(path))
    have = bytearray()
    cuts = [300_000, 700_000]

    def handle(request: BaseHTTPRequestHandler, body: bytes) -> Reply | None:
        if request.command == "HEAD":
            return 204, {"Upload-Offset": str(len(have)), "Content-Length": "0"}, b""
        offset = int(request.headers.get("Upload-Offset", "0"))
        assert offset == len(have)
        assert request.command == ("PATCH" if offset else "PUT")
        if cuts:
            have.extend(body[: cuts.pop(0) - offset])
            return None
        have.extend(body)
        return 201, {}, b"{}"

    with serving(handle) as (url, seen):
        transfers.upload(Connection(url, "t"), [(file, MissingBlob(sha256=file.sha256, url=""))])
    assert bytes(have) == content
    assert [request.command for request in seen] == ["PUT", "HEAD", "PATCH", "HEAD", "PATCH"]


def test_an_upload_is_sent_whole_while_the_coordinator_still_locks_its_part(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"content")
    file = LocalFile("x", path, 7, 0o644, digest_of(path))
    got = []

    def handle(request: BaseHTTPRequestHandler, body: bytes) -> Reply | None:
        if request.command == "HEAD":
            return 204, {"Upload-Offset": "3", "Content-Length": "0"}, b""
        if request.command == "PATCH":
            return refusal(429, "slow_down")
        got.append(body)
        return None if len(got) == 1 else (201, {}, b"{}")

    with serving(handle) as (url, seen):
        transfers.upload(Connection(url, "t"), [(file, MissingBlob(sha256=file.sha256, url=""))])
    assert got[-1] == b"content"
    assert [request.command for request in seen] == ["PUT", "HEAD", "PATCH", "PUT"]


def test_an_upload_whose_answer_was_lost_is_not_sent_again(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"content")
    file = LocalFile("x", path, 7, 0o644, digest_of(path))

    def handle(request: BaseHTTPRequestHandler, body: bytes) -> Reply | None:
        return (200, {"Content-Length": "7"}, b"content") if request.command == "HEAD" else None

    with serving(handle) as (url, seen):
        transfers.upload(Connection(url, "t"), [(file, MissingBlob(sha256=file.sha256, url=""))])
    assert [request.command for request in seen] == ["PUT", "HEAD"]


def test_a_presigned_address_gets_the_blob_but_not_the_token(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"content")
    file = LocalFile("x", path, 7, 0o644, digest_of(path))
    with serving(lambda request, body: ok({})) as (storage, stored):

        def coordinate(request: BaseHTTPRequestHandler, body: bytes) -> Reply:
            if request.path.endswith("/complete"):
                return ok({"sha256": file.sha256, "size": 7})
            place = {"sha256": file.sha256, "url": f"{storage}/signed", "direct": True, "upload": "u" * 32}
            return ok({"missing": [{**place, "headers": {"x-amz-checksum-sha256": "abc"}}]})

        with serving(coordinate) as (url, seen):
            transfers.upload(Connection(url, "secret"), [(file, MissingBlob(sha256=file.sha256, url="", direct=True))])
    assert [request.path for request in stored] == ["/signed"]
    assert (stored[0].headers["Authorization"], stored[0].headers["x-amz-checksum-sha256"]) == (None, "abc")
    assert [request.headers["Authorization"] for request in seen] == ["Bearer secret"] * 2


def artifact(content: bytes, target: str = "out/x.bin") -> transfers.ArtifactToFetch:
    return transfers.ArtifactToFetch("1.1", "x.bin", hashlib.sha256(content).hexdigest(), len(content), target)


def test_a_download_that_is_cut_resumes_where_it_stopped(tmp_path: Path) -> None:
    content = bytes(range(256)) * 2000
    ranges = []

    def handle(request: BaseHTTPRequestHandler, body: bytes) -> Reply:
        given = request.headers.get("Range")
        ranges.append(given)
        start = int(given.removeprefix("bytes=").rstrip("-")) if given else 0
        rest = content[start:]
        piece = rest[:200_000]
        return 206 if given else 200, {"Content-Length": str(len(rest))}, piece

    with serving(handle) as (url, _):
        (path,) = transfers.pull(Connection(url, "t"), [artifact(content)], tmp_path)
        assert path.read_bytes() == content
        assert ranges == [None, "bytes=200000-", "bytes=400000-"]
        transfers.pull(Connection(url, "t"), [artifact(content)], tmp_path)
        assert len(ranges) == 3, "what is there already is not fetched again"
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["x.bin"]


def test_wrong_bytes_are_not_kept(tmp_path: Path) -> None:
    with serving(lambda request, body: (200, {}, b"evil!")) as (url, _), pytest.raises(transfers.WrongDigest):
        transfers.pull(Connection(url, "t"), [artifact(b"right")], tmp_path)
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("target", ["../x", "/etc/x", "a/../../x", "a//x", "a\\x", "C:x", "a\0x", ".", "a/./x"])
def test_an_artifact_cannot_be_written_outside_the_folder(tmp_path: Path, target: str) -> None:
    folder = tmp_path / "into"
    with pytest.raises(transfers.UnsafeTarget):
        transfers.pull(Connection("http://127.0.0.1:1", "t"), [artifact(b"x", target)], folder)
    assert not folder.exists()


def test_a_link_in_the_target_is_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("mine")
    folder = tmp_path / "into"
    folder.mkdir()
    (folder / "out").symlink_to(outside)
    (folder / "precious").symlink_to(outside / "precious")
    with serving(lambda request, body: (200, {}, b"right")) as (url, _):
        with pytest.raises(transfers.UnsafeTarget):
            transfers.pull(Connection(url, "t"), [artifact(b"right", "out/x.bin")], folder)
        transfers.pull(Connection(url, "t"), [artifact(b"right", "precious")], folder)
    assert (outside / "precious").read_text() == "mine"
    assert (folder / "precious").read_bytes() == b"right"
    assert not (folder / "precious").is_symlink()
    assert [path.name for path in outside.iterdir()] == ["precious"]


def test_a_log_is_complete_even_if_the_connection_is_cut() -> None:
    content = b"0123456789" * 1000

    def handle(request: BaseHTTPRequestHandler, body: bytes) -> Reply:
        start = int(request.path.partition("offset=")[2] or "0")
        rest = content[start:]
        return 200, {"Content-Length": str(len(rest))}, rest[:4000]

    with serving(handle) as (url, seen):
        assert b"".join(logs.chunks(Connection(url, "t"), "1.1")) == content
        assert len(seen) == 3


def test_when_one_transfer_fails_the_others_stop() -> None:
    """Seen to fail when a transfer that waits before its next try waits to the end, and then tries again."""
    going, waiting = threading.Event(), threading.Event()

    def transfer(item: str, tries: transfers.Tries) -> None:
        if item == "bad":
            assert going.wait(10)
            assert waiting.wait(10)
            raise NotFound("gone")
        if item == "waits":
            waiting.set()
            while tries.pause_for_retry(requested=60):
                pass
        while True:
            tries.progress.reached(tries.progress.position + 1)
            going.set()

    with pytest.raises(NotFound):
        transfers.in_parallel(["endless", "bad", "waits", "endless too", "never started"], transfer, lambda count: None)


def test_a_port_that_does_not_speak_http_fails_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def greet() -> None:
            client, _ = listener.accept()
            with client:
                client.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
                client.recv(4096)

        thread = threading.Thread(target=greet)
        thread.start()
        with pytest.raises(Unreachable, match="does not speak HTTP"):
            Connection(f"http://127.0.0.1:{listener.getsockname()[1]}", "t", patience=60).call(contract.ME)
        thread.join()
