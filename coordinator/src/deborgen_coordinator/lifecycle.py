"""The lifecycle of a job: all its states and transitions in one table."""

from __future__ import annotations

from enum import StrEnum

from deborgen_shared.errors import Code, Refusal
from deborgen_shared.states import State


class LifecycleEvent(StrEnum):
    """What can happen to a job."""

    CLAIMED = "claimed"
    #: The coordinator gave the attempt up, but its worker is back and still has it.
    RESUMED = "resumed"
    #: The attempt has ended, and the job is tried again.
    REQUEUED = "requeued"
    SUCCEEDED = State.SUCCEEDED
    FAILED = State.FAILED
    CANCELED = State.CANCELED


TRANSITIONS: dict[tuple[State, LifecycleEvent], State] = {
    (State.QUEUED, LifecycleEvent.CLAIMED): State.RUNNING,
    (State.QUEUED, LifecycleEvent.RESUMED): State.RUNNING,
    (State.QUEUED, LifecycleEvent.CANCELED): State.CANCELED,
    (State.RUNNING, LifecycleEvent.SUCCEEDED): State.SUCCEEDED,
    (State.RUNNING, LifecycleEvent.FAILED): State.FAILED,
    (State.RUNNING, LifecycleEvent.CANCELED): State.CANCELED,
    (State.RUNNING, LifecycleEvent.REQUEUED): State.QUEUED,
}


class InvalidTransition(Refusal):
    """An event that the job's state does not accept. Nothing was changed."""

    def __init__(self, state: State, event: LifecycleEvent) -> None:
        super().__init__(Code.INVALID_TRANSITION, f"a {state} job cannot be {event}", "look at its history")
        self.state = state
        self.event = event


def advance(state: State, event: LifecycleEvent) -> State:
    """The state after the event. Raise InvalidTransition if the state does not accept the event."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise InvalidTransition(state, event) from None
