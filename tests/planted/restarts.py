"""Bugs at a start of the worker, in how it handles what an earlier session left."""

from __future__ import annotations

from typing import Any

from planted.bug import RESTARTS, Planted
from planted.patch import Patch, gives

RECOVERY = "deborgen_worker.recovery"


def treat_it_as_new(original: Any) -> Any:
    import msgspec

    return lambda agent, name, entry, say: original(agent, name, msgspec.structs.replace(entry, runner=""), say)


def notice_no_reboot(original: Any) -> Any:
    def recover(agent: Any, spool: Any, boot: str, say: Any) -> Any:
        for entry in spool.entries.values():
            entry.boot = boot
        return original(agent, spool, boot, say)

    return recover


def drop_results_at_a_reboot(original: Any) -> Any:
    def recover(agent: Any, spool: Any, boot: str, say: Any) -> Any:
        for entry in spool.entries.values():
            if entry.boot != boot:
                entry.result = None
        return original(agent, spool, boot, say)

    return recover


PLANTED: list[Planted] = [
    Planted(
        "an attempt that was started before is started again",
        (Patch(f"{RECOVERY}:_take_up", treat_it_as_new),),
        (
            f"{RESTARTS}_11_a_worker_killed_at_any_step_delivers_one_correct_result",
            f"{RESTARTS}_11_a_container_runs_once_wherever_the_worker_is_killed",
            f"{RESTARTS}_11_short_jobs_in_chains_all_end_once_however_often_the_worker_is_killed",
        ),
        seconds=200,
    ),
    Planted(
        "nothing of an earlier session is adopted",
        (Patch(f"{RECOVERY}:_take_up", gives(False)),),
        (
            f"{RESTARTS}_10_a_plain_process_goes_on_while_the_worker_is_dead",
            f"{RESTARTS}_10_a_container_is_adopted_with_its_whole_log_and_its_exit_code",
        ),
        seconds=200,
    ),
    Planted(
        "a reboot is not noticed",
        (Patch(f"{RECOVERY}:recover", notice_no_reboot),),
        (
            f"{RESTARTS}_12_a_reboot_during_a_job_is_never_a_success",
            f"{RESTARTS}_12_a_container_of_another_boot_is_lost_and_removed",
        ),
        seconds=200,
    ),
    Planted(
        "after a reboot no result counts",
        (Patch(f"{RECOVERY}:recover", drop_results_at_a_reboot),),
        (f"{RESTARTS}_13_a_result_in_the_spool_is_delivered_after_a_reboot",),
        "None",
    ),
    Planted(
        "leftovers are not removed",
        (Patch("deborgen_worker.runners.containers.runner:ContainerRunner.cleanup", gives(())),),
        (f"{RESTARTS}_55_a_workers_own_leftovers_are_removed_and_those_of_others_are_not",),
        seconds=200,
    ),
]
