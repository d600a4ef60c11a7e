"""Publishes a status for every change of a job that came through the queue, and one for the end of its run.

One of the bridges with the same name does this: the one that has the lock. It reads the history from the place that is
stored at the coordinator, and moves that place only after RabbitMQ has confirmed every status up to there. So each
status is published at least once, and those of one run in their order, whatever is killed. After a restart some may be
repeated, with the same numbers.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import msgspec
import pika

from deborgen_shared import contract
from deborgen_shared.client.backoff import BackOff
from deborgen_shared.client.transport import NoAnswer, Refused
from deborgen_shared.messages import AnswerBody, ArtifactView, Event, JobCounts, Origin, Run
from deborgen_shared.queries import ArtifactsQuery, LogQuery
from deborgen_shared.states import TERMINAL, State

from . import broker
from .pool import Pool

log = logging.getLogger("deborgen.rabbitmq")

#: How often the bridge asks for new events.
LOOK_SECONDS = 0.5
#: The place is stored this often although no status was published.
STORE_SECONDS = 10.0
#: This many runs are remembered. Another one is read again.
REMEMBERED = 10_000

_CHANGES = {f"job.{state}": state for state in State if state is not State.RUNNING} | {"job.started": State.RUNNING}


class Statuses:
    """The thread of `run` has a connection of its own."""

    def __init__(self, pool: Pool, url: str, bridge: str, public_url: str, goes_on: Callable[[], bool]) -> None:
        self._pool, self._url, self._bridge = pool, url, bridge
        self._goes_on = goes_on
        self._maker = StatusMaker(pool, bridge, public_url)
        self._place = 0
        #: The place that the coordinator has, and when it got it.
        self._stored, self._stored_at = 0, 0.0

    def run(self) -> None:
        """Publish until the bridge stops. After a failure, start again from the stored place."""
        trouble = BackOff(first=0.3, most=10.0)
        while self._goes_on():
            connection = None
            try:
                connection = broker.connect(self._url)
                self._publish_all(connection, trouble)
            except broker.FAILURES as failure:
                log.warning("statuses cannot be published: %s; it is tried again", broker.spoken(failure))
            except (NoAnswer, Refused) as why:
                log.warning("the history cannot be followed: %s; it is tried again", why)
            except Exception:
                log.exception("this is a bug in the bridge; it goes on")
            try:
                if connection is not None and connection.is_open:
                    connection.close()
            except broker.FAILURES:
                pass
            broker.pause(trouble.after_failure(), self._goes_on)

    def _publish_all(self, connection: Any, trouble: BackOff) -> None:
        channel = connection.channel()
        channel.confirm_delivery()
        broker.declare(channel)
        if not broker.Lock(self._bridge).take(connection, self._goes_on):
            return
        self._find_place()
        log.info("publishing statuses from event %d on", self._place)
        while self._goes_on():
            page = self._pool.events(self._place)
            trouble.reset()
            published = False
            for status, properties in self._maker.statuses(page):
                broker.publish(channel, broker.EXCHANGE, broker.STATUS, msgspec.json.encode(status), properties)
                published = True
                if not self._goes_on():
                    return
            if page:
                self._move(page[-1].seq, at_once=published)
            connection.process_data_events(time_limit=0 if page else LOOK_SECONDS)

    def _find_place(self) -> None:
        """The stored place; or, for a new bridge, the newest event. No message is taken before there is a place."""
        if (found := self._pool.cursor(self._bridge)) is not None:
            self._place = self._stored = found.seq
            return
        newest = self._pool.newest_event()
        self._pool.move_cursor(self._bridge, newest, None)
        self._place = self._stored = newest

    def _move(self, place: int, at_once: bool) -> None:
        self._place = place
        now = time.monotonic()
        if at_once or now - self._stored_at > STORE_SECONDS:
            self._pool.move_cursor(self._bridge, place, self._stored)
            self._stored, self._stored_at = place, now


class StatusArtifact(ArtifactView, kw_only=True):
    url: str


class JobStatus(AnswerBody):
    """A change of a job. What is known only at its end is empty before."""

    seq: int
    time: datetime
    run: int | None
    job: str
    state: str
    old_state: str | None
    attempt: str | None
    worker: str | None
    log_url: str
    exit_code: int | None = None
    reason: str = ""
    result: dict[str, Any] | None = None
    image_url: Any = None
    artifacts: list[StatusArtifact] = msgspec.field(default_factory=list)


class RunStatus(AnswerBody):
    """The end of a run."""

    seq: int
    time: datetime
    run: int
    state: str
    jobs: JobCounts
    results_url: str


class StatusMaker:
    """Makes statuses of events."""

    def __init__(self, pool: Pool, bridge: str, public_url: str) -> None:
        self._pool, self._bridge, self._url = pool, bridge, public_url
        self._me = ""
        #: The runs that were read, and None for those that are not ours.
        self._runs: dict[int, Run | None] = {}
        #: The number of the last change of a job, by finished run.
        self._ends: dict[int, int] = {}

    def statuses(self, page: list[Event]) -> Iterator[tuple[JobStatus | RunStatus, Any]]:
        """The statuses of a page of events, each with its properties."""
        self._me = self._me or self._pool.me().name
        fresh: set[int] = set()
        for event in page:
            state = _CHANGES.get(event.type)
            if state is None or event.run is None or event.job is None:
                continue
            if (run := self._ours(event.run)) is None:
                continue
            yield self._of_job(event, event.job, state), self._properties(run, f"{event.seq}", "job", event)
            if state in TERMINAL:
                if run.finished_at is None and run.id not in fresh:
                    fresh.add(run.id)
                    self._runs.pop(run.id)
                    run = self._ours(run.id) or run
                if run.finished_at is not None and self._is_last(event, run.id):
                    yield self._of_run(event, run), self._properties(run, f"{event.seq}-end", "run", event)

    def _ours(self, number: int) -> Run | None:
        """The run, if a message of this bridge became it."""
        if number not in self._runs:
            while len(self._runs) >= REMEMBERED:
                forgotten = next(iter(self._runs))
                del self._runs[forgotten]
                self._ends.pop(forgotten, None)
            run = self._pool.run(number)
            ours = run and run.submitter == self._me and run.origin and run.origin.bridge == self._bridge
            self._runs[number] = run if ours else None
        return self._runs[number]

    def _is_last(self, event: Event, run: int) -> bool:
        """Whether no job of this finished run changes after the event."""
        if run not in self._ends:
            changes = [each.seq for each in self._pool.all_events(event.seq, run) if each.type in _CHANGES]
            self._ends[run] = max(changes, default=event.seq)
        return self._ends[run] == event.seq

    def _of_job(self, event: Event, job: str, state: State) -> JobStatus:
        attempt = int(event.attempt.rpartition("/")[2]) if event.attempt else None
        status = JobStatus(
            seq=event.seq, time=event.time, run=event.run, job=job, state=state, old_state=event.old_state,
            attempt=event.attempt, worker=event.worker, reason=str(event.data.get("reason") or ""),
            log_url=self._url + contract.READ_LOG.url(LogQuery(attempt=attempt), job=job),
        )  # fmt: skip
        if state in TERMINAL and (found := self._pool.job(job)) is not None:
            status.exit_code, status.reason, status.result = found.exit_code, found.reason, found.result
            status.image_url = (found.result or {}).get("image_url")
            query = ArtifactsQuery(attempt=attempt)
            status.artifacts = [
                StatusArtifact(
                    path=each.path, sha256=each.sha256, size=each.size,
                    url=self._url + contract.GET_ARTIFACT.url(query, job=job, path=each.path),
                )
                for each in found.artifacts
            ]  # fmt: skip
        return status

    def _of_run(self, event: Event, run: Run) -> RunStatus:
        url = self._url + contract.RESULTS.url(run=run.id)
        return RunStatus(seq=event.seq, time=event.time, run=run.id, state=run.state, jobs=run.jobs, results_url=url)

    def _properties(self, run: Run, number: str, kind: str, event: Event) -> Any:
        assert isinstance(run.origin, Origin)
        return pika.BasicProperties(
            content_type="application/json", type=kind, message_id=number, app_id="deborgen",
            timestamp=int(event.time.timestamp()), correlation_id=run.origin.correlation_id,
            reply_to=run.origin.reply_to,
        )  # fmt: skip
