"""The coordinator as the worker sees it: each call of the contract, typed, with its own deadline."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from deborgen_shared.messages import (
    BlobsMissing,
    Claim,
    Claimed,
    Finish,
    Finished,
    Heartbeat,
    HeartbeatAnswer,
    LogSize,
    MissingBlobs,
    Register,
    Registered,
)
from deborgen_shared.transport import CHUNK, Refused, Transport, Unreachable, retry_after

PART = 8 << 20
T = TypeVar("T")


class NoWork(msgspec.Struct):
    """Nothing to do; ask again after so many seconds."""

    retry_after: float


class Coordinator(Protocol):
    """The calls that the worker makes. All raise `Unreachable` or `Refused`, and all may be sent twice."""

    def register(self, message: Register) -> Registered: ...
    def claim(self, message: Claim) -> Claimed | NoWork: ...
    def heartbeat(self, message: Heartbeat) -> HeartbeatAnswer: ...
    def finish(self, message: Finish) -> Finished: ...
    def log(self, attempt: str, offset: int, data: bytes, session: str) -> int: ...
    def leave(self, session: str) -> None: ...
    def missing(self, digests: list[str]) -> dict[str, str]: ...
    def upload(self, path: Path, sha256: str, size: int, url: str = "") -> None: ...
    def download(self, sha256: str, target: Path) -> None: ...


class HttpCoordinator:
    """Over HTTP, for the worker of this name."""

    def __init__(self, transport: Transport, name: str) -> None:
        self._transport, self._base = transport, f"/v1/workers/{name}"

    def register(self, message: Register) -> Registered:
        return self._need(self._transport.call("PUT", self._base, message, Registered))

    def claim(self, message: Claim) -> Claimed | NoWork:
        body = msgspec.json.encode(message)
        reply = self._transport.request(
            "POST", f"{self._base}/claim", body=body, headers={"Content-Type": "application/json"},
            seconds=message.wait_seconds + 30.0,
        )  # fmt: skip
        if reply.status == 204:
            return NoWork(retry_after(reply.headers) or 0.0)
        try:
            return msgspec.json.decode(reply.data, type=Claimed)
        except msgspec.MsgspecError as error:
            raise Unreachable(f"the answer to a claim makes no sense: {error}") from None

    def heartbeat(self, message: Heartbeat) -> HeartbeatAnswer:
        return self._need(
            self._transport.call("POST", f"{self._base}/heartbeat", message, HeartbeatAnswer, seconds=15.0)
        )

    def finish(self, message: Finish) -> Finished:
        return self._need(self._transport.call("POST", f"{self._base}/finish", message, Finished))

    def log(self, attempt: str, offset: int, data: bytes, session: str) -> int:
        """Send bytes from the offset; the size that the coordinator has then, also when it refused a gap."""
        job, _, number = attempt.partition("/")
        headers = {"Content-Type": "application/octet-stream", "Deborgen-Session": session}
        try:
            reply = self._transport.request(
                "POST", f"/v1/jobs/{job}/attempts/{number}/log?offset={offset}", body=data, headers=headers
            )
            return msgspec.json.decode(reply.data, type=LogSize).size
        except Refused as refused:
            if refused.code == "log_gap" and isinstance(refused.details.get("size"), int):
                return int(refused.details["size"])
            raise

    def leave(self, session: str) -> None:
        self._transport.request("DELETE", f"{self._base}?session={session}")

    def missing(self, digests: list[str]) -> dict[str, str]:
        """Of these blobs, those that the store lacks, and where to put each."""
        answer = self._need(
            self._transport.call("POST", "/v1/blobs/missing", BlobsMissing(digests=digests), MissingBlobs)
        )
        return {each.sha256: each.url for each in answer.missing}

    def upload(self, path: Path, sha256: str, size: int, url: str = "") -> None:
        """Put a blob, in parts, going on where an earlier try broke off. Memory does not grow with its size."""
        blob = f"/v1/blobs/{sha256}"
        if url.startswith(("http://", "https://")) and not url.startswith(self._transport.url + "/"):
            with path.open("rb") as file:
                headers = {"Content-Length": str(size)}
                self._transport.request(
                    "PUT", url, body=iter(lambda: file.read(CHUNK), b""), headers=headers, seconds=3600
                )
            return
        offset = 0 if size <= PART else self._offset(blob)  # a small one is sent whole, whatever is there of it
        if offset is None:
            return
        with path.open("rb") as file:
            if offset > size or (offset == 0 and size <= PART):
                headers = {"Content-Length": str(size)}
                body = file.read() if size <= PART else iter(lambda: file.read(CHUNK), b"")
                self._transport.request("PUT", blob, body=body, headers=headers, seconds=120 if size <= PART else 3600)
                return
            while True:
                # Also when no byte is left to send: the store may have them all and not have made them a blob.
                file.seek(offset)
                part = file.read(PART)
                headers = {"Upload-Offset": str(offset), "Upload-Length": str(size)}
                self._transport.request("PATCH", blob, body=part, headers=headers, seconds=120)
                offset += len(part)
                if offset >= size:
                    return

    def _offset(self, blob: str) -> int | None:
        """How much of a blob the store has; None if all of it."""
        try:
            reply = self._transport.request("HEAD", blob)
        except Refused as refused:
            if refused.status == 404:
                return 0
            raise
        return None if reply.status == 200 else int(reply.headers.get("Upload-Offset", "0"))

    def download(self, sha256: str, target: Path) -> None:
        """Fetch a blob into a file that is there only whole, going on where an earlier try broke off."""
        part = target.with_name(target.name + ".part")
        have = part.stat().st_size if part.exists() else 0
        headers = {"Range": f"bytes={have}-"} if have else {}
        try:
            with (
                self._transport.stream("GET", f"/v1/blobs/{sha256}", headers=headers) as (reply, chunks),
                part.open("ab" if reply.status == 206 else "wb") as file,
            ):
                for chunk in chunks:
                    file.write(chunk)
        except Refused as refused:
            if refused.status != 416:
                raise
        if digest_of(part) != sha256:
            part.unlink()
            raise Unreachable(f"blob {sha256} arrived damaged")
        part.rename(target)

    @staticmethod
    def _need(answer: T | None) -> T:
        if answer is None:
            raise Unreachable("the coordinator answered with nothing")
        return answer


def digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
