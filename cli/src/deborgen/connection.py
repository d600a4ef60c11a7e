"""HTTP to one coordinator: deadlines on every call, repeats where a repeat is harmless, refusals as typed errors."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.parse import urljoin, urlsplit

import msgspec
import requests
import urllib3
from requests.adapters import HTTPAdapter
from requests.auth import AuthBase

from deborgen.errors import DeborgenError, NotAllowed, Unreachable, from_answer

T = TypeVar("T")

CONNECT_SECONDS = 5.0
READ_SECONDS = 60.0

#: How long a call that may be repeated goes on trying, when the line is cut or the coordinator is busy.
PATIENCE_SECONDS = 20.0

_CHUNK = 256 * 1024
_BUSY = frozenset({429, 502, 503, 504})
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


class _Bearer(AuthBase):
    """Adds the token, and stands in for requests' own habit of taking passwords from ~/.netrc."""

    def __init__(self, token: str) -> None:
        self.token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if self.token:
            request.headers["Authorization"] = f"Bearer {self.token}"
        return request


class Connection:
    """One coordinator, one token. The token is sent to this address alone: redirects are followed without it."""

    def __init__(self, url: str, token: str, *, patience: float = PATIENCE_SECONDS, pool: int = 16) -> None:
        self.url = url
        self.patience = patience
        self.on_trouble: Callable[[str], None] = lambda sentence: None
        self._auth = _Bearer(token)
        self._answered = False
        self._session = requests.Session()
        adapter = HTTPAdapter(pool_maxsize=pool)
        self._session.mount("http://", adapter)
        self._session.mount("https://", adapter)
        # A proxy from the environment has no business between this machine and itself.
        self._session.trust_env = urlsplit(url).hostname not in _LOOPBACK
        self._session.headers["User-Agent"] = "deborgen"

    def close(self) -> None:
        self._session.close()

    @contextmanager
    def impatient(self) -> Iterator[None]:
        """Within the block every failure is told at once: for those who show it, and try again by themselves."""
        before = self.patience, self.on_trouble
        self.patience, self.on_trouble = 0.0, lambda sentence: None
        try:
            yield
        finally:
            self.patience, self.on_trouble = before

    def get(self, path: str, kind: type[T], params: Mapping[str, Any] | None = None) -> T:
        return self._decode(self.request("GET", path, params=params), kind)

    def send(
        self, method: str, path: str, body: Any, kind: type[T], *, repeatable: bool = True, key: str | None = None
    ) -> T:
        """Send a body, decode the answer. With a `key`, the coordinator takes a repeat for the same request."""
        headers = {"Content-Type": "application/json"}
        if key:
            headers["Idempotency-Key"] = key
        data = msgspec.json.encode(body)
        return self._decode(self.request(method, path, data=data, headers=headers, repeatable=repeatable), kind)

    def items(
        self, path: str, kind: type[T], params: Mapping[str, Any] | None = None, limit: int | None = None
    ) -> Iterator[T]:
        """The items of a list, page after page, at most `limit` of them."""
        page = _page_of(kind)
        query = dict(params or {})
        left = limit
        while left is None or left > 0:
            query["limit"] = min(left, 1000) if left is not None else 1000
            answer = self.get(path, page, query)
            for item in answer.items:
                yield item
                if left is not None:
                    left -= 1
            if not answer.next or not answer.items:
                return
            query["cursor"] = answer.next

    def whole(self, path: str, kind: type[T]) -> list[T]:
        """The items of a list that comes in one piece."""
        found: list[T] = self.get(path, _page_of(kind)).items
        return found

    def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        data: Any = None,
        headers: Mapping[str, str] | None = None,
        repeatable: bool | None = None,
        stream: bool = False,
        read_seconds: float = READ_SECONDS,
    ) -> requests.Response:
        """One call; a refusal raises. What may be repeated is repeated until the patience ends."""
        again = method != "POST" if repeatable is None else repeatable
        deadline = time.monotonic() + self.patience
        pause = 0.2
        while True:
            try:
                response = self._once(method, path, params, data, headers, stream, read_seconds)
            except Unreachable as trouble:
                # Nobody has ever answered there: a person should hear that at once. Who answered before may come back.
                hopeless = "refused" in trouble.details and not self._answered
                if not again or hopeless or time.monotonic() + pause > deadline:
                    raise
                self.on_trouble(trouble.message)
                wait = pause
            else:
                self._answered = True
                if response.status_code < 400:
                    return response
                error = self._refusal(response)
                if not again or response.status_code not in _BUSY or time.monotonic() + pause > deadline:
                    raise error
                self.on_trouble(error.message)
                wait = max(pause, _retry_after(response))
            time.sleep(min(wait, max(0.0, deadline - time.monotonic())) * (0.8 + 0.4 * random.random()))
            pause = min(pause * 2, 5.0)

    def _once(
        self,
        method: str,
        path: str,
        params: Mapping[str, Any] | None,
        data: Any,
        headers: Mapping[str, str] | None,
        stream: bool,
        read_seconds: float,
    ) -> requests.Response:
        try:
            response = self._session.request(
                method,
                self.url + path,
                params={k: v for k, v in (params or {}).items() if v is not None},
                data=data() if callable(data) else data,
                headers=dict(headers or {}),
                auth=self._auth,
                timeout=(CONNECT_SECONDS, read_seconds),
                stream=stream,
                allow_redirects=False,
            )
            if response.is_redirect and method in ("GET", "HEAD"):
                return self._elsewhere(method, response, headers, stream, read_seconds)
            if response.is_redirect:
                raise NotAllowed(f"{self.url} answers with a redirect", "give the address that it redirects to")
            return response
        except requests.RequestException as why:
            raise self._unreachable(why) from None

    def _elsewhere(
        self, method: str, answer: requests.Response, headers: Mapping[str, str] | None, stream: bool, read: float
    ) -> requests.Response:
        """Follow a redirect to object storage. Whoever answers there does not get the token."""
        answer.close()
        url = urljoin(answer.url, answer.headers["Location"])
        kept = {k: v for k, v in (headers or {}).items() if k.lower() in ("range", "if-range", "accept")}
        return requests.request(
            method, url, headers=kept, timeout=(CONNECT_SECONDS, read), stream=stream, auth=_Bearer("")
        )

    def _unreachable(self, why: requests.RequestException) -> Unreachable:
        text = str(why)
        if isinstance(why, requests.exceptions.SSLError):
            return Unreachable(f"{self.url}: the certificate is not trusted", details={"refused": True})
        if isinstance(why, requests.ConnectTimeout):
            return Unreachable(f"{self.url} does not answer", "is the machine on, and in the same network?")
        if "Connection refused" in text:
            hint = "is the coordinator running? deborgen doctor looks further"
            return Unreachable(f"nothing listens at {self.url}", hint, details={"refused": True})
        if "resolve" in text or "Name or service" in text:
            name = urlsplit(self.url).hostname
            return Unreachable(f"the name {name} is not known", "check the address", details={"refused": True})
        if isinstance(why, requests.Timeout):
            return Unreachable(f"{self.url} did not answer in time")
        return Unreachable(f"the connection to {self.url} was cut")

    def _refusal(self, response: requests.Response) -> DeborgenError:
        try:
            error = msgspec.json.decode(response.content).get("error", {})
        except (msgspec.DecodeError, AttributeError, requests.RequestException):
            error = {}
        if not isinstance(error, dict) or not error.get("code"):
            hint = f"it answered {response.status_code} without saying why"
            return from_answer(response.status_code, {"message": f"{self.url} is no coordinator, or ill", "hint": hint})
        return from_answer(response.status_code, error)

    def _decode(self, response: requests.Response, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(response.content, type=kind)
        except msgspec.DecodeError as why:
            raise DeborgenError(
                f"{self.url} answered something that this version does not understand: {why}",
                "deborgen doctor compares the versions",
            ) from None
        except requests.RequestException as why:
            raise self._unreachable(why) from None


def pieces(response: requests.Response) -> Iterator[bytes]:
    """The body of an answer: what is there, as soon as it is there. A body that ends early raises after its last byte.

    `iter_content` waits for whole chunks, and loses the last one when the line is cut.
    """
    try:
        while chunk := response.raw.read1(_CHUNK, decode_content=True):
            yield chunk
    except urllib3.exceptions.ReadTimeoutError:
        raise requests.ReadTimeout from None
    except urllib3.exceptions.HTTPError:
        raise requests.ConnectionError("the answer was cut") from None


def _retry_after(response: requests.Response) -> float:
    try:
        return min(float(response.headers.get("Retry-After", "0")), 10.0)
    except ValueError:
        return 0.0


_PAGES: dict[type, type] = {}


def _page_of(kind: type[T]) -> Any:
    if kind not in _PAGES:
        _PAGES[kind] = msgspec.defstruct(
            f"{kind.__name__}Page",
            [("items", list[kind]), ("next", str | None, None)],  # type: ignore[valid-type]
        )
    return _PAGES[kind]
