"""One worker that a test moves step by step: the real claimer, heartbeat loop, outbox, agent and spool in one thread.

The coordinator and the runner do what the test says, and time is a number that the test moves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from deborgen_shared.client.transport import NoAnswer, Refused
from deborgen_shared.messages import (
    Assignment,
    CheckpointSaved,
    Claim,
    Claimed,
    Finish,
    Finished,
    Heartbeat,
    HeartbeatAnswer,
    Metrics,
    MissingBlob,
    NextClaim,
    Orders,
    ProgramEvent,
    Register,
    Registered,
    Result,
    SavedFile,
)
from deborgen_shared.states import RunAs
from deborgen_worker import recovery
from deborgen_worker.agent import Agent
from deborgen_worker.attempts import StopCause
from deborgen_worker.cache import BlobCache
from deborgen_worker.capacity import Amount
from deborgen_worker.checkpoint_uploads import CheckpointUploads
from deborgen_worker.claims import Claimer, Claims
from deborgen_worker.contact import Contact, Link
from deborgen_worker.coordinator import CoordinatorClient, NothingClaimed
from deborgen_worker.disk import Disk
from deborgen_worker.heartbeat import HeartbeatLoop
from deborgen_worker.lifecycle import Machine
from deborgen_worker.log_pump import LogPump
from deborgen_worker.outbox import Outbox, ResultQueue
from deborgen_worker.owner import Owner
from deborgen_worker.policy import PauseFile
from deborgen_worker.runners.protocol import Launch, Report, Runner
from deborgen_worker.settings import WorkerSettings
from deborgen_worker.spool import Spool
from deborgen_worker.steps import StopAsked
from support.scripted_runner import Script, ScriptedRunner

GIB = 1 << 30


@dataclass
class PretendedCoordinator(CoordinatorClient):
    """A coordinator that answers as the test says, and records its calls."""

    queue: list[Assignment] = field(default_factory=list)
    #: The answer to a heartbeat for each attempt; `continue` by default.
    words: dict[str, str] = field(default_factory=dict)
    wanted: list[str] | msgspec.UnsetType = msgspec.UNSET
    results: list[Result] = field(default_factory=list)
    #: The answer to the result of each attempt; `accepted` by default.
    answers: dict[str, str] = field(default_factory=dict)
    logs: dict[str, bytes] = field(default_factory=dict)
    events_of: dict[str, list[ProgramEvent | None]] = field(default_factory=dict)
    calls: list[Any] = field(default_factory=list)
    #: The calls that get no answer.
    away: set[str] = field(default_factory=set)
    refusal: Refused | None = None
    refuse_if: Callable[[Any], bool] = lambda _message: False
    granted: dict[str, list[Assignment]] = field(default_factory=dict)
    #: Whether uploaded blobs are kept, and those that were.
    keeps_blobs: bool = False
    blobs: dict[str, bytes] = field(default_factory=dict)
    #: By attempt: the number and the files of its checkpoint.
    checkpoints: dict[str, tuple[int, list[SavedFile]]] = field(default_factory=dict)
    lose_answer_of: str = ""
    #: Whether a claim that comes with a finish is granted jobs.
    gives_with_finish: bool = False

    def _called(self, name: str, message: Any) -> None:
        self.calls.append((name, message))
        if name in self.away:
            raise NoAnswer("away")
        if self.refusal is not None:
            raise self.refusal

    def register(self, message: Register) -> Registered:
        self._called("register", message)
        return Registered(lease_seconds=60, heartbeat_seconds=10, lost=[])

    def claim(self, message: Claim) -> Claimed | NothingClaimed:
        self._called("claim", message)
        found = self._grant(message)
        if self.lose_answer_of == "claim":
            self.lose_answer_of = ""
            raise NoAnswer("the answer was lost")
        return Claimed(assignments=found) if found else NothingClaimed(0.0)

    def _grant(self, message: NextClaim) -> list[Assignment]:
        if message.request_id not in self.granted:
            taken: list[Assignment] = []
            cpus = message.free.cpus
            while self.queue and len(taken) < message.max and cpus >= 1:
                taken.append(self.queue.pop(0))
                cpus -= not message.ahead
            if taken:  # a claim that found nothing does not use its id up
                self.granted[message.request_id] = taken
        return self.granted.get(message.request_id, [])

    def heartbeat(self, message: Heartbeat) -> HeartbeatAnswer:
        self._called("heartbeat", message)
        if self.refuse_if(message):
            raise Refused(400, "malformed", "no")
        return HeartbeatAnswer(
            attempts={each.attempt: self.words.get(each.attempt, "continue") for each in message.holding},  # type: ignore[misc]
            orders=Orders(),
            wanted=self.wanted,
        )

    def finish(self, message: Finish) -> Finished:
        self._called("finish", message)
        self.results += message.results
        given = self._grant(message.claim) if message.claim is not None and self.gives_with_finish else []
        if self.lose_answer_of == "finish":
            self.lose_answer_of = ""
            raise NoAnswer("the answer was lost")
        words = {each.attempt: self.answers.get(each.attempt, "accepted") for each in message.results}
        return Finished(results=words, assignments=given, waited_seconds=0.0)  # type: ignore[arg-type]

    def log(self, attempt: str, offset: int, data: bytes, session: str) -> int:
        self._called("log", attempt)
        held = self.logs.get(attempt, b"")
        if offset <= len(held):
            self.logs[attempt] = held[:offset] + data
        return len(self.logs.get(attempt, b""))

    def events(self, attempt: str, first: int, events: list[ProgramEvent | None], session: str) -> int:
        self._called("events", (attempt, first, events))
        held = self.events_of.setdefault(attempt, [])
        if first <= len(held):
            held += events[len(held) - first :]
        return len(held)

    def leave(self, session: str) -> None: ...

    def missing(self, digests: list[str]) -> dict[str, MissingBlob]:
        self._called("missing", digests)
        lacking = [sha256 for sha256 in digests if sha256 not in self.blobs] if self.keeps_blobs else []
        return {sha256: MissingBlob(sha256=sha256, url="") for sha256 in lacking}

    def upload(self, path: Path, sha256: str, size: int, place: MissingBlob | None = None) -> None:
        self._called("upload", sha256)
        if self.keeps_blobs:
            self.blobs[sha256] = path.read_bytes()

    def save_checkpoint(self, attempt: str, number: int, files: list[SavedFile], session: str) -> CheckpointSaved:
        self._called("save_checkpoint", (attempt, number, files))
        last, _ = self.checkpoints.get(attempt, (0, []))
        missing = sorted({file.sha256 for file in files if file.sha256 not in self.blobs})
        if number > last and not missing:
            self.checkpoints[attempt] = number, files
        if self.lose_answer_of == "save_checkpoint":
            self.lose_answer_of = ""
            raise NoAnswer("the answer was lost")
        return CheckpointSaved(number=max(number, last), missing=missing)

    def saved(self, attempt: str) -> dict[str, bytes]:
        """The files of the attempt's checkpoint."""
        return {file.path: self.blobs[file.sha256] for file in self.checkpoints.get(attempt, (0, []))[1]}

    def download(self, sha256: str, target: Path) -> None:
        if self.keeps_blobs:
            target.write_bytes(self.blobs[sha256])


class SteppedWorker:
    """One worker. The test runs each of its steps."""

    def __init__(
        self, folder: Path, script: Callable[[Launch], Script] | None = None, *, podman: bool = True, **settings: Any
    ) -> None:
        self.folder, self.podman = folder, podman
        self.now = 1000.0
        self.said: list[str] = []
        self.coordinator = PretendedCoordinator()
        self.settings = WorkerSettings(name="w", **settings)
        self.runner = ScriptedRunner()
        if script is not None:
            self.runner.script = script
        self.gpus: tuple[str, ...] = ()
        self.boot = "boot"
        self.wake(boot="boot")

    def wake(self, boot: str) -> list[str]:
        """Start a new session with what the last one left on disk."""
        self.spool = Spool(self.folder, Disk(), boot)
        self.contact = Contact(lambda: self.now, self.said.append)
        link = Link(self.coordinator, self.contact, "s", self.said.append)
        self.results = ResultQueue()
        self.rooms: list[float] = []
        self.slow: list[Callable[[], None]] | None = None
        self.agent = Agent(
            self.settings, self.spool, BlobCache(self.folder / "cache", 0, self.coordinator.download),
            Amount(2, 8 * GIB, len(self.gpus), 100 * GIB), self._runners,
            clock=lambda: self.now, lease_clock=lambda: self.now, say=self.said.append, run_slow=self._run_slow,
            on_room=lambda: self.rooms.append(self.now), on_results=self.results.put, gpus=self.gpus,
        )  # fmt: skip
        self.heartbeats = HeartbeatLoop(self.agent, link, lambda: self.measure())
        self.claims = Claims(self.agent, self.spool)
        self.outbox = Outbox(self.agent, self.spool, link, self.heartbeats, self.claims, self.results)
        self.pump = LogPump(self.agent, link, self.heartbeats)
        self.checkpoints = CheckpointUploads(self.agent, link, self.heartbeats)
        self.claimer = Claimer(self.agent, self.spool, link, self.heartbeats, self.claims)
        pauses = PauseFile(self.folder, Disk())
        self.owner = Owner(self.settings, self.agent, self.spool, self.contact, pauses, wall=lambda: self.now)
        return recovery.recover(self.agent, self.spool, boot, self.said.append).held

    def _runners(self, tell: Report) -> dict[str, Runner]:
        self.runner.tell = tell
        return dict.fromkeys(RunAs if self.podman else [RunAs.PROCESS], self.runner)

    def _run_slow(self, work: Callable[[], None]) -> None:
        """Run it at once; or leave it to the test, if the test has made `slow` a list."""
        work() if self.slow is None else self.slow.append(work)

    def measure(self) -> Metrics | None:
        return None

    @property
    def machine(self) -> Machine:
        return self.agent.read_state(lambda machine, _: machine)

    def stage(self, name: str) -> Any:
        return self.machine.attempts[name].stage

    def stop(self, name: str, ending: StopCause, reason: str) -> None:
        self.agent.handle([StopAsked(name, ending, reason)])

    def queue(self, *names: str, **spec: Any) -> None:
        for name in names:
            job, _, number = name.partition("/")
            body = {"run": ["/bin/true"], **spec}
            assignment = Assignment(
                attempt=name, job=job, number=int(number), spec=body, params={}, inputs=[], secrets={},
                timeout_seconds=60.0, lease_seconds=60.0,
            )  # fmt: skip
            self.coordinator.queue.append(assignment)

    def let_short_jobs_end(self) -> None:
        """Pretend that enough short jobs have just ended for others to be claimed ahead."""
        ledger = self.machine.ledger
        ledger.average, ledger.streak, ledger.ended, ledger.short_seconds = 0.001, 32, self.now - 0.1, 10.0

    def take(self) -> None:
        self.claimer.step()

    def hold(self) -> None:
        """Accept the queued jobs so late that their leases may be over: they wait for a heartbeat."""
        self.spool.claim_answered("late", self.coordinator.queue)
        self.agent.accept(self.coordinator.queue, sent=self.now - 1000.0, waited_seconds=0.0)
        self.coordinator.queue = []

    def deliver(self) -> None:
        self.now += 1
        self.outbox.step_uploads()
        self.outbox.step()

    @property
    def outcomes(self) -> dict[str, str]:
        return {each.attempt: each.outcome for each in self.coordinator.results}


def running(_launch: Launch) -> Script:
    """A program that runs until it is told to end."""
    return Script()
