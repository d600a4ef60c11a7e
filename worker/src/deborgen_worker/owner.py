"""The owner's commands. They work without the coordinator, and a pause survives a restart."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from deborgen_shared.jobfile.units import format_duration
from deborgen_worker.agent import Agent
from deborgen_worker.attempts import Collecting, Done, Following, LocalAttempt, Preparing, Running, Waiting
from deborgen_worker.contact import Contact
from deborgen_worker.execution import Execution
from deborgen_worker.lifecycle import Machine, OwnersFreeze
from deborgen_worker.policy import PauseFile, outside
from deborgen_worker.settings import WorkerSettings
from deborgen_worker.spool import Spool


class Owner:
    """Pauses, resumes, and describes what the worker does. Pauses are on the wall clock."""

    def __init__(
        self, settings: WorkerSettings, agent: Agent, spool: Spool, contact: Contact, pauses: PauseFile,
        *, wall: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        self._settings, self._agent, self._spool, self._contact = settings, agent, spool, contact
        self._pauses, self._wall = pauses, wall
        #: Held while a pause begins, ends or is applied, so that no tick wakes programs in between.
        self._lock = threading.RLock()

    # Pausing

    def pause(self, seconds: float | None, now: bool) -> str:
        since = self._wall()
        until = since + seconds if seconds is not None else None
        with self._lock:
            if now:  # first of all: the disk may be slow
                self._agent.set_frozen(OwnersFreeze((seconds or 0.0) > self._settings.keep_frozen))
            self._pauses.write(until, now, since)
            self.apply()
        kept = self._agent.read_state(
            lambda machine, _: sum(isinstance(each.stage, Running) for each in machine.attempts.values())
        )
        tail = ""
        if kept:
            jobs = f"{kept} running {'job' if kept == 1 else 'jobs'}"
            finish = format_duration(round(self._settings.finish))
            will = f"{jobs} may finish within {finish}, then {'it is' if kept == 1 else 'they are'} frozen"
            tail = f"; {jobs} {'is' if kept == 1 else 'are'} frozen" if now else f"; {will}"
        return f"paused {self._until(until)}{tail}"

    def resume(self) -> str:
        with self._lock:
            self._pauses.clear()
            self.apply()
        return "open for work"

    def apply(self) -> None:
        """Apply the pause file and the hours. Every tick calls this, because either may have run out."""
        with self._lock:
            self._apply()

    def _apply(self) -> None:
        now, settings = self._wall(), self._settings
        pause, closed = self._pauses.read(now), outside(settings.hours, datetime.fromtimestamp(now))
        if pause is None:
            self._agent.set_gate("owner", "")
        else:
            self._agent.set_gate("owner", f"paused by its owner {self._until(pause.until)}", pause.until)
        if closed is None:
            self._agent.set_gate("hours", "")
        else:
            words = f"its owner offers it only at {settings.hours}"
            self._agent.set_gate("hours", words, float(round(now + closed.opens_in)))
        over = closed is not None and closed.since >= settings.finish
        frozen = pause is not None and (pause.frozen or now - (pause.since or now) >= settings.finish)
        left = [pause.until - now] if frozen and pause is not None and pause.until is not None else []
        left += [closed.opens_in] if over and closed is not None else []
        is_long = max(left, default=0.0) > settings.keep_frozen
        self._agent.set_frozen(OwnersFreeze(is_long, over) if frozen or over else None)

    def _until(self, until: float | None) -> str:
        if until is None:
            return "until resumed"
        return "until " + time.strftime(
            "%Y-%m-%d %H:%M" if until - self._wall() > 43200 else "%H:%M", time.localtime(until)
        )

    # Status

    def headline(self) -> str:
        """What the worker is doing right now, in one line."""
        running, reason = self._agent.read_state(
            lambda machine, _: (
                sorted(name for name, attempt in machine.attempts.items() if attempt.on_machine),
                machine.gate.reason if machine.gate.closed else "",
            )
        )
        if running:
            doing = f"running {', '.join(running[:4])}" + (f" and {len(running) - 4} more" if len(running) > 4 else "")
            doing += f"; no new work: {reason}" if reason else ""
        else:
            doing = reason or "idle, waiting for work"
        unsent = len(self._spool.unsent())
        if unsent and self._contact.lost_since is not None:
            doing += f"; {unsent} results not sent yet"
        return f"{doing}; {self.last_contact()}"

    def last_contact(self) -> str:
        if self._contact.last is None:
            return "no contact with the coordinator yet"
        ago = self._agent.clock() - self._contact.last
        return f"last contact {ago:.0f} s ago" if ago < 120 else f"last contact {format_duration(round(ago))} ago"

    def status(self) -> dict[str, Any]:
        now = self._agent.clock()

        def view(machine: Machine, executions: Mapping[str, Execution]) -> dict[str, Any]:
            free, offered = machine.ledger.free(), machine.ledger.offered
            return {
                "state": machine.gate.state,
                "reason": machine.gate.reason,
                "attempts": [_described(each, executions[each.name], now) for each in machine.attempts.values()],
                "offered": {"cpus": offered.cpus, "memory": offered.memory, "gpus": offered.gpus},
                "free": {"cpus": free.cpus, "memory": free.memory, "gpus": free.gpus},
            }

        return {
            "headline": self.headline(),
            "name": self._settings.name,
            "coordinator": self._settings.coordinator,
            "last_contact_seconds": None if self._contact.last is None else round(now - self._contact.last, 1),
            "unsent": len(self._spool.unsent()),
            **self._agent.read_state(view),
        }


#: The stages as the owner sees them.
WORDS = {
    Waiting: "waiting", Preparing: "preparing", Following: "next", Running: "running", Collecting: "collecting",
    Done: "ended",
}  # fmt: skip


def _described(attempt: LocalAttempt, execution: Execution, now: float) -> dict[str, Any]:
    running = attempt.stage if isinstance(attempt.stage, Running) else None
    frozen = running is not None and running.frozen_at is not None
    saving = running is not None and running.saving is not None
    return {
        "attempt": attempt.name,
        "name": execution.assignment.name,
        "submitter": execution.assignment.submitter,
        "stage": "saving" if saving else "frozen" if frozen else WORDS[type(attempt.stage)],
        "runner": execution.runner.name,
        "seconds": round(running.used_seconds(now), 1) if running is not None else 0,
        "cpus": attempt.amount.cpus,
        "memory": attempt.amount.memory,
    }
