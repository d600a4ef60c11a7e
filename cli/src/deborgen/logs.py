"""The bytes of a log, in order and complete, however often the line is cut."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import requests

from deborgen.connection import Connection, pieces
from deborgen.errors import Unreachable

TRIES = 8

#: While a log is followed, a job may be silent for as long as it likes; the coordinator is asked anew this often.
SILENCE_SECONDS = 60.0

#: A stream that ended without a byte is asked for again after this.
AGAIN_SECONDS = 0.2


def chunks(
    connection: Connection,
    job: str,
    attempt: int | None = None,
    *,
    follow: bool = False,
    on_trouble: Callable[[str], None] = lambda sentence: None,
) -> Iterator[bytes]:
    """The log of one attempt from its first byte. With `follow`, until the attempt has ended."""
    offset = 0
    failures = 0
    while True:
        query = {"attempt": attempt, "offset": offset, "follow": 1 if follow else None}
        try:
            response = connection.request(
                "GET", f"/v1/jobs/{job}/log", params=query, stream=True, read_seconds=SILENCE_SECONDS
            )
            before = offset
            with response:
                for chunk in pieces(response):
                    offset += len(chunk)
                    failures = 0
                    yield chunk
            # The coordinator knows the length of a log that is complete. A stream also ends when it is stopped.
            if not follow or "Content-Length" in response.headers:
                return
            if offset == before:
                time.sleep(AGAIN_SECONDS)
        except requests.ReadTimeout:
            continue
        except (requests.RequestException, Unreachable) as why:
            if "Read timed out" in str(why):
                continue
            failures += 1
            if failures >= TRIES and not follow:
                raise Unreachable(f"the log of job {job} could not be read to its end") from None
            on_trouble(why.message if isinstance(why, Unreachable) else "the connection was cut")
            time.sleep(min(0.2 * 2**failures, 10.0))


def tail(connection: Connection, job: str, lines: int = 5, most: int = 8192) -> list[str]:
    """The last lines of a job's log, as text."""
    path = f"/v1/jobs/{job}/log"
    with connection.request("GET", path, stream=True) as answer:
        size = int(answer.headers.get("Deborgen-Log-Size", "0"))
        if size <= most:
            data = answer.content
    if size > most:
        data = connection.request("GET", path, params={"offset": size - most}).content[:most]
    return [line for line in data.decode("utf-8", "replace").splitlines() if line.strip()][-lines:]
