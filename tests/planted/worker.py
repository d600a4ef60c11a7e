"""Bugs in the worker: claims, leases, results, artifacts, its journal."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Iterator
from typing import Any

import msgspec

from planted.bug import INPUT, LIVE, NETWORK, Planted
from planted.patch import Patch, becomes, first_argument, gives

WORKER = "deborgen_worker"
SUPERVISOR = "integration/worker/test_supervisor.py::test_fault"


def refuse_unknown_fields(original: Any) -> Any:
    def decode(call: Any, reply: Any) -> Any:
        kind = call.gives.body
        unknown = set(json.loads(reply.data)) - {field.name for field in msgspec.structs.fields(kind)}
        assert not unknown, f"the answer has fields that are not known: {unknown}"
        return original(call, reply)

    return decode


def forget_the_claim(original: Any) -> Any:
    """Forget, after each step, a request whose answer was lost."""

    def step(self: Any) -> Any:
        delay = original(self)
        self._claims._request = ""
        return delay

    return step


def start_at_any_time(original: Any) -> Any:
    """Assume that a lease lives forever."""
    return lambda sent, lease_seconds, waited_seconds=0.0: sent + 1e9


def start_running_attempts_again(table: Any) -> Any:
    """A heartbeat that names a running attempt puts it in the queue again."""
    from deborgen_worker.attempts import Running, Waiting
    from deborgen_worker.steps import Renewed

    def queue_again(machine: Any, attempt: Any, _stage: Any, event: Any, now: Any) -> Any:
        machine.ledger.put_back(attempt.name)
        attempt.stage = Waiting(now.clock, event.start_by)
        machine.queue.append(attempt.name)
        return ()

    return table | {Renewed: table[Renewed] | {Running: queue_again}}


def ignore_stop(original: Any) -> Any:
    def apply_answers(self: Any, answers: dict[str, str], sent: float) -> None:
        original(self, {name: word for name, word in answers.items() if word != "stop"}, sent)

    return apply_answers


def count_bytes_as_sent_too_early(original: Any) -> Any:
    def send(self: Any, attempt: Any) -> None:
        offset = attempt.log_sent
        data = attempt.log.read(offset, 1 << 20)
        if data and self._agent.is_running(attempt.id):
            attempt.log_sent += len(data)
            self._link.coordinator.log(attempt.id, offset, data, self._link.session)
            self._link.contact.ok("log")

    return send


def forget_the_upload(original: Any) -> Any:
    def to_the_end(self: Any) -> None:
        with self._lock:
            self._uploads.popleft()

    return to_the_end


def treat_everything_as_files(original: Any) -> Any:
    def walk(workspace: Any) -> Iterator[tuple[str, int]]:
        for path, _ in original(workspace):
            yield path, stat.S_IFREG | 0o600

    return walk


def take_any_line(original: Any) -> Any:
    return lambda data: ([line[9:] for line in data.split(b"\n") if len(line) >= 9], len(data))


def leave_the_torn_end(original: Any) -> Any:
    return lambda data: (original(data)[0], len(data))


def write_the_token(original: Any) -> Any:
    def token(self: Any) -> Any:
        found = original(self)
        sys.stderr.write(found)
        return found

    return token


def try_once(original: Any) -> Any:
    """Do not check whether a failed call to the engine had an effect."""
    from deborgen_worker.runners.containers.engine import EngineError
    from deborgen_worker.runners.protocol import CannotStart

    def steer(self: Any, container: Any, call: Any, *states: Any) -> None:
        try:
            call(container.id)
        except EngineError as error:
            raise CannotStart(str(error)) from None

    return steer


def let_programs_run_forever(original: Any) -> Any:
    def start_supervisor(self: Any) -> Any:
        os.environ.pop("DEBORGEN_TAKE_UP_SECONDS", None)
        return original(self)

    return start_supervisor


def give_to_the_first_user(original: Any) -> Any:
    def give(self: Any, folder: Any) -> None:
        self._users, users = self._users[:1], self._users
        self._spare, spare = folder, self._spare
        self.root, root = folder, self.root
        try:
            original(self, folder)
        finally:
            self._users, self._spare, self.root = users, spare, root

    return give


def count_any_copy(original: Any) -> Any:
    """Take whatever a killed worker has copied for a complete copy."""

    def left_behind(self: Any) -> Any:
        from deborgen_worker import host
        from deborgen_worker.checkpoints import CopiedFile, Copy

        for folder in sorted((each for each in self._folder.glob("[0-9]*") if each.is_dir()), reverse=True):
            names = [f"{self.path}/{name}" for name in "ab"]
            files = [
                CopiedFile(path, each.stat().st_size, 0o644, each.name)
                for path, each in zip(names, sorted(folder.glob("[0-9]*")), strict=False)
            ]
            return Copy(host.boot_id(), int(folder.name), str(folder), files)
        return None

    return left_behind


ISOLATION = "integration/worker/test_isolation.py::test_fault_97"

PLANTED: list[Planted] = [
    Planted(
        "a copy of a checkpoint counts before all its files are there",
        (Patch(f"{WORKER}.checkpoints:Checkpoints._left_behind", count_any_copy),),
        (
            "unit/worker/test_checkpoints.py::test_fault_85_a_worker_that_is_killed_while_it_copies_leaves_the_checkpoint_before",
        ),
    ),
    Planted(
        "a checkpoint is reported before its blobs are uploaded, and is accepted",
        (
            Patch("deborgen_coordinator.operations.attempts.checkpoints:_missing_blobs", gives([])),
            Patch(f"{WORKER}.coordinator:CoordinatorClient.missing", gives({})),
        ),
        (
            "integration/worker/test_checkpoints.py::test_fault_85_a_worker_killed_while_it_saves_leaves_the_checkpoint_before_whole",
        ),
    ),
    Planted(
        "a checkpoint is accepted although blobs are missing",
        (Patch("deborgen_coordinator.operations.attempts.checkpoints:_missing_blobs", gives([])),),
        ("contract/coordinator/test_checkpoints.py::test_fault_85_a_checkpoint_without_all_its_blobs_changes_nothing",),
    ),
    Planted(
        "plain processes of a root worker run as root",
        (
            Patch(f"{WORKER}.runners.isolation:Isolation.request", gives({})),
            Patch(f"{WORKER}.folders:Folders._give_to_user", gives(None)),
        ),
        (f"{ISOLATION}_a_hostile_program_reaches_what_the_table_says",),
        seconds=200,
    ),
    Planted(
        "every folder gets the first user",
        (Patch(f"{WORKER}.folders:Folders._give_to_user", give_to_the_first_user),),
        (f"{ISOLATION}_each_job_has_a_user_of_its_own_and_later_sessions_know_it",),
        seconds=200,
    ),
    Planted(
        "files in a workspace are read whoever owns them",
        (Patch(f"{WORKER}.folders:may_read_for", gives(True)),),
        (f"{ISOLATION}_no_file_that_only_root_may_read_becomes_an_artifact_or_a_result",),
    ),
    Planted(
        "the supervisor ignores time limits",
        (Patch(f"{WORKER}.runners.supervision:BACKSTOP_SECONDS", becomes(1e9)),),
        (
            f"{SUPERVISOR}_58_the_supervisor_ends_a_process_at_its_time_limit_while_the_worker_is_dead",
            f"{SUPERVISOR}_58_the_supervisor_ends_a_container_at_its_time_limit_while_the_worker_is_dead",
        ),
        seconds=200,
    ),
    Planted(
        "programs run forever without a worker",
        (Patch(f"{WORKER}.runners.supervision:Supervision._start_supervisor", let_programs_run_forever),),
        (
            f"{SUPERVISOR}_87_a_process_is_ended_if_no_worker_comes_back",
            f"{SUPERVISOR}_87_a_container_is_ended_if_no_worker_comes_back",
        ),
        seconds=200,
    ),
    Planted(
        "an answer with a field that is not known is refused",
        (Patch("deborgen_shared.client.transport:decode", refuse_unknown_fields),),
        (f"{LIVE}_59_answers_of_a_newer_coordinator_do_not_confuse_an_older_worker",),
    ),
    Planted(
        "a claim whose answer was lost is forgotten",
        (Patch(f"{WORKER}.claims:Claimer.step", forget_the_claim),),
        (
            f"{LIVE}_06_a_claim_whose_answer_is_lost_gets_the_same_attempts_and_each_runs_once",
            "unit/worker/test_agent.py::test_fault_06_a_claim_whose_answer_was_lost_is_resent_unchanged",
        ),
        seconds=200,
    ),
    Planted(
        "a program is started when its lease may be over",
        (Patch(f"{WORKER}.leases:start_by", start_at_any_time),),
        ("unit/worker/test_agent.py::test_rule_02_a_program_is_started_only_while_its_lease_is_certainly_alive",),
    ),
    Planted(
        "every renewed lease starts the program again",
        (Patch(f"{WORKER}.lifecycle:TABLE", start_running_attempts_again),),
        ("unit/worker/test_agent.py::test_fault_09_a_first_heartbeat_without_an_answer_starts_no_second_program",),
    ),
    Planted(
        "log bytes count as sent before they are",
        (Patch(f"{WORKER}.log_pump:LogPump._send", count_bytes_as_sent_too_early),),
        (f"{LIVE}_15_a_partition_shorter_than_the_lease_changes_nothing",),
    ),
    Planted(
        "an upload that failed is forgotten",
        (Patch(f"{WORKER}.outbox:Outbox._move_to_end", forget_the_upload),),
        (f"{NETWORK}_25_a_coordinator_that_is_down_during_the_whole_job_gets_everything_later",),
        seconds=280,
    ),
    Planted(
        "a worker does not stop an attempt when told to",
        (Patch(f"{WORKER}.agent:Agent.apply_answers", ignore_stop),),
        (
            f"{NETWORK}_17_once_another_worker_has_claimed_it_the_old_attempt_is_over",
            f"{NETWORK}_29_a_worker_that_slept_past_its_lease_finds_its_attempt_over",
        ),
        seconds=200,
    ),
    Planted(
        "a worker whose token is not accepted keeps working",
        (Patch(f"{WORKER}.heartbeat:REFUSALS_BEFORE_STOP", becomes(1 << 60)),),
        (f"{NETWORK}_61_a_revoked_token_ends_running_jobs_and_a_new_one_is_used",),
        seconds=200,
    ),
    Planted(
        "a program that cannot be frozen at once is given back",
        (
            Patch(f"{WORKER}.lifecycle:FREEZE_SECONDS", becomes(-1.0)),
            Patch(f"{WORKER}.runners.containers.runner:ContainerRunner._steer", try_once),
        ),
        (
            "integration/worker/test_pauses.py::test_fault_88_two_hundred_pauses_at_random_moments_give_no_job_back_and_leave"
            "_none_stopped",
        ),
        seconds=300,
    ),
    Planted(
        "frozen time counts as used",
        (
            Patch(f"{WORKER}.attempts:Running.frozen_for", gives(0.0)),
            Patch(f"{WORKER}.runners.programs:Program.stopped", becomes(property(lambda self: 0.0))),
        ),
        ("integration/worker/test_pauses.py::test_fault_89_a_job_that_is_frozen_for_twice_its_timeout_does_not_fail",),
        seconds=200,
    ),
    Planted(
        "there may be any number of artifacts",
        (Patch(f"{WORKER}.artifacts:_too_many", gives(False)),),
        (
            f"{LIVE}_39_a_hundred_thousand_small_artifacts_are_refused_before_the_upload",
            "unit/worker/test_workspace.py::test_fault_39_too_many_artifacts_are_refused_before_anything_is_taken",
        ),
        seconds=280,
    ),
    Planted(
        "links are followed",
        (
            Patch(f"{WORKER}.artifacts:walk", treat_everything_as_files),
            Patch(f"{WORKER}.artifacts:NO_LINK", becomes(os.O_RDONLY | os.O_CLOEXEC)),
        ),
        (
            f"{LIVE}_65_links_pipes_and_devices_are_skipped_and_named_and_no_file_of_the_host_is_read",
            "unit/worker/test_workspace.py::test_fault_65_links_fifos_and_sockets_are_skipped_and_named",
        ),
        "out/link|IsADirectoryError|'failed'",
    ),
    Planted(
        "a torn record is taken for a complete one",
        (Patch(f"{WORKER}.journal:_parse", take_any_line),),
        (f"{INPUT}_14_power_lost_at_any_byte_of_a_result_leaves_the_old_spool_or_the_new_one",),
        "rror",
    ),
    Planted(
        "a torn record stays where the next one is written",
        (Patch(f"{WORKER}.journal:_parse", leave_the_torn_end),),
        ("unit/worker/test_journal.py::test_fault_14_a_torn_last_record_is_cut_off_and_the_rest_is_intact",),
    ),
    Planted(
        "a job's name goes to the terminal unchanged",
        (Patch("deborgen_shared.terminal:inert", first_argument),),
        ("unit/worker/test_policy.py::test_fault_37_nothing_that_a_terminal_would_obey_is_printed",),
    ),
    Planted(
        "a full disk is not noticed",
        (Patch(f"{WORKER}.disk:Disk.free", gives(1 << 50)),),
        ("integration/worker/test_owner.py::test_fault_32_a_full_disk_stops_new_work_and_results_still_fit",),
        seconds=200,
    ),
    Planted(
        "the token is written to the log",
        (Patch(f"{WORKER}.token:TokenFile.__call__", write_the_token),),
        ("integration/worker/test_jobs.py::test_fault_69_the_token_appears_in_no_process_list_environment_or_log",),
        "not in",
    ),
    Planted(
        "a large file is read in pieces of half a gigabyte",
        (
            Patch("deborgen_shared.client.blobs:PART", becomes(512 << 20)),
            Patch("deborgen_shared.client.blobs:CHUNK", becomes(512 << 20)),
        ),
        ("chaos/test_end_to_end.py::test_fault_38_an_artifact_of_5_gib_takes_constant_memory_and_is_resumed",),
        "300 << 20",
        3000,
    ),
]
