"""The lifecycle of a job: the whole truth about its states, on one screen."""

from __future__ import annotations

from enum import StrEnum

from deborgen_shared.errors import Code, Refusal
from deborgen_shared.states import State


class Event(StrEnum):
    """What can happen to a job."""

    CLAIMED = "claimed"
    RESUMED = "resumed"
    REQUEUED = "requeued"
    SUCCEEDED = State.SUCCEEDED
    FAILED = State.FAILED
    CANCELED = State.CANCELED


TRANSITIONS: dict[tuple[State, Event], State] = {
    (State.QUEUED, Event.CLAIMED): State.RUNNING,
    (State.QUEUED, Event.RESUMED): State.RUNNING,
    (State.QUEUED, Event.CANCELED): State.CANCELED,
    (State.RUNNING, Event.SUCCEEDED): State.SUCCEEDED,
    (State.RUNNING, Event.FAILED): State.FAILED,
    (State.RUNNING, Event.CANCELED): State.CANCELED,
    (State.RUNNING, Event.REQUEUED): State.QUEUED,
}


class InvalidTransition(Refusal):
    """An event that the state does not accept. Nothing changed."""

    def __init__(self, state: State, event: Event) -> None:
        super().__init__(Code.INVALID_TRANSITION, f"a {state} job cannot be {event}", "look at its history")
        self.state = state
        self.event = event


def advance(state: State, event: Event) -> State:
    """The state after the event; an event that the state does not accept is refused, and nothing changes."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise InvalidTransition(state, event) from None
