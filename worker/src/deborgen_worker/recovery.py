"""At a start: deliver what finished, adopt what still runs, give up the rest at once.

Three witnesses tell what an earlier session left: the spool, the runners (who know their own by their mark), and the
kernel's boot id. After a reboot only a result that was already in the spool counts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from deborgen_shared.states import Outcome
from deborgen_worker.agent import Agent
from deborgen_worker.attempts import Done, Ending, Running, Standing, Stop, Waiting
from deborgen_worker.execution import Execution
from deborgen_worker.journal import SpoolFullError
from deborgen_worker.lifecycle import Machine
from deborgen_worker.runners.protocol import CannotStart, RunnerDown
from deborgen_worker.spool import Entry, Spool
from deborgen_worker.steps import Adopted


@dataclass
class Recovered:
    """What is said at registration: the attempts that are still held, and those that may have run and are gone."""

    held: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)


def recover(agent: Agent, spool: Spool, boot: str, say: Callable[[str], None]) -> Recovered:
    """Bring the agent to where the earlier session was."""
    for request in sorted(spool.requests):
        # Its answer is not known, and what it brought is not named at registration: the coordinator takes it back.
        with contextlib.suppress(SpoolFullError):
            spool.claim_answered(request, [])
    found = Recovered()
    for name, entry in list(spool.entries.items()):
        if entry.result is None and entry.boot != boot:
            say(f"{name} was lost when this machine was restarted")
            agent.settle({name: "lost by reboot"})
            found.gone.append(name)
        elif _take_up(agent, name, entry, say):
            found.held.append(name)
        else:
            say(f"{name} is gone without a trace: it is given up")
            agent.settle({name: Outcome.LOST})
            found.gone.append(name)
    agent.sweep()
    return found


def _take_up(agent: Agent, name: str, entry: Entry, say: Callable[[str], None]) -> bool:
    now = agent.clock()
    stage: Waiting | Running | Done = Waiting(
        now, 0.0
    )  # never started: it waits until a heartbeat has renewed its lease
    if entry.result is not None:
        stage = Done(now)
    elif entry.runner:
        # The room is taken first, so that nothing else is started in it; what is over gives it back at once.
        stage = Running(entry.started, entry.began, now, gpus=tuple(entry.gpus), unknown=True)
        if entry.ending:
            stage.stop = Stop(Ending(entry.ending), entry.reason, now)
    try:
        made = agent.add(entry.assignment, stage)
    except CannotStart as error:
        if entry.result is None:
            say(f"{name} cannot go on here: {error}")
            return False
        agent.deliver(name)  # but it can be told how it ended
        return True
    if entry.result is not None:
        made.notes = entry.notes.encode()
        agent.deliver(name)
    return not entry.runner or entry.result is not None or _ask(agent, made, say)


def _ask(agent: Agent, made: Execution, say: Callable[[str], None]) -> bool:
    """Ask its runner what became of it. False if it is gone."""
    try:
        found = made.runner.adopt(made.launch)
    except RunnerDown as error:
        say(f"{made.runner.name} does not say what became of {made.id}: {error}; asking again")
        return True
    if found.standing is Standing.GONE:
        return False
    if found.standing is not Standing.NEVER_STARTED:
        runs = found.standing is Standing.RUNNING
        say(f"{made.id} {'still runs: it goes on' if runs else 'ended while the worker was away'}")
    agent.handle([found])
    return True


def ask_again(agent: Agent, say: Callable[[str], None]) -> None:
    """For attempts whose runner did not answer at the start."""

    def unknown(machine: Machine, executions: Mapping[str, Execution]) -> list[Execution]:
        stages = {name: attempt.stage for name, attempt in machine.attempts.items()}
        return [executions[name] for name, stage in stages.items() if isinstance(stage, Running) and stage.unknown]

    for made in agent.look(unknown):
        if not _ask(agent, made, say):
            agent.handle([Adopted(made.id, Standing.GONE)])
