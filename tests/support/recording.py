"""The requests that a real worker made, kept in a file, and sent again to another coordinator.

A story is a list of entries, in the order in which they happened:

- `{"person": …}`: a person submitted a job file (`submits`) or canceled a job (`cancels`);
- `{"request": …, "status": …, "answer": …}`: a request of the worker, and the part of the answer that it uses;
- `{"request": …, "opens": 4}` and later `{"closes": 4, "status": …, "answer": …}`: a claim that waited while the
  entries between the two happened.

`tools/record_worker.py` writes stories; `Replay` plays one.
"""

from __future__ import annotations

import base64
import json
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import requests

from support.fault_proxy import FaultProxy, read_message

Entry = dict[str, Any]
#: Headers that belong to the connection or to the token: a replay sets its own.
NOT_KEPT = {"authorization", "connection", "content-length", "host"}


def gist(answer: Any) -> Any:
    """The part of an answer that decides what a worker does next. It is the same in every replay."""
    if not isinstance(answer, dict):
        return None
    kept = {key: answer[key] for key in ("attempts", "results", "lost", "size", "sha256") if key in answer}
    if "orders" in answer:
        kept["orders"] = {key: answer["orders"][key] for key in ("pause", "drain")}
    if "assignments" in answer:
        kept["assignments"] = [each["attempt"] for each in answer["assignments"]]
    if "missing" in answer and isinstance(answer["missing"], list):
        kept["missing"] = [each["sha256"] for each in answer["missing"]]
    return kept


class RecordingProxy(FaultProxy):
    """Passes everything on, and records it."""

    def __init__(self, target: str) -> None:
        super().__init__(target, rate=0.0)
        self._story: list[Entry] = []
        self._writing = threading.Lock()
        self.waiting_claims = 0

    def record_person(self, **did: Any) -> None:
        """Record what a person is about to do."""
        with self._writing:
            self._story.append({"person": did})

    def _relay(self, client: socket.socket) -> None:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        reader = client.makefile("rb")
        while True:
            message = read_message(reader)
            request = _request(message)
            waits = bool(request["path"].endswith("/claim") and request["body"].get("wait_seconds"))
            entry: Entry = {"request": request}
            with self._writing:
                self.waiting_claims += waits
                # A claim is answered when there is a job for it. All other requests are answered when they arrive.
                self._story.append({"arrives": entry} if waits else entry)
            answer = self._send(message)
            with self._writing:
                self.waiting_claims -= waits
                entry |= _answer(answer)
                if waits:
                    self._story.append(entry)
            client.sendall(answer)

    def story(self) -> list[Entry]:
        """All entries that have been answered so far."""
        with self._writing:
            return list(_arranged(self._story))


def _arranged(story: list[Entry]) -> Iterator[Entry]:
    """The entries in order. A claim that waited for a person has two: where it opens and where it closes."""
    numbers: dict[int, int] = {}
    for at, entry in enumerate(story):
        if "arrives" in entry:
            claim = entry["arrives"]
            answered = next((later for later in range(at, len(story)) if story[later] is claim), None)
            if answered is not None and any("person" in between for between in story[at:answered]):
                numbers[id(claim)] = len(numbers) + 1
                yield {"request": claim["request"], "opens": numbers[id(claim)]}
        elif id(entry) in numbers:
            yield {"closes": numbers[id(entry)], **{key: entry[key] for key in entry if key != "request"}}
        elif "person" in entry or "status" in entry:
            yield entry


def _request(message: bytes) -> Entry:
    head, _, body = message.partition(b"\r\n\r\n")
    line, *fields = head.decode("latin-1").split("\r\n")
    method, path, _ = line.split(" ")
    named = [field.split(": ", 1) for field in fields]
    headers = {name: value for name, value in named if name.lower() not in NOT_KEPT}
    kept: Entry = {"method": method, "path": path, "headers": headers, "body": None}
    if "application/json" in headers.get("Content-Type", "").lower():
        kept["body"] = json.loads(body)
    elif body:
        kept["body"] = {"base64": base64.b64encode(body).decode()}
    return kept


def _answer(message: bytes) -> Entry:
    head, _, body = message.partition(b"\r\n\r\n")
    is_json = b"application/json" in head.lower()
    return {"status": int(head.split(b" ")[1]), "answer": gist(json.loads(body) if is_json else None)}


Check = Callable[[Entry, requests.Response], None]


class Replay:
    """Sends the requests of a story again, one after the other. `check` sees each answer beside its entry."""

    def __init__(self, url: str, token: str, person: Callable[[Entry], None], check: Check) -> None:
        self._url, self._token, self._person, self._check = url, token, person, check
        self._open: dict[int, tuple[Entry, Future[requests.Response]]] = {}

    def play(self, story: list[Entry]) -> None:
        with ThreadPoolExecutor() as threads:
            for entry in story:
                if "person" in entry:
                    self._person(entry["person"])
                elif "opens" in entry:
                    self._open[entry["opens"]] = entry, threads.submit(self._send, entry["request"])
                elif "closes" in entry:
                    opened, answer = self._open.pop(entry["closes"])
                    self._check({**opened, **entry}, answer.result())
                else:
                    self._check(entry, self._send(entry["request"]))

    def _send(self, request: Entry) -> requests.Response:
        body = request["body"]
        if body is not None:
            body = base64.b64decode(body["base64"]) if "base64" in body else json.dumps(body).encode()
        headers = {**request["headers"], "Authorization": f"Bearer {self._token}"}
        return requests.request(request["method"], self._url + request["path"], data=body, headers=headers, timeout=60)
