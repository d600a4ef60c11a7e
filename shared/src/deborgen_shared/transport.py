"""One HTTP client for everybody who talks to the coordinator: connections are kept, every call has a deadline.

A call ends in one of three ways. It returns an answer; it raises `Refused`, which means the coordinator understood and
said no; or it raises `Unreachable`, which means nobody knows whether it happened, and it may be sent again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urljoin, urlsplit

import msgspec
import urllib3

from deborgen_shared.names import Names, connections_of

T = TypeVar("T")
Body = bytes | Iterator[bytes] | None
CHUNK = 256 * 1024
FINAL_REDIRECTS = frozenset({301, 302, 303, 307, 308})


class Unreachable(Exception):
    """No answer that can be trusted. The call may have happened or not: send it again, after `retry_after` if given."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Refused(Exception):
    """The coordinator said no, with a code from its table, a sentence and a hint."""

    def __init__(self, status: int, code: str, message: str, hint: str = "", details: Mapping[str, Any] | None = None):
        super().__init__(message)
        self.status, self.code, self.message, self.hint = status, code, message, hint
        self.details: Mapping[str, Any] = details or {}


class Reply(NamedTuple):
    status: int
    headers: Mapping[str, str]
    data: bytes


class Transport:
    """Talks to one coordinator with one token. Safe to use from many threads.

    `token` is a function, so that a token that was replaced on disk is used from the next call on. It is sent to the
    coordinator's own origin alone, never to where a redirect points.
    """

    def __init__(
        self,
        url: str,
        token: Callable[[], str],
        *,
        agent: str = "deborgen",
        connect_seconds: float = 5.0,
        connections: int = 8,
        ca_file: str | None = None,
        names: Names | None = None,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError(f"{url!r} is not an address of a coordinator: write http://HOST:PORT or https://HOST")
        self.url = url.rstrip("/")
        self._prefix = parts.path.rstrip("/")
        self._token, self._agent, self._connect = token, agent, connect_seconds
        options: dict[str, Any] = {"maxsize": connections, "retries": False, "block": False}
        if ca_file:
            options["ca_certs"] = ca_file
        self._origin = urllib3.connection_from_url(self.url, **options)
        # Names are asked apart from urllib3, which would wait for a name server as long as the system does.
        self._origin.ConnectionCls = connections_of(names or Names())[parts.scheme]
        self._elsewhere = urllib3.PoolManager(**options)

    def close(self) -> None:
        self._origin.close()
        self._elsewhere.clear()

    def call(
        self,
        method: str,
        path: str,
        message: msgspec.Struct | None,
        answer: type[T],
        *,
        seconds: float = 30.0,
        headers: Mapping[str, str] | None = None,
    ) -> T | None:
        """Send a message and decode the answer; None where there is none (204)."""
        body = None if message is None else msgspec.json.encode(message)
        extra = {"Content-Type": "application/json", **(headers or {})}
        reply = self.request(method, path, body=body, headers=extra, seconds=seconds)
        if reply.status == 204 or not reply.data:
            return None
        try:
            return msgspec.json.decode(reply.data, type=answer)
        except msgspec.MsgspecError as error:
            raise Unreachable(f"the answer to {method} {path} makes no sense: {error}") from None

    def request(
        self,
        method: str,
        path: str,
        *,
        body: Body = None,
        headers: Mapping[str, str] | None = None,
        seconds: float = 30.0,
    ) -> Reply:
        """Send and read the whole answer within the deadline."""
        end = time.monotonic() + seconds
        with self._open(method, path, body, headers, seconds) as response:
            data = b"".join(self._read(response, end, path))
        return self._judge(response, data)

    @contextmanager
    def stream(
        self,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str] | None = None,
        seconds: float = 30.0,
        total_seconds: float | None = None,
    ) -> Iterator[tuple[Reply, Iterator[bytes]]]:
        """An answer that is read as it comes. `seconds` bounds the silence between two pieces, not the whole."""
        end = time.monotonic() + total_seconds if total_seconds else None
        with self._open(method, path, None, headers, seconds) as response:
            if response.status >= 400:
                self._judge(response, b"".join(self._read(response, time.monotonic() + seconds, path)))
            yield Reply(response.status, response.headers, b""), self._read(response, end, path)

    @contextmanager
    def _open(
        self, method: str, path: str, body: Body, headers: Mapping[str, str] | None, seconds: float
    ) -> Iterator[urllib3.BaseHTTPResponse]:
        timeout = urllib3.Timeout(connect=min(self._connect, seconds), read=seconds)
        options: dict[str, Any] = {
            "body": body, "timeout": timeout, "redirect": False, "retries": False, "preload_content": False,
        }  # fmt: skip
        given = {"User-Agent": self._agent, "Accept-Encoding": "identity", **(headers or {})}
        own = {**given, "Authorization": f"Bearer {self._token()}"}
        done = False
        try:
            if self._foreign(path):
                response: urllib3.BaseHTTPResponse = self._elsewhere.urlopen(method, path, headers=given, **options)
            else:
                target = self._prefix + path if path.startswith("/") else path
                response = self._send(method, target, own, options)
                location = response.headers.get("Location")
                if response.status in FINAL_REDIRECTS and location and body is None:
                    response.drain_conn()
                    response.release_conn()
                    there = urljoin(self.url + "/", location)
                    response = self._elsewhere.urlopen(method, there, headers=given, **options)
            try:
                yield response
                done = True
            finally:
                # A body that was not read to its end would be mistaken for the next answer.
                response.release_conn() if done else response.close()
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise Unreachable(describe(error)) from error

    def _send(
        self, method: str, target: str, headers: Mapping[str, str], options: dict[str, Any]
    ) -> urllib3.BaseHTTPResponse:
        try:
            return self._origin.urlopen(method, target, headers=headers, **options)
        except urllib3.exceptions.ProtocolError:
            # A kept connection that the other side closed meanwhile: every call of the contract may be sent twice.
            if options["body"] is not None and not isinstance(options["body"], bytes):
                raise
            return self._origin.urlopen(method, target, headers=headers, **options)

    def _foreign(self, path: str) -> bool:
        return path.startswith(("http://", "https://")) and not path.startswith(self.url + "/")

    @staticmethod
    def _read(response: urllib3.BaseHTTPResponse, end: float | None, path: str) -> Iterator[bytes]:
        while chunk := response.read1(CHUNK):
            yield chunk
            if end is not None and time.monotonic() > end:
                raise Unreachable(f"the answer from {path} came too slowly")
        # urllib3 checks the length itself only when the body is read in one go.
        left = getattr(response, "length_remaining", None)
        if left:
            raise Unreachable(f"the answer from {path} was cut {left} bytes short")

    @staticmethod
    def _judge(response: urllib3.BaseHTTPResponse, data: bytes) -> Reply:
        status = response.status
        if status < 400:
            return Reply(status, response.headers, data)
        code, message, hint, details = "", f"HTTP status {status}", "", {}
        try:
            details = dict(msgspec.json.decode(data)["error"])
            code, message, hint = details.pop("code"), details.pop("message"), details.pop("hint", "")
        except (msgspec.MsgspecError, KeyError, TypeError, ValueError):
            pass
        if status >= 500 or status in {408, 429}:
            raise Unreachable(message, retry_after(response.headers))
        raise Refused(status, str(code), str(message), str(hint), details)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds that the coordinator asked to wait, if it did."""
    try:
        return max(0.0, float(headers["Retry-After"]))
    except (KeyError, ValueError):
        return None


def describe(error: BaseException) -> str:
    """The reason in words, without the object names and addresses that urllib3 puts in front."""
    if isinstance(error, urllib3.exceptions.NameResolutionError):
        return "the name of the coordinator cannot be resolved to an address"
    if isinstance(error, urllib3.exceptions.NewConnectionError):
        return "the coordinator does not answer (connection refused)"
    if isinstance(error, urllib3.exceptions.TimeoutError):
        return "the coordinator did not answer in time"
    if isinstance(error, urllib3.exceptions.ProtocolError | OSError):
        return "the connection to the coordinator was cut"
    return f"the coordinator cannot be reached ({type(error).__name__})"
