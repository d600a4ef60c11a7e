"""The table of the worker's lifecycle: every pair of stage and event, and any order of events."""

from __future__ import annotations

from collections import Counter
from typing import Any
from unittest import mock

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from deborgen_worker import lifecycle, steps
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
    StopCause,
    Waiting,
)
from deborgen_worker.capacity import Amount, Ledger
from deborgen_worker.lifecycle import Machine, Moment, OwnersFreeze

GIB = 1 << 30
ROOM = Amount(2.0, 8 * GIB, 2, 100 * GIB)

EVENTS: dict[str, steps.AttemptEvent] = {
    "renewed": steps.Renewed("a", 200.0, 100.0),
    "cancel": steps.StopAsked("a", StopCause.CANCEL, "canceled"),
    "stale": steps.StopAsked("a", StopCause.STALE),
    "prepared": steps.Prepared("a"),
    "not prepared": steps.NotPrepared("a", "no image"),
    "not started": steps.NotStarted("a", "no program"),
    "runner down": steps.NotStarted("a", "no answer", down=True),
    "began": steps.Began("a"),
    "returned": steps.Returned("a"),
    "exited": steps.Exited("a", Exit(code=0)),
    "found running": steps.Adopted("a", Standing.RUNNING),
    "found ended": steps.Adopted("a", Standing.ENDED),
    "never started": steps.Adopted("a", Standing.NEVER_STARTED),
    "found gone": steps.Adopted("a", Standing.GONE),
    "not thawed": steps.NotThawed("a"),
    "not frozen": steps.NotFrozen("a", "no cgroup"),
    "measured": steps.Measured("a", 1 << 40),
    "frozen": steps.Frozen("a"),
    "asked": steps.CheckpointAsked("a"),
    "copied": steps.Copied("a", True),
    "uploaded": steps.Uploaded("a"),
    "observed": steps.Observed("a", (1,)),
    "collected": steps.Collected("a"),
    "advanced": steps.Advanced("a"),
    "settled": steps.Settled("a"),
    "ticked": steps.Ticked("a"),
}

#: Where each event leads from each stage, in the order of STAGES. A letter is the first of a stage's name; a dash means
#: that the attempt is forgotten.
EXPECTED = """
renewed        P P F R C D
cancel         C C F R C D
stale          - - F R C D
prepared       W R F R C D
not prepared   W C F R C D
not started    W P C C C D
runner down    W P C C C D
began          W P R R C D
returned       W P W W C D
exited         W P C C C D
found running  W P F R C D
found ended    W P F R C D
never started  W P F W C D
found gone     W P F C C D
not thawed     W P F R C D
not frozen     W P F R C D
measured       W P F R C D
frozen         W P F R C D
asked          W P F R C D
copied         W P F R C D
uploaded       W P F R C D
observed       W P F R C D
collected      W P F R D D
advanced       W P F R C D
settled        - - - - - -
ticked         W P F R C D
"""
PAIRS = [
    (line[:14].strip(), stage, letter)
    for line in EXPECTED.strip().splitlines()
    for stage, letter in zip(STAGES, line[14:].split(), strict=True)
]


def in_stage(kind: type[Stage]) -> Stage:
    """A stage in which no lease is alive, so that nothing starts before the event."""
    stages: dict[type[Stage], Stage] = {
        Waiting: Waiting(100.0, 0.0),
        Preparing: Preparing(100.0, 1000.0, ("gpu0",)),
        Following: Following(100.0, 0.0, 100.0),
        Running: Running(100.0, 100.0, 100.0, 0.0, ("gpu0",), adoption_pending=True),
        Collecting: Collecting(100.0),
        Done: Done(100.0),
    }
    return stages[kind]


def machine_with(kind: type[Stage]) -> Machine:
    machine = Machine(Ledger(ROOM), free_gpus={"gpu0", "gpu1"})
    machine.add(LocalAttempt("a", Amount(1.0, GIB, 1, GIB), 60.0, in_stage(kind), can_follow=kind is Following))
    if kind is Following:
        machine.ledger.put_back("a")
    if kind is Collecting:
        machine.ledger.release("a", 100.0)
    return machine


def check(machine: Machine) -> None:
    """Check the invariants of the room and the GPUs."""
    running = {name for name, each in machine.attempts.items() if isinstance(each.stage, Preparing | Running)}
    waiting = {name for name, each in machine.attempts.items() if isinstance(each.stage, Waiting | Following)}
    assert set(machine.ledger.running) == running
    assert set(machine.ledger.waiting) == waiting
    held = [gpu for each in machine.attempts.values() for gpu in each.gpus]
    assert sorted([*held, *machine.free_gpus]) == ["gpu0", "gpu1"]
    queued = {name for name, each in machine.attempts.items() if isinstance(each.stage, Waiting)}
    assert queued <= set(machine.queue)


def test_the_table_has_every_pair_of_event_and_stage() -> None:
    assert set(lifecycle.TABLE) == {*steps.AttemptEvent.__subclasses__(), *steps.NotPrepared.__subclasses__()}
    assert all(tuple(row) == STAGES for row in lifecycle.TABLE.values())
    assert {type(each) for each in EVENTS.values()} == set(lifecycle.TABLE)
    assert {name for name, *_ in PAIRS} == set(EVENTS)


@pytest.mark.parametrize(("event", "stage", "letter"), PAIRS, ids=lambda value: getattr(value, "__name__", value))
def test_a_pair_of_event_and_stage_leads_where_the_table_says(event: str, stage: type[Stage], letter: str) -> None:
    machine = machine_with(stage)
    check(machine)
    lifecycle.handle(machine, [EVENTS[event]], Moment(101.0, 101.0))
    found = type(machine.attempts["a"].stage).__name__[0] if "a" in machine.attempts else "-"
    assert found == letter
    check(machine)


LEASES = st.sampled_from([5.0, 60.0])


class World(RuleBasedStateMachine):
    """A machine with a pretended runner, which carries out instructions at any time and with any allowed outcome."""

    def __init__(self) -> None:
        super().__init__()
        # Jobs are short: those that can follow another program wait with their runner.
        ledger = Ledger(ROOM, average=0.001, streak=32, ended=1000.0, short_seconds=1e9)
        self.machine = Machine(ledger, free_gpus={"gpu0", "gpu1"})
        self.now = 1000.0
        self.number = 0
        self.mark = 0
        #: Programs that are being frozen, and those whose checkpoints are being copied or uploaded.
        self.freezing: list[str] = []
        self.copying: list[str] = []
        self.uploading: list[str] = []
        #: Preparations and results that were requested and are not finished.
        self.preparing: list[str] = []
        self.collecting: list[str] = []
        self.alive: dict[str, set[str]] = {}
        self.following: list[str] = []
        self.starts: Counter[str] = Counter()
        self.ends: Counter[str] = Counter()
        self.frozen: set[str] = set()

    def tell(self, *events: steps.AttemptEvent) -> None:
        for each in lifecycle.handle(self.machine, events, Moment(self.now, self.now)):
            self.carry_out(each)

    def carry_out(self, do: steps.Instruction) -> None:
        name = do.name
        match do:
            case steps.Prepare():
                self.preparing.append(name)
            case steps.Start(start_by=start_by, gpus=gpus):
                assert self.now < start_by, "its lease may have expired"
                self.starts[name] += 1
                assert self.starts[name] == 1, "started twice"
                assert not any(set(gpus) & theirs for theirs in self.alive.values()), "a GPU was given away twice"
                self.alive[name] = set(gpus)
            case steps.Follow():
                self.following.append(name)
            case steps.Recall() if name in self.following:
                self.following.remove(name)
                self.tell(steps.Returned(name))
                assert not self.is_in(Following, name)
            case steps.Signal(word=word):
                if name in self.following:
                    self.following.remove(name)
                    self.tell(steps.Exited(name, Exit(error="ended before it began")))
                elif word == "KILL":
                    self.end(name)
            case steps.Freeze():
                assert name not in self.frozen
                self.frozen.add(name)
                self.freezing.append(name)
            case steps.CopyCheckpoint():
                assert name in self.frozen
                self.copying.append(name)
            case steps.Thaw():
                self.frozen.remove(name)
            case steps.Collect():
                assert name not in self.alive
                self.collecting.append(name)
            case steps.Send() | steps.Forget():
                self.ends[name] += 1
            case steps.Discard():
                self.alive.pop(name, None)
                self.frozen.discard(name)

    def is_in(self, stage: type[Stage], name: str) -> bool:
        return name in self.machine.attempts and isinstance(self.machine.attempts[name].stage, stage)

    def end(self, name: str, code: int = 0) -> None:
        """Its program ends, and one that waits for that begins."""
        if self.alive.pop(name, None) is None:
            return
        self.frozen.discard(name)
        events: list[steps.AttemptEvent] = [steps.Exited(name, Exit(code=code, seconds=0.01))]
        room = self.machine.attempts[name].amount
        fitting = [each for each in self.following if room.covers(self.machine.attempts[each].amount)]
        if fitting and code == 0:
            follower = fitting[0]
            self.following.remove(follower)
            events.append(steps.Began(follower))
            self.starts[follower] += 1
            self.alive[follower] = set()
        self.tell(*events)

    @rule(cpus=st.sampled_from([0.5, 1.0, 2.0]), gpus=st.integers(0, 2), starts_inline=st.booleans(), lease=LEASES)
    def accept(self, cpus: float, gpus: int, starts_inline: bool, lease: float) -> None:
        self.number += 1
        amount = Amount(cpus, GIB, gpus, GIB)
        stage = Waiting(self.now, self.now + lease)
        attempt = LocalAttempt(
            f"a{self.number}", amount, 30.0, stage, starts_inline=starts_inline,
            can_follow=starts_inline and not gpus, watchdog=5.0, every=8.0,
        )  # fmt: skip
        self.machine.add(attempt)
        self.tell()

    @rule(lease=LEASES)
    def accept_short_ones(self, lease: float) -> None:
        for _ in range(4):
            self.accept(1.0, 0, True, lease)

    @rule(seconds=st.sampled_from([0.1, 1.0, 8.0, 40.0]))
    def pass_by(self, seconds: float) -> None:
        self.now += seconds
        self.tell(*[steps.Ticked(name) for name in self.machine.attempts])

    @precondition(lambda self: self.preparing)
    @rule(data=st.data(), how=st.sampled_from(["prepared", "failed", "down"]))
    def prepare(self, data: Any, how: str) -> None:
        name = data.draw(st.sampled_from(self.preparing))
        self.preparing.remove(name)
        event = steps.Prepared(name) if how == "prepared" else steps.NotPrepared(name, how, down=how == "down")
        self.tell(event)
        assert not self.is_in(Preparing, name)

    @precondition(lambda self: self.alive)
    @rule(data=st.data(), code=st.integers(0, 1))
    def exit(self, data: Any, code: int) -> None:
        self.end(data.draw(st.sampled_from(sorted(self.alive))), code)

    @precondition(lambda self: self.collecting)
    @rule()
    def collect(self) -> None:
        self.tell(steps.Collected(self.collecting.pop(0)))

    @precondition(lambda self: self.machine.attempts)
    @rule(data=st.data(), ending=st.sampled_from(list(StopCause)))
    def stop(self, data: Any, ending: StopCause) -> None:
        name = data.draw(st.sampled_from(sorted(self.machine.attempts)))
        self.tell(steps.StopAsked(name, ending, "so"))
        assert not self.is_in(Following, name)

    @precondition(lambda self: self.freezing)
    @rule(asks=st.booleans())
    def be_frozen(self, asks: bool) -> None:
        name = self.freezing.pop(0)
        self.tell(steps.Frozen(name), *([steps.CheckpointAsked(name)] if asks else []))

    @precondition(lambda self: self.copying)
    @rule(complete=st.booleans())
    def copy(self, complete: bool) -> None:
        name = self.copying.pop(0)
        wanted = self.is_in(Running, name) and self.machine.attempts[name].stage.saving is not None  # type: ignore[union-attr]
        self.tell(steps.Copied(name, complete and wanted))
        if self.is_in(Running, name):
            stage: Any = self.machine.attempts[name].stage
            assert stage.saving is None
            assert (name in self.frozen) == (self.machine.frozen is not None or stage.stop is not None) or not wanted
        self.uploading += [name] if complete and wanted else []

    @precondition(lambda self: self.uploading)
    @rule()
    def upload(self) -> None:
        name = self.uploading.pop(0)
        self.tell(steps.Uploaded(name))
        assert not self.is_in(Running, name) or not self.machine.attempts[name].stage.uploading  # type: ignore[union-attr]

    @rule(writes=st.booleans())
    def observe(self, writes: bool) -> None:
        self.mark += writes
        self.tell(*[steps.Observed(name, (self.mark,)) for name in self.machine.attempts])
        for stage in (each.stage for each in self.machine.attempts.values()):
            assert not isinstance(stage, Running) or stage.mark == (self.mark,)
            if isinstance(stage, Running) and stage.stop is None:
                assert stage.used_seconds(self.now) - stage.active <= 5.0

    @rule()
    def renew(self) -> None:
        self.tell(*[steps.Renewed(name, self.now + 55.0, self.now) for name in self.machine.attempts])

    @rule(frozen=st.booleans())
    def freeze(self, frozen: bool) -> None:
        self.machine.frozen = OwnersFreeze() if frozen else None
        self.tell(*[steps.Ticked(name) for name in self.machine.attempts])

    @rule(closed=st.booleans())
    def gate(self, closed: bool) -> None:
        self.machine.gate.close("owner", "paused") if closed else self.machine.gate.open("owner")
        for _ in range(2):  # attempts that wait with their runner are recalled first
            self.tell(*[steps.Ticked(name) for name in self.machine.attempts])
        waits = any(isinstance(each.stage, Waiting | Following) for each in self.machine.attempts.values())
        assert not (closed and waits)

    @invariant()
    def holds(self) -> None:
        check(self.machine)
        assert self.machine.ledger.offered.covers(self.machine.ledger.running.total)
        running = {name for name, each in self.machine.attempts.items() if isinstance(each.stage, Running)}
        assert set(self.alive) == running
        assert max(self.ends.values(), default=0) <= 1, "an end was reported twice"
        assert self.frozen == {name for name in running if self.machine.attempts[name].stage.frozen_at is not None}  # type: ignore[union-attr]

    def teardown(self) -> None:
        """Whatever happened before: when everything is ended, all room is free and everything has had its end."""
        self.tell(*[steps.StopAsked(name, StopCause.RELEASE, "the end") for name in reversed(self.machine.attempts)])
        for _ in range(2):
            self.now += 20.0
            self.tell(*[steps.Ticked(name) for name in self.machine.attempts])
        while self.collecting:
            self.collect()
        ended = [name for name, each in self.machine.attempts.items() if isinstance(each.stage, Done)]
        assert ended == list(self.machine.attempts)
        self.tell(*[steps.Settled(name) for name in ended])
        assert not self.machine.attempts
        assert self.machine.ledger.free() == ROOM
        assert (self.alive, self.machine.free_gpus) == ({}, {"gpu0", "gpu1"})
        assert all(self.ends[f"a{n}"] == 1 for n in range(1, self.number + 1))


SETTINGS = settings(max_examples=150, stateful_step_count=40, deadline=None, print_blob=False)
World.TestCase.settings = SETTINGS
TestAnyOrderOfEvents = World.TestCase


def is_found(event: type[steps.AttemptEvent], stage: type[Stage]) -> bool:
    """Whether the state machine above notices when this event is ignored in this stage."""
    row = lifecycle.TABLE[event] | {stage: lambda *_: ()}
    with mock.patch.dict(lifecycle.TABLE, {event: row}):
        try:
            run_state_machine_as_test(World, settings=settings(SETTINGS, phases=[Phase.generate], derandomize=True))
        except Exception:
            return True
    return False


#: It does no harm if these are ignored: at worst a start comes later, or a result is sent in vain.
HARMLESS = {
    (steps.Renewed, Waiting), (steps.Renewed, Preparing), (steps.Renewed, Following), (steps.Renewed, Running),
    (steps.Prepared, Waiting), (steps.StopAsked, Collecting),
}  # fmt: skip
#: These concern an earlier session, or a runner that fails in a special way, or output that cannot be read, or
#: checkpoints, or disk: see test_agent.py, test_collecting.py, test_checkpoints.py and test_disk_use.py.
ELSEWHERE = {
    (steps.Adopted, Running), (steps.NotFrozen, Running), (steps.NotThawed, Running),
    (steps.NotStarted, Following), (steps.NotStarted, Running),
    (steps.Returned, Running), (steps.Ticked, Preparing), *[(steps.Settled, stage) for stage in STAGES[:-1]],
    (steps.Ticked, Collecting), (steps.Advanced, Collecting),
    (steps.Frozen, Running), (steps.CheckpointAsked, Running), (steps.Uploaded, Running),
    (steps.Measured, Running),
}  # fmt: skip
MOVES = [
    (event, stage)
    for event, row in lifecycle.TABLE.items()
    for stage, move in row.items()
    if move is not lifecycle._ignore and (event, stage) not in HARMLESS | ELSEWHERE
]


@pytest.mark.parametrize(("event", "stage"), MOVES, ids=lambda value: value.__name__)
def test_random_orders_of_events_find_a_missing_transition(event: type[steps.AttemptEvent], stage: type[Stage]) -> None:
    assert is_found(event, stage)
