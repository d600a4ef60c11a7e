from __future__ import annotations

import itertools
from typing import Any

import pytest

from deborgen_coordinator.lifecycle import TRANSITIONS, InvalidTransition, LifecycleEvent, advance
from deborgen_shared.states import TERMINAL, State, run_state

ALLOWED = {
    ("queued", "claimed"): "running",
    ("queued", "resumed"): "running",
    ("queued", "canceled"): "canceled",
    ("running", "succeeded"): "succeeded",
    ("running", "failed"): "failed",
    ("running", "canceled"): "canceled",
    ("running", "requeued"): "queued",
}


@pytest.mark.parametrize(("state", "event"), list(itertools.product(State, LifecycleEvent)))
def test_every_pair_of_state_and_event_has_a_decision(state: State, event: LifecycleEvent) -> None:
    if (state.value, event.value) in ALLOWED:
        assert advance(state, event).value == ALLOWED[state.value, event.value]
    else:
        with pytest.raises(InvalidTransition, match=f"a {state} job cannot be {event}"):
            advance(state, event)


def test_nothing_leaves_a_terminal_state() -> None:
    assert not [pair for pair in TRANSITIONS if pair[0] in TERMINAL]


@pytest.mark.parametrize(
    ("counts", "state"),
    [
        ((3, 0, 0, 0, 0), "queued"),
        ((2, 1, 0, 0, 0), "running"),
        ((2, 0, 1, 0, 0), "running"),
        ((0, 1, 5, 2, 1), "running"),
        ((0, 0, 3, 0, 0), "succeeded"),
        ((0, 0, 3, 1, 1), "failed"),
        ((0, 0, 3, 0, 1), "canceled"),
        ((0, 0, 3, 1, 1, True), "canceled"),
        ((0, 0, 3, 1, 0, True), "failed"),
        ((0, 1, 3, 1, 1, True), "running"),
    ],
)
def test_the_state_of_a_run_follows_from_its_jobs(counts: tuple[Any, ...], state: str) -> None:
    assert run_state(*counts) == state
