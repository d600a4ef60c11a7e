"""Uploads the checkpoints of running jobs, one after the other."""

from __future__ import annotations

from collections.abc import Mapping

from deborgen_shared.client.transport import NoAnswer, Refused
from deborgen_shared.errors import Code
from deborgen_worker.agent import Agent
from deborgen_worker.attempts import StopCause
from deborgen_worker.checkpoints import CannotSave
from deborgen_worker.contact import Link
from deborgen_worker.execution import Execution
from deborgen_worker.heartbeat import HeartbeatLoop
from deborgen_worker.lifecycle import Machine
from deborgen_worker.steps import StopAsked, Uploaded

#: Seconds between two looks for checkpoints that were copied, and after a refusal that may pass.
LOOK_SECONDS, AGAIN_SECONDS = 0.25, 5.0
#: Refusals that say nothing about the checkpoint: try again later.
PASSING = frozenset({Code.UNAUTHENTICATED, Code.FORBIDDEN, Code.UNAVAILABLE, Code.SLOW_DOWN})


class CheckpointUploads:
    """One `step` uploads the checkpoints that wait. While the coordinator is away they wait, and nothing is lost but
    their freshness."""

    def __init__(self, agent: Agent, link: Link, heartbeats: HeartbeatLoop) -> None:
        self._agent, self._link, self._heartbeats = agent, link, heartbeats

    def step(self) -> float:
        """Returns the seconds until the next step."""

        def pending(machine: Machine, executions: Mapping[str, Execution]) -> list[Execution]:
            running = (executions[name] for name in machine.attempts if self._agent.is_running(name))
            return [each for each in running if each.checkpoints is not None and each.checkpoints.pending is not None]

        for execution in self._agent.read_state(pending):
            try:
                self._upload(execution)
            except NoAnswer as error:
                return self._link.contact.failed("checkpoint", error)
            except Refused as refused:
                if refused.code in PASSING:
                    return AGAIN_SECONDS
                if refused.code == Code.STALE_ATTEMPT:  # the heartbeat may resume it; then the upload is tried again
                    self._heartbeats.ask_about(execution.id)
                    return AGAIN_SECONDS
                if refused.code == Code.SUPERSEDED:
                    self._agent.handle([StopAsked(execution.id, StopCause.STALE)])
                    continue
                self._give_up(execution, refused.message)
        return LOOK_SECONDS

    def _upload(self, execution: Execution) -> None:
        saved = execution.checkpoints
        assert saved is not None
        try:
            saved.upload(self._link.coordinator, execution.id, self._link.session)
        except (CannotSave, OSError) as problem:
            if self._agent.is_running(execution.id):  # otherwise its folder is being removed
                self._give_up(execution, str(problem))
            return
        self._link.contact.ok("checkpoint")
        self._agent.handle([Uploaded(execution.id)])

    def _give_up(self, execution: Execution, problem: str) -> None:
        assert execution.checkpoints is not None
        execution.checkpoints.give_up(problem)
        self._link.say(f"a checkpoint of {execution.id} could not be saved: {problem}")
        self._agent.handle([Uploaded(execution.id)])
