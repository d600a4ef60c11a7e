"""The life of every attempt on this machine as one table: for each event and stage, what to do.

Pure: there is no thread, lock, clock, disk or runner here. `handle` takes events and the time, changes the state of the
machine, and returns instructions in the order in which to carry them out. Their outcomes come back as events. The table
also says which events come too late for a stage and are ignored.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from deborgen_shared.jobfile.units import format_size
from deborgen_shared.states import Outcome
from deborgen_worker import steps
from deborgen_worker.attempts import (
    STAGES,
    Collecting,
    Done,
    Exit,
    Following,
    LocalAttempt,
    Preparing,
    Running,
    Stage,
    Standing,
    Stop,
    StopCause,
    Waiting,
)
from deborgen_worker.capacity import Ledger
from deborgen_worker.gate import Gate

#: Examine at most this many waiting attempts that do not fit, so that a small attempt may overtake a large one.
EXAMINE_AT_MOST = 8
#: Give an attempt back after it has waited for room for this many seconds. It was prefetched, or two claims brought
#: more than fits.
ROOM_SECONDS = 5.0
#: Recall an attempt that has waited with its runner for this many seconds: the program before it is not short.
FOLLOW_WAIT_SECONDS = 0.5
#: End an attempt if its runner has not reported its end this many seconds after KILL.
AFTER_KILL_SECONDS = 30.0
#: An attempt's workspace and image must be ready within this many seconds.
PREPARE_SECONDS = 3600.0
#: Give up putting a result together if nothing of the output was read for this many seconds.
COLLECT_SECONDS = 600.0
#: Each tick tries again to freeze a program. If that fails for this many seconds, its attempt is given back. While all
#: processors are busy it may fail for a while: a program needs a moment of processor time to be frozen.
FREEZE_SECONDS = 60.0
#: Copy a checkpoint for at most this many seconds, because the program is frozen meanwhile.
COPY_SECONDS = 120.0
#: A program gets a checkpoint that it asks for if it has run for this many seconds since the last one.
ASKED_SECONDS = 1.0
#: The exit codes of programs that HUP, INT, KILL or TERM has ended.
ENDED_BY_SIGNAL = frozenset({129, 130, 137, 143})


@dataclass(slots=True)
class Moment:
    """The time on two clocks: one that stops while the machine sleeps, and the clock of `leases`, which does not."""

    clock: float
    lease: float


@dataclass(frozen=True, slots=True)
class OwnersFreeze:
    """The owner wants all programs frozen.

    A frozen program is given back only if another machine wants its job: after `keep_frozen` seconds or, if it is known
    that the freeze `is_long`, at once. If the machine's hours are `over`, it is given back after that time anyway.
    """

    is_long: bool = False
    is_over: bool = False


Instructions = Iterable[steps.Instruction]


@dataclass
class Machine:
    """The whole state: all attempts, the room that they have or wait for, and whether new work may be taken."""

    ledger: Ledger
    kill_grace: float = 10.0
    free_gpus: set[str] = field(default_factory=set)
    gate: Gate = field(default_factory=Gate)
    attempts: dict[str, LocalAttempt] = field(default_factory=dict)
    #: The names of the waiting attempts, first come, first served.
    queue: deque[str] = field(default_factory=deque)
    #: Whether the owner wants all programs frozen, and for how many seconds a frozen program is kept.
    frozen: OwnersFreeze | None = None
    keep_frozen: float = 900.0
    #: Why this worker is being ended; empty if it is not. The same signal may end its programs, as at a shutdown.
    ending: str = ""

    @property
    def is_closed(self) -> bool:
        """Whether no new work may be taken or started."""
        return self.gate.closed or bool(self.ending)

    def add(self, attempt: LocalAttempt) -> None:
        """Add an attempt in any stage. A running attempt gets its room even if there is not enough."""
        self.attempts[attempt.name] = attempt
        if isinstance(attempt.stage, Done):
            return
        self.ledger.wait(attempt.name, attempt.amount)
        if isinstance(attempt.stage, Waiting):
            self.queue.append(attempt.name)
        else:
            self.ledger.adopt(attempt.name)
            self.free_gpus -= set(attempt.gpus)


def handle(machine: Machine, events: Iterable[steps.AttemptEvent], now: Moment) -> list[steps.Instruction]:
    """What to do about these events, and about the room that they free."""
    found: list[steps.Instruction] = []
    for event in events:
        attempt = machine.attempts.get(event.name)
        if attempt is not None:
            found += TABLE[type(event)][type(attempt.stage)](machine, attempt, attempt.stage, event, now)
    if machine.queue and not machine.is_closed:
        found += _start_waiting(machine, now)
    return found


# The queue


def _start_waiting(machine: Machine, now: Moment) -> Instructions:
    """Start the waiting attempts for which there is room, in their order."""
    passed = 0
    chains = machine.ledger.should_chain(now.clock)
    for name in list(machine.queue):
        attempt = machine.attempts.get(name)
        stage = attempt.stage if attempt is not None else None
        if attempt is None or not isinstance(stage, Waiting):
            machine.queue.remove(name)
            continue
        lease_is_alive = now.lease < stage.start_by
        if lease_is_alive and machine.ledger.start(name, now.clock):
            machine.queue.remove(name)
            yield _take_room(machine, attempt, stage, now)
        elif lease_is_alive and chains and attempt.can_follow and not stage.returned:
            machine.queue.remove(name)
            attempt.stage = Following(stage.since, stage.start_by, now.clock)
            yield steps.Follow(name, stage.start_by)
        else:
            if lease_is_alive and not (attempt.starts_inline or stage.touched or attempt.amount.gpus):
                stage.touched = True  # fetch its image while it waits for room
                yield steps.Prepare(name)
            passed += 1
            if passed == EXAMINE_AT_MOST or machine.ledger.reserves_room(now.clock):
                return


def _take_room(machine: Machine, attempt: LocalAttempt, stage: Waiting, now: Moment) -> steps.Instruction:
    gpus = tuple(sorted(machine.free_gpus)[: attempt.amount.gpus])
    machine.free_gpus -= set(gpus)
    if attempt.starts_inline or stage.prepared:
        return _start(attempt, Preparing(stage.since, stage.start_by, gpus), now)
    attempt.stage = Preparing(now.clock, stage.start_by, gpus)
    return steps.Prepare(attempt.name, gpus)


def _start(attempt: LocalAttempt, stage: Preparing, now: Moment) -> steps.Instruction:
    attempt.stage = Running(now.clock, now.lease, stage.since, stage.start_by, stage.gpus)
    return steps.Start(attempt.name, stage.start_by, now.lease, stage.gpus)


def _wait_again(
    machine: Machine, attempt: LocalAttempt, stage: Preparing | Following | Running, prepared: bool = True
) -> Instructions:
    """Put an attempt that was not started at the head of the queue. A container that was made for its GPUs is
    discarded."""
    gpus = attempt.gpus
    machine.ledger.put_back(attempt.name)
    machine.free_gpus |= set(gpus)
    attempt.stage = Waiting(stage.since, stage.start_by, touched=True, prepared=prepared and not gpus, returned=True)
    machine.queue.appendleft(attempt.name)
    if prepared and gpus:
        yield steps.Discard(attempt.name, folder=False)


# One function per transition. Every attempt ends in `_finish`.


def _finish(machine: Machine, attempt: LocalAttempt, exit_: Exit, stop: Stop | None, now: Moment) -> Instructions:
    """Free the room of an attempt that has ended or will never start, and order its result to be put together."""
    stage = attempt.stage
    # A short program in a chain uses its room only while it runs; a container keeps its room for longer.
    machine.ledger.release(attempt.name, now.clock, exit_.seconds if attempt.can_follow else None)
    machine.free_gpus |= set(attempt.gpus)
    if stop is not None and stop.cause is StopCause.STALE:
        del machine.attempts[attempt.name]
        touched = not isinstance(stage, Waiting) or stage.touched
        yield from (steps.Forget(attempt.name), steps.Discard(attempt.name, touched))
        return
    outcome, reason = outcome_of(stop, exit_, attempt.timeout)
    seconds = began = stopped = 0.0
    if isinstance(stage, Running):
        seconds, began = stage.used_seconds(now.clock), stage.began
        stopped = stage.stopped_seconds(now.clock, now.lease)
        if exit_.seconds is not None:
            seconds = max(0.0, exit_.seconds - stage.frozen_for(now.clock))
    attempt.stage = Collecting(now.clock, seconds, began)
    yield steps.Collect(attempt.name, outcome, reason, exit_, seconds, isinstance(stage, Running), began, stopped)


def outcome_of(stop: Stop | None, exit_: Exit, timeout: float) -> tuple[Outcome, str]:
    """The outcome of an attempt, and the reason in words.

    The first of these decides: the worker ended the attempt, its runner failed, its program ended by itself.
    """
    if stop is not None and stop.cause is not StopCause.STALE:
        return stop.cause.value, stop.reason
    if exit_.error:
        return Outcome.ERROR, exit_.error
    if exit_.timed_out:
        return Outcome.TIMEOUT, exit_.reason or f"it ran longer than its timeout of {timeout:g} s"
    if exit_.shortage:
        return Outcome.RELEASED, "it was killed because the memory of this machine ran short"
    if exit_.out_of_memory:
        return Outcome.OUT_OF_MEMORY, exit_.reason or "the program needed more memory than the job asks for"
    return (Outcome.SUCCEEDED, "") if exit_.code == 0 else (Outcome.FAILED, exit_.reason)


def _ignore(_machine: Machine, _attempt: LocalAttempt, _stage: Any, _event: Any, _now: Moment) -> Instructions:
    return ()


def _extend_lease(
    _machine: Machine, attempt: LocalAttempt, stage: Waiting | Preparing | Following, event: steps.Renewed, _now: Moment
) -> Instructions:
    stage.start_by = event.start_by
    return ()


def _mark_reported(
    _machine: Machine, attempt: LocalAttempt, stage: Running, event: steps.Renewed, _now: Moment
) -> Instructions:
    stage.reported |= 0 < stage.began <= event.sent
    stage.wanted = event.wanted and stage.frozen_at is not None
    return ()


def _end_unstarted(
    machine: Machine, attempt: LocalAttempt, _stage: Any, event: steps.StopAsked, now: Moment
) -> Instructions:
    """End an attempt that has no program yet. It needs no signal."""
    return _finish(machine, attempt, Exit(error=event.reason), Stop(event.cause, event.reason, now.clock), now)


def _end_program(
    _machine: Machine, attempt: LocalAttempt, stage: Following | Running, event: steps.StopAsked, now: Moment
) -> Instructions:
    """Send TERM, and later KILL. A stale attempt gets KILL at once."""
    stale = event.cause is StopCause.STALE
    if stage.stop is not None and not stale:
        return
    stage.stop = Stop(event.cause, event.reason, stage.stop.asked_at if stage.stop is not None else now.clock)
    if isinstance(stage, Running):
        stage.saving = None  # the program is woken, so the copy would not be of one moment
    frozen = isinstance(stage, Running) and stage.frozen_at is not None
    yield steps.Signal(attempt.name, "KILL" if stale else "TERM", stage.stop, frozen)


def _mark_stale(
    _machine: Machine, attempt: LocalAttempt, stage: Collecting, event: steps.StopAsked, _now: Moment
) -> Instructions:
    stage.stale |= event.cause is StopCause.STALE
    return ()


def _prepared_ahead(
    _machine: Machine, attempt: LocalAttempt, stage: Waiting, _event: steps.Prepared, _now: Moment
) -> Instructions:
    stage.prepared = True
    return ()


def _prepared(
    machine: Machine, attempt: LocalAttempt, stage: Preparing, _event: steps.Prepared, now: Moment
) -> Instructions:
    """Start the attempt. If a heartbeat must renew its lease first, it waits again, and others may use its room."""
    return [_start(attempt, stage, now)] if now.lease < stage.start_by else _wait_again(machine, attempt, stage)


def _not_started(
    machine: Machine,
    attempt: LocalAttempt,
    stage: Preparing | Following | Running,
    event: steps.NotPrepared,
    now: Moment,
) -> Instructions:
    stop = stage.stop if not isinstance(stage, Preparing) else None
    attempt.stage = Preparing(stage.since, stage.start_by, attempt.gpus)  # its program has not run
    if event.down:
        yield steps.CloseGate(attempt.name, event.error)
        stop = stop or Stop(StopCause.RELEASE, f"the worker's runner is down: {event.error}", now.clock)
    yield from _finish(machine, attempt, Exit(error=event.error, cause=event.cause), stop, now)


def _mark_begun(
    machine: Machine, attempt: LocalAttempt, stage: Following, _event: steps.Began, now: Moment
) -> Instructions:
    machine.ledger.follow(attempt.name, now.clock)
    attempt.stage = Running(now.clock, now.lease, stage.since, stage.start_by, stop=stage.stop)
    return ()


def _take_back(
    machine: Machine, attempt: LocalAttempt, stage: Following | Running, _event: steps.Returned, now: Moment
) -> Instructions:
    if stage.stop is not None:
        return _finish(machine, attempt, Exit(error=stage.stop.reason), stage.stop, now)
    return _wait_again(machine, attempt, stage)


def _exit(
    machine: Machine, attempt: LocalAttempt, stage: Following | Running, event: steps.Exited, now: Moment
) -> Instructions:
    stop = stage.stop
    if stop is None and machine.ending and (event.exit.error or event.exit.code in ENDED_BY_SIGNAL):
        stop = Stop(StopCause.RELEASE, machine.ending, now.clock)
    return _finish(machine, attempt, event.exit, stop, now)


def _adopt(machine: Machine, attempt: LocalAttempt, stage: Running, event: steps.Adopted, now: Moment) -> Instructions:
    stage.adoption_pending = False  # if it has ended, `Exited` follows
    match event.standing:
        case Standing.RUNNING:
            # The next tick freezes or wakes the program, as the owner wants now.
            stage.frozen_at, stage.frozen_seconds = now.clock if event.frozen else None, event.stopped
            if stage.stop is not None:  # the earlier session was ending it when that session died
                stage.stop.asked_at = now.clock
                word = "KILL" if stage.stop.cause is StopCause.STALE else "TERM"
                yield steps.Signal(attempt.name, word, stage.stop, event.frozen)
        case Standing.NEVER_STARTED:
            stop, stage.stop, stage.start_by = stage.stop, None, 0.0
            yield from _wait_again(machine, attempt, stage, prepared=False)
            if stop is not None:
                yield from _finish(machine, attempt, Exit(error=stop.reason), stop, now)
        case Standing.GONE:
            yield from _finish(
                machine, attempt, Exit(error="its program was gone when the runner answered"), stage.stop, now
            )


def _not_frozen(
    _machine: Machine, attempt: LocalAttempt, stage: Running, event: steps.NotFrozen, now: Moment
) -> Instructions:
    saving, stage.frozen_at, stage.saving = stage.saving is not None, None, None
    if saving and _machine.frozen is None:
        yield steps.Say(attempt.name, f"{attempt.name} cannot be frozen for its checkpoint: {event.error}")
        return
    stage.unfrozen_since = now.clock if stage.unfrozen_since is None else stage.unfrozen_since
    if now.clock - stage.unfrozen_since > FREEZE_SECONDS:
        yield steps.Say(attempt.name, f"{attempt.name} cannot be frozen, giving it back: {event.error}")
        stop = steps.StopAsked(attempt.name, StopCause.RELEASE, "the owner paused the worker, and it cannot be frozen")
        yield from _end_program(_machine, attempt, stage, stop, now)


def _not_thawed(
    _machine: Machine, attempt: LocalAttempt, stage: Running, _event: steps.NotThawed, now: Moment
) -> Instructions:
    if stage.stop is None:  # the next tick retries
        stage.frozen_at = now.clock
    return ()


def _observe(
    machine: Machine, attempt: LocalAttempt, stage: Running, event: steps.Observed, now: Moment
) -> Instructions:
    """End a program that has written nothing for as long as its watchdog waits. Time in which it is frozen does not
    count.

    Only a look at its output decides: if nobody could look for a while, the program is not blamed for it.
    """
    used = stage.used_seconds(now.clock)
    if event.mark != stage.mark:
        stage.mark, stage.active = event.mark, used
    elif attempt.watchdog and used - stage.active > attempt.watchdog and stage.stop is None:
        reason = f"it wrote neither output nor progress for {attempt.watchdog:g} s"
        yield from _end_program(machine, attempt, stage, steps.StopAsked(attempt.name, StopCause.STALLED, reason), now)


def _limit_disk(
    machine: Machine, attempt: LocalAttempt, stage: Running, event: steps.Measured, now: Moment
) -> Instructions:
    """End a program that has used up its disk, at once: until it has ended, it goes on writing."""
    if stage.stop is None:
        reason = f"disk: its workspace takes more than the {format_size(attempt.disk)} of the job's 'resources.disk'"
        yield from _end_program(machine, attempt, stage, steps.StopAsked(attempt.name, StopCause.DISK, reason), now)
        if stage.stop is not None:
            stage.stop.killed_at = now.clock
            yield steps.Signal(attempt.name, "KILL", stage.stop)


def _note_asked(
    _machine: Machine, _attempt: LocalAttempt, stage: Running, _event: steps.CheckpointAsked, _now: Moment
) -> Instructions:
    stage.asked = True
    return ()


def _is_checkpoint_due(attempt: LocalAttempt, stage: Running, now: Moment) -> bool:
    ran = stage.used_seconds(now.clock) - stage.saved
    due = ran >= attempt.every or (stage.asked and ran >= ASKED_SECONDS)
    return bool(attempt.every) and due and not stage.uploading


def _copy_now(
    _machine: Machine, attempt: LocalAttempt, stage: Running, _event: steps.Frozen, _now: Moment
) -> Instructions:
    """Copy the checkpoint, if that is what the program was frozen for."""
    return [steps.CopyCheckpoint(attempt.name)] if stage.saving is not None else ()


def _end_copy(
    machine: Machine, attempt: LocalAttempt, stage: Running, event: steps.Copied, now: Moment
) -> Instructions:
    """Wake the program, unless its owner wants it frozen."""
    stage.saving, stage.uploading = None, event.complete
    if stage.stop is None:
        yield from _tick_limits(machine, attempt, stage, now)


def _note_uploaded(
    _machine: Machine, _attempt: LocalAttempt, stage: Running, _event: steps.Uploaded, _now: Moment
) -> Instructions:
    stage.uploading = False
    return ()


def _collected(
    _machine: Machine, attempt: LocalAttempt, stage: Collecting, _event: steps.Collected, _now: Moment
) -> Instructions:
    attempt.stage = Done(stage.ended)
    yield steps.Send(attempt.name)


def _advance(
    _machine: Machine, attempt: LocalAttempt, stage: Collecting, _event: steps.Advanced, now: Moment
) -> Instructions:
    stage.advanced = now.clock
    return ()


def _settle(machine: Machine, attempt: LocalAttempt, stage: Stage, _event: steps.Settled, now: Moment) -> Instructions:
    del machine.attempts[attempt.name]
    machine.ledger.release(attempt.name, now.clock)
    machine.free_gpus |= set(attempt.gpus)
    yield steps.Discard(attempt.name, not isinstance(stage, Waiting) or stage.touched)


def _tick_waiting(
    machine: Machine, attempt: LocalAttempt, stage: Waiting, _event: steps.Ticked, now: Moment
) -> Instructions:
    reason = machine.gate.reason if machine.gate.closed else ""
    if not reason and now.clock - stage.since > ROOM_SECONDS and now.lease < stage.start_by:
        reason = "the worker had no room for it"
    if reason:
        yield from _end_unstarted(
            machine, attempt, stage, steps.StopAsked(attempt.name, StopCause.RELEASE, reason), now
        )


def _tick_preparing(
    machine: Machine, attempt: LocalAttempt, stage: Preparing, _event: steps.Ticked, now: Moment
) -> Instructions:
    if now.clock - stage.since > PREPARE_SECONDS:
        error = f"its files and its image were not ready after {PREPARE_SECONDS:g} s"
        yield from _finish(machine, attempt, Exit(error=error), None, now)


def _tick_following(
    machine: Machine, attempt: LocalAttempt, stage: Following, _event: steps.Ticked, now: Moment
) -> Instructions:
    if machine.gate.closed or now.clock - stage.handed_over >= FOLLOW_WAIT_SECONDS:
        yield steps.Recall(attempt.name)


def _tick_running(
    machine: Machine, attempt: LocalAttempt, stage: Running, _event: steps.Ticked, now: Moment
) -> Instructions:
    stop = stage.stop
    if stop is None:
        yield from _tick_limits(machine, attempt, stage, now)
    elif stop.killed_at is not None:
        if now.clock - stop.killed_at > AFTER_KILL_SECONDS:
            yield from _finish(machine, attempt, Exit(error="it did not end, even after KILL"), stop, now)
    elif now.clock - stop.asked_at > machine.kill_grace:
        stop.killed_at = now.clock
        yield steps.Signal(attempt.name, "KILL", stop)


def _tick_limits(machine: Machine, attempt: LocalAttempt, stage: Running, now: Moment) -> Instructions:
    """Apply a running program's time limit, and freeze or wake it: as the owner wants, and for its checkpoints."""
    if stage.frozen_at is None:
        if stage.used_seconds(now.clock) > attempt.timeout:
            reason = f"it ran longer than its timeout of {attempt.timeout:g} s"
            yield from _end_program(
                machine, attempt, stage, steps.StopAsked(attempt.name, StopCause.TIMEOUT, reason), now
            )
        elif stage.adoption_pending:
            return
        elif machine.frozen is not None or _is_checkpoint_due(attempt, stage, now):
            if machine.frozen is None:
                stage.saving, stage.saved, stage.asked = now.clock, stage.used_seconds(now.clock), False
            stage.frozen_at, stage.wanted = now.clock, False
            yield steps.Freeze(attempt.name)
    elif stage.saving is not None and now.clock - stage.saving <= COPY_SECONDS:
        return
    elif machine.frozen is None:
        stage.saving = None
        stage.frozen_seconds, stage.frozen_at, stage.unfrozen_since = stage.frozen_for(now.clock), None, None
        yield steps.Thaw(attempt.name)
    elif reason := _reason_to_give_back(machine, stage, now.clock - stage.frozen_at):
        yield steps.Say(attempt.name, f"giving {attempt.name} back: {reason}")
        yield from _end_program(machine, attempt, stage, steps.StopAsked(attempt.name, StopCause.RELEASE, reason), now)


def _reason_to_give_back(machine: Machine, stage: Running, seconds: float) -> str:
    """Why a program that has been frozen for this many seconds is given back; empty if it is kept."""
    kept_long_enough, freeze = seconds > machine.keep_frozen, machine.frozen or OwnersFreeze()
    if stage.wanted and (kept_long_enough or freeze.is_long):
        return "its owner uses the machine, and another one can run the job"
    return "the hours of this machine are over" if kept_long_enough and freeze.is_over else ""


def _tick_collecting(
    _machine: Machine, attempt: LocalAttempt, stage: Collecting, _event: steps.Ticked, now: Moment
) -> Instructions:
    """End an attempt as an error if its output cannot be read to its end."""
    if now.clock - max(stage.ended, stage.advanced) > COLLECT_SECONDS and not stage.given_up:
        stage.given_up = True
        reason = f"its output could not be collected: nothing of it was read for {COLLECT_SECONDS:g} s"
        yield steps.Say(attempt.name, f"giving up {attempt.name}: {reason}")
        yield steps.Collect(
            attempt.name, Outcome.ERROR, reason, Exit(error=reason), stage.seconds, ran=False, began=stage.began
        )


Transition = Callable[[Machine, LocalAttempt, Any, Any, Moment], Instructions]


def _transitions(*moves: Transition) -> dict[type[Stage], Transition]:
    return dict(zip(STAGES, moves, strict=True))


#: The transition of each event in each stage, in the order of STAGES: Waiting, Preparing, Following, Running,
#: Collecting, Done.
TABLE: dict[type[steps.AttemptEvent], dict[type[Stage], Transition]] = {
    steps.Renewed: _transitions(_extend_lease, _extend_lease, _extend_lease, _mark_reported, _ignore, _ignore),
    steps.StopAsked: _transitions(_end_unstarted, _end_unstarted, _end_program, _end_program, _mark_stale, _ignore),
    steps.Prepared: _transitions(_prepared_ahead, _prepared, _ignore, _ignore, _ignore, _ignore),
    steps.NotPrepared: _transitions(_ignore, _not_started, _ignore, _ignore, _ignore, _ignore),
    steps.NotStarted: _transitions(_ignore, _ignore, _not_started, _not_started, _ignore, _ignore),
    steps.Began: _transitions(_ignore, _ignore, _mark_begun, _ignore, _ignore, _ignore),
    steps.Returned: _transitions(_ignore, _ignore, _take_back, _take_back, _ignore, _ignore),
    steps.Exited: _transitions(_ignore, _ignore, _exit, _exit, _ignore, _ignore),
    steps.Adopted: _transitions(_ignore, _ignore, _ignore, _adopt, _ignore, _ignore),
    steps.NotThawed: _transitions(_ignore, _ignore, _ignore, _not_thawed, _ignore, _ignore),
    steps.NotFrozen: _transitions(_ignore, _ignore, _ignore, _not_frozen, _ignore, _ignore),
    steps.Observed: _transitions(_ignore, _ignore, _ignore, _observe, _ignore, _ignore),
    steps.Measured: _transitions(_ignore, _ignore, _ignore, _limit_disk, _ignore, _ignore),
    steps.Frozen: _transitions(_ignore, _ignore, _ignore, _copy_now, _ignore, _ignore),
    steps.CheckpointAsked: _transitions(_ignore, _ignore, _ignore, _note_asked, _ignore, _ignore),
    steps.Copied: _transitions(_ignore, _ignore, _ignore, _end_copy, _ignore, _ignore),
    steps.Uploaded: _transitions(_ignore, _ignore, _ignore, _note_uploaded, _ignore, _ignore),
    steps.Collected: _transitions(_ignore, _ignore, _ignore, _ignore, _collected, _ignore),
    steps.Advanced: _transitions(_ignore, _ignore, _ignore, _ignore, _advance, _ignore),
    steps.Settled: _transitions(_settle, _settle, _settle, _settle, _settle, _settle),
    steps.Ticked: _transitions(
        _tick_waiting, _tick_preparing, _tick_following, _tick_running, _tick_collecting, _ignore
    ),
}
