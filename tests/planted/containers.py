"""Bugs around containers: how they are made, watched, judged and ended, and how their logs are read."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from planted.bug import CONTAINERS, Planted
from planted.patch import Patch, gives

WORKER = "deborgen_worker"
RUNNERS = "deborgen_worker.runners.containers"
ISOLATION = "integration/worker/test_isolation.py::test_fault_97"
SPEC = "deborgen_worker.runners.podman.spec:container_spec"


def judge_by_the_code_alone(original: Any) -> Any:
    def judge(*args: Any, **named: Any) -> Any:
        exit_ = original(*args, **named)
        return dataclasses.replace(exit_, error="Podman failed" if exit_.code in (125, 126, 127) else "")

    return judge


def blame_the_program(original: Any) -> Any:
    def outcome_of(*args: Any) -> tuple[str, str]:
        outcome, reason = original(*args)
        return "failed" if outcome == "error" else outcome, reason

    return outcome_of


def remember_the_missing_image(original: Any) -> Any:
    from deborgen_worker.runners.protocol import CannotStart

    missing: set[str] = set()

    def create(engine: Any, launch: Any) -> str:
        if launch.image in missing:
            raise CannotStart("the image was missing before")
        try:
            return str(original(engine, launch))
        except CannotStart:
            missing.add(launch.image)
            raise

    return create


def send_nothing_after_term(original: Any) -> Any:
    return lambda runner, name, word, thaw: None if word == "KILL" else original(runner, name, word, thaw)


def specified_with(**changes: Any) -> Callable[[Any], Any]:
    """Make containers with these fields."""
    return lambda original: lambda *args, **named: original(*args, **named) | changes


def allow_four_times_the_processes(original: Any) -> Any:
    def container_spec(worker: str, launch: Any, **more: Any) -> Any:
        return original(worker, dataclasses.replace(launch, pids=4 * launch.pids), **more)

    return container_spec


def end_the_line_at_each_piece(original: Any) -> Any:
    from deborgen_worker.logs import PREFIX

    return lambda lines: b"".join(line[PREFIX:] + b"\n" for line in lines.split(b"\n") if len(line) >= PREFIX)


def count_one_too_many(original: Any) -> Any:
    return lambda dropped, cap: original(dropped + 1, cap)


def do_not_watch_conmon(original: Any) -> Any:
    from deborgen_worker.runners.containers.watch import Gone

    def wait_until_gone(pid: int, monitor: int) -> Gone | None:
        gone = original(pid, monitor)
        return gone if gone is Gone.PROGRAM else None

    return wait_until_gone


PLANTED: list[Planted] = [
    Planted(
        "the shell's exit codes are taken for Podman's",
        (Patch(f"{RUNNERS}.judging:judge", judge_by_the_code_alone),),
        (f"{CONTAINERS}_56_a_job_ends_with_its_programs_own_exit_code",),
        "'error'",
    ),
    Planted(
        "a failure of the machinery is blamed on the program",
        (Patch(f"{WORKER}.lifecycle:outcome_of", blame_the_program),),
        (f"{CONTAINERS}_50_a_missing_image_is_an_infrastructure_failure",),
        "'failed'",
    ),
    Planted(
        "an image that was missing once is missing forever",
        (Patch(f"{RUNNERS}.creating:create", remember_the_missing_image),),
        (f"{CONTAINERS}_50_an_image_that_appears_later_is_used",),
        "'error'",
    ),
    Planted(
        "the signs of too little memory are ignored",
        (Patch(f"{RUNNERS}.judging:out_of_memory", gives(False)),),
        (f"{CONTAINERS}_51_out_of_memory_is_recognised_and_the_worker_survives",),
        "'failed'",
    ),
    Planted(
        "no KILL follows a TERM",
        (Patch(f"{WORKER}.performer:signal_to", send_nothing_after_term),),
        (f"{CONTAINERS}_54_a_job_that_ignores_term_is_killed_after_its_grace_period",),
    ),
    Planted(
        "a container shares the processes of the machine",
        (Patch(SPEC, specified_with(pidns={"nsmode": "host"})),),
        (
            f"{CONTAINERS}_57_background_processes_of_a_program_end_with_it",
            f"{ISOLATION}_a_hostile_program_in_a_container_reaches_what_the_table_says",
        ),
    ),
    Planted(
        "a job may have four times the processes that its owner allows",
        (Patch(SPEC, allow_four_times_the_processes),),
        (f"{CONTAINERS}_53_a_fork_bomb_is_contained",),
    ),
    Planted(
        "every piece of a line ends the line",
        (Patch(f"{WORKER}.logs:decode", end_the_line_at_each_piece),),
        (f"{CONTAINERS}_36_binary_output_arrives_byte_for_byte",),
    ),
    Planted(
        "one dropped byte too many is counted",
        (Patch(f"{WORKER}.logs:seam", count_one_too_many),),
        (
            f"{CONTAINERS}_35_one_line_of_many_megabytes_keeps_its_head_and_tail",
            f"{CONTAINERS}_34_a_flood_of_output_is_counted_exactly_and_uses_little_disk",
        ),
        "bytes of this log were dropped",
        300,
    ),
    Planted(
        "conmon is not watched",
        (Patch(f"{RUNNERS}.watch:wait_until_gone", do_not_watch_conmon),),
        (f"{CONTAINERS}_49_killing_conmon_ends_the_attempt_as_an_error",),
        seconds=200,
    ),
    Planted(
        "Podman's health is not checked",
        (Patch(f"{RUNNERS}.runner:ContainerRunner.check", gives("")),),
        (f"{CONTAINERS}_48_a_service_that_hangs_or_dies_stops_new_work_and_nothing_else",),
        seconds=200,
    ),
]
