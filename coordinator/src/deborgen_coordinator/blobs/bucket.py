"""Objects in a bucket of an object store that speaks S3. Nothing else uses boto3, which is imported on first use.

The key of a blob is `PREFIX/SHA256/UPLOAD`. Each upload has its own key, so removing one never removes a later one.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from io import BytesIO
from typing import IO, Any, NamedTuple
from urllib.parse import quote

from deborgen_coordinator.blobs import StoreUnavailable
from deborgen_coordinator.blobs.hash_states import CHUNK_BYTES
from deborgen_coordinator.settings import BucketAddress
from deborgen_shared import headers

log = logging.getLogger("deborgen.blobs")

#: The store needs this header, with the right value, to accept bytes at a presigned address.
CHECKSUM_HEADER = "x-amz-checksum-sha256"
#: S3 allows this many parts per upload.
MOST_PARTS = 10_000
#: Wait this many seconds for a connection, and for an answer.
CONNECT_SECONDS, ANSWER_SECONDS = 5, 60
TRIES = 3
_ABSENT = frozenset({"404", "NoSuchKey", "NotFound"})
_NO_UPLOAD = frozenset({"404", "NoSuchUpload", "NotFound"})


class StoredPart(NamedTuple):
    size: int
    etag: str


class Bucket:
    """One client for all threads. Every call raises `StoreUnavailable` if the store does not do what was asked."""

    def __init__(self, address: BucketAddress) -> None:
        self.address = address
        #: Why the last call failed; empty if it did not.
        self.trouble = ""
        self._making = threading.Lock()

    @cached_property
    def _client(self) -> Any:
        with self._making:
            return self._make_client(self.address.endpoint)

    @cached_property
    def _signer(self) -> Any:
        """The client that signs addresses for workers and people, who may reach the store under another name."""
        public = self.address.public_endpoint
        if not public:
            return self._client
        with self._making:
            return self._make_client(public)

    def _make_client(self, endpoint: str) -> Any:
        import boto3
        from botocore.config import Config

        config = Config(
            signature_version="s3v4",
            s3={"addressing_style": "path" if endpoint else "auto"},
            connect_timeout=CONNECT_SECONDS,
            read_timeout=ANSWER_SECONDS,
            retries={"mode": "standard", "total_max_attempts": TRIES},
            max_pool_connections=32,
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        with self._translated():
            return boto3.session.Session().client(
                "s3", endpoint_url=endpoint or None, region_name=self.address.region or None, config=config
            )

    @contextmanager
    def _calling(self) -> Iterator[None]:
        """Turn boto3's errors into StoreUnavailable, and remember whether the store works."""
        with self._translated():
            yield
        if self.trouble:
            log.warning("the object store works again")
            self.trouble = ""

    @contextmanager
    def _translated(self) -> Iterator[None]:
        from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError

        try:
            yield
        except (ClientError, BotoCoreError, HTTPClientError, OSError) as error:
            new = f"{self.address}: {error}"
            if not self.trouble:
                log.warning("the object store fails: %s", new)
            self.trouble = new
            raise StoreUnavailable(new) from error

    def key(self, digest: str, upload: str) -> str:
        prefix = f"{self.address.prefix}/" if self.address.prefix else ""
        return f"{prefix}{digest}/{upload}"

    def uri(self, digest: str, upload: str) -> str:
        return f"s3://{self.address.bucket}/{self.key(digest, upload)}"

    def _at(self, digest: str, upload: str) -> dict[str, str]:
        return {"Bucket": self.address.bucket, "Key": self.key(digest, upload)}

    # Objects

    def probe(self) -> None:
        """Write, read and remove a small object."""
        digest = hashlib.sha256(b"probe").hexdigest()
        where = {"Bucket": self.address.bucket, "Key": self.key("probe", digest[:16])}
        with self._calling():
            self._client.put_object(**where, Body=b"probe", ContentLength=5, ChecksumSHA256=_base64(digest))
            found = self._client.get_object(**where)["Body"].read()
            self._client.delete_object(**where)
        if found != b"probe":
            raise StoreUnavailable(f"{self.address} returns other bytes than it was given")

    def size(self, digest: str, upload: str) -> int | None:
        found = self._head(digest, upload)
        return None if found is None else int(found["ContentLength"])

    def holds(self, digest: str, upload: str, size: int, *, read: bool = False) -> bool:
        """Whether the object has this size and digest. Without the store's own SHA-256, or with `read`, its bytes are
        read."""
        found = self._head(digest, upload)
        if found is None or found["ContentLength"] != size:
            return False
        checksum = found.get("ChecksumSHA256", "")
        if checksum and "-" not in checksum and not read:  # a checksum of parts is not that of the bytes
            return bool(checksum == _base64(digest))
        hasher = hashlib.sha256()
        try:
            for piece in self.open_range(digest, upload, 0, size):
                hasher.update(piece)
        except FileNotFoundError:
            return False
        return hasher.hexdigest() == digest

    def _head(self, digest: str, upload: str) -> dict[str, Any] | None:
        with self._calling():
            found: dict[str, Any] | None = self._unless(
                _ABSENT, self._client.head_object, **self._at(digest, upload), ChecksumMode="ENABLED"
            )
        return found

    @staticmethod
    def _unless(codes: frozenset[str], call: Any, **values: Any) -> Any:
        """The answer of a call, or None if the store refused it with one of these codes."""
        from botocore.exceptions import ClientError

        try:
            return call(**values)
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") in codes:
                return None
            raise

    def open_range(self, digest: str, upload: str, start: int, end: int) -> Iterator[bytes]:
        """The bytes from `start` up to, but not including, `end`. An object that is not there raises
        FileNotFoundError."""
        if start >= end:
            return iter(())
        with self._calling():
            span = f"bytes={start}-{end - 1}"
            found = self._unless(_ABSENT, self._client.get_object, **self._at(digest, upload), Range=span)
        if found is None:
            raise FileNotFoundError(self.uri(digest, upload))
        return self._pieces(found["Body"], end - start, self.uri(digest, upload))

    def _pieces(self, body: Any, left: int, uri: str) -> Iterator[bytes]:
        try:
            while left > 0:
                with self._calling():
                    piece = body.read(min(CHUNK_BYTES, left))
                if not piece:
                    raise StoreUnavailable(f"{uri} is shorter than it should be")
                left -= len(piece)
                yield piece
        finally:
            body.close()

    def put(self, digest: str, upload: str, file: IO[bytes], size: int, part_size: int) -> None:
        """StoreKind the bytes of a file whose digest is known to be right."""
        file.seek(0)
        if size <= part_size:
            where = self._at(digest, upload)
            with self._calling():
                self._client.put_object(**where, Body=file, ContentLength=size, ChecksumSHA256=_base64(digest))
            return
        multipart = self.begin_parts(digest, upload)
        for number, offset in enumerate(range(0, size, part_size), 1):
            data = file.read(min(part_size, size - offset))
            with self._calling():
                self._client.upload_part(
                    **self._at(digest, upload), UploadId=multipart, PartNumber=number, Body=BytesIO(data),
                    ContentLength=len(data),
                    ChecksumSHA256=base64.b64encode(hashlib.sha256(data).digest()).decode(),
                )  # fmt: skip
        self.join_parts(digest, upload, multipart, self.parts(digest, upload, multipart) or {})

    def delete(self, digest: str, upload: str) -> None:
        with self._calling():
            self._client.delete_object(**self._at(digest, upload))

    # Uploads in parts

    def begin_parts(self, digest: str, upload: str) -> str:
        with self._calling():
            return str(self._client.create_multipart_upload(**self._at(digest, upload))["UploadId"])

    def parts(self, digest: str, upload: str, multipart: str) -> dict[int, StoredPart] | None:
        """The stored parts by number; None if the store does not know this upload in parts."""
        found: dict[int, StoredPart] = {}
        marker = 0
        while True:
            with self._calling():
                page = self._unless(
                    _NO_UPLOAD, self._client.list_parts, **self._at(digest, upload), UploadId=multipart,
                    PartNumberMarker=marker,
                )  # fmt: skip
            if page is None:
                return None
            for each in page.get("Parts", ()):
                found[each["PartNumber"]] = StoredPart(each["Size"], each[headers.ETAG])
            if not page.get("IsTruncated"):
                return found
            marker = page["NextPartNumberMarker"]

    def join_parts(self, digest: str, upload: str, multipart: str, parts: dict[int, StoredPart]) -> None:
        listed = [{"PartNumber": number, headers.ETAG: part.etag} for number, part in sorted(parts.items())]
        with self._calling():
            self._client.complete_multipart_upload(
                **self._at(digest, upload), UploadId=multipart, MultipartUpload={"Parts": listed}
            )

    def abort_parts(self, digest: str, upload: str, multipart: str) -> None:
        with self._calling():
            self._unless(
                _NO_UPLOAD, self._client.abort_multipart_upload, **self._at(digest, upload), UploadId=multipart
            )

    # Presigned addresses: the address itself is the permission to make one call, without a token

    def _sign(self, call: str, **values: Any) -> str:
        with self._translated():
            return str(
                self._signer.generate_presigned_url(call, Params=values, ExpiresIn=self.address.signature_seconds)
            )

    def sign_put(self, digest: str, upload: str, size: int) -> tuple[str, dict[str, str]]:
        """The address for a whole blob, and the headers that must be sent along. The store accepts only bytes of this
        size and digest, and only once."""
        checksum = _base64(digest)
        where = self._at(digest, upload)
        url = self._sign("put_object", **where, ContentLength=size, ChecksumSHA256=checksum, IfNoneMatch="*")
        return url, {CHECKSUM_HEADER: checksum, headers.IF_NONE_MATCH: "*"}

    def sign_part(self, digest: str, upload: str, multipart: str, number: int, size: int) -> str:
        where = self._at(digest, upload)
        return self._sign("upload_part", **where, UploadId=multipart, PartNumber=number, ContentLength=size)

    def sign_get(self, digest: str, upload: str, name: str = "") -> str:
        """The address of a blob's bytes. A browser saves them, and never displays them as a page."""
        disposition = "attachment" + (f"; filename*=UTF-8''{quote(name.rpartition('/')[2])}" if name else "")
        return self._sign(
            "get_object", **self._at(digest, upload), ResponseContentDisposition=disposition,
            ResponseContentType="application/octet-stream",
        )  # fmt: skip


def _base64(digest: str) -> str:
    return base64.b64encode(bytes.fromhex(digest)).decode()
