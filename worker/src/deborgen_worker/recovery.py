"""At a start, deliver the results of finished attempts, adopt running attempts, and give up the others at once.

Three sources say what an earlier session left: the spool, the runners (which recognise their own programs), and the
kernel's boot id. After a reboot, only the results in the spool are left.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from deborgen_shared.states import Outcome
from deborgen_worker.agent import Agent
from deborgen_worker.attempts import Done, Running, Standing, Stop, StopCause, Waiting
from deborgen_worker.execution import Execution
from deborgen_worker.journal import SpoolFullError
from deborgen_worker.lifecycle import Machine
from deborgen_worker.runners.protocol import CannotStart, RunnerDown
from deborgen_worker.spool import Entry, Spool
from deborgen_worker.steps import Adopted


@dataclass
class Recovered:
    """What the worker reports when it registers: attempts that it still has, and attempts that are gone."""

    held: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)


def recover(agent: Agent, spool: Spool, boot: str, say: Callable[[str], None]) -> Recovered:
    """Restore the attempts of the earlier session."""
    for request in sorted(spool.requests):
        # The request's answer is lost. If it brought attempts, the registration does not name them, and the coordinator
        # releases them.
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
            say(f"{name} is gone without a trace, giving it up")
            agent.settle({name: Outcome.LOST})
            found.gone.append(name)
    agent.cleanup()
    return found


def _take_up(agent: Agent, name: str, entry: Entry, say: Callable[[str], None]) -> bool:
    now = agent.clock()
    # An attempt that was never started waits until a heartbeat has renewed its lease.
    stage: Waiting | Running | Done = Waiting(now, 0.0)
    if entry.result is not None:
        stage = Done(now)
    elif entry.runner:
        # Reserve its room first, so that no other attempt gets it. If the program has ended, the room is freed at once.
        stage = Running(entry.started, entry.began, now, gpus=tuple(entry.gpus), adoption_pending=True)
        if entry.ending:
            stage.stop = Stop(StopCause(entry.ending), entry.reason, now)
    try:
        execution = agent.add(entry.assignment, stage)
    except CannotStart as error:
        if entry.result is None:
            say(f"{name} cannot continue here: {error}")
            return False
        agent.deliver_result(name)  # its result can still be sent
        return True
    if entry.result is not None:
        execution.notes = entry.notes.encode()
        agent.deliver_result(name)
    return not entry.runner or entry.result is not None or _ask_runner(agent, execution, say, bool(entry.ending))


def _ask_runner(agent: Agent, execution: Execution, say: Callable[[str], None], ended: bool = False) -> bool:
    """Ask the runner what became of an attempt. False if the attempt's program is gone.

    If we `ended` it ourselves, for example because the owner stopped the worker, its result says so.
    """
    try:
        found = execution.runner.adopt(execution.launch)
    except RunnerDown as error:
        say(f"{execution.runner.name} cannot say what became of {execution.id}: {error}; retrying")
        return True
    if found.standing is Standing.GONE and not ended:
        return False
    if found.standing in {Standing.RUNNING, Standing.ENDED}:
        runs = found.standing is Standing.RUNNING
        say(f"{execution.id} {'is still running' if runs else 'ended while no worker was running'}")
    agent.handle([found])
    return True


def retry_adoptions(agent: Agent, say: Callable[[str], None]) -> None:
    """Ask again about attempts whose runner did not answer at the start."""

    def pending(machine: Machine, executions: Mapping[str, Execution]) -> list[Execution]:
        stages = {name: attempt.stage for name, attempt in machine.attempts.items()}
        return [
            executions[name] for name, stage in stages.items() if isinstance(stage, Running) and stage.adoption_pending
        ]

    for execution in agent.read_state(pending):
        if not _ask_runner(agent, execution, say):
            agent.handle([Adopted(execution.id, Standing.GONE)])
