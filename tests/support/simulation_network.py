"""The network of the simulation: between each worker and the real operations of the coordinator.

Messages are encoded and decoded as on the wire. Depending on the seed, a request is lost before it arrives, or
executed with its answer lost, or executed twice, or kept and executed again later, when nobody expects it any more.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from deborgen_coordinator.operations import blobs
from deborgen_coordinator.operations.attempts import logs, program_events
from deborgen_coordinator.operations.context import Actor, Context
from deborgen_coordinator.operations.workers.claim import claim
from deborgen_coordinator.operations.workers.finish import finish
from deborgen_coordinator.operations.workers.heartbeat import heartbeat
from deborgen_coordinator.operations.workers.leave import leave
from deborgen_coordinator.operations.workers.register import register
from deborgen_coordinator.operations.workers.sessions import AttemptId
from deborgen_coordinator.storage.database import DatabaseUnavailable
from deborgen_shared.client.transport import NoAnswer, Refused
from deborgen_shared.errors import Refusal
from deborgen_shared.messages import (
    Claim,
    Claimed,
    Finish,
    Finished,
    Heartbeat,
    HeartbeatAnswer,
    MissingBlob,
    ProgramEvent,
    ProgramEvents,
    Register,
    Registered,
)
from deborgen_shared.states import Role
from deborgen_worker.coordinator import CoordinatorClient, NothingClaimed

if TYPE_CHECKING:
    from support.simulation import World
    from support.simulation_machine import Machine

T = TypeVar("T")
Call = Callable[[Context], Any]

#: Refusals that a worker must never see: they mean that worker or coordinator has a bug.
IMPOSSIBLE = {"invalid_transition", "malformed", "forbidden", "not_found", "invalid_job", "unauthenticated"}
#: When a worker that was granted nothing asks again. In the simulation, no request waits at the coordinator.
POLL_SECONDS = 6.0


class Network:
    """Makes the clients of the machines, and keeps the requests that will arrive late."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.kept: list[tuple[str, Call]] = []

    def client(self, machine: Machine) -> SimulatedClient:
        return SimulatedClient(self._world, machine)

    def replay(self) -> None:
        """Let an old request arrive again."""
        if not self.kept or not self._world.up:
            return
        what, call = self.kept.pop(self._world.random.randrange(len(self.kept)))
        self._world.tell(f"an old {what} arrives again")
        try:
            call(self._world.coordinator.ctx)
        except Refusal as refusal:
            self._world.check_refusal(what, str(refusal.code))


def _over_the_wire(value: Any, type_: type[T]) -> T:
    return msgspec.json.decode(msgspec.json.encode(value), type=type_)


def _numbers(attempt: str) -> AttemptId:
    """The attempt of a name such as 3.1/2."""
    job, _, number = attempt.partition("/")
    run, _, index = job.partition(".")
    return AttemptId(int(run), int(index), int(number))


class SimulatedClient(CoordinatorClient):
    """One worker's client: the calls of the contract."""

    def __init__(self, world: World, machine: Machine) -> None:
        self._world, self._machine = world, machine
        self._actor = Actor(Role.WORKER, machine.name, "")

    def _send(self, what: str, call: Callable[[Context], T], late: bool = True) -> T:
        """Make a call through the bad network. With `late`, a lost request may still arrive much later."""
        world, machine, faults = self._world, self._machine, self._world.faults
        world.die_at("before " + what, machine)
        if not world.up or machine.partition == "all":
            raise NoAnswer("the coordinator does not answer")
        if world.chance(faults.drop_request):
            if late and world.chance(faults.keep):
                world.network.kept.append((what, call))
            raise NoAnswer("the request was lost")
        if world.chance(faults.coordinator_dies):
            if world.chance(0.5):
                self._execute(what, call)
            world.stop_coordinator()
            raise NoAnswer("the coordinator died")
        answer = self._execute(what, call)
        if world.chance(faults.twice):
            answer = self._execute(what, call)
        if world.chance(faults.keep):
            world.network.kept.append((what, call))
        world.die_at("after " + what, machine)
        if machine.partition == "answers" or world.chance(faults.drop_answer):
            raise NoAnswer("the answer was lost")
        return answer

    def _execute(self, what: str, call: Callable[[Context], T]) -> T:
        try:
            answer = call(self._world.coordinator.ctx)
        except Refusal as refusal:
            self._world.check_refusal(what, str(refusal.code))
            self._world.check()
            if refusal.status >= 500 or refusal.status in {408, 429}:
                raise NoAnswer(refusal.message) from None
            raise Refused(refusal.status, str(refusal.code), refusal.message, refusal.hint, refusal.details) from None
        except DatabaseUnavailable as error:
            raise NoAnswer(str(error)) from None
        self._world.check()
        return answer

    def register(self, message: Register) -> Registered:
        body, name, actor = _over_the_wire(message, Register), self._machine.name, self._actor
        world = self._world

        def call(ctx: Context) -> Registered:
            answer = register(ctx, actor, name, body)
            if world.is_first(body.session):
                world.renewed(body.holding)
            return answer

        return _over_the_wire(self._send("register", call, late=False), Registered)

    def claim(self, message: Claim) -> Claimed | NothingClaimed:
        body, name, actor, world = _over_the_wire(message, Claim), self._machine.name, self._actor, self._world

        def call(ctx: Context) -> Any:
            answer = claim(ctx, actor, name, body)
            if isinstance(answer, Claimed):
                world.granted(name, body.request_id, [each.attempt for each in answer.assignments])
            return answer

        answer = self._send("claim", call)
        return _over_the_wire(answer, Claimed) if isinstance(answer, Claimed) else NothingClaimed(POLL_SECONDS)

    def heartbeat(self, message: Heartbeat) -> HeartbeatAnswer:
        body, name, actor, world = _over_the_wire(message, Heartbeat), self._machine.name, self._actor, self._world

        def call(ctx: Context) -> HeartbeatAnswer:
            answer = heartbeat(ctx, actor, name, body)
            world.renewed([attempt for attempt, word in answer.attempts.items() if word != "stop"])
            return answer

        answer = _over_the_wire(self._send("heartbeat", call), HeartbeatAnswer)
        world.truth.got_answers(self._machine, dict(answer.attempts))
        return answer

    def finish(self, message: Finish) -> Finished:
        body, name, actor, world = _over_the_wire(message, Finish), self._machine.name, self._actor, self._world
        for result in body.results:
            world.truth.result_sent(result)

        def call(ctx: Context) -> Finished:
            answer = finish(ctx, actor, name, body)
            if body.claim is not None and answer.assignments:
                world.granted(name, body.claim.request_id, [each.attempt for each in answer.assignments])
            return answer

        return _over_the_wire(self._send("finish", call), Finished)

    def log(self, attempt: str, offset: int, data: bytes, session: str) -> int:
        where, actor = _numbers(attempt), self._actor
        try:
            return self._send("log", lambda ctx: logs.append(ctx, actor, where, offset, data, session)).size
        except Refused as refused:
            if refused.code == "log_gap":
                return int(refused.details["size"])
            raise

    def events(self, attempt: str, first: int, events: list[ProgramEvent | None], session: str) -> int:
        body = _over_the_wire(ProgramEvents(session=session, events=events, first=first), ProgramEvents)
        where, actor = _numbers(attempt), self._actor
        return self._send("events", lambda ctx: program_events.append(ctx, actor, where, body)).count

    def leave(self, session: str) -> None:
        name, actor = self._machine.name, self._actor
        self._send("leave", lambda ctx: leave(ctx, actor, name, session), late=False)

    def missing(self, digests: list[str]) -> dict[str, MissingBlob]:
        answer = self._send("missing", lambda ctx: blobs.find_missing(ctx, digests))
        return {each.sha256: each for each in answer.missing}

    def upload(self, path: Path, sha256: str, size: int, place: MissingBlob | None = None) -> None:
        data = path.read_bytes()
        self._send("upload", lambda ctx: blobs.put(ctx, sha256, [data]))

    def download(self, sha256: str, target: Path) -> None:
        size = self._send("download", lambda ctx: blobs.find(ctx, sha256).size)
        target.write_bytes(b"".join(blobs.open_range(self._world.coordinator.ctx, sha256, 0, size)))
