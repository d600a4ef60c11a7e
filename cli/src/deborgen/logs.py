"""Reads logs in order and completely, even if the connection is cut."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from deborgen.connection import Connection
from deborgen.errors import Unreachable
from deborgen_shared import contract
from deborgen_shared import headers as h
from deborgen_shared.client.backoff import BackOff
from deborgen_shared.client.transport import Trouble
from deborgen_shared.queries import LogQuery

#: Reading a log without following it fails after this many failures in a row.
TRIES = 8

#: A followed log may be silent for any length of time; the request is repeated after this many seconds of silence.
SILENCE_SECONDS = 60.0

#: If a followed log ends without a new byte, wait this many seconds before requesting it again.
AGAIN_SECONDS = 0.2

#: The tail of a log has at most this many lines, from at most this many bytes.
TAIL_LINES = 5
TAIL_BYTES = 8192


def chunks(
    connection: Connection,
    job: str,
    attempt: int | None = None,
    *,
    follow: bool = False,
    on_trouble: Callable[[str], None] = lambda sentence: None,
) -> Iterator[bytes]:
    """Yield the whole log of one attempt. With `follow`, continue until the attempt has ended."""
    offset = 0
    back_off = BackOff(first=0.4, most=10.0)
    while True:
        query = LogQuery(attempt=attempt, offset=offset, follow=int(follow))
        before, opened = offset, False
        try:
            with connection.open(contract.READ_LOG, query, seconds=SILENCE_SECONDS, job=job) as answer:
                opened = True
                for chunk in answer:
                    offset += len(chunk)
                    back_off.reset()
                    yield chunk
            # With `follow`, only an ended attempt's log has a Content-Length. Other streams may have ended early.
            if not follow or h.CONTENT_LENGTH in answer.headers:
                return
            if offset == before:
                time.sleep(AGAIN_SECONDS)
        except Unreachable as why:
            if follow and opened and why.details.get("trouble") is Trouble.TOO_SLOW:
                continue  # the job is silent
            pause = back_off.after_failure()
            if back_off.failures >= TRIES and not follow:
                raise Unreachable(f"the log of job {job} could not be read to its end", why.hint) from None
            on_trouble(why.message)
            time.sleep(pause)


def tail(connection: Connection, job: str) -> list[str]:
    """The last lines of a job's log, as text."""
    # Only an answer says how long the log is: if it is too long, hang up and ask for its end.
    offset = 0
    while True:
        with connection.open(contract.READ_LOG, LogQuery(offset=offset), job=job) as answer:
            size = int(answer.headers.get(h.LOG_SIZE, "0"))
            if size - offset <= TAIL_BYTES:
                text = answer.read()[:TAIL_BYTES].decode("utf-8", "replace")
                return [line for line in text.splitlines() if line.strip()][-TAIL_LINES:]
        offset = size - TAIL_BYTES
