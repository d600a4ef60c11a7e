"""What each test of a fault guards, broken: the table behind `make seen-to-fail`.

A row names a change of the product that breaks a promise, the tests that must then fail, and words that they must
say. `tools/seen_to_fail.py` makes the change in a copy of the project and looks. A change names the text that it
replaces; when the product has moved on and the text is gone, tests/chaos/test_fault_table.py says so.
"""

from __future__ import annotations

from typing import NamedTuple

COORDINATOR = "coordinator/src/deborgen_coordinator"
WORKER = "worker/src/deborgen_worker"
SHARED = "shared/src/deborgen_shared"
CLI = "cli/src/deborgen"


class Edit(NamedTuple):
    """In the file, the old text, which is there once, becomes the new one."""

    file: str
    old: str
    new: str


class Planted(NamedTuple):
    """A promise broken, in words and in code; tests that must notice, what they must say, how long they may take."""

    broken: str
    edits: tuple[Edit, ...]
    tests: tuple[str, ...]
    says: str = r"AssertionError|assert |DID NOT RAISE"
    seconds: int = 120


CHAOS = "chaos/test_coordinator_faults.py::test_fault"
INPUT = "chaos/test_disk_and_input_faults.py::test_fault"
LIVE = "chaos/test_worker_faults.py::test_fault"
STORAGE = "contract/coordinator/test_storage.py::test_fault"
BLOBS = "contract/http/test_blob_store.py::test_fault"
HTTP_BLOBS = "contract/http/test_blobs.py::test_fault"
STRICT = "contract/http/test_strict_input.py::test_fault"
HTTP_LOGS = "contract/http/test_logs_and_events.py::test_fault"
SERVER = "integration/server"
CONTAINERS = "integration/worker/test_containers.py::test_fault"
NETWORK = "integration/worker/test_network.py::test_fault"
RESTARTS = "integration/worker/test_restarts.py::test_fault"

NO_FENCE = (
    Edit(
        f"{COORDINATOR}/operations/finish.py",
        "(not held.live or not held.current or held.session != session)",
        "False",
    ),
    Edit(
        f"{COORDINATOR}/storage/attempts.py",
        'digest = ?, log_told = ?"\n        " WHERE job_id = ? AND number = ? AND outcome IS NULL"',
        'digest = ?, log_told = ?"\n        " WHERE job_id = ? AND number = ?"',
    ),
    Edit(
        f"{COORDINATOR}/storage/jobs.py",
        'message = NULL"\n        " WHERE id = ? AND state = \'running\' AND last_attempt = ?"',
        'message = NULL"\n        " WHERE id = ? AND ? > 0"',
    ),
)

PLANTED: list[Planted] = [
    # The coordinator's operations
    Planted(
        "an attempt that was never confirmed counts as lost",
        (Edit(f"{COORDINATOR}/operations/endings.py", "release or not attempt.confirmed", "release"),),
        (f"{CHAOS}_07_a_claim_whose_answer_and_spool_are_gone_costs_no_attempt",),
        "'lost'",
    ),
    Planted(
        "a result that is known already is looked at like a new one",
        (Edit(f"{COORDINATOR}/operations/finish.py", "not held.live and held.digest == digest", "False"),),
        (f"{CHAOS}_21_a_result_that_is_sent_twice_is_accepted_once_and_recorded_once",),
        "'stale'",
    ),
    Planted(
        "a result is taken whoever holds the lease",
        NO_FENCE,
        (
            f"{CHAOS}_22_another_result_after_the_first_is_refused_and_the_first_is_kept",
            f"{CHAOS}_23_a_stale_result_leaves_the_second_attempt_unharmed",
            f"{CHAOS}_24_a_result_that_races_the_sweep_and_a_cancel_has_exactly_one_winner",
        ),
        "accepted|invalid_transition|InvalidTransition|Refusal|Unavailable",
    ),
    Planted(
        "leases are counted on the wall clock",
        (
            Edit(
                f"{COORDINATOR}/operations/sweep.py",
                "steady = self._ctx.clock.steady()",
                "steady = self._ctx.clock.wall()",
            ),
            Edit(f"{COORDINATOR}/leases.py", "elapsed > late or elapsed < 0", "False"),
        ),
        (f"{CHAOS}_28_a_step_of_the_wall_clock_expires_nothing",),
    ),
    Planted(
        "a repeated claim gets other jobs",
        (
            Edit(f"{COORDINATOR}/operations/claims.py", "if before is not None:", "if False:"),
            Edit(
                f"{COORDINATOR}/storage/attempts.py",
                "(worker_id, request_id, now)",
                "(worker_id, request_id + str(id(tx)) + str(now), now)",
            ),
        ),
        (
            f"{CHAOS}_71_old_requests_replayed_and_reordered_have_no_effect",
            f"{LIVE}_06_a_claim_whose_answer_is_lost_gets_the_same_attempts_and_each_runs_once",
            f"{SERVER}/test_lost_answers.py::test_fault_02_a_kill_between_commit_and_answer_on_every_endpoint_has_no_double_effect",
        ),
    ),
    Planted(
        "nothing is poison",
        (Edit(f"{COORDINATOR}/leases.py", "lost_on >= POISON_MACHINES", "False"),),
        (f"{CHAOS}_75_a_job_that_kills_every_worker_is_poison_and_the_workers_are_well",),
        "'queued'",
    ),
    Planted(
        "a key says nothing about its body",
        (Edit(f"{COORDINATOR}/operations/submit.py", "if digest != body_digest:", "if False:"),),
        (
            "contract/coordinator/test_steps.py::test_fault_05_the_same_key_with_another_body_is_refused_and_nothing_is_stored",
            "contract/http/test_runs.py::test_fault_05_another_body_under_the_same_key_is_409_and_stores_nothing",
        ),
        "DID NOT RAISE|KeyError: 'error'",
    ),
    Planted(
        "the idempotency key is not looked at",
        (
            Edit(
                f"{COORDINATOR}/operations/submit.py",
                "            if before is not None:\n                return repeated",
                "            if False:\n                return repeated",
            ),
            Edit(
                f"{COORDINATOR}/operations/submit.py",
                "            remember(tx, submitter, idempotency_key, body_digest, run)",
                "            pass",
            ),
        ),
        (
            "contract/http/test_runs.py::test_fault_04_five_repeats_of_a_submit_in_parallel_are_one_run",
            "integration/cli/test_submit.py::test_fault_04_a_submit_whose_answer_was_lost_is_one_run",
        ),
    ),
    Planted(
        "claimers at two coordinators look at the same rows",
        (Edit(f"{COORDINATOR}/storage/database.py", 'skip_locked = " FOR UPDATE SKIP LOCKED"', 'skip_locked = ""'),),
        ("contract/coordinator/test_waiting.py::test_fault_08_64_claimers_on_1000_jobs_get_disjoint_ones",),
        "InvalidTransition|assert",
    ),
    Planted(
        "log bytes that are here already are stored once more",
        (Edit(f"{COORDINATOR}/operations/logs.py", "data[held.log_size - offset :]", "data"),),
        (
            "contract/coordinator/test_keeping.py::test_fault_20_log_uploads_dropped_repeated_and_reordered_store_exactly_the_written_bytes",
            f"{HTTP_LOGS}_20_repeated_log_bytes_are_skipped_and_a_gap_is_409_with_the_size",
        ),
    ),
    Planted(
        "NUL is dropped from logs",
        (
            Edit(
                f"{COORDINATOR}/operations/logs.py",
                "        return data\n",
                '        return data.replace(b"\\0", b"")\n',
            ),
        ),
        (f"{HTTP_LOGS}_36_log_bytes_come_back_as_they_were_written",),
    ),
    # Storage
    Planted(
        "a migration that fails is committed as far as it went",
        (Edit(f"{COORDINATOR}/storage/database.py", 'connection.run("ROLLBACK")', 'connection.run("COMMIT")'),),
        (f"{STORAGE}_60_a_migration_that_fails_half_way_leaves_the_old_database_as_it_was",),
        "half",
    ),
    Planted(
        "nobody looks whether the whole file is sound",
        (Edit(f"{COORDINATOR}/storage/store.py", "            check_soundness(connection)", "            pass"),),
        (f"{STORAGE}_44_a_damaged_database_file_is_refused",),
        "DID NOT RAISE",
    ),
    Planted(
        "a damaged file is an error like any other",
        (
            Edit(f"{COORDINATOR}/storage/store.py", "            check_soundness(connection)", "            pass"),
            Edit(
                f"{COORDINATOR}/storage/database.py",
                'raise DatabaseDamaged(f"{self.path}: {error}") from error',
                "raise",
            ),
        ),
        (
            f"{SERVER}/test_start_and_stop.py::test_fault_44_a_damaged_database_is_refused_with_the_way_back",
            f"{SERVER}/test_start_and_stop.py::test_fault_44_a_truncated_database_is_refused",
        ),
    ),
    Planted(
        "what the database refuses is passed on as it is",
        (
            Edit(
                f"{COORDINATOR}/storage/writer.py",
                "return error if isinstance(error, DatabaseUnavailable) else DatabaseUnavailable(str(error))",
                "return error",
            ),
        ),
        (
            f"{STORAGE}_42_a_file_that_another_process_keeps_locked_is_a_refusal_and_then_all_is_well",
            f"{SERVER}/test_start_and_stop.py::test_fault_42_a_locked_database_is_503_with_retry_after_and_then_all_is_well",
        ),
        "database is locked|500",
    ),
    Planted(
        "NUL goes to PostgreSQL as it is",
        (Edit(f"{COORDINATOR}/storage/database.py", 'obj.replace("\\0", "\\ufffd") if "\\0" in obj else obj', "obj"),),
        (f"{STORAGE}_68_text_with_nul_is_taken_by_either_database",),
        "NUL",
    ),
    Planted(
        "work that the database interrupted counts as done",
        (
            Edit(
                f"{COORDINATOR}/storage/writer.py",
                "                self._pause(error, tries)\n                continue\n            try:",
                "                return tx\n            try:",
            ),
        ),
        (
            f"{STORAGE}_45_postgres_restarted_under_load_loses_nothing",
            f"{SERVER}/test_postgres.py::test_fault_45_a_restart_of_postgres_loses_nothing_and_nobody_notices",
        ),
        "lost|500|assert",
    ),
    Planted(
        "an answer goes out before the commit",
        (
            Edit(
                f"{COORDINATOR}/storage/transactions.py",
                '        self.run("COMMIT")',
                '        if time.time() % 1 < 0.5:\n            self.run("COMMIT")',
            ),
        ),
        (
            f"{SERVER}/test_kill.py::test_fault_01_thirty_kills_in_the_middle_of_everything_lose_nothing_that_was_acknowledged",
            f"{SERVER}/test_kill.py::test_fault_01_kills_lose_nothing_on_postgres_either",
        ),
        "rror",
        300,
    ),
    Planted(
        "commits are not flushed to the disk",
        (Edit(f"{COORDINATOR}/storage/database.py", "synchronous = FULL", "synchronous = NORMAL"),),
        (f"{INPUT}_03_every_answer_comes_after_the_flush_of_what_it_acknowledges",),
        "sqlite-wal",
    ),
    Planted(
        "blobs are not flushed to the disk",
        (Edit(f"{COORDINATOR}/blobs/local.py", "                os.fsync(file.fileno())\n", ""),),
        (f"{INPUT}_03_every_answer_comes_after_the_flush_of_what_it_acknowledges",),
        "/blobs/uploads/",
    ),
    # Blobs
    Planted(
        "bytes are believed to have their digest",
        (Edit(f"{COORDINATOR}/blobs/local.py", "if found != digest:", "if False:"),),
        (
            f"{BLOBS}_40_a_flipped_bit_is_refused_by_digest_and_the_repeat_works",
            f"{HTTP_BLOBS}_40_bytes_with_another_digest_are_refused_and_nothing_is_kept",
            f"{NETWORK}_40_a_bit_that_is_turned_on_the_way_is_found_and_the_repeat_works",
        ),
        "DID NOT RAISE|KeyError: 'error'",
    ),
    Planted(
        "a broken upload is thrown away",
        (Edit(f"{COORDINATOR}/blobs/local.py", "if not keep or os.fstat(file.fileno()).st_size == 0:", "if True:"),),
        (
            f"{BLOBS}_19_an_upload_cut_fifty_times_at_random_bytes_is_resumed",
            f"{HTTP_BLOBS}_19_an_upload_cut_at_random_bytes_is_resumed_from_what_head_tells",
            "integration/cli/test_submit.py::test_fault_19_an_upload_that_is_cut_is_resumed",
            f"{NETWORK}_19_an_upload_that_is_cut_again_and_again_arrives_whole",
        ),
    ),
    Planted(
        "what did not fit stays on the disk",
        (
            Edit(
                f"{COORDINATOR}/blobs/local.py",
                "            path.unlink(missing_ok=True)\n            raise\n        except BaseException:",
                "            raise\n        except BaseException:",
            ),
        ),
        (f"{BLOBS}_31_a_full_disk_leaves_no_temporary_file_and_the_repeat_works",),
        r"\.part",
    ),
    Planted(
        "the paths of artifacts are not looked at",
        (Edit(f"{COORDINATOR}/operations/finish.py", "        if problem:\n", "        if False:\n"),),
        (f"{HTTP_BLOBS}_64_a_result_with_a_bad_artifact_path_is_refused",),
        "200",
    ),
    # What comes in
    Planted(
        "'..' is a name like any other",
        (Edit(f"{SHARED}/jobfile/paths.py", 'if part == "..":', 'if part == "...":'),),
        (
            f"{STRICT}_64_a_file_path_that_leaves_its_folder_is_422",
            "unit/worker/test_workspace.py::test_fault_64_a_path_that_leads_out_is_refused",
        ),
    ),
    Planted(
        "names are compared byte by byte",
        (
            Edit(
                f"{SHARED}/jobfile/paths.py",
                'return path.lower() if path.isascii() else normalize("NFC", normalize("NFC", path).casefold())',
                "return path",
            ),
        ),
        (f"{STRICT}_64_file_paths_that_some_machines_take_for_one_are_422",),
        "201",
    ),
    Planted(
        "of two equal keys the last one counts",
        (Edit(f"{COORDINATOR}/http/decoding.py", "if len(found) != len(pairs):", "if False:"),),
        (
            "contract/http/test_decoding.py::test_fault_62_malformed_deep_huge_and_duplicate_key_json_is_400",
            f"{STRICT}_62_malformed_json_is_400_and_submits_nothing",
        ),
    ),
    Planted(
        "nesting has no limit",
        (Edit(f"{COORDINATOR}/http/decoding.py", "if depth == MAX_DEPTH:", "if False:"),),
        ("contract/http/test_decoding.py::test_fault_62_malformed_deep_huge_and_duplicate_key_json_is_400",),
        "DID NOT RAISE",
    ),
    Planted(
        "a job file that is wrong is a mistake of the coordinator",
        (Edit(f"{COORDINATOR}/operations/submit.py", "raise refusal(invalid.problems) from None", "raise"),),
        (f"{STRICT}_62_json_that_is_no_job_file_is_422_with_all_problems",),
        "500",
    ),
    Planted(
        "a body may be as long as it likes",
        (Edit(f"{COORDINATOR}/http/bodies.py", "if length > limit:", "if False:"),),
        (
            f"{STRICT}_63_a_body_over_the_limit_is_413_before_it_is_read",
            f"{STRICT}_63_a_body_that_is_sent_in_full_and_too_large_is_413",
        ),
        "HTTP/1.1 (?!413)|timed out",
    ),
    Planted(
        "a body need not give its length",
        (
            Edit(
                f"{COORDINATOR}/http/bodies.py",
                'if "HTTP_TRANSFER_ENCODING" in environ or (not text and required):',
                "if False:",
            ),
        ),
        (f"{STRICT}_63_no_content_length_is_411", f"{STRICT}_63_a_chunked_body_is_411"),
        "HTTP/1.1 400",
    ),
    Planted(
        "half a body is taken for the whole",
        (Edit(f"{COORDINATOR}/http/bodies.py", "if len(body) < length:", "if False:"),),
        (f"{STRICT}_63_a_body_shorter_than_its_length_is_400",),
        "HTTP/1.1 201",
    ),
    Planted(
        "a request that is no HTTP is a mistake of the coordinator",
        (Edit(f"{COORDINATOR}/connections.py", 'type(exc).__module__ != "gunicorn.http.errors"', "True"),),
        (
            f"{STRICT}_63_a_content_length_that_is_no_number_is_refused",
            f"{STRICT}_73_ambiguous_framing_and_bad_http_is_400_in_the_one_shape",
        ),
        "HTTP/1.1 500",
    ),
    Planted(
        "pages of any origin may read the answers",
        (
            Edit(
                f"{COORDINATOR}/http/answers.py",
                '{"Cache-Control": "no-store",',
                '{"Access-Control-Allow-Origin": "*", "Cache-Control": "no-store",',
            ),
        ),
        (f"{STRICT}_73_a_forged_host_or_origin_changes_no_answer",),
        "Access-Control-Allow-Origin",
    ),
    Planted(
        "any role may do anything",
        (Edit(f"{COORDINATOR}/http/routes.py", "if roles and actor.role not in roles:", "if False:"),),
        ("contract/http/test_roles.py::test_fault_72_a_token_of_the_wrong_role_is_403_and_no_token_is_401",),
    ),
    Planted(
        "a reason is written as HTML",
        (
            Edit(
                f"{COORDINATOR}/operations/finish.py",
                "    reason = result.reason\n",
                '    reason = __import__("html").escape(result.reason)\n',
            ),
        ),
        (f"{INPUT}_68_hostile_text_is_stored_as_it_is_and_inert_everywhere",),
        "&lt;|&#x27;|&quot;",
    ),
    # The server
    Planted(
        "a full disk is filled further",
        (Edit(f"{COORDINATOR}/http/reserve.py", "if self._size and not self._held:", "if False:"),),
        (f"{SERVER}/test_limits.py::test_fault_30_a_full_disk_is_503_while_reads_go_on_and_it_recovers_by_itself",),
    ),
    Planted(
        "a body is read in one piece",
        (Edit(f"{COORDINATOR}/http/bodies.py", "stream.read(min(PIECE, left))", "stream.read(left)"),),
        (f"{SERVER}/test_limits.py::test_fault_63_refused_bodies_and_fault_38_large_blobs_leave_memory_flat",),
        "40_?000_?000",
    ),
    Planted(
        "a request takes a thread before its body is there",
        (Edit(f"{COORDINATOR}/connections.py", "self.needed += min(int(length[1]), PREFETCH)", "pass"),),
        (f"{SERVER}/test_slow_clients.py::test_fault_41_idle_sockets_and_trickling_bodies_do_not_delay_heartbeats",),
        "a heartbeat took|Timeout|timed out",
    ),
    Planted(
        "a new token is an argument of a program that the coordinator starts",
        (
            Edit(
                f"{COORDINATOR}/operations/tokens.py",
                "    ctx.store.write(work)\n    return CreatedToken(",
                '    ctx.store.write(work)\n    __import__("subprocess").Popen(["sh", "-c", "sleep 20", text])\n'
                "    return CreatedToken(",
            ),
        ),
        (f"{SERVER}/test_logging.py::test_fault_69_no_secret_is_in_a_process_list_or_a_variable",),
    ),
    Planted(
        "tokens in messages are not masked",
        (Edit(f"{COORDINATOR}/logs.py", 'if "dbg_" in text:', "if False:"),),
        (f"{SERVER}/test_logging.py::test_fault_69_no_secret_is_in_any_log_whatever_is_sent",),
        "not in",
    ),
    Planted(
        "any host name will do",
        (Edit(f"{COORDINATOR}/http/application.py", "if host not in allowed and", "if False and"),),
        (f"{SERVER}/test_limits.py::test_fault_73_with_allowed_hosts_another_name_is_403",),
        "200",
    ),
    # Leases, with real processes
    Planted(
        "time in which nobody could renew anything counts",
        (Edit(f"{COORDINATOR}/leases.py", "elapsed > late or elapsed < 0", "False"),),
        (f"{LIVE}_27_a_coordinator_stopped_for_longer_than_the_lease_loses_no_lease",),
    ),
    Planted(
        "a start of the coordinator counts as two leases gone by",
        (
            Edit(
                f"{COORDINATOR}/leases.py",
                "return Turn(0.0, regrant=True)",
                "return Turn(2 * lease_seconds, regrant=False)",
            ),
        ),
        (f"{LIVE}_26_a_restart_under_200_live_workers_loses_no_lease_and_makes_no_stampede",),
    ),
    Planted(
        "whoever finds no work asks again at once",
        (Edit(f"{COORDINATOR}/operations/claims.py", "NoWork(0.0 if body.wait_seconds else 1.0)", "NoWork(0.0)"),),
        (f"{LIVE}_26_a_restart_under_200_live_workers_loses_no_lease_and_makes_no_stampede",),
    ),
    Planted(
        "a heartbeat renews nothing",
        (Edit(f"{COORDINATOR}/operations/workers.py", "attempts.renew(tx, renewed,", "attempts.renew(tx, [],"),),
        (f"{LIVE}_18_while_answers_are_lost_leases_are_renewed_and_nothing_happens_twice",),
    ),
    Planted(
        "a lost attempt is never taken up again",
        (Edit(f"{COORDINATOR}/operations/workers.py", "held.outcome is Outcome.LOST\n", "False\n"),),
        (f"{NETWORK}_16_a_partition_longer_than_the_lease_ends_and_the_same_attempt_goes_on",),
    ),
    Planted(
        "any session may speak for the worker",
        (Edit(f"{COORDINATOR}/operations/sessions.py", "if worker.session != session:", "if False:"),),
        (f"{NETWORK}_70_the_newer_of_two_workers_of_one_name_wins",),
        "TimeoutExpired|timed out",
    ),
    Planted(
        "an answer with a field that is not known is refused",
        (
            Edit(
                f"{SHARED}/messages.py",
                "class Answer(Struct, kw_only=True):",
                "class Answer(Struct, forbid_unknown_fields=True, kw_only=True):",
            ),
        ),
        (f"{LIVE}_59_answers_of_a_newer_coordinator_do_not_confuse_an_older_worker",),
    ),
    # The worker
    Planted(
        "a claim whose answer was lost is forgotten",
        (
            Edit(
                f"{WORKER}/claims.py",
                "            return self._contact.failed(self._name, error)",
                "            self._pending = None\n            return self._contact.failed(self._name, error)",
            ),
        ),
        (
            f"{LIVE}_06_a_claim_whose_answer_is_lost_gets_the_same_attempts_and_each_runs_once",
            "unit/worker/test_agent.py::test_fault_06_a_claim_whose_answer_was_lost_is_sent_again_as_it_was",
        ),
    ),
    Planted(
        "a program is started before its attempt is confirmed",
        (
            Edit(
                f"{WORKER}/claims.py",
                "(self._heart.ask_confirm if pending.ahead else self._confirm)(names)",
                'agent.told(dict.fromkeys(names, "continue"))',
            ),
        ),
        ("unit/worker/test_agent.py::test_fault_09_a_lost_confirmation_starts_nothing_until_the_next_heartbeat",),
    ),
    Planted(
        "every word to go on starts the program once more",
        (
            Edit(
                f"{WORKER}/agent.py",
                "if attempt.stage is Stage.ASSIGNED:",
                "if attempt.stage in (Stage.ASSIGNED, Stage.RUNNING):",
            ),
        ),
        (f"{LIVE}_09_a_confirmation_whose_answer_is_lost_starts_the_program_exactly_once",),
    ),
    Planted(
        "log bytes count as sent before they are",
        (
            Edit(
                f"{WORKER}/outbox.py",
                "attempt.log_sent = self._coordinator.log(attempt.id, attempt.log_sent, data, self._session)",
                "attempt.log_sent += len(data)\n"
                "            self._coordinator.log(attempt.id, attempt.log_sent - len(data), data, self._session)",
            ),
        ),
        (f"{LIVE}_15_a_partition_shorter_than_the_lease_changes_nothing",),
    ),
    Planted(
        "what could not be uploaded is forgotten",
        (Edit(f"{WORKER}/outbox.py", "self._uploads.rotate(-1)", "self._uploads.popleft()"),),
        (f"{NETWORK}_25_a_coordinator_that_is_away_during_the_whole_job_gets_all_of_it_later",),
        seconds=280,
    ),
    Planted(
        "a worker that is told to stop goes on",
        (Edit(f"{WORKER}/agent.py", 'elif word == "stop":', 'elif word == "never":'),),
        (
            f"{NETWORK}_17_once_another_worker_has_claimed_it_the_old_attempt_is_over",
            f"{NETWORK}_29_a_worker_that_slept_past_its_lease_finds_its_attempt_over",
        ),
        seconds=200,
    ),
    Planted(
        "a worker whose token is not accepted goes on",
        (Edit(f"{WORKER}/heartbeat.py", "if self._refused == REFUSALS_BEFORE_STOP:", "if False:"),),
        (f"{NETWORK}_61_a_revoked_token_ends_what_runs_and_a_new_one_is_taken_up",),
        seconds=200,
    ),
    Planted(
        "there may be any number of artifacts",
        (Edit(f"{WORKER}/artifacts.py", "if len(chosen) > MOST:", "if False:"),),
        (
            f"{LIVE}_39_a_hundred_thousand_small_artifacts_are_refused_before_the_upload",
            "unit/worker/test_workspace.py::test_fault_39_too_many_artifacts_are_refused_before_anything_is_taken",
        ),
        seconds=280,
    ),
    Planted(
        "links are followed",
        (
            Edit(f"{WORKER}/artifacts.py", '(None if stat.S_ISREG(mode) else f"is {kind(mode)}")', "None"),
            Edit(
                f"{WORKER}/artifacts.py", "os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK", "os.O_RDONLY | os.O_NONBLOCK"
            ),
        ),
        (
            f"{LIVE}_65_links_pipes_and_devices_are_skipped_and_named_and_no_host_file_is_read",
            "unit/worker/test_workspace.py::test_fault_65_links_fifos_and_sockets_are_skipped_and_named",
        ),
        "out/link|IsADirectoryError|'failed'",
    ),
    Planted(
        "half a record is taken for a whole one",
        (
            Edit(
                f"{WORKER}/journal.py",
                "    records: list[bytes] = []\n",
                '    records: list[bytes] = []\n    data += b"\\n"\n',
            ),
            Edit(
                f"{WORKER}/journal.py", 'len(line) < 9 or line[:8] != b"%08x" % zlib.crc32(line[9:])', "len(line) < 9"
            ),
        ),
        (f"{INPUT}_14_power_lost_at_any_byte_of_a_result_leaves_the_old_spool_or_the_new_one",),
        "rror",
    ),
    Planted(
        "half a record stays where the next one is written",
        (Edit(f"{WORKER}/journal.py", "if whole < len(data):", "if False:"),),
        ("unit/worker/test_journal.py::test_fault_14_a_torn_last_record_is_cut_off_and_the_rest_is_whole",),
    ),
    Planted(
        "a job's name goes to the terminal as it is",
        (Edit(f"{WORKER}/console.py", 'each if each.isprintable() else "?"', "each"),),
        ("unit/worker/test_policy.py::test_fault_37_nothing_that_a_terminal_would_obey_is_printed",),
    ),
    Planted(
        "a full disk is not looked at",
        (Edit(f"{WORKER}/daemon.py", "low = free < self.settings.min_free_disk", "low = False"),),
        ("integration/worker/test_owner.py::test_fault_32_a_full_disk_stops_new_work_and_results_still_fit",),
        seconds=200,
    ),
    Planted(
        "the token is written to the log",
        (
            Edit(
                f"{WORKER}/token.py",
                "                self._token, self._read_at = self._path.read_text().strip(), changed\n",
                "                self._token, self._read_at = self._path.read_text().strip(), changed\n"
                '                __import__("sys").stderr.write(self._token)\n',
            ),
        ),
        ("integration/worker/test_jobs.py::test_fault_69_the_token_is_in_no_process_list_environment_or_log",),
        "not in",
    ),
    # Restarts of the worker
    Planted(
        "what was started before is started once more",
        (Edit(f"{WORKER}/recovery.py", "if not entry.runner:", "if True:"),),
        (
            f"{RESTARTS}_11_a_worker_killed_at_any_step_delivers_one_right_result",
            f"{RESTARTS}_11_a_container_is_run_once_wherever_the_worker_is_killed",
            f"{RESTARTS}_11_short_jobs_that_wait_in_lanes_all_end_once_however_often_the_worker_is_killed",
        ),
        seconds=200,
    ),
    Planted(
        "nothing of an earlier session is adopted",
        (Edit(f"{WORKER}/recovery.py", "elif _take_up(agent, name, entry):", "elif False:"),),
        (
            f"{RESTARTS}_10_a_plain_process_goes_on_while_the_worker_is_dead",
            f"{RESTARTS}_10_a_container_is_adopted_with_its_whole_log_and_its_exit_code",
        ),
        seconds=200,
    ),
    Planted(
        "a reboot is not noticed",
        (Edit(f"{WORKER}/recovery.py", "entry.result is None and entry.boot != boot", "False"),),
        (
            f"{RESTARTS}_12_a_reboot_in_mid_job_is_never_a_success",
            f"{RESTARTS}_12_a_container_of_another_boot_is_lost_and_removed",
        ),
        seconds=200,
    ),
    Planted(
        "after a reboot nothing counts",
        (Edit(f"{WORKER}/recovery.py", "entry.result is None and entry.boot != boot", "entry.boot != boot"),),
        (f"{RESTARTS}_13_a_result_in_the_spool_is_delivered_after_a_reboot",),
        "None",
    ),
    Planted(
        "leftovers stay",
        (
            Edit(
                f"{WORKER}/runners/podman/__init__.py",
                "            if attempt not in keep:\n",
                "            if False:\n",
            ),
        ),
        (f"{RESTARTS}_55_leftovers_of_ours_are_removed_and_those_of_others_are_not",),
        seconds=200,
    ),
    # Containers
    Planted(
        "the shell's exit codes are taken for Podman's",
        (
            Edit(
                f"{WORKER}/runners/podman/__init__.py",
                'error=str(state.get("Error") or "") if code != 0 else "",',
                'error="Podman failed" if code in (125, 126, 127) else "",',
            ),
        ),
        (f"{CONTAINERS}_56_an_exit_code_is_the_programs_own",),
        "'error'",
    ),
    Planted(
        "what the machinery failed to do is blamed on the program",
        (Edit(f"{WORKER}/attempt.py", 'return "error", exit_.error', 'return "failed", exit_.error'),),
        (f"{CONTAINERS}_50_a_missing_image_is_an_infrastructure_failure",),
        "'failed'",
    ),
    Planted(
        "an image that was missing once is missing for ever",
        (
            Edit(
                f"{WORKER}/runners/podman/__init__.py",
                '            raise CannotStart(f"the image {image} cannot',
                '            self._lacking = image\n            raise CannotStart(f"the image {image} cannot',
            ),
            Edit(
                f"{WORKER}/runners/podman/__init__.py",
                "        try:\n            container = self._engine.create(spec)\n",
                '        if getattr(self, "_lacking", "") == launch.image:\n'
                '            raise CannotStart("it cannot be had")\n'
                "        try:\n            container = self._engine.create(spec)\n",
            ),
        ),
        (f"{CONTAINERS}_50_an_image_that_appears_later_is_used",),
        "'error'",
    ),
    Planted(
        "nobody looks for the signs of too little memory",
        (Edit(f"{WORKER}/runners/podman/__init__.py", "oom = code != 0 and not", "oom = False and not"),),
        (f"{CONTAINERS}_51_out_of_memory_is_recognised_and_the_worker_lives",),
        "'failed'",
    ),
    Planted(
        "after TERM nothing follows",
        (
            Edit(
                f"{WORKER}/agent.py",
                'attempt.killed_at = now\n            self._signal(attempt, "KILL")',
                "attempt.killed_at = now",
            ),
        ),
        (f"{CONTAINERS}_54_a_job_that_ignores_term_is_killed_after_its_grace",),
    ),
    Planted(
        "a container shares the processes of the machine",
        (
            Edit(
                f"{WORKER}/runners/podman/spec.py",
                '"privileged": False,',
                '"privileged": False, "pidns": {"nsmode": "host"},',
            ),
        ),
        (f"{CONTAINERS}_57_what_a_program_leaves_in_the_background_ends_with_it",),
    ),
    Planted(
        "a job may have four times the processes that its owner allows",
        (
            Edit(
                f"{WORKER}/runners/podman/spec.py",
                '"pids": {"limit": launch.pids}',
                '"pids": {"limit": 4 * launch.pids}',
            ),
        ),
        (f"{CONTAINERS}_53_a_fork_bomb_is_contained",),
    ),
    Planted(
        "every piece of a line ends the line",
        (Edit(f"{WORKER}/logs.py", 'if line[tag : tag + 1] == b"F" else line[PREFIX:]', 'if line else b""'),),
        (f"{CONTAINERS}_36_binary_output_arrives_byte_for_byte",),
    ),
    Planted(
        "the bytes that were dropped are counted with one too many",
        (
            Edit(
                f"{WORKER}/logs.py",
                "dropped = total - self._head - self._tail",
                "dropped = total - self._head - self._tail + 1",
            ),
        ),
        (
            f"{CONTAINERS}_35_one_line_of_many_megabytes_keeps_its_head_and_tail",
            f"{CONTAINERS}_34_a_flood_of_output_is_counted_exactly_and_stays_small",
        ),
        "bytes of this log were dropped",
        300,
    ),
    Planted(
        "nobody watches conmon",
        (
            Edit(
                f"{WORKER}/runners/podman/__init__.py",
                'if conmon and Path(f"/proc/{container.pid}").exists():',
                "if False:",
            ),
        ),
        (f"{CONTAINERS}_49_conmon_killed_ends_the_attempt_as_an_error",),
        seconds=200,
    ),
    Planted(
        "the runtime knows no timeout",
        (Edit(f"{WORKER}/runners/podman/spec.py", "math.ceil(launch.timeout_seconds) + BACKSTOP_SECONDS", "0"),),
        (f"{CONTAINERS}_58_a_timeout_holds_while_the_worker_is_dead",),
        seconds=200,
    ),
    Planted(
        "Podman is not asked whether it is well",
        (Edit(f"{WORKER}/runners/podman/__init__.py", "                self._engine.ping()", "                pass"),),
        (f"{CONTAINERS}_48_a_service_that_hangs_or_dies_stops_new_work_and_nothing_else",),
        seconds=200,
    ),
    # The command
    Planted(
        "a log loses its carriage returns",
        (
            Edit(
                f"{CLI}/logs.py",
                "                    yield chunk\n",
                '                    yield chunk.replace(b"\\r", b"")\n',
            ),
        ),
        ("integration/cli/test_look.py::test_fault_36_a_log_in_a_pipe_is_byte_for_byte_what_was_written",),
    ),
    Planted(
        "control characters go to the terminal as they are",
        (Edit(f"{CLI}/output.py", '    return text.replace("\\r\\n", "\\n").translate(_INERT)', "    return text"),),
        ("integration/cli/test_terminal.py::test_fault_37_what_a_job_writes_cannot_steer_the_terminal",),
        "rror",
    ),
    # Job files
    Planted(
        "aliases may expand without end",
        (Edit(f"{SHARED}/jobfile/loader.py", "if total > limits.DOCUMENT_NODES:", "if False:"),),
        (f"{INPUT}_67_a_bomb_or_a_tag_in_yaml_is_refused",),
        "DID NOT RAISE",
    ),
    Planted(
        "tags are let pass",
        (Edit(f"{SHARED}/jobfile/loader.py", "        if event.tag:\n", "        if False:\n"),),
        (f"{INPUT}_67_a_bomb_or_a_tag_in_yaml_is_refused",),
        "DID NOT RAISE",
    ),
    # The long one
    Planted(
        "a large file is read in pieces of half a gigabyte",
        (Edit(f"{WORKER}/coordinator.py", "PART = 8 << 20", "PART = 512 << 20"),),
        ("chaos/test_end_to_end.py::test_fault_38_an_artifact_of_5_gib_takes_constant_memory_and_is_resumed",),
        "300 << 20",
        3000,
    ),
]
