"""The life of every attempt on this machine, as one table: what happened, and what is to be done about it.

Pure: there is no thread, lock, clock, disk or runner here. `handle` takes events and the time, changes the state of the
machine, and returns instructions in the order in which they are to be carried out. What comes of them comes back as
events. An event that is too late for the stage in which it finds its attempt is ignored, and the table says so.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from deborgen_shared.states import Outcome
from deborgen_worker import steps
from deborgen_worker.attempts import (
    STAGES,
    Attempt,
    Collecting,
    Done,
    Ending,
    Exit,
    Preparing,
    Queued,
    Running,
    Stage,
    Standing,
    Stop,
    Waiting,
)
from deborgen_worker.capacity import Ledger
from deborgen_worker.gate import Gate

#: Examine at most this many waiting attempts for which there is no room: a small one may overtake a large one.
LOOK_AT = 8
#: How long an attempt may wait for room before it is given back: it was claimed ahead, or two claims brought too much.
ROOM_SECONDS = 5.0
#: How long an attempt may wait with its runner for the room of another that was expected to be short.
FOLLOW_SECONDS = 0.5
#: After KILL, how long the runner may take to tell of the end before the attempt is ended without it.
AFTER_KILL_SECONDS = 30.0
#: How long the workspace and the image of an attempt may take to be there.
PREPARE_SECONDS = 3600.0
#: A program that cannot be frozen is tried again with the next tick, and given back after this many times.
FREEZE_TRIES = 8


@dataclass(slots=True)
class Moment:
    """Now: on the clock that stops in sleep, and on the clock of `leases`, which does not."""

    clock: float
    lease: float


Instructions = Iterable[steps.Instruction]


@dataclass
class Machine:
    """The whole state: the room there is, who has it, who waits for it, and whether new work is welcome."""

    ledger: Ledger
    kill_grace: float = 10.0
    free_gpus: set[str] = field(default_factory=set)
    gate: Gate = field(default_factory=Gate)
    attempts: dict[str, Attempt] = field(default_factory=dict)
    #: The names of those that wait, first come, first served.
    queue: deque[str] = field(default_factory=deque)
    #: Whether the owner wants all programs frozen, and after how many seconds a frozen one is given back.
    frozen: bool = False
    freeze_limit: float = 60.0

    def add(self, attempt: Attempt) -> None:
        """Take an attempt, in whatever stage it is. One that runs has its room, whether that is free or not."""
        self.attempts[attempt.name] = attempt
        if isinstance(attempt.stage, Done):
            return
        self.ledger.wait(attempt.name, attempt.amount)
        if isinstance(attempt.stage, Waiting):
            self.queue.append(attempt.name)
        else:
            self.ledger.adopt(attempt.name)
            self.free_gpus -= set(attempt.gpus)


def handle(machine: Machine, events: Iterable[steps.Event], now: Moment) -> list[steps.Instruction]:
    """What is to be done about these events, and about the room that they leave."""
    found: list[steps.Instruction] = []
    for event in events:
        attempt = machine.attempts.get(event.name)
        if attempt is not None:
            found += TABLE[type(event)][type(attempt.stage)](machine, attempt, attempt.stage, event, now)
    if machine.queue and not machine.gate.closed:
        found += _fill(machine, now)
    return found


# The queue


def _fill(machine: Machine, now: Moment) -> Instructions:
    """Start the waiting attempts whose turn has come."""
    passed = 0
    chains = machine.ledger.chains(now.clock)
    for name in list(machine.queue):
        attempt = machine.attempts.get(name)
        stage = attempt.stage if attempt is not None else None
        if attempt is None or not isinstance(stage, Waiting):
            machine.queue.remove(name)
            continue
        fresh = now.lease < stage.start_by
        if fresh and machine.ledger.start(name, now.clock):
            machine.queue.remove(name)
            yield _take_room(machine, attempt, stage, now)
        elif fresh and chains and attempt.follows and not stage.returned:
            machine.queue.remove(name)
            attempt.stage = Queued(stage.since, stage.start_by, now.clock)
            yield steps.Follow(name, stage.start_by)
        else:
            if fresh and not (attempt.light or stage.touched or attempt.amount.gpus):
                stage.touched = True  # its image can be fetched while another has the room
                yield steps.Prepare(name)
            passed += 1
            if passed == LOOK_AT or machine.ledger.makes_way(now.clock):
                return


def _take_room(machine: Machine, attempt: Attempt, stage: Waiting, now: Moment) -> steps.Instruction:
    gpus = tuple(sorted(machine.free_gpus)[: attempt.amount.gpus])
    machine.free_gpus -= set(gpus)
    if attempt.light or stage.prepared:
        return _start(attempt, Preparing(stage.since, stage.start_by, gpus), now)
    attempt.stage = Preparing(now.clock, stage.start_by, gpus)
    return steps.Prepare(attempt.name, gpus)


def _start(attempt: Attempt, stage: Preparing, now: Moment) -> steps.Instruction:
    attempt.stage = Running(now.clock, now.lease, stage.since, stage.start_by, stage.gpus)
    return steps.Start(attempt.name, stage.start_by, now.lease, stage.gpus)


def _wait_again(
    machine: Machine, attempt: Attempt, stage: Preparing | Queued | Running, prepared: bool = True
) -> Instructions:
    """It was not started after all: it is the next one. What was made for its GPUs, which another may get now, goes."""
    gpus = attempt.gpus
    machine.ledger.back(attempt.name)
    machine.free_gpus |= set(gpus)
    attempt.stage = Waiting(stage.since, stage.start_by, touched=True, prepared=prepared and not gpus, returned=True)
    machine.queue.appendleft(attempt.name)
    if prepared and gpus:
        yield steps.Discard(attempt.name, folder=False)


# One function per move. `_over` is where every attempt ends.


def _over(machine: Machine, attempt: Attempt, exit_: Exit, stop: Stop | None, now: Moment) -> Instructions:
    """It runs no more, or never will: its room is free, and its result is put together."""
    stage = attempt.stage
    # The time of a program in a chain of short ones is its own; a container keeps its room for longer than it runs.
    machine.ledger.end(attempt.name, now.clock, exit_.seconds if attempt.follows else None)
    machine.free_gpus |= set(attempt.gpus)
    if stop is not None and stop.ending is Ending.STALE:
        del machine.attempts[attempt.name]
        touched = not isinstance(stage, Waiting) or stage.touched
        yield from (steps.Forget(attempt.name), steps.Discard(attempt.name, touched))
        return
    attempt.stage = Collecting(now.clock)
    outcome, reason = outcome_of(stop, exit_, attempt.timeout)
    seconds = began = stopped = 0.0
    if isinstance(stage, Running):
        seconds, began = stage.used_seconds(now.clock), stage.began
        stopped = stage.stopped_seconds(now.clock, now.lease)
        if exit_.seconds is not None:
            seconds = max(0.0, exit_.seconds - stage.frozen_for(now.clock))
    yield steps.Collect(attempt.name, outcome, reason, exit_, seconds, isinstance(stage, Running), began, stopped)


def outcome_of(stop: Stop | None, exit_: Exit, timeout: float) -> tuple[Outcome, str]:
    """What the attempt ended as, and the reason in words. What the worker did to it comes first, then the machinery's
    failures, then the program's own end."""
    if stop is not None and stop.ending is not Ending.STALE:
        return stop.ending.value, stop.reason
    if exit_.error:
        return Outcome.ERROR, exit_.error
    if exit_.timed_out:
        return Outcome.TIMEOUT, exit_.reason or f"ran longer than its timeout of {timeout:g} s"
    if exit_.out_of_memory:
        return Outcome.OUT_OF_MEMORY, exit_.reason or "the program wanted more memory than the job asks for"
    return (Outcome.SUCCEEDED, "") if exit_.code == 0 else (Outcome.FAILED, exit_.reason)


def _ignore(_machine: Machine, _attempt: Attempt, _stage: Any, _event: Any, _now: Moment) -> Instructions:
    return ()


def _renew(
    _machine: Machine, attempt: Attempt, stage: Waiting | Preparing | Queued, event: steps.Renewed, _now: Moment
) -> Instructions:
    stage.start_by = event.start_by
    return ()


def _name(_machine: Machine, attempt: Attempt, stage: Running, event: steps.Renewed, _now: Moment) -> Instructions:
    stage.named |= 0 < stage.began <= event.sent
    return ()


def _end_unbegun(machine: Machine, attempt: Attempt, _stage: Any, event: steps.StopAsked, now: Moment) -> Instructions:
    """What waits for its turn, its files or its image has nothing to be signalled: it is over at once."""
    return _over(machine, attempt, Exit(error=event.reason), Stop(event.ending, event.reason, now.clock), now)


def _end_program(
    _machine: Machine, attempt: Attempt, stage: Queued | Running, event: steps.StopAsked, now: Moment
) -> Instructions:
    """TERM, and KILL after the grace period; KILL at once for what is somebody else's now."""
    stale = event.ending is Ending.STALE
    if stage.stop is not None and not stale:
        return
    stage.stop = Stop(event.ending, event.reason, stage.stop.asked_at if stage.stop is not None else now.clock)
    frozen = isinstance(stage, Running) and stage.frozen_at is not None
    yield steps.Signal(attempt.name, "KILL" if stale else "TERM", stage.stop, frozen)


def _want_nothing(
    _machine: Machine, attempt: Attempt, stage: Collecting, event: steps.StopAsked, _now: Moment
) -> Instructions:
    stage.stale |= event.ending is Ending.STALE
    return ()


def _prepared_ahead(
    _machine: Machine, attempt: Attempt, stage: Waiting, _event: steps.Prepared, _now: Moment
) -> Instructions:
    stage.prepared = True
    return ()


def _prepared(
    machine: Machine, attempt: Attempt, stage: Preparing, _event: steps.Prepared, now: Moment
) -> Instructions:
    """Start it, unless a heartbeat must renew its lease first: then another may have its room meanwhile."""
    return [_start(attempt, stage, now)] if now.lease < stage.start_by else _wait_again(machine, attempt, stage)


def _not_started(
    machine: Machine, attempt: Attempt, stage: Preparing | Queued | Running, event: steps.NotPrepared, now: Moment
) -> Instructions:
    stop = stage.stop if not isinstance(stage, Preparing) else None
    attempt.stage = Preparing(stage.since, stage.start_by, attempt.gpus)  # nothing of it has run
    if event.down:
        yield steps.CloseGate(attempt.name, event.error)
        stop = stop or Stop(Ending.RELEASE, f"the runner of the worker is down: {event.error}", now.clock)
    yield from _over(machine, attempt, Exit(error=event.error), stop, now)


def _begin(machine: Machine, attempt: Attempt, stage: Queued, _event: steps.Began, now: Moment) -> Instructions:
    machine.ledger.follow(attempt.name, now.clock)
    attempt.stage = Running(now.clock, now.lease, stage.since, stage.start_by, stop=stage.stop)
    return ()


def _take_back(
    machine: Machine, attempt: Attempt, stage: Queued | Running, _event: steps.Returned, now: Moment
) -> Instructions:
    if stage.stop is not None:
        return _over(machine, attempt, Exit(error=stage.stop.reason), stage.stop, now)
    return _wait_again(machine, attempt, stage)


def _exit(
    machine: Machine, attempt: Attempt, stage: Queued | Running, event: steps.Exited, now: Moment
) -> Instructions:
    return _over(machine, attempt, event.exit, stage.stop, now)


def _adopt(machine: Machine, attempt: Attempt, stage: Running, event: steps.Adopted, now: Moment) -> Instructions:
    stage.unknown = False  # the end of one that has ended is told by another event
    match event.standing:
        case Standing.RUNNING:
            # The next tick brings it to what its owner wants now.
            stage.frozen_at, stage.frozen_seconds = now.clock if event.frozen else None, event.stopped
            if stage.stop is not None:  # an earlier session was ending it, and died before it was over
                stage.stop.asked_at = now.clock
                word = "KILL" if stage.stop.ending is Ending.STALE else "TERM"
                yield steps.Signal(attempt.name, word, stage.stop, event.frozen)
        case Standing.NEVER_STARTED:
            stop, stage.stop, stage.start_by = stage.stop, None, 0.0
            yield from _wait_again(machine, attempt, stage, prepared=False)
            if stop is not None:
                yield from _over(machine, attempt, Exit(error=stop.reason), stop, now)
        case Standing.GONE:
            yield from _over(machine, attempt, Exit(error="it was gone when its runner answered"), stage.stop, now)


def _not_frozen(
    _machine: Machine, attempt: Attempt, stage: Running, event: steps.NotFrozen, now: Moment
) -> Instructions:
    stage.frozen_at, stage.freeze_tries = None, stage.freeze_tries + 1
    if stage.freeze_tries == FREEZE_TRIES:
        yield steps.Say(attempt.name, f"{attempt.name} cannot be frozen here ({event.error}): it is given back")
        stop = steps.StopAsked(attempt.name, Ending.RELEASE, "paused by its owner, and it cannot be frozen")
        yield from _end_program(_machine, attempt, stage, stop, now)


def _not_thawed(
    _machine: Machine, attempt: Attempt, stage: Running, _event: steps.NotThawed, now: Moment
) -> Instructions:
    if stage.stop is None:  # the next tick tries again
        stage.frozen_at = now.clock
    return ()


def _collected(
    _machine: Machine, attempt: Attempt, stage: Collecting, _event: steps.Collected, _now: Moment
) -> Instructions:
    attempt.stage = Done(stage.ended)
    yield steps.Send(attempt.name)


def _settle(machine: Machine, attempt: Attempt, stage: Stage, _event: steps.Settled, now: Moment) -> Instructions:
    del machine.attempts[attempt.name]
    machine.ledger.end(attempt.name, now.clock)
    machine.free_gpus |= set(attempt.gpus)
    yield steps.Discard(attempt.name, not isinstance(stage, Waiting) or stage.touched)


def _tick_waiting(
    machine: Machine, attempt: Attempt, stage: Waiting, _event: steps.Ticked, now: Moment
) -> Instructions:
    reason = machine.gate.reason if machine.gate.closed else ""
    if not reason and now.clock - stage.since > ROOM_SECONDS and now.lease < stage.start_by:
        reason = "the worker had no room for it after all"
    if reason:
        yield from _end_unbegun(machine, attempt, stage, steps.StopAsked(attempt.name, Ending.RELEASE, reason), now)


def _tick_preparing(
    machine: Machine, attempt: Attempt, stage: Preparing, _event: steps.Ticked, now: Moment
) -> Instructions:
    if now.clock - stage.since > PREPARE_SECONDS:
        error = f"its files and its image were not there after {PREPARE_SECONDS:g} s"
        yield from _over(machine, attempt, Exit(error=error), None, now)


def _tick_queued(machine: Machine, attempt: Attempt, stage: Queued, _event: steps.Ticked, now: Moment) -> Instructions:
    if machine.gate.closed or now.clock - stage.handed >= FOLLOW_SECONDS:
        yield steps.Recall(attempt.name)


def _tick_running(
    machine: Machine, attempt: Attempt, stage: Running, _event: steps.Ticked, now: Moment
) -> Instructions:
    stop = stage.stop
    if stop is None:
        yield from _tick_time(machine, attempt, stage, now)
    elif stop.killed_at is not None:
        if now.clock - stop.killed_at > AFTER_KILL_SECONDS:
            yield from _over(machine, attempt, Exit(error="it did not end, even after KILL"), stop, now)
    elif now.clock - stop.asked_at > machine.kill_grace:
        stop.killed_at = now.clock
        yield steps.Signal(attempt.name, "KILL", stop)


def _tick_time(machine: Machine, attempt: Attempt, stage: Running, now: Moment) -> Instructions:
    """The time limit of a program that runs, and the freeze that its owner wants or does not want any more."""
    if stage.frozen_at is None:
        if stage.used_seconds(now.clock) > attempt.timeout:
            reason = f"ran longer than its timeout of {attempt.timeout:g} s"
            yield from _end_program(machine, attempt, stage, steps.StopAsked(attempt.name, Ending.TIMEOUT, reason), now)
        elif machine.frozen and not stage.unknown:
            stage.frozen_at = now.clock
            yield steps.Freeze(attempt.name)
    elif not machine.frozen:
        stage.frozen_seconds, stage.frozen_at, stage.freeze_tries = stage.frozen_for(now.clock), None, 0
        yield steps.Thaw(attempt.name)
    elif now.clock - stage.frozen_at > machine.freeze_limit:
        yield steps.Say(attempt.name, f"{attempt.name} was frozen for longer than its owner allows: it is given back")
        reason = "paused by its owner for longer than its lease"
        yield from _end_program(machine, attempt, stage, steps.StopAsked(attempt.name, Ending.RELEASE, reason), now)


Move = Callable[[Machine, Attempt, Any, Any, Moment], Instructions]


def _row(*moves: Move) -> dict[type[Stage], Move]:
    return dict(zip(STAGES, moves, strict=True))


#: What each event means in each stage, in the order of STAGES: Waiting, Preparing, Queued, Running, Collecting, Done.
TABLE: dict[type[steps.Event], dict[type[Stage], Move]] = {
    steps.Renewed: _row(_renew, _renew, _renew, _name, _ignore, _ignore),
    steps.StopAsked: _row(_end_unbegun, _end_unbegun, _end_program, _end_program, _want_nothing, _ignore),
    steps.Prepared: _row(_prepared_ahead, _prepared, _ignore, _ignore, _ignore, _ignore),
    steps.NotPrepared: _row(_ignore, _not_started, _ignore, _ignore, _ignore, _ignore),
    steps.NotStarted: _row(_ignore, _ignore, _not_started, _not_started, _ignore, _ignore),
    steps.Began: _row(_ignore, _ignore, _begin, _ignore, _ignore, _ignore),
    steps.Returned: _row(_ignore, _ignore, _take_back, _take_back, _ignore, _ignore),
    steps.Exited: _row(_ignore, _ignore, _exit, _exit, _ignore, _ignore),
    steps.Adopted: _row(_ignore, _ignore, _ignore, _adopt, _ignore, _ignore),
    steps.NotThawed: _row(_ignore, _ignore, _ignore, _not_thawed, _ignore, _ignore),
    steps.NotFrozen: _row(_ignore, _ignore, _ignore, _not_frozen, _ignore, _ignore),
    steps.Collected: _row(_ignore, _ignore, _ignore, _ignore, _collected, _ignore),
    steps.Settled: _row(_settle, _settle, _settle, _settle, _settle, _settle),
    steps.Ticked: _row(_tick_waiting, _tick_preparing, _tick_queued, _tick_running, _ignore, _ignore),
}
