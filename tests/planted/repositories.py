"""Bugs with repositories: their commits, their servers, and what strangers have put into them."""

from __future__ import annotations

from typing import Any

from planted.bug import Planted
from planted.patch import Patch, gives, nothing

WORKER = "deborgen_worker"
JOBS = "integration/worker/test_git_workspaces.py::test_fault"
GIT = "unit/worker/test_git.py::test_fault"


def say_nothing(original: Any) -> Any:
    return lambda url, error: original(url, Exception("it failed"))


def wait_without_limit(original: Any) -> Any:
    return lambda process, seconds, wanted: process.wait(20)


def allow_files(original: Any) -> Any:
    from deborgen_shared.repositories import parse_address

    return lambda self, url: (parse_address(url), "") if url.startswith("file:") else original(self, url)


PLANTED: list[Planted] = [
    Planted(
        "an assignment does not name the commit that is pinned",
        (Patch("deborgen_coordinator.operations.attempts.pins:commit_for", gives("")),),
        (f"{JOBS}_76_all_jobs_of_a_run_see_one_commit_although_the_branch_is_pushed_over_and_deleted",),
    ),
    Planted(
        "git's reason is not passed on",
        (Patch(f"{WORKER}.repositories:_failed", say_nothing),),
        (f"{JOBS}_76_a_repository_that_one_machine_cannot_get_is_tried_on_another",),
    ),
    Planted(
        "a command of git may take as long as it likes",
        (Patch(f"{WORKER}.git.command:_wait", wait_without_limit),),
        (f"{GIT}_76_a_server_that_hangs_is_left_after_the_time_limit",),
        says=r"TimeoutExpired",
    ),
    Planted(
        "what a killed fetch has left behind stays",
        (Patch(f"{WORKER}.git.command:remove_leftovers", nothing),),
        (f"{GIT}_76_a_cut_clone_leaves_a_whole_mirror",),
        says=r"AssertionError|assert |shallow.lock",
    ),
    Planted(
        "the names and sizes in a repository are not looked at",
        (Patch(f"{WORKER}.git.checkout:_check", nothing),),
        (f"{JOBS}_77_a_hostile_repository_executes_nothing_and_is_bounded",),
    ),
    Planted(
        "every link is made",
        (Patch(f"{WORKER}.git.checkout:_stays_inside", gives(True)),),
        (f"{GIT}_77_links_stay_inside",),
    ),
    Planted(
        "every protocol is allowed",
        (Patch(f"{WORKER}.git.access:Access.check", allow_files),),
        (f"{GIT}_77_a_submodule_is_checked_like_the_repository",),
        says=r"Regex pattern did not match",
    ),
    Planted(
        "nobody looks at the size of what has arrived",
        (Patch(f"{WORKER}.git.mirrors:Mirrors._check_limit", nothing),),
        (f"{GIT}_77_a_server_that_never_ends_its_pack_is_stopped_at_the_limit",),
        says=r"invalid index-pack output",
    ),
]
