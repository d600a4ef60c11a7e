"""What really happened in the simulation: which programs ran, what they wrote, and how they ended."""

from __future__ import annotations

import dataclasses
import hashlib
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deborgen_shared.messages import Result
from deborgen_shared.states import Phase

if TYPE_CHECKING:
    from support.simulation import World
    from support.simulation_life import Life
    from support.simulation_machine import Machine


#: A program that is to be stopped has ended after this many seconds: two heartbeats.
STOP_SECONDS = 20.0


class Violation(BaseException):
    """A broken rule. No code of the product may catch it."""


@dataclass(frozen=True)
class Plan:
    """What the program of a job does, wherever and however often it runs."""

    seconds: float
    code: int
    lines: int
    artifact: bool
    ignores_term: bool
    #: If its job is in a loop: the first round that its check verifies.
    verified_at: int = 0

    @classmethod
    def draw(cls, chance: random.Random) -> Plan:
        return cls(
            seconds=chance.choice([0.5, 3.0, 20.0, 60.0, 100.0, 400.0]),
            code=chance.choice([0, 0, 0, 0, 0, 1, 137]),
            lines=chance.choice([0, 3, 40]),
            artifact=chance.random() < 0.4,
            ignores_term=chance.random() < 0.2,
        )

    def code_in(self, env: Mapping[str, str]) -> int:
        """How the program ends: a check of a loop answers, and everything else does as planned."""
        if env.get("DEBORGEN_PHASE") == Phase.VERIFY:
            return int(int(env["DEBORGEN_ROUND"]) < self.verified_at)
        return self.code

    def in_loop(self, document: dict[str, Any], chance: random.Random) -> tuple[Plan, dict[str, Any]]:
        """The same job, or the first of its steps, in a loop."""
        repeat = {"repeat": {"until": ["pretend"], "most": 3}}
        first, *rest = document.get("steps", [document])
        document = {**document, "steps": [first | repeat, *rest]} if rest else document | repeat
        return dataclasses.replace(self, verified_at=chance.randint(1, 4), seconds=min(self.seconds, 60.0)), document

    def output(self, attempt: str) -> bytes:
        """Every attempt writes its own name, so that bytes in the wrong log are seen."""
        return b"".join(b"%s line %d \xff\n" % (attempt.encode(), n) for n in range(self.lines))

    def events(self, attempt: str) -> list[str]:
        """The types of its own events. Every attempt writes its own name here too."""
        return [f"{attempt} event {number}" for number in range(self.lines // 3)]

    def artifact_bytes(self, attempt: str) -> bytes:
        return f"made by {attempt}\n".encode()

    def document(self, chance: random.Random) -> dict[str, Any]:
        document: dict[str, Any] = {"run": ["pretend"], "timeout": "5m", "max_attempts": 40, "retry": {"backoff": "1s"}}
        if chance.random() < 0.1:
            document["max_attempts"] = 1
        if self.artifact:
            document["artifacts"] = ["out.txt"]
        return document


@dataclass
class Fact:
    """One program that ran."""

    machine: str
    boots: int
    began: float
    output: bytes | None = None
    code: int | None = None
    events: list[str] = field(default_factory=list)


@dataclass
class Truth:
    """What the programs and machines really did. It raises `Violation` if what the product says differs from it."""

    world: World
    facts: dict[str, Fact] = field(default_factory=dict)
    boots: dict[str, int] = field(default_factory=dict)
    sent: set[str] = field(default_factory=set)
    #: Attempts that a worker was told to stop: by when, on which machine, in which life of its worker.
    stops: list[tuple[float, Machine, Life | None, str]] = field(default_factory=list)

    def started(self, attempt: str, machine: Machine) -> None:
        self.world.tell(f"{machine.name}: program of {attempt} starts")
        if attempt in self.facts:
            raise Violation(f"the program of {attempt} was started twice")
        if self.world.lease_is_over(attempt):
            raise Violation(f"the program of {attempt} was started after its lease was over")
        if attempt.partition("/")[0] in self.world.promised:
            raise Violation(f"{attempt} was started after its job had been canceled")
        self.world.check_loop(attempt)
        self.facts[attempt] = Fact(machine.name, self.boots.get(machine.name, 0), self.world.now)

    def found(self, attempt: str, path: Path, made_by: str) -> None:
        """A program of a loop begins, and must find the artifact that this attempt has made."""
        if not path.exists() or path.read_bytes() != b"made by %s\n" % made_by.encode():
            raise Violation(f"{attempt} does not find the artifact of {made_by} as {path.name}")

    def ended(self, attempt: str, output: bytes, code: int | None) -> None:
        """`code` is the program's own; None if it was killed, or its machine died."""
        fact = self.facts[attempt]
        if fact.output is None:
            fact.output, fact.code = output, code
            self.world.tell(f"{fact.machine}: program of {attempt} ends ({'killed' if code is None else code})")

    def rebooted(self, machine: Machine) -> None:
        self.boots[machine.name] = self.boots.get(machine.name, 0) + 1

    def result_sent(self, result: Result) -> None:
        """The worker sends a result, which must be true."""
        self.sent.add(result.attempt)
        fact = self.facts.get(result.attempt)
        if result.outcome == "succeeded" and (fact is None or fact.code != 0):
            raise Violation(f"{result.attempt} is reported as succeeded, but its program {self._words(fact)}")
        if result.outcome == "failed" and (fact is None or fact.code != result.exit_code):
            raise Violation(f"{result.attempt} is reported as failed {result.exit_code}; it {self._words(fact)}")
        if result.outcome == "timeout" and result.seconds < 300.0:
            raise Violation(f"{result.attempt} is reported as timed out after {result.seconds:.0f} s of 300")

    @staticmethod
    def _words(fact: Fact | None) -> str:
        if fact is None:
            return "never ran"
        return "was killed" if fact.code is None else f"ended with {fact.code}"

    def got_answers(self, machine: Machine, answers: dict[str, str]) -> None:
        """The worker got these answers: an attempt that it is told to stop is gone within two heartbeats."""
        for attempt, word in answers.items():
            if word == "stop":
                self.stops.append((self.world.now + STOP_SECONDS, machine, machine.life, attempt))

    def check_stops(self) -> None:
        for due in [each for each in self.stops if each[0] <= self.world.now]:
            self.stops.remove(due)
            _, machine, life, attempt = due
            program = machine.programs.get(attempt)
            if program is not None and program.running and machine.life is life and machine.awake:
                raise Violation(f"{attempt} still runs on {machine.name}, which was told to stop it")

    def check_log(self, attempt: str, stored: bytes, whole: bool) -> None:
        fact = self.facts.get(attempt)
        written = fact.output if fact is not None and fact.output is not None else b""
        rest = stored[len(written) :]
        if stored.startswith(written) and (not rest or rest.startswith(b"[deborgen: ")):
            return
        if whole:
            raise Violation(f"the log of {attempt} is not what it wrote: {stored[-200:]!r} for {written[-200:]!r}")
        if not written.startswith(stored):
            raise Violation(f"the log of {attempt} has bytes that it did not write: {stored!r} for {written!r}")

    def wrote_events(self, attempt: str, types: list[str]) -> None:
        self.facts[attempt].events += types

    def check_event(self, attempt: str, number: int, type_: str, known: int) -> None:
        """The history has a new event of the attempt's program, after this many others."""
        fact = self.facts.get(attempt)
        if number != known or fact is None or fact.events[number : number + 1] != [type_]:
            raise Violation(f"the history has event {number} of {attempt}, {type_!r}, after {known} others: {fact}")

    def check_events(self, attempt: str, known: int) -> None:
        """The attempt has its result: no event of its program is missing."""
        fact = self.facts.get(attempt)
        if fact is not None and known < len(fact.events):
            raise Violation(f"{attempt} has its result, but only {known} of its {len(fact.events)} events")

    def check_artifact(self, attempt: str, plan: Plan, digest: str) -> None:
        if hashlib.sha256(plan.artifact_bytes(attempt)).hexdigest() != digest:
            raise Violation(f"the artifact of {attempt} is not what its program wrote")
