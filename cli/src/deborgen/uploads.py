"""Blobs to the coordinator: only the missing ones, several at once, each resumed where a cut line left it."""

from __future__ import annotations

from collections.abc import Iterable

from deborgen.connection import Connection
from deborgen.errors import DeborgenError, Unreachable
from deborgen.files import LocalFile
from deborgen.transfers import Tries, all_at_once
from deborgen_shared import contract
from deborgen_shared.client import blobs, transport
from deborgen_shared.client.blobs import Seen
from deborgen_shared.errors import Code
from deborgen_shared.messages import BlobsMissing

_ASK_AT_ONCE = 5_000


def missing(connection: Connection, files: Iterable[LocalFile]) -> list[tuple[LocalFile, str]]:
    """The files that the coordinator lacks, one per digest, and where each is to be put."""
    by_digest = {file.sha256: file for file in files}
    digests = list(by_digest)
    found = []
    for start in range(0, len(digests), _ASK_AT_ONCE):
        body = BlobsMissing(digests=digests[start : start + _ASK_AT_ONCE])
        answer = connection.call(contract.MISSING_BLOBS, body)
        found += [(by_digest[blob.sha256], blob.url) for blob in answer.missing]
    return found


def upload(connection: Connection, wanted: list[tuple[LocalFile, str]], seen: Seen = blobs.ignore) -> None:
    """Put all of them, or raise. `seen` hears of every byte that went out."""
    all_at_once(wanted, lambda each, told: _upload_one(connection, *each, told), seen)


def _upload_one(connection: Connection, file: LocalFile, url: str, seen: Seen) -> None:
    tries, told = Tries(), blobs.Told(seen)
    resume = False
    while True:
        before = told.position
        try:
            blobs.upload(connection.transport, file.source, file.sha256, file.size, url, told, resume=resume)
            return
        except transport.Unreachable as trouble:
            # The coordinator may not have noticed yet that the line of the first try was cut, and keep its part locked.
            # Sent as a whole, the blob needs no part.
            resume = trouble.code != Code.SLOW_DOWN
            if not tries.again(told.position > before, trouble.retry_after):
                raise Unreachable(f"{file.path} could not be uploaded: {trouble}", "submit once more") from None
        except transport.Refused as refused:
            resume = True
            if refused.code != Code.UPLOAD_CONFLICT or not tries.again(told.position > before):
                raise _explained(connection, file, refused) from None


def _explained(connection: Connection, file: LocalFile, refused: transport.Refused) -> DeborgenError:
    if refused.code == Code.MALFORMED:
        return DeborgenError(f"{file.path} changed while it was uploaded", "submit once more")
    error = connection.explained(refused)
    return type(error)(f"{file.path}: {error.message}", error.hint, code=error.code)
