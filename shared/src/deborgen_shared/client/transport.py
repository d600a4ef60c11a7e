"""HTTP to one coordinator, for the worker and the command. Connections are reused, and every call has a deadline.

A call ends in one of three ways. It returns an answer. Or it raises `Refused`: the coordinator understood the call and
said no. Or it raises `NoAnswer`: nobody knows whether the call took effect, and it may be sent again.
"""

from __future__ import annotations

import contextlib
import os
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from http import HTTPStatus
from http.client import BadStatusLine, RemoteDisconnected
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urljoin

import msgspec
import requests
import urllib3
from requests.structures import CaseInsensitiveDict

from deborgen_shared import headers as h
from deborgen_shared.calls import JSON, RAW, Call, Nothing
from deborgen_shared.client.addresses import Addresses
from deborgen_shared.client.names import NamedAdapter, Names
from deborgen_shared.errors import Code
from deborgen_shared.queries import Query

T = TypeVar("T")
#: Bodies are sent and read in pieces of at most this many bytes.
CHUNK = 256 * 1024
REDIRECTS = frozenset({301, 302, 303, 307, 308})
#: The request headers that are sent again to the target of a redirect.
_FOLLOW_REDIRECT = frozenset({h.RANGE, h.IF_RANGE, h.ACCEPT, h.ACCEPT_ENCODING, h.USER_AGENT})


class Trouble(Enum):
    """Why there is no usable answer, in words."""

    NAME = "the name of the coordinator cannot be resolved to an address"
    NOTHING_LISTENS = "the coordinator does not answer (connection refused)"
    HOST_SILENT = "the coordinator's machine does not answer"
    CERTIFICATE = "the coordinator's certificate is not trusted"
    TOO_SLOW = "the coordinator did not answer in time"
    NOT_HTTP = "the port of the coordinator does not speak HTTP"
    CUT = "the connection to the coordinator was cut"
    BUSY = "the coordinator cannot answer right now"
    NONSENSE = "the coordinator's answer cannot be understood"
    STORE = "the pool's object store does not answer, or refuses"


#: The request certainly did not arrive.
_NOT_REACHED = frozenset({Trouble.NAME, Trouble.NOTHING_LISTENS, Trouble.HOST_SILENT, Trouble.CERTIFICATE})
#: The coordinator went away while it answered.
_AWAY = frozenset({Trouble.CUT, Trouble.TOO_SLOW})


@dataclass(eq=False)
class NoAnswer(Exception):
    """No usable answer. The call may or may not have taken effect: send it again, after `retry_after` if given.

    `status`, `code` and `hint` are set if the coordinator answered that it is busy.
    """

    message: str
    retry_after: float | None = None
    trouble: Trouble = Trouble.CUT
    status: int = 0
    code: str = ""
    hint: str = ""

    def __str__(self) -> str:
        return self.message

    @property
    def of_store(self) -> bool:
        """Whether the object store is the reason, and not the coordinator or the way to it."""
        return self.trouble is Trouble.STORE or self.code == Code.STORE_UNAVAILABLE


class Refused(Exception):
    """The coordinator said no, with a code from its table, a sentence and a hint."""

    def __init__(self, status: int, code: str, message: str, hint: str = "", details: Mapping[str, Any] | None = None):
        super().__init__(message)
        self.status, self.code, self.message, self.hint = status, code, message, hint
        self.details: Mapping[str, Any] = details or {}


class Body(NamedTuple):
    """Raw bytes of known length, in pieces. Each call of `pieces` starts over, so that a request can be sent again."""

    length: int
    pieces: Callable[[], Iterator[bytes]]


class Reply(NamedTuple):
    """A complete answer."""

    status: int
    headers: Mapping[str, str]
    data: bytes


class Incoming:
    """An answer that is read while it arrives."""

    def __init__(self, response: requests.Response, end: float | None) -> None:
        self._raw: urllib3.BaseHTTPResponse = response.raw
        #: Deadline for the whole answer, on the monotonic clock; None for no deadline.
        self.end = end
        #: Whether every byte has been read, so that the connection can be reused.
        self.whole = False
        self.status, self.headers = response.status_code, self._raw.headers

    def __iter__(self) -> Iterator[bytes]:
        """The bytes as soon as they arrive. An answer that ends too early raises after its last byte."""
        try:
            while chunk := self._raw.read1(CHUNK):
                yield chunk
                late = self.end is not None and time.monotonic() > self.end
                if late and getattr(self._raw, "length_remaining", None) != 0:
                    raise NoAnswer("the answer arrived too slowly", trouble=Trouble.TOO_SLOW)
        except urllib3.exceptions.ReadTimeoutError:
            raise NoAnswer(Trouble.TOO_SLOW.value, trouble=Trouble.TOO_SLOW) from None
        except (urllib3.exceptions.HTTPError, OSError):
            raise NoAnswer(Trouble.CUT.value) from None
        # urllib3 itself checks the length only when the body is read in one call.
        if left := getattr(self._raw, "length_remaining", None):
            raise NoAnswer(f"the answer was cut {left} bytes short")
        self.whole = True

    def read(self) -> bytes:
        return b"".join(self)

    def hang_up(self) -> None:
        """End the answer from another thread, and wake the thread that is reading it."""
        with contextlib.suppress(Exception):
            self._raw.shutdown()

    def release(self) -> None:
        """Keep the connection for the next call, or close it if unread bytes would make that call fail."""
        self._raw.release_conn() if self.whole else self._raw.close()


class Transport:
    """Talks to the coordinator of a pool, or to one of several, with one token. Thread-safe.

    `url` may be several addresses, with commas. A call that could not reach one coordinator is made at the next. If it
    is not known whether it did, it raises `NoAnswer`, and the next call, or the same one again, goes to the next.

    `token` is a function, so that a token replaced on disk takes effect with the next call. The token is sent only to
    the coordinators' own addresses, never to another host or to the target of a redirect. With `resend`, a request
    whose connection was cut is immediately sent once more.
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
        use_proxies: bool = False,
        resend: bool = True,
    ) -> None:
        self._addresses = Addresses(url)
        first = self._addresses.all[0]
        self._token, self._connect, self._resend = token, connect_seconds, resend
        # Trusted certificates: those of the file, otherwise the system's and those that come with requests.
        chosen_file = ca_file or os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE")
        self._verify: str | bool = chosen_file or True
        context = ssl.create_default_context() if "https://" in url and self._verify is True else None
        self._use_proxies = use_proxies
        self._proxies = requests.utils.get_environ_proxies(first) if use_proxies else {}
        self._common_headers = {h.USER_AGENT: agent, h.ACCEPT_ENCODING: "identity"}
        self._names, self._connections = names or Names(), connections
        self._adapter = NamedAdapter(self._names, connections, context)

    def close(self) -> None:
        self._adapter.close()
        if "_store_adapter" in self.__dict__:
            self._store_adapter.close()

    @cached_property
    def _store_adapter(self) -> NamedAdapter:
        """The connections to the object store. The coordinator may have a certificate of the pool's own, and the store
        a public one, so both are trusted."""
        context = ssl.create_default_context()
        if isinstance(self._verify, str):
            kind = "capath" if Path(self._verify).is_dir() else "cafile"
            context.load_verify_locations(**{kind: self._verify})
        return NamedAdapter(self._names, self._connections, context)

    def call(self, call: Call[T], body: Any = None, query: Query | None = None, **rest: Any) -> T:
        """Make a call and decode the answer. The other arguments are those of `ask`."""
        return decode(call, self.ask(call, body, query, **rest))

    def ask(
        self, call: Call[Any], body: Any = None, query: Query | None = None, *, seconds: float = 30.0, **rest: Any
    ) -> Reply:
        """Make a call and read the whole answer within `seconds`. The other arguments are those of `open`."""
        end = time.monotonic() + seconds
        with self.open(call, body, query, seconds=seconds, end=end, **rest) as answer:
            return Reply(answer.status, answer.headers, answer.read())

    @contextmanager
    def open(
        self,
        call: Call[Any],
        body: Any = None,
        query: Query | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        seconds: float = 30.0,
        end: float | None = None,
        **names: Any,
    ) -> Iterator[Incoming]:
        """Make a call whose answer is read while it arrives. `seconds` limits the silence between two pieces.

        `end` is the deadline for the whole answer. `names` fill in the variable parts of the path.
        """
        data, content_type = _encoded(body)
        sent = {**self._common_headers, **content_type, **(headers or {})}
        if token := self._token():
            sent[h.AUTHORIZATION] = f"Bearer {token}"
        path = call.url(query, **names)
        base, response = self._reach(call.method, path, data, sent, seconds)
        location = response.raw.headers.get(h.LOCATION)
        if response.status_code in REDIRECTS and location:
            response.close()
            if call.method not in ("GET", "HEAD"):
                raise Refused(response.status_code, "", f"{base} answers with a redirect")
            kept = {name: value for name, value in sent.items() if name in _FOLLOW_REDIRECT}
            with self._elsewhere(call.method, urljoin(base + path, location), None, kept, seconds, end) as answer:
                yield answer
            return
        try:
            with self._checked(response, seconds, end) as answer:
                yield answer
        except NoAnswer as why:
            if why.trouble in _AWAY or why.status == HTTPStatus.SERVICE_UNAVAILABLE:
                self._addresses.failed(base)
            raise

    def _reach(
        self, method: str, path: str, body: bytes | Body | None, sent: Mapping[str, str], seconds: float
    ) -> tuple[str, requests.Response]:
        """The beginning of the answer of the first coordinator that can be reached, and that one's address."""
        *others, last = self._addresses.in_turn()
        for base in (*others, last):
            try:
                response = self._send(method, base + path, body, sent, seconds)
            except NoAnswer as why:
                self._addresses.failed(base)
                if base is last or why.trouble not in _NOT_REACHED:
                    raise
            else:
                self._addresses.answered(base)
                return base, response
        raise AssertionError("there is at least one address")

    def put_elsewhere(self, url: str, body: Body, seconds: float, headers: Mapping[str, str] | None = None) -> str:
        """Upload bytes to a presigned address on another host, without sending the token; returns their ETag."""
        sent = {**self._common_headers, **(headers or {})}
        with self._elsewhere("PUT", url, body, sent, seconds, None) as answer:
            answer.read()
            return answer.headers.get(h.ETAG, "")

    @contextmanager
    def _elsewhere(
        self, method: str, url: str, body: Body | None, sent: Mapping[str, str], seconds: float, end: float | None
    ) -> Iterator[Incoming]:
        """The answer of another host, the object store. What it refuses may be accepted later, except wrong bytes."""
        try:
            response = self._send(method, url, body, sent, seconds)
            with self._checked(response, seconds, end) as answer:
                yield answer
        except NoAnswer as error:
            text = f"{Trouble.STORE.value}: {error}"
            raise NoAnswer(text, error.retry_after, Trouble.STORE, error.status) from error
        except Refused as refused:
            if refused.status == 416 or refused.code:
                raise
            if refused.status == 400 and method == "PUT":
                message = "the object store refuses the bytes: they do not match their digest"
                raise Refused(400, Code.MALFORMED, message) from None
            text = f"{Trouble.STORE.value} (HTTP status {refused.status})"
            raise NoAnswer(text, None, Trouble.STORE, refused.status) from None

    def is_own(self, url: str) -> bool:
        """Whether an address belongs to the coordinator, so that the token may be sent there."""
        return self._addresses.include(url)

    def _send(
        self, method: str, url: str, body: bytes | Body | None, sent: Mapping[str, str], seconds: float
    ) -> requests.Response:
        """Hand the request directly to the adapter: a session would look for cookies, netrc and hooks every time."""
        if isinstance(body, bytes) and len(body) > CHUNK:
            body = _sliced(body)
        request = requests.PreparedRequest()
        request.method, request.url = method, url
        request.headers = CaseInsensitiveDict(sent)
        if body is not None or method in ("POST", "PUT", "PATCH"):
            length = body.length if isinstance(body, Body) else len(body or b"")
            request.headers[h.CONTENT_LENGTH] = str(length)
        request.hooks = {}
        timeout = (min(self._connect, seconds), seconds)
        adapter, proxies = self._adapter, self._proxies
        if not self.is_own(url):
            adapter = self._store_adapter
            proxies = requests.utils.get_environ_proxies(url) if self._use_proxies else {}
        may_resend = self._resend
        while True:
            request.body = body.pieces() if isinstance(body, Body) else body  # type: ignore[assignment]
            try:
                verify = self._verify if adapter is self._adapter else True
                return adapter.send(request, stream=True, timeout=timeout, verify=verify, proxies=proxies)
            except (requests.RequestException, OSError) as error:
                trouble = _trouble(error)
                # The coordinator may have closed an idle connection in the meantime.
                if not may_resend or trouble is not Trouble.CUT:
                    raise NoAnswer(trouble.value, trouble=trouble) from error
                may_resend = False

    @contextmanager
    def _checked(self, response: requests.Response, seconds: float, end: float | None) -> Iterator[Incoming]:
        """The answer, whose connection is released at the end. An error status raises."""
        answer = Incoming(response, end)
        try:
            if answer.status >= 400:
                answer.end = time.monotonic() + seconds
                raise _refusal(Reply(answer.status, answer.headers, answer.read()))
            yield answer
        finally:
            answer.release()


def decode(call: Call[T], reply: Reply) -> T:
    """The answer as the message that the contract promises."""
    if call.gives.body is Nothing:
        return None  # type: ignore[return-value]
    try:
        return msgspec.json.decode(reply.data, type=call.gives.body)
    except msgspec.MsgspecError as error:
        raise NoAnswer(
            f"the answer to {call.method} {call.path} cannot be understood: {error}", trouble=Trouble.NONSENSE
        ) from None


def _encoded(body: Any) -> tuple[bytes | Body | None, dict[str, str]]:
    """The bytes of a body, and the header with their type."""
    if body is None:
        return None, {}
    if isinstance(body, bytes | Body):
        return body, {h.CONTENT_TYPE: RAW}
    return msgspec.json.encode(body), {h.CONTENT_TYPE: JSON}


def _sliced(data: bytes) -> Body:
    """A large body in slices. The timeout applies to each piece, so one long piece could exceed it."""
    return Body(len(data), lambda: (data[at : at + CHUNK] for at in range(0, len(data), CHUNK)))


def _refusal(reply: Reply) -> Refused | NoAnswer:
    """The exception for an answer with an error status. A temporary error counts as no answer."""
    code, message, hint, details = "", f"HTTP status {reply.status}", "", {}
    try:
        details = dict(msgspec.json.decode(reply.data)["error"])
        code, message, hint = str(details.pop("code")), str(details.pop("message")), str(details.pop("hint", ""))
    except (msgspec.MsgspecError, KeyError, TypeError, ValueError):
        pass
    if reply.status >= 500 or reply.status in {408, 429}:
        return NoAnswer(
            message, retry_after(reply.headers), trouble=Trouble.BUSY, status=reply.status, code=code, hint=hint
        )
    return Refused(reply.status, code, message, hint, details)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds that the coordinator asked us to wait, or None."""
    try:
        return max(0.0, float(headers[h.RETRY_AFTER]))
    except (KeyError, ValueError):
        return None


def _trouble(error: Exception) -> Trouble:
    if isinstance(error, requests.exceptions.SSLError):
        return Trouble.CERTIFICATE
    if isinstance(error, requests.ConnectTimeout):
        return Trouble.HOST_SILENT
    if isinstance(error, requests.Timeout):
        return Trouble.TOO_SLOW
    cause = error.args[0] if error.args else None
    reason = getattr(cause, "reason", cause)
    if isinstance(reason, urllib3.exceptions.NameResolutionError):
        return Trouble.NAME
    if isinstance(reason, urllib3.exceptions.NewConnectionError):
        refused = isinstance(reason.__cause__, ConnectionRefusedError)
        return Trouble.NOTHING_LISTENS if refused else Trouble.HOST_SILENT
    # A server of another protocol greets with a line that is not a status line. `RemoteDisconnected` is a
    # `BadStatusLine` too, but it means that no line came at all.
    greeted = [each for each in getattr(cause, "args", ()) if isinstance(each, BadStatusLine)]
    if greeted and not isinstance(greeted[0], RemoteDisconnected):
        return Trouble.NOT_HTTP
    return Trouble.CUT
