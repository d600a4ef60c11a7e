"""The pool, as the bridge sees it: the calls that it makes at the coordinator."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from deborgen_shared import contract, headers
from deborgen_shared.client.transport import Refused, Transport
from deborgen_shared.errors import Code
from deborgen_shared.messages import CursorView, Event, Events, JobDetail, Me, NewCursor, Run, WhyWorker
from deborgen_shared.queries import EventsQuery

from .orders import Order

#: Each call is over after this many seconds.
CALL_SECONDS = 15.0
#: One request brings at most this many events.
PAGE = 500
#: A message that is refused with one of these will never be a job. After other refusals it is tried again.
FINAL = frozenset({Code.MALFORMED, Code.INVALID_JOB, Code.IDEMPOTENCY_CONFLICT, Code.TOO_LARGE})


class TokenOfFile:
    """Reads the token for each call, so that a new one takes effect at once. While it cannot, the old one is used."""

    def __init__(self, path: str) -> None:
        self._path, self._token = Path(path), ""

    def __call__(self) -> str:
        with suppress(OSError):
            self._token = self._path.read_text().strip()
        return self._token


class Pool:
    """One coordinator. Every call may raise `NoAnswer` or `Refused`, and may be made again."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def me(self) -> Me:
        return self._transport.call(contract.ME, seconds=CALL_SECONDS)

    def submit(self, order: Order) -> Run:
        origin = json.dumps(msgspec.to_builtins(order.origin), ensure_ascii=True)
        sent = {headers.IDEMPOTENCY_KEY: order.key, headers.ORIGIN: origin}
        return self._transport.call(contract.SUBMIT, order.document, headers=sent, seconds=CALL_SECONDS)

    def newest_event(self) -> int:
        return int(self._events(EventsQuery(after="now")).next or 0)

    def events(self, after: int, run: int | None = None) -> list[Event]:
        """The next events, oldest first."""
        return self._events(EventsQuery(after=after, run=run, limit=PAGE)).items

    def all_events(self, after: int, run: int) -> Iterator[Event]:
        while page := self.events(after, run):
            yield from page
            after = page[-1].seq

    def _events(self, query: EventsQuery) -> Events:
        return self._transport.call(contract.LIST_EVENTS, None, query, seconds=CALL_SECONDS)

    def run(self, run: int) -> Run | None:
        """None if it does not exist any more."""
        with _may_be_gone():
            return self._transport.call(contract.GET_RUN, seconds=CALL_SECONDS, run=run)
        return None

    def job(self, job: str) -> JobDetail | None:
        with _may_be_gone():
            return self._transport.call(contract.GET_JOB, seconds=CALL_SECONDS, job=job)
        return None

    def workers_for(self, job: str) -> list[WhyWorker]:
        """All workers, each with whether it could run this queued job."""
        with _may_be_gone():
            return self._transport.call(contract.WHY, seconds=CALL_SECONDS, job=job).workers
        return []

    def cursor(self, name: str) -> CursorView | None:
        with _may_be_gone():
            return self._transport.call(contract.GET_CURSOR, seconds=CALL_SECONDS, cursor=name)
        return None

    def move_cursor(self, name: str, seq: int, was: int | None) -> None:
        """Move the cursor, unless another bridge has moved it."""
        self._transport.call(contract.PUT_CURSOR, NewCursor(seq=seq, was=was), seconds=CALL_SECONDS, cursor=name)


@contextmanager
def _may_be_gone() -> Iterator[None]:
    """A call of something that may not exist, or not any more."""
    try:
        yield
    except Refused as refused:
        if refused.code != Code.NOT_FOUND:
            raise
