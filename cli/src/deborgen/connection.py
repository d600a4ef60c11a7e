"""The command's connection to the coordinator: it retries calls when that is safe, and turns failures into errors."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from deborgen.errors import DeborgenError, NotAllowed, Unreachable, from_answer
from deborgen_shared import headers as h
from deborgen_shared.calls import Call
from deborgen_shared.client import transport
from deborgen_shared.client.backoff import BackOff
from deborgen_shared.client.transport import Incoming, Refused, Reply, Transport, Trouble, decode
from deborgen_shared.messages import Page
from deborgen_shared.queries import Query

T = TypeVar("T")

#: A call fails after this many seconds without a byte.
READ_SECONDS = 60.0
#: How many connections to the coordinator are kept open for the next call.
CONNECTIONS = 16

#: How long a repeatable call is retried when the connection is cut or the coordinator is busy.
PATIENCE_SECONDS = 20.0
#: Longest pause between two tries, even if the coordinator asks for a longer one.
LONGEST_PAUSE_SECONDS = 10.0

_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
#: Troubles that are reported immediately if the address has never answered: a retry would not help.
_HOPELESS = frozenset({Trouble.NAME, Trouble.NOTHING_LISTENS, Trouble.CERTIFICATE, Trouble.NOT_HTTP})

#: An address that has never answered, and has cut this many connections before, does not speak HTTP.
_CUTS = 3

#: The message for each kind of trouble with the connection, and a hint that says what to do.
_SENTENCES = {
    Trouble.CERTIFICATE: (
        "the certificate of {url} is not trusted",
        "if your group has its own certificate authority: export REQUESTS_CA_BUNDLE=FILE",
    ),
    Trouble.HOST_SILENT: ("{url} does not answer", "is the machine on, and on the same network as this one?"),
    Trouble.NOTHING_LISTENS: (
        "nothing listens at {url}",
        "is the coordinator running? deborgen doctor checks the setup",
    ),
    Trouble.NAME: ("the host name {host} is not known", "check the address, and that you are on the right network"),
    Trouble.TOO_SLOW: ("{url} did not answer in time", "it may be overloaded: try again in a minute"),
    Trouble.NOT_HTTP: (
        "the port of {url} does not speak HTTP",
        "check the port: a coordinator listens on port 8765 by default",
    ),
    Trouble.NONSENSE: ("the answer from {url} cannot be understood", "is it a deborgen coordinator?"),
    Trouble.STORE: ("the object store of {url} does not answer, or refuses", "try again later"),
    Trouble.CUT: ("the connection to {url} was cut", "check the address and the network, and try again"),
}


class Connection:
    """One coordinator, one token."""

    def __init__(self, url: str, token: str, *, patience: float = PATIENCE_SECONDS) -> None:
        self.url = url
        self.patience = patience
        self.on_trouble: Callable[[str], None] = lambda sentence: None
        self._answered = False
        # Never use a proxy from the environment for a coordinator on this machine.
        remote = any(urlsplit(each).hostname not in _LOOPBACK for each in url.split(","))
        self.transport = Transport(url, lambda: token, connections=CONNECTIONS, use_proxies=remote, resend=False)

    def close(self) -> None:
        self.transport.close()

    def fail_at_once(self) -> None:
        """From now on, raise every failure immediately, for callers that show failures and retry themselves."""
        self.patience = 0.0
        self.on_trouble = lambda sentence: None

    def call(
        self,
        call: Call[T],
        body: Any = None,
        query: Query | None = None,
        *,
        key: str | None = None,
        repeatable: bool = True,
        **names: Any,
    ) -> T:
        """Make a call and decode the answer. With a `key`, the coordinator recognises a repeat as the same request."""
        headers = {h.IDEMPOTENCY_KEY: key} if key else None

        def once() -> Reply:
            # The total time is not limited: an answer may take any time while bytes keep arriving.
            with self.transport.open(call, body, query, headers=headers, seconds=READ_SECONDS, **names) as answer:
                return Reply(answer.status, answer.headers, answer.read())

        reply = self._with_retries(once, repeatable)
        try:
            return decode(call, reply)
        except transport.NoAnswer as why:
            raise DeborgenError(
                f"this version does not understand the answer from {self.url}: {why}",
                "deborgen doctor compares the versions",
            ) from None

    def items(
        self, call: Call[Page[T]], query: Query, limit: int | None = None, *, cursor: str = "cursor", **names: Any
    ) -> Iterator[T]:
        """At most `limit` items of a list, page by page. `cursor` is the name of the parameter for the next page."""
        left = math.inf if limit is None else limit
        while left > 0:
            page = self.call(call, None, msgspec.structs.replace(query, limit=min(left, 1000)), **names)
            yield from page.items
            if not page.next or not page.items:
                return
            left -= len(page.items)
            query = msgspec.structs.replace(query, **{cursor: page.next})

    @contextmanager
    def open(
        self,
        call: Call[Any],
        query: Query | None = None,
        *,
        headers: dict[str, str] | None = None,
        seconds: float = READ_SECONDS,
        **names: Any,
    ) -> Iterator[Incoming]:
        """An answer that is read while it arrives. Opening it is retried; reading it is not."""
        with ExitStack() as opened:
            opening = self.transport.open
            answer = self._with_retries(
                lambda: opened.enter_context(opening(call, None, query, headers=headers, seconds=seconds, **names))
            )
            try:
                yield answer
            except transport.NoAnswer as trouble:
                raise self.explained(trouble) from None

    def _with_retries(self, once: Callable[[], T], repeatable: bool = True) -> T:
        """Make a call. A repeatable call is retried until `patience` has run out."""
        deadline = time.monotonic() + self.patience
        back_off = BackOff(first=0.2, most=LONGEST_PAUSE_SECONDS)
        while True:
            try:
                result = once()
            except Refused as refused:
                self._answered = True
                raise self.explained(refused) from None
            except transport.NoAnswer as trouble:
                error = self.explained(trouble)
                cut = trouble.trouble is Trouble.CUT and back_off.failures >= _CUTS
                hopeless = (trouble.trouble in _HOPELESS or cut) and not self._answered
                final = not isinstance(error, Unreachable)
                self._answered = self._answered or bool(trouble.status)
                pause = back_off.after_failure(trouble.retry_after)
                if not repeatable or hopeless or final or time.monotonic() + pause > deadline:
                    raise error from None
                self.on_trouble(error.message)
                time.sleep(pause)
            else:
                self._answered = True
                return result

    def explained(self, failure: Refused | transport.NoAnswer) -> DeborgenError:
        """A refusal, or trouble with the connection, as the error that a person sees."""
        if isinstance(failure, transport.NoAnswer) and (not failure.status or failure.trouble is Trouble.STORE):
            sentence, hint = _SENTENCES[failure.trouble]
            hosts = ", ".join(str(urlsplit(each).hostname) for each in self.url.split(","))
            message = sentence.format(url=self.url, host=hosts)
            return Unreachable(message, hint, details={"trouble": failure.trouble})
        if failure.status in transport.REDIRECTS:
            return NotAllowed(f"{self.url} answers with a redirect", "use the address that it redirects to")
        message, hint = failure.message, failure.hint
        if not failure.code:
            message = f"{self.url} is not a deborgen coordinator, or it is unhealthy"
            hint = f"it answered {failure.status} without saying why"
        details = dict(failure.details) if isinstance(failure, Refused) else {}
        return from_answer(failure.status, failure.code, message, hint, details)
