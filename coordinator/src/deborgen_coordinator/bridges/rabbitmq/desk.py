"""What happens to messages between their arrival and their acknowledgement. One thread does it, with HTTP calls alone.

The desk submits each message under its key, and tells the intake to acknowledge it once the run's first job was
claimed, or the run has ended. Until then the message belongs to RabbitMQ.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from deborgen_shared.client.backoff import BackOff
from deborgen_shared.client.transport import NoAnswer, Refused
from deborgen_shared.errors import Code
from deborgen_shared.messages import Event, Run
from deborgen_shared.states import State

from .broker import pause as pause_for
from .orders import NeverAJob, Order, key_of, problem, read
from .pool import FINAL, Pool

log = logging.getLogger("deborgen.rabbitmq")

#: How often the desk looks for claims while it has messages, and waits for messages while it has none.
LOOK_SECONDS = 0.3
#: For how long an answer to "could any worker run this?" is good.
FIT_SECONDS = 5.0
#: How many of these questions are asked at once.
QUESTIONS = 10
LONGEST_PAUSE = 30.0
#: The events that say that a job was claimed, or will never be.
_TELLING = frozenset({f"job.{state}" for state in State if state.terminal} | {"job.started"})


class Delivery(NamedTuple):
    """A message as it came. The tag is good on the channel with this number only."""

    channel: int
    tag: int
    body: bytes
    properties: Any


class Acknowledge(NamedTuple):
    delivery: Delivery


class Refuse(NamedTuple):
    delivery: Delivery
    key: str
    problems: list[dict[str, str]]


class NobodyFits(NamedTuple):
    """How many messages wait for a worker that does not exist."""

    messages: int


Decision = Acknowledge | Refuse | NobodyFits


@dataclass(eq=False)
class Unacknowledged:
    """A message that was not acknowledged yet. `run` is None until it was submitted."""

    delivery: Delivery
    order: Order | None = None
    run: int | None = None
    due: float = 0.0
    back_off: BackOff = field(default_factory=lambda: BackOff(first=0.5, most=LONGEST_PAUSE))


class Desk:
    """Takes deliveries with `take`, and gives each decision to `decide`, which may be called from its thread only."""

    def __init__(self, pool: Pool, bridge: str, decide: Callable[[Decision], None]) -> None:
        self._pool, self._bridge, self._decide = pool, bridge, decide
        self._inbox: SimpleQueue[Delivery | int] = SimpleQueue()
        #: In the order in which they came.
        self._held: dict[Unacknowledged, None] = {}
        self._by_run: dict[int, list[Unacknowledged]] = {}
        #: The number of the last event that was looked at; None until the first message came.
        self._seen: int | None = None
        #: Whether a worker could run jobs with these needs, and when that was found out.
        self._fits: dict[str, tuple[bool, float]] = {}
        self._waiting = 0

    def take(self, delivery: Delivery) -> None:
        self._inbox.put(delivery)

    def forget(self, channel: int) -> None:
        """All messages of channels before this one: RabbitMQ will deliver them again."""
        self._inbox.put(channel)

    def run(self, goes_on: Callable[[], bool]) -> None:
        """Work until `goes_on` says no. No trouble ends it."""
        trouble = BackOff(first=0.3, most=5.0)
        while goes_on():
            self._receive()
            try:
                self._work(goes_on)
                trouble.reset()
            except (NoAnswer, Refused) as why:
                pause = trouble.after_failure(getattr(why, "retry_after", None))
                log.warning("the coordinator cannot be asked: %s; next try in %.1f s", why, pause)
                pause_for(pause, goes_on)
            except Exception:
                log.exception("this is a bug in the bridge; it goes on")
                pause_for(trouble.after_failure(), goes_on)

    def _receive(self) -> None:
        """Take what has come. Wait for a moment if there is nothing."""
        try:
            found = self._inbox.get(timeout=LOOK_SECONDS)
            while True:
                if isinstance(found, int):
                    self._held = {held: None for held in self._held if held.delivery.channel >= found}
                    self._by_run = {}
                    for held in self._held:
                        if held.run is not None:
                            self._by_run.setdefault(held.run, []).append(held)
                else:
                    self._held[Unacknowledged(found)] = None
                found = self._inbox.get_nowait()
        except Empty:
            pass

    def _work(self, goes_on: Callable[[], bool]) -> None:
        if not self._held:
            self._seen = None
            self._tell_waiting(0)
            return
        if self._seen is None:
            self._seen = self._pool.newest_event()
        now = time.monotonic()
        for held in list(self._held):
            if held.run is None and held.due <= now and goes_on():
                self._submit(held)
        self._look_for_claims()
        self._look_for_workers()

    def _submit(self, held: Unacknowledged) -> None:
        """Submit a message that is due. One that cannot be submitted now keeps no other one from it."""
        try:
            order = held.order = held.order or read(held.delivery.body, held.delivery.properties, self._bridge)
            run = self._pool.submit(order)
        except NeverAJob as refused:
            self._refuse(held, refused.problems)
        except Refused as refused:
            if refused.code in FINAL:
                self._refuse(held, _problems(refused))
            else:
                self._later(held, refused)
        except NoAnswer as why:
            self._later(held, why)
            raise  # the others would not be answered either
        except Exception as error:
            log.exception("a message could not be handled")
            self._later(held, error)
        else:
            held.run = run.id
            self._by_run.setdefault(run.id, []).append(held)
            log.info("message %s is run %d", order.key, run.id)
            if _was_claimed(run):
                self._hand_over(run.id)

    def _later(self, held: Unacknowledged, why: Exception) -> None:
        pause = held.back_off.after_failure(getattr(why, "retry_after", None))
        held.due = time.monotonic() + pause
        log.warning("a message is kept, and submitted again in %.1f s: %s", pause, why)

    def _refuse(self, held: Unacknowledged, problems: list[dict[str, str]]) -> None:
        del self._held[held]
        key = key_of(held.delivery.body, held.delivery.properties)
        log.warning("message %s can never be a job: %s", key, problems[0]["message"])
        self._decide(Refuse(held.delivery, key, problems))

    def _look_for_claims(self) -> None:
        assert self._seen is not None
        while page := self._pool.events(self._seen):
            for event in page:
                if event.run in self._by_run and _is_telling(event):
                    self._hand_over(event.run)
            self._seen = page[-1].seq

    def _hand_over(self, run: int) -> None:
        for held in self._by_run.pop(run, ()):
            del self._held[held]
            self._decide(Acknowledge(held.delivery))

    def _look_for_workers(self) -> None:
        """Count the messages that no worker fits. Messages with the same needs share one question."""
        questions, now = 0, time.monotonic()
        waiting = 0
        for held in self._held:
            if held.run is None or held.order is None:
                continue
            answers = []
            for needs, index in held.order.first:
                known, at = self._fits.get(needs, (True, 0.0))
                if (not at or now - at > FIT_SECONDS) and questions < QUESTIONS:
                    questions += 1
                    known = any(worker.able for worker in self._pool.workers_for(f"{held.run}.{index}"))
                    self._fits[needs] = known, now
                answers.append(known)
            waiting += bool(answers) and not any(answers)
        if len(self._fits) > len(self._held):
            used = {needs for held in self._held if held.order for needs, _ in held.order.first}
            self._fits = {needs: answer for needs, answer in self._fits.items() if needs in used}
        self._tell_waiting(waiting)

    def _tell_waiting(self, count: int) -> None:
        if count != self._waiting:
            self._waiting = count
            self._decide(NobodyFits(count))


def _was_claimed(run: Run) -> bool:
    jobs = run.jobs
    return bool(jobs.running + jobs.succeeded + jobs.failed + jobs.canceled)


def _is_telling(event: Event) -> bool:
    return event.type in _TELLING


def _problems(refused: Refused) -> list[dict[str, str]]:
    if refused.code == Code.INVALID_JOB and refused.details.get("problems"):
        return [{key: str(each.get(key, "")) for key in ("path", "message", "hint")}
                for each in refused.details["problems"]]  # fmt: skip
    return [problem(refused.message, refused.hint)]
