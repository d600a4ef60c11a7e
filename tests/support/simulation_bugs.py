"""Bugs to plant: each a small patch of the product's source, applied while a test runs.

A patch names the text that it replaces. When the product has moved on and the text is gone, the test says so.
"""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any, NamedTuple
from unittest import mock

from deborgen_coordinator import leases
from deborgen_coordinator.operations import claims, endings, finish, logs, sweep, workers
from deborgen_coordinator.storage import attempts, jobs
from deborgen_worker import agent, outbox, recovery
from deborgen_worker import claims as worker_claims


class Patch(NamedTuple):
    module: ModuleType
    where: str
    old: str
    new: str


BUGS: dict[str, list[Patch]] = {
    "no fence: a result is taken whoever holds the lease": [
        Patch(finish, "_finish_one", "(not held.live or not held.current or held.session != session)", "False"),
        Patch(attempts, "end", ' AND outcome IS NULL"', '"'),
        Patch(jobs, "finish", " AND state = 'running' AND last_attempt = ?", " AND ? > 0"),
        Patch(jobs, "requeue", " AND state = 'running' AND last_attempt = ?", " AND ? > 0"),
    ],
    "no idempotent claim: a repeated request gets other jobs": [
        Patch(claims, "_claim", "if before is not None:", "if False:"),
        Patch(attempts, "new_claim", "(worker_id, request_id, now)", "(worker_id, request_id + str(id(tx)), now)"),
    ],
    "no confirmation: a program is started before its attempt is confirmed": [
        Patch(
            worker_claims, "Claimer.step", "(self._heart.ask_confirm if pending.ahead else self._confirm)(names)",
            'agent.told(dict.fromkeys(names, "continue"))',
        ),
    ],
    "no boot check: what ran before a reboot is believed to have succeeded": [
        Patch(recovery, "recover", "entry.boot != boot", "False"),
    ],
    "result before artifacts: a result is taken while its blobs are missing": [
        Patch(finish, "_finish_one", "    if lacking:", "    if False:"),
        Patch(outbox, "Outbox._complete", "if result.artifacts:", "if False:"),
    ],
    "lease counted while stopped: time in which nobody was answered counts": [
        Patch(leases, "turn", "elapsed > late or elapsed < 0", "False"),
    ],
    "lease not renewed at a start: it may expire before anybody could renew it": [
        Patch(sweep, "Sweeper._move_clock", "if moved.regrant:", "if False:"),
        Patch(leases, "turn", "return Turn(0.0, regrant=True)", "return Turn(elapsed or 55.0, regrant=False)"),
    ],
    "result told before it is durable": [
        Patch(outbox, "Outbox.step", "self._agent.spool.commit()", "pass"),
        Patch(outbox, "Outbox.step_uploads", "self._agent.spool.commit()", "pass"),
    ],
    "cancel forgotten: a lost job whose cancel was asked for is tried again": [
        Patch(leases, "verdict", "if cancel_requested and (", "if False and ("),
        Patch(leases, "verdict", "and not cancel_requested:", ":"),
    ],
    "a released attempt is charged": [
        Patch(leases, "verdict", "refund=True", "refund=False"),
    ],
    "log bytes that were sent twice are stored twice": [
        Patch(logs, "append", "data[held.log_size - offset :]", "data"),
    ],
    "a restarted worker forgets to say what it holds": [
        Patch(recovery, "recover", "    return held", "    return []"),
    ],
    "a worker that is told to stop goes on": [
        Patch(agent, "Agent.told", 'elif word == "stop":', 'elif word == "never":'),
    ],
    "an unconfirmed attempt counts as lost": [
        Patch(endings, "give_up", "release or not attempt.confirmed", "release"),
    ],
    "a worker blames the program that it has killed itself": [
        Patch(agent, "Agent.end", "self.spool.stopped(name, ending.value, reason)", "pass"),
    ],
    "anybody may take up a lost attempt, also when its job is somebody else's": [
        Patch(workers, "_may_resume", "and held.job_state is State.QUEUED", ""),
        Patch(workers, "_may_resume", "and held.current", ""),
        Patch(jobs, "resume", " AND state = 'queued' AND last_attempt = ?", " AND ? > 0"),
    ],
}  # fmt: skip

#: Bugs that a test of its own finds; the simulation is not asked to.
MORE: dict[str, list[Patch]] = {
    "a result is new every time": [
        Patch(finish, "_finish_one", "not held.live and held.digest == digest", "False"),
    ],
    "the lease clock is the wall clock": [
        Patch(sweep, "Sweeper.turn", "self._ctx.clock.steady()", "self._ctx.clock.wall()"),
        Patch(leases, "turn", "elapsed > late or elapsed < 0", "False"),
    ],
    "nothing is poison": [
        Patch(leases, "verdict", "lost_on >= POISON_MACHINES", "False"),
    ],
}  # fmt: skip


def _source(function: Any) -> str:
    return textwrap.dedent(inspect.getsource(function))


@contextmanager
def planted(name: str) -> Iterator[None]:
    """The product with this bug in it."""
    texts: dict[tuple[ModuleType, str], str] = {}
    for module, where, old, new in (BUGS | MORE)[name]:
        holder: Any = module
        for part in where.split("."):
            holder = getattr(holder, part)
        text = texts.get((module, where)) or _source(holder)
        assert old in text, f"{module.__name__}.{where} does not have {old!r} any more"
        texts[module, where] = text.replace(old, new)
    with ExitStack() as stack:
        for (module, where), text in texts.items():
            namespace = dict(vars(module))
            exec(compile(text, f"<planted in {where}>", "exec"), namespace)
            *path, last = where.split(".")
            holder = module
            for part in path:
                holder = getattr(holder, part)
            made = namespace[last]
            for user in [holder] if path else _users(getattr(module, last)):
                stack.enter_context(mock.patch.object(user, last, made))
        yield


def _users(function: Any) -> list[ModuleType]:
    """Every module of the product that has imported the function by its name."""
    return [
        module
        for name, module in list(sys.modules.items())
        if name.startswith(("deborgen_coordinator", "deborgen_worker"))
        and getattr(module, function.__name__, None) is function
    ]
