"""A runner that does what a test says, for tests that drive the real worker in one process."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from deborgen_worker.attempts import Exit, Standing
from deborgen_worker.logs import Log
from deborgen_worker.runners.protocol import CannotStart, Host, Launch, Report
from deborgen_worker.steps import Adopted, Began, Exited, Returned


@dataclass
class Script:
    """What one attempt does. With `exit` it ends as soon as it starts; otherwise when `end` is called."""

    exit: Exit | None = None
    output: bytes = b""
    fails_to_start: str = ""
    ignores_term: bool = False


class MemoryLog:
    """What an attempt has written so far."""

    def __init__(self, outputs: dict[str, bytes], attempt: str) -> None:
        self._outputs, self._attempt = outputs, attempt

    def size(self) -> int:
        return len(self._outputs.get(self._attempt, b""))

    def read(self, offset: int, count: int) -> bytes:
        return self._outputs.get(self._attempt, b"")[offset : offset + count]

    def forget(self, start: int, end: int) -> None:
        pass


@dataclass
class ScriptedRunner:
    """Records its calls in `calls`. `running` outlives the worker if the next worker gets the same object."""

    tell: Report = lambda _events: None
    script: Callable[[Launch], Script] = lambda _launch: Script(exit=Exit(code=0, seconds=0.0))
    name: str = "subprocess"
    calls: list[tuple[str, str]] = field(default_factory=list)
    running: dict[str, Script] = field(default_factory=dict)
    ended: dict[str, Exit] = field(default_factory=dict)
    following: list[Launch] = field(default_factory=list)
    outputs: dict[str, bytes] = field(default_factory=dict)
    trouble: str = ""
    #: The frozen attempts, and how many seconds each program had been stopped before a restart.
    frozen: set[str] = field(default_factory=set)
    stopped: float = 0.0
    #: Whether attempts may wait here for the room of running ones.
    follows: bool = True

    def check(self) -> str:
        return self.trouble

    def describe(self) -> Host:
        return Host(labels={f"runner.{self.name}": True})

    def prepare(self, launch: Launch) -> None:
        self.calls.append(("prepare", launch.attempt))

    def start(self, launch: Launch) -> None:
        self.calls.append(("start", launch.attempt))
        script = self.script(launch)
        if script.fails_to_start:
            raise CannotStart(script.fails_to_start)
        self.running[launch.attempt] = script
        self.outputs[launch.attempt] = script.output
        if script.exit is not None:
            self.end(launch.attempt, script.exit)

    def start_all(self, launches: list[Launch]) -> None:
        for launch in launches:
            self.start(launch)

    def follow(self, launches: list[Launch]) -> None:
        self.calls += [("follow", launch.attempt) for launch in launches]
        if self.running and self.follows:
            self.following += launches
        else:
            self.tell([Returned(launch.attempt) for launch in launches])

    def recall(self, attempt: str) -> None:
        if self._take_out(attempt):
            self.calls.append(("recall", attempt))
            self.tell([Returned(attempt)])

    def end(self, attempt: str, exit_: Exit) -> None:
        """End the program now, and start the first that waits."""
        del self.running[attempt]
        self.ended[attempt] = exit_
        if self.following:
            launch = self.following.pop(0)
            self.tell([Exited(attempt, exit_), Began(launch.attempt)])
            self.start(launch)
        else:
            self.tell([Exited(attempt, exit_)])

    def _take_out(self, attempt: str) -> bool:
        before = len(self.following)
        self.following = [launch for launch in self.following if launch.attempt != attempt]
        return len(self.following) < before

    def adopt(self, launch: Launch) -> Adopted:
        self.calls.append(("adopt", launch.attempt))
        if launch.attempt in self.running or launch.attempt in [each.attempt for each in self.following]:
            return Adopted(launch.attempt, Standing.RUNNING, launch.attempt in self.frozen, self.stopped)
        if launch.attempt in self.ended:
            self.tell([Exited(launch.attempt, self.ended[launch.attempt])])
            return Adopted(launch.attempt, Standing.ENDED)
        begun = launch.attempt in self.outputs
        return Adopted(launch.attempt, Standing.GONE if begun else Standing.NEVER_STARTED)

    def signal(self, attempt: str, name: str) -> None:
        self.calls.append((name, attempt))
        script = self.running.get(attempt)
        if self._take_out(attempt):
            self.tell([Exited(attempt, Exit(error="it was ended before it started"))])
        elif script is not None and (name == "KILL" or not script.ignores_term):
            self.end(attempt, Exit(code=137 if name == "KILL" else 143, seconds=0.0))

    def freeze(self, attempt: str) -> None:
        self.calls.append(("freeze", attempt))
        self.frozen.add(attempt)

    def thaw(self, attempt: str) -> None:
        self.calls.append(("thaw", attempt))
        self.frozen.discard(attempt)

    def is_frozen(self, attempt: str) -> bool:
        return attempt in self.running and attempt in self.frozen

    def log(self, launch: Launch) -> Log:
        return MemoryLog(self.outputs, launch.attempt)

    def discard(self, attempt: str) -> None:
        self.calls.append(("discard", attempt))
        self._take_out(attempt)
        self.running.pop(attempt, None)
        self.ended.pop(attempt, None)

    def cleanup(self, keep: Collection[str]) -> list[str]:
        gone = [attempt for attempt in {**self.running, **self.ended} if attempt not in keep]
        for attempt in gone:
            self.discard(attempt)
        return gone

    def close(self) -> None:
        pass
