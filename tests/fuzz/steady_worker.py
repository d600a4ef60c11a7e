"""A well-behaved worker that does what a worker should while the pool is under attack, and measures what it gets."""

from __future__ import annotations

import http.client
import json
import time
from typing import Any

from deborgen_shared import contract, headers
from deborgen_shared.calls import JSON, Call
from fuzz.drafts import ROOM
from fuzz.findings import Target

NAME = "steady"
SESSION = "steady-1"
#: Only jobs with this label reach the steady worker.
LABEL = {"steady": "yes"}
EVERY_SECONDS = 1.0


def send_heartbeats(target: Target, name: str, latencies: Any) -> None:
    """The work of a process: hold one job, send a heartbeat each second, and note how long each took."""
    source = target.source(name)
    worker = _Line(target, target.tokens[NAME])
    person = _Line(target, target.tokens["admin"])
    register = {"session": SESSION, "labels": {"runner.process": True, **LABEL}, "capacity": ROOM}
    worker.call(contract.REGISTER, register)
    attempt = ""
    while source.goes_on():
        began = time.monotonic()
        if not attempt:
            person.call(contract.SUBMIT, {"run": "true", "requires": LABEL, "max_attempts": 1})
            person.close()  # the coordinator closes a connection that is not used for long
            claim = {"session": SESSION, "request_id": f"steady-{began}", "free": ROOM, "wait_seconds": 0}
            claimed = worker.call(contract.CLAIM, claim)
            attempt = claimed["assignments"][0]["attempt"] if claimed else ""
            began = time.monotonic()
        held = [{"attempt": attempt, "began_seconds_ago": 0}] if attempt else []
        try:
            answer = worker.call(contract.HEARTBEAT, {"session": SESSION, "holding": held})
        except (OSError, http.client.HTTPException) as problem:
            source.found(f"a heartbeat failed after {time.monotonic() - began:.1f} s: {problem!r}", kind="heartbeat")
            continue
        latencies.put(time.monotonic() - began)
        if answer is None:
            source.found(f"a heartbeat was refused: {worker.refusal}", kind="refused")
            continue
        order = answer["attempts"].get(attempt, "continue")
        if order == "stop":
            source.found(f"the lease of {attempt} was lost, although it was renewed each second", kind="lease")
        if order == "cancel":  # the attackers may cancel what they like
            result = {"attempt": attempt, "outcome": "canceled"}
            worker.call(contract.FINISH, {"session": SESSION, "results": [result]})
        attempt = attempt if order == "continue" else ""
        target.stop.wait(max(0.0, began + EVERY_SECONDS - time.monotonic()))


class _Line:
    """A connection with a token."""

    def __init__(self, target: Target, token: str) -> None:
        self._http = http.client.HTTPConnection(*target.address, timeout=60)
        self._headers = {headers.AUTHORIZATION: f"Bearer {token}", headers.CONTENT_TYPE: JSON}
        self.refusal = ""

    def close(self) -> None:
        self._http.close()

    def call(self, call: Call[Any], body: dict[str, Any]) -> Any:
        """The answer to a call; None if there is none, or if it is a refusal."""
        try:
            self._http.request(call.method, call.path.format(name=NAME), json.dumps(body), self._headers)
            answer = self._http.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException):
            self._http.close()
            raise
        if answer.status >= 300:
            self.refusal = text.decode(errors="replace")[:300]
        return json.loads(text) if answer.status in (200, 201) else None
