"""Bugs that one careless or hostile member of a pool could exploit."""

from __future__ import annotations

import re
from typing import Any

from planted.bug import CONTAINERS, LIVE, Planted
from planted.patch import Patch, becomes, gives, nothing

WORKER = "deborgen_worker"
BLAME = "contract/coordinator/test_blame.py::test"
AMPLIFICATION = "contract/coordinator/test_amplification.py::test_fault_94"
IMAGES = "contract/coordinator/test_refused_at_submit.py::test_fault"
COLLECTING = "unit/worker/test_collecting.py::test_fault"
MASKING = "unit/worker/test_masking.py::test_fault_86"
SECRETS = "integration/worker/test_secrets.py::test_fault_86"


def backtrack(original: Any) -> Any:
    def init(self: Any, pattern: str) -> None:
        self.expression = re.compile(pattern.replace("*", ".*"))

    return init


def match_the_expression(original: Any) -> Any:
    return lambda self, path: self.expression.fullmatch(path) is not None


def wait_for_the_collection(table: Any) -> Any:
    from deborgen_worker.attempts import Collecting
    from deborgen_worker.steps import Ticked

    return table | {Ticked: table[Ticked] | {Collecting: lambda *_: ()}}


def read_the_progress(original: Any) -> Any:
    def holding(self: Any) -> Any:
        from deborgen_worker.workspace import progress_of

        for execution in self._agent.read_state(lambda _machine, executions: list(executions.values())):
            progress_of(execution.launch.workspace)
        return original(self)

    return holding


def only_the_value(original: Any) -> Any:
    return lambda value: iter([value.encode()])


def unchanged(original: Any) -> Any:
    return lambda self, data: data


def send_the_output(original: Any) -> Any:
    def make_log(self: Any) -> Any:
        from deborgen_worker.logs import CappedLog

        return original(self) if self.secrets else CappedLog(self.runner.log(self.launch), self.log_cap)

    return make_log


def leave_the_log_out(original: Any) -> Any:
    def result(self: Any, execution: Any, end: Any) -> Any:
        from deborgen_shared.messages import Result
        from deborgen_worker.execution import result_of
        from deborgen_worker.spool import ResultRecord

        try:
            return result_of(execution, end)
        except Exception as error:
            return ResultRecord(end.name, Result(attempt=end.name, outcome="error", reason=str(error)))

    return result


def as_it_is(original: Any) -> Any:
    return lambda text, launch=None: text


def tell_what_was_answered(original: Any) -> Any:
    return lambda image, cause, words="", detail="": original(image, cause, detail or words)


def blame_the_machine(original: Any) -> Any:
    return lambda failures, works_elsewhere: len(failures)


def ignore_subjects(original: Any) -> Any:
    return lambda self, needs, than, subjects=(): original(self, needs, than)


PLANTED: list[Planted] = [
    Planted(
        "the parameters of a run have no limit",
        (Patch("deborgen_shared.jobfile.limits:PARAMETER_BYTES", becomes(1 << 60)),),
        (f"{AMPLIFICATION}_parameters_that_would_fill_the_database_are_refused_at_submit",),
        says=r"DID NOT RAISE",
    ),
    Planted(
        "the length of a parameter's value does not count",
        (Patch("deborgen_shared.jobfile.references:check_size", nothing),),
        (f"{AMPLIFICATION}_lookups_that_make_a_job_long_are_refused_at_submit",),
        says=r"DID NOT RAISE",
    ),
    Planted(
        "a claim takes as many jobs as fit the machine",
        (Patch("deborgen_coordinator.operations.workers.claim:CLAIM_BYTES", becomes(1 << 60)),),
        (
            f"{AMPLIFICATION}_one_claim_of_many_large_jobs_has_an_answer_of_bounded_size",
            f"{AMPLIFICATION}_the_inputs_of_a_step_that_needs_a_wide_one_have_an_answer_of_bounded_size",
        ),
    ),
    Planted(
        "silent clients keep their places",
        (Patch("deborgen_coordinator.event_loop:EventLoop.make_room", nothing),),
        ("integration/server/test_shares.py::test_fault_92_silent_sockets_do_not_keep_anybody_from_connecting",),
        says=r"timed out|Timeout",
    ),
    Planted(
        "every five failures in a row are the machine's own",
        (Patch("deborgen_coordinator.blame:count_own_failures", blame_the_machine),),
        (f"{BLAME}_fault_93_a_typo_in_the_image_of_a_sweep_puts_no_machine_to_rest_and_other_people_go_first",),
    ),
    Planted(
        "no failure is the machine's own",
        (Patch("deborgen_coordinator.blame:count_own_failures", gives(0)),),
        (
            f"{BLAME}_rule_15_a_machine_rests_if_the_same_image_works_elsewhere",
            f"{BLAME}_rule_15_a_machine_rests_if_jobs_of_two_people_fail_on_it_for_different_reasons",
        ),
    ),
    Planted(
        "a machine gets all that it asks for, however often it fails",
        (Patch("deborgen_coordinator.blame:on_probation", gives(False)),),
        (f"{BLAME}_rule_15_after_five_failures_in_a_row_a_machine_gets_one_job_at_a_time_with_growing_pauses",),
    ),
    Planted(
        "a machine gets more jobs with an image that it could not get",
        (Patch("deborgen_coordinator.storage.experiences:avoided_by", gives(set())),),
        (
            f"{BLAME}_fault_93_a_machine_that_cannot_get_an_image_gets_no_more_such_jobs_while_another_one_could_take_them",
            f"{BLAME}_fault_93_a_machine_goes_on_with_other_images_while_it_cannot_get_one",
        ),
    ),
    Planted(
        "a job avoids only the last machine that failed it",
        (Patch("deborgen_coordinator.storage.experiences:avoided_by", gives(set())),),
        (f"{BLAME}_rule_15_the_next_try_avoids_every_machine_that_failed_this_image",),
    ),
    Planted(
        "a machine that failed the same image counts as another one that could take the job",
        (Patch("deborgen_coordinator.operations.worker_fit:WorkerFit.another_could", ignore_subjects),),
        (f"{BLAME}_rule_15_with_no_other_machine_left_the_job_comes_back_as_soon_as_its_pause_is_over",),
    ),
    Planted(
        "every registry is allowed",
        (
            Patch(f"{WORKER}.runners.containers.pulling:is_allowed", gives(True)),
            Patch(f"{WORKER}.runners.containers.pulling:is_public", gives(True)),
        ),
        (
            f"{CONTAINERS}_96_a_registry_in_the_owners_network_is_contacted_only_if_the_owner_names_it",
            "unit/worker/test_pulling.py::test_fault_96_only_registries_that_the_owner_allows_are_contacted",
        ),
        seconds=200,
    ),
    Planted(
        "Podman's report is the reason",
        (Patch(f"{WORKER}.runners.containers.pulling:_unavailable", tell_what_was_answered),),
        ("unit/worker/test_pulling.py::test_fault_96_what_a_registry_answered_is_told_in_our_own_words",),
    ),
    Planted(
        "the pool takes images from anywhere",
        (Patch("deborgen_coordinator.operations.runs.images:is_allowed", gives(True)),),
        (f"{IMAGES}_96_an_image_from_a_registry_that_the_pool_does_not_allow_is_refused_at_its_line",),
    ),
    Planted(
        "no class of a pattern is checked",
        (Patch("deborgen_shared.jobfile.file_values:check_glob", gives(None)),),
        (f"{IMAGES}_93_a_broken_pattern_is_refused_at_submit",),
    ),
    Planted(
        "any text may be the name of an image",
        (Patch("deborgen_shared.jobfile.values:check_image", gives(None)),),
        (f"{IMAGES}_93_a_name_that_no_image_can_have_is_refused_at_submit",),
    ),
    Planted(
        "a file may lie anywhere in the workspace",
        (Patch("deborgen_shared.jobfile.paths:OWN", becomes("")),),
        (f"{IMAGES}_93_a_file_in_a_reserved_place_is_refused_at_submit",),
    ),
    Planted(
        "a glob is a regular expression that backtracks",
        (
            Patch("deborgen_shared.jobfile.globs:Glob.__init__", backtrack),
            Patch("deborgen_shared.jobfile.globs:Glob.matches", match_the_expression),
        ),
        (f"{LIVE}_91_a_pattern_made_to_backtrack_stops_neither_heartbeats_nor_a_restart",),
        seconds=280,
    ),
    Planted(
        "a collection may take any time",
        (Patch(f"{WORKER}.lifecycle:TABLE", wait_for_the_collection),),
        (f"{COLLECTING}_91_a_collection_that_cannot_end_is_given_up_as_an_error_and_the_worker_goes_on",),
    ),
    Planted(
        "the heartbeat reads a job's progress",
        (Patch(f"{WORKER}.heartbeat:HeartbeatLoop._holding", read_the_progress),),
        (f"{COLLECTING}_91_a_heartbeat_reads_no_file_of_a_job",),
    ),
    Planted(
        "a pattern may have any length",
        (Patch(f"{WORKER}.artifacts:PATH_BYTES", becomes(1 << 30)),),
        (f"{COLLECTING}_91_a_pattern_of_ten_thousand_bytes_costs_little",),
    ),
    Planted(
        "the result is made without the log",
        (Patch(f"{WORKER}.results:ResultRecorder._result", leave_the_log_out),),
        (f"{COLLECTING}_93_the_log_of_a_job_whose_artifacts_cannot_be_collected_is_kept",),
    ),
    Planted(
        "an error's words are taken as they are",
        (Patch(f"{WORKER}.execution:without_host_paths", as_it_is),),
        (f"{COLLECTING}_93_a_job_that_cannot_be_started_says_so_without_a_path_of_the_machine",),
    ),
    Planted(
        "only the value itself is masked",
        (Patch(f"{WORKER}.masking:_forms", only_the_value),),
        (f"{MASKING}_no_form_of_a_value_is_left", f"{MASKING}_base64_on_several_lines_is_masked"),
    ),
    Planted(
        "the end of the output is not held back",
        (Patch(f"{WORKER}.masking:_overlap", gives(0)),),
        (f"{MASKING}_a_value_that_is_cut_by_the_border_of_a_part_is_masked",),
    ),
    Planted(
        "nothing is masked",
        (Patch(f"{WORKER}.masking:Mask.apply", unchanged),),
        (f"{SECRETS}_a_container_gets_its_secrets_and_its_log_is_masked",),
    ),
    Planted(
        "secrets are kept in memory alone",
        (Patch(f"{WORKER}.secret_files:SecretFiles.write", gives(None)),),
        (f"{SECRETS}_a_worker_that_is_restarted_masks_the_rest_of_the_log",),
    ),
    Planted(
        "a log is never withheld",
        (Patch(f"{WORKER}.execution:Execution._make_log", send_the_output),),
        (f"{SECRETS}_the_log_of_an_adopted_job_is_withheld_if_its_secrets_are_gone",),
    ),
]
