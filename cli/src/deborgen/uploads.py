"""Blobs to the coordinator: only the missing ones, several at once, each resumed where a cut line left it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import requests

from deborgen.connection import CONNECT_SECONDS, READ_SECONDS, Connection
from deborgen.errors import DeborgenError, NotPossible, Unreachable
from deborgen.files import LocalFile
from deborgen.transfers import all_at_once
from deborgen_shared.messages import MissingBlobs

TRIES = 8
_CHUNK = 256 * 1024
_ASK_AT_ONCE = 5_000

Seen = Callable[[int], None]


def missing(connection: Connection, files: Iterable[LocalFile]) -> list[tuple[LocalFile, str]]:
    """Which of these the coordinator lacks, one file a digest, and where each is to be put."""
    by_digest = {file.sha256: file for file in files}
    digests = list(by_digest)
    found = []
    for start in range(0, len(digests), _ASK_AT_ONCE):
        body = {"digests": digests[start : start + _ASK_AT_ONCE]}
        answer = connection.send("POST", "/v1/blobs/missing", body, MissingBlobs)
        found += [(by_digest[blob.sha256], blob.url) for blob in answer.missing]
    return found


def upload(connection: Connection, wanted: list[tuple[LocalFile, str]], seen: Seen = lambda count: None) -> None:
    """Put all of them, or raise. `seen` hears of every byte that went out."""
    all_at_once(wanted, lambda each, told: _upload_one(connection, *each, told), seen)


def _upload_one(connection: Connection, file: LocalFile, url: str, seen: Seen) -> None:
    if urlsplit(urljoin(connection.url + "/", url)).netloc != urlsplit(connection.url).netloc:
        return _put_elsewhere(file, url, seen)
    path = f"/v1/blobs/{file.sha256}"
    offset = 0
    for number in range(1, TRIES + 1):
        busy = False
        try:
            _send(connection, path, file, offset, seen)
            return None
        except Unreachable as trouble:
            if number == TRIES:
                raise
            busy = trouble.code == "slow_down"
        except NotPossible as conflict:
            if conflict.code != "upload_conflict" or number == TRIES:
                raise
        except DeborgenError as refusal:
            raise _explained(file, refusal) from None
        time.sleep(min(0.1 * 2**number, 5.0))
        offset, done = _offset(connection, path)
        if done:
            return None
        if busy:
            # The coordinator may not have noticed yet that the line of the first try was cut, and keep its part locked.
            # Sent as a whole, the blob needs no part.
            offset = 0
    return None


def _send(connection: Connection, path: str, file: LocalFile, offset: int, seen: Seen) -> None:
    headers = {"Content-Type": "application/octet-stream", "Content-Length": str(file.size - offset)}
    if offset:
        headers |= {"Upload-Offset": str(offset), "Upload-Length": str(file.size)}
    method = "PATCH" if offset else "PUT"
    body = _Body(file.source, offset, file.size - offset, seen)
    connection.request(method, path, data=body, headers=headers, repeatable=False).close()


def _offset(connection: Connection, path: str) -> tuple[int, bool]:
    """How much of the blob has arrived, and whether that is all of it."""
    try:
        with connection.request("HEAD", path) as answer:
            if "Upload-Offset" not in answer.headers:
                return 0, True
            whole = answer.headers.get("Upload-Length") == answer.headers["Upload-Offset"]
            return int(answer.headers["Upload-Offset"]), whole
    except DeborgenError as refusal:
        offset = str(refusal.details.get("offset", ""))
        return (int(offset) if offset.isdigit() else 0), False


def _put_elsewhere(file: LocalFile, url: str, seen: Seen) -> None:
    """Put a blob where the coordinator says: an address that is signed for this one blob, and needs no token."""
    headers = {"Content-Length": str(file.size)}
    try:
        answer = requests.put(
            url, data=_Body(file.source, 0, file.size, seen), headers=headers, timeout=(CONNECT_SECONDS, READ_SECONDS)
        )
    except requests.RequestException:
        raise Unreachable(f"the upload of {file.path} to object storage was cut", "submit once more") from None
    if answer.status_code >= 400:
        raise DeborgenError(f"object storage refused {file.path} with {answer.status_code}")


def _explained(file: LocalFile, refusal: DeborgenError) -> DeborgenError:
    if "digest" in refusal.message:
        return DeborgenError(f"{file.path} changed while it was uploaded", "submit once more")
    return type(refusal)(f"{file.path}: {refusal.message}", refusal.hint, code=refusal.code)


class _Body:
    """A part of a file as the body of a request: streamed, of known length."""

    def __init__(self, path: Path, offset: int, length: int, seen: Seen) -> None:
        self._path, self._offset, self._length, self._seen = path, offset, length, seen

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[bytes]:
        left = self._length
        with self._path.open("rb") as file:
            file.seek(self._offset)
            while left and (chunk := file.read(min(_CHUNK, left))):
                left -= len(chunk)
                yield chunk
                self._seen(len(chunk))
