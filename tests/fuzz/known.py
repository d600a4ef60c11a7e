"""What the fuzzer has learned from answers, so that requests are about things that exist."""

from __future__ import annotations

import hashlib
import random
from collections import deque
from typing import Any

import msgspec

from deborgen_shared import contract
from deborgen_shared.calls import HELLO, Call
from fuzz import hostile

SECRETS = ("API_KEY", "LICENSE")
CURSORS = ("rabbitmq", "mine")
#: A value that was seen is forgotten when this many newer ones have come.
KEPT = 60


class Known:
    """Runs, attempts, cursors, tokens and sessions that the coordinator has named or accepted lately."""

    def __init__(self, workers: tuple[str, ...]) -> None:
        #: The first is the one whose token the requests of a worker have.
        self.workers = workers
        self.session = "session-0"
        self.runs: deque[int] = deque([1], KEPT)
        self.jobs: deque[str] = deque(["1.1"], KEPT)
        self.attempts: deque[str] = deque(["1.1/1"], KEPT)
        self.cursors: deque[str] = deque(["0", "1.1"], KEPT)
        #: Tokens that the fuzzer has created, which it may revoke.
        self.tokens: deque[str] = deque(["4f2a"], KEPT)
        #: The sizes of blobs, by digest.
        self.blobs: dict[str, int] = {HELLO: 5}
        self.artifacts: deque[str] = deque(["out/plot.png"], KEPT)

    def learn(self, call: Call[Any], sent: Any, body: bytes) -> None:
        """Keep what a successful answer names, and the session that was accepted."""
        if call is contract.REGISTER:
            self.session = sent["session"]
        if id(call) not in _LEARNED or len(body) > 100_000:
            return
        try:
            answer = msgspec.json.decode(body)
        except msgspec.DecodeError:
            return
        if call is contract.SUBMIT or call is contract.RETRY_RUN:
            self.runs.append(answer["id"])
            self.jobs.append(f"{answer['id']}.1")
        elif call is contract.CREATE_TOKEN:
            self.tokens.append(answer["id"])
        elif call is contract.CLAIM or call is contract.FINISH:
            for attempt in answer.get("results", ()):
                if attempt in self.attempts and len(self.attempts) > 1:
                    self.attempts.remove(attempt)  # it has ended
            self.attempts.extend(each["attempt"] for each in answer.get("assignments") or ())
        elif answer.get("next"):
            self.cursors.append(answer["next"])
        elif call is contract.LIST_RUN_ARTIFACTS:
            self.artifacts.extend(each["path"] for each in answer["items"][:3])
            self.jobs.extend(each["job"] for each in answer["items"][:3])

    # One of each, usually one that exists

    def run(self, rng: random.Random) -> int:
        return rng.choice(self.runs) if rng.random() < 0.9 else rng.randrange(1, 50)

    def job(self, rng: random.Random) -> str:
        return rng.choice(self.jobs) if rng.random() < 0.8 else f"{self.run(rng)}.{rng.randrange(1, 5)}"

    def attempt(self, rng: random.Random) -> str:
        return rng.choice(self.attempts) if rng.random() < 0.9 else f"{self.job(rng)}/{rng.randrange(1, 4)}"

    def worker(self, rng: random.Random) -> str:
        return self.workers[0] if rng.random() < 0.9 else rng.choice(self.workers)

    def session_id(self, rng: random.Random) -> str:
        return self.session if rng.random() < 0.95 else f"session-{rng.randrange(3)}"

    def blob(self, rng: random.Random, most: int = 300) -> bytes:
        """One of a few hundred blobs: most are short, some are transfers."""
        number = rng.randrange(most)
        blob = (b"blob %d " % number) * (1 if number % 20 else 20_000 + number)
        self.blobs[hashlib.sha256(blob).hexdigest()] = len(blob)
        return blob

    def digest(self, rng: random.Random) -> str:
        return rng.choice(list(self.blobs))

    def name_in_path(self, rng: random.Random, name: str) -> str:
        """A value for the part of a path with this name."""
        match name:
            case "run":
                return str(self.run(rng))
            case "job":
                return self.job(rng)
            case "number":
                return str(rng.randrange(1, 3))
            case "name":
                return self.worker(rng)
            case "sha256":
                return self.digest(rng)
            case "token":
                return rng.choice(self.tokens)
            case "secret":
                return rng.choice(SECRETS)
            case "cursor":
                return rng.choice(CURSORS)
            case "path":
                return rng.choice(self.artifacts)
        return hostile.text(rng)


_LEARNED = {
    id(call)
    for call in (
        contract.SUBMIT, contract.RETRY_RUN, contract.CREATE_TOKEN, contract.CLAIM, contract.FINISH, contract.LIST_RUNS,
        contract.LIST_JOBS, contract.LIST_RUN_JOBS, contract.LIST_RUN_ARTIFACTS,
    )
}  # fmt: skip
