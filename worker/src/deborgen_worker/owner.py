"""The owner's commands. They work with the coordinator gone, and hold over a restart."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from deborgen_shared.jobfile.units import format_duration
from deborgen_worker.agent import Agent
from deborgen_worker.attempt import Ending, Stage
from deborgen_worker.contact import Contact
from deborgen_worker.heartbeat import Heart
from deborgen_worker.policy import Pause, PauseFile
from deborgen_worker.runners.protocol import CannotStart


class Owner:
    """Pauses, resumes, drains; looks at what runs. `wall` is the wall clock: pauses are said in people's time."""

    def __init__(
        self, agent: Agent, heart: Heart, contact: Contact, pauses: PauseFile, *, wall: Callable[[], float] = time.time
    ) -> None:
        self._agent, self._heart, self._contact, self._pauses, self._wall = agent, heart, contact, pauses, wall
        #: Held while a pause is applied: the owner's commands and the worker's clock both do that.
        self._applying = threading.Lock()
        #: Called when the coordinator should hear of it now rather than with the next heartbeat.
        self.on_change: Callable[[], None] = lambda: None

    # Pausing

    def pause(self, seconds: float | None, now: bool) -> str:
        until = self._wall() + seconds if seconds is not None else None
        self._pauses.write(Pause(until=until, frozen=now))
        self.apply()
        self.on_change()
        kept = sum(each.stage is Stage.RUNNING for each in self._agent.attempts.values())
        tail = ""
        if kept:
            tail = f"; {kept} running {'is' if kept == 1 else 'are'} frozen" if now else f"; {kept} running will finish"
        return f"paused {self._until(until)}{tail}"

    def resume(self) -> str:
        self._pauses.clear()
        self.apply()
        self.on_change()
        return "open for work"

    def apply(self) -> None:
        """Bring gate and attempts in line with the pause on disk. Called on every tick: a pause may have run out."""
        with self._applying:
            self._apply()

    def _apply(self) -> None:
        pause = self._pauses.read(self._wall())
        gate = self._agent.gate
        if pause is None:
            if gate.open("owner"):
                self._agent.say("the pause is over")
                self._agent.on_room()
            self._thaw()
            return
        if gate.close("owner", f"paused by its owner {self._until(pause.until)}", pause.until):
            self._agent.say(gate.reason)
            self._agent.starter.call_back()
        if pause.frozen:
            self._freeze()

    def _freeze(self) -> None:
        limit = self._agent.settings.freeze_limit or self._heart.lease
        now = self._agent.clock()
        for attempt in list(self._agent.attempts.values()):
            if attempt.stage is not Stage.RUNNING or attempt.ending is not None or attempt.unknown:
                continue
            if attempt.frozen_at is None:
                try:
                    attempt.runner.freeze(attempt.id)
                    attempt.frozen_at = now
                except CannotStart as error:
                    self._agent.say(f"{attempt.id} cannot be frozen here ({error}): it is given back")
                    self._agent.end(attempt.id, Ending.RELEASE, "paused by its owner")
            elif now - attempt.frozen_at > limit:
                self._agent.say(f"{attempt.id} was frozen for longer than {format_duration(limit)}: it is given back")
                self._agent.end(attempt.id, Ending.RELEASE, "paused by its owner for longer than its lease")

    def _thaw(self) -> None:
        for attempt in list(self._agent.attempts.values()):
            if attempt.frozen_at is not None and attempt.ending is None:
                try:
                    attempt.runner.thaw(attempt.id)
                except CannotStart as error:
                    self._agent.say(f"{attempt.id} cannot be woken: {error}")
                    continue
                attempt.frozen_seconds += self._agent.clock() - attempt.frozen_at
                attempt.frozen_at = None

    def _until(self, until: float | None) -> str:
        if until is None:
            return "until resumed"
        return "until " + time.strftime(
            "%Y-%m-%d %H:%M" if until - self._wall() > 43200 else "%H:%M", time.localtime(until)
        )

    # Giving back

    def release_all(self, reason: str) -> None:
        """Give back everything that is not finished. Nobody loses an attempt by it."""
        for name in reversed(
            list(self._agent.attempts)
        ):  # the last ones first: none begins because one before it ended
            self._agent.end(name, Ending.RELEASE, reason)

    # Looking

    def headline(self) -> str:
        """What the worker is doing, in one line."""
        agent = self._agent
        with agent.lock:
            running = sorted(each.id for each in agent.attempts.values() if each.on_machine)
        if running:
            doing = f"running {', '.join(running[:4])}" + (f" and {len(running) - 4} more" if len(running) > 4 else "")
        elif agent.gate.closed:
            doing = agent.gate.reason
        else:
            doing = "idle, waiting for work"
        if running and agent.gate.closed:
            doing += f"; no new work: {agent.gate.reason}"
        unsent = len(agent.spool.unsent())
        if unsent and self._contact.lost_since is not None:
            doing += f"; {unsent} results wait to be sent"
        return f"{doing}; {self.last_contact()}"

    def last_contact(self) -> str:
        if self._contact.last is None:
            return "no contact with the coordinator yet"
        ago = self._agent.clock() - self._contact.last
        return f"last contact {ago:.0f} s ago" if ago < 120 else f"last contact {format_duration(round(ago))} ago"

    def status(self) -> dict[str, Any]:
        agent = self._agent
        now = agent.clock()
        with agent.lock:
            attempts = [
                {
                    "attempt": each.id,
                    "name": each.assignment.name,
                    "submitter": each.assignment.submitter,
                    "stage": "frozen" if each.frozen_at is not None else each.stage.value,
                    "runner": each.runner.name,
                    "seconds": round(each.used_seconds(now), 1) if each.started and each.on_machine else 0,
                    "cpus": each.amount.cpus,
                    "memory": each.amount.memory,
                }
                for each in agent.attempts.values()
            ]
            free, offered = agent.ledger.free(), agent.ledger.offered
        return {
            "headline": self.headline(),
            "name": agent.settings.name,
            "coordinator": agent.settings.coordinator,
            "state": agent.gate.state,
            "reason": agent.gate.reason,
            "last_contact_seconds": None if self._contact.last is None else round(now - self._contact.last, 1),
            "attempts": attempts,
            "unsent": len(agent.spool.unsent()),
            "offered": {"cpus": offered.cpus, "memory": offered.memory, "gpus": offered.gpus},
            "free": {"cpus": free.cpus, "memory": free.memory, "gpus": free.gpus},
        }
