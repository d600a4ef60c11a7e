"""At a start: deliver what finished, adopt what still runs, give up the rest at once.

Three witnesses tell what an earlier session left: the spool, the runners (who know their own by their mark), and the
kernel's boot id. After a reboot only a result that was already in the spool counts.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field

from deborgen_shared.states import Outcome
from deborgen_worker.agent import Agent
from deborgen_worker.attempt import Attempt, Ending, Stage
from deborgen_worker.journal import SpoolFullError
from deborgen_worker.runners.protocol import CannotStart, Exit, RunnerDown, Standing
from deborgen_worker.spool import Entry


@dataclass
class Recovered:
    """What is said at registration: the attempts that are still held, and those that may have run and are gone."""

    held: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)


def recover(agent: Agent, boot: str) -> Recovered:
    """Bring the agent to where the earlier session was."""
    for request in sorted(agent.spool.requests):
        # Its answer is not known, and what it brought is not named at registration: the coordinator takes it back.
        with contextlib.suppress(SpoolFullError):
            agent.spool.claim_answered(request, [])
    found = Recovered()
    for name, entry in list(agent.spool.entries.items()):
        if entry.result is None and entry.boot != boot:
            agent.say(f"{name} was lost when this machine was restarted")
            agent.forget({name: "lost by reboot"})
            found.gone.append(name)
        elif _take_up(agent, name, entry):
            found.held.append(name)
        else:
            agent.say(f"{name} is gone without a trace: it is given up")
            agent.forget({name: Outcome.LOST})
            found.gone.append(name)
    _sweep(agent)
    return found


def _take_up(agent: Agent, name: str, entry: Entry) -> bool:
    try:
        attempt = agent.build(entry.assignment)
    except CannotStart as error:
        if entry.result is None:
            agent.say(f"{name} cannot go on here: {error}")
            return False
        agent.on_result([name])  # but it can be told how it ended
        return True
    with agent.lock:
        agent.wait(attempt)
        attempt.waiting_since = agent.clock()
    if entry.result is not None:
        attempt.stage, attempt.started = Stage.ENDED, entry.started
        attempt.log.finish(entry.notes.encode())
        agent.ledger.end(name, agent.clock())
        agent.on_result([name])
        return True
    if not entry.runner:
        return True  # never started: it waits until a heartbeat has renewed its lease
    attempt.started, attempt.began = entry.started, entry.began
    if entry.ending:
        attempt.ending, attempt.ending_reason = Ending(entry.ending), entry.reason
    # The room is taken first, so that nothing else is started in it; what is over gives it back at once.
    agent.ledger.adopt(name)
    agent.starter.give_gpus(attempt, entry.gpus)
    attempt.stage = Stage.RUNNING
    try:
        return adopt(agent, attempt)
    except RunnerDown as error:
        attempt.unknown = True
        agent.say(f"{attempt.runner.name} does not say what became of {name}: {error}; asking again")
        return True


def adopt(agent: Agent, attempt: Attempt) -> bool:
    """Ask the runner what became of an attempt. False if it is lost."""
    standing = attempt.runner.adopt(attempt.launch)
    attempt.unknown = False
    match standing:
        case Standing.RUNNING:
            agent.say(f"{attempt.id} still runs: it goes on")
            if attempt.ending is not None:
                agent.end_again(attempt)
        case Standing.ENDED:
            agent.say(f"{attempt.id} ended while the worker was away")
        case Standing.NEVER_STARTED:
            with agent.lock:
                agent.ledger.back(attempt.id)
                agent.starter.give_gpus(attempt, ())
                attempt.stage, attempt.started, attempt.began = Stage.WAITING, 0.0, 0.0
                attempt.preparing = True  # something of it may lie about: it is discarded with it
                agent.starter.turn.append(attempt.id)
        case Standing.GONE:
            return False
    return True


def ask_again(agent: Agent) -> None:
    """For attempts whose runner did not answer at the start."""
    for attempt in [each for each in list(agent.attempts.values()) if each.unknown]:
        with contextlib.suppress(RunnerDown):
            if not adopt(agent, attempt):
                agent.exited([(attempt.id, Exit(error="it was gone when the runner answered again"))])


def _sweep(agent: Agent) -> None:
    """Remove what carries our mark and belongs to nothing that we hold, and folders of attempts that are settled."""
    for runner in agent.runners.values():
        with contextlib.suppress(CannotStart, RunnerDown):
            for gone in runner.sweep(agent.attempts):
                agent.say(f"removed what was left of {gone}")
    folders = {agent.spool.folder(name) for name in agent.spool.entries}
    for folder in agent.spool.folders.root.iterdir():
        if folder not in folders and not agent.settings.keep_failed:
            agent.remove(folder)
