"""Bugs at the end of a worker: who takes its jobs, and who reaches what a dead worker has left."""

from __future__ import annotations

from typing import Any

from planted.bug import Planted
from planted.patch import Patch, gives

STOP = "integration/worker/test_stop.py::test_fault_87"
UNATTENDED = "deborgen_worker.runners.unattended:Unattended"


def hand_over(original: Any) -> Any:
    from deborgen_worker.service_manager import Ending

    return lambda: Ending.HAND_OVER


def give_back(original: Any) -> Any:
    from deborgen_worker.service_manager import Ending

    return lambda: Ending.AT_ONCE


def overlook_the_shutdown(original: Any) -> Any:
    def handle_ends(self: Any, ends: list[dict[str, Any]]) -> None:
        for report in ends:
            report.pop("terminated", None)
        original(self, ends)

    return handle_ends


PLANTED: list[Planted] = [
    Planted(
        "the worker hands over at every end",
        (Patch("deborgen_worker.service_manager:ending", hand_over),),
        (f"{STOP}_a_unit_that_is_stopped_gives_its_jobs_back_at_once", f"{STOP}_a_closed_terminal_drains"),
        seconds=200,
    ),
    Planted(
        "the worker never hands over",
        (Patch("deborgen_worker.service_manager:ending", give_back),),
        (f"{STOP}_a_unit_that_is_restarted_hands_its_jobs_over",),
    ),
    Planted(
        "a program is blamed for the signal of a shutdown",
        (
            Patch("deborgen_worker.agent:Agent.set_ending", gives(None)),
            Patch("deborgen_worker.runners.subprocess:SubprocessRunner._handle_ends", overlook_the_shutdown),
        ),
        (f"{STOP}_a_shutdown_that_sends_term_to_all_processes_fails_no_job",),
    ),
    Planted(
        "the owner's commands reach no program without its worker",
        tuple(Patch(f"{UNATTENDED}.{verb}", gives({})) for verb in ("find", "freeze", "wake", "end")),
        (
            f"{STOP}_a_process_whose_worker_is_dead_is_ended_by_its_owner",
            f"{STOP}_a_container_whose_worker_is_dead_is_ended_by_its_owner",
            f"{STOP}_a_process_that_is_resumed_while_the_worker_is_dead_does_not_stay_frozen",
            f"{STOP}_a_container_that_is_resumed_while_the_worker_is_dead_does_not_stay_frozen",
        ),
        seconds=200,
    ),
]
