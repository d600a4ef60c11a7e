"""Bugs in the databases and in the store of blobs."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

from planted.bug import BLOBS, HTTP_BLOBS, INPUT, NETWORK, SERVER, STORAGE, Planted
from planted.patch import Patch, becomes, first_argument, gives, nothing

DATABASE = "deborgen_coordinator.storage.database"
SQLITE = "deborgen_coordinator.storage.sqlite"
POSTGRES = "deborgen_coordinator.storage.postgres"
WRITER = "deborgen_coordinator.storage.writer"
LOCAL = "deborgen_coordinator.blobs.local"


def commit_what_failed(original: Any) -> Any:
    @contextlib.contextmanager
    def transaction(connection: Any) -> Iterator[None]:
        try:
            yield
        finally:
            connection.run("COMMIT")

    return transaction


def lock_nothing(original: Any) -> Any:
    return lambda self, ctx: ctx.sql(self.query)


def pass_damage_on(original: Any) -> Any:
    from deborgen_coordinator.storage.database import DatabaseDamaged

    def connect(self: Any, *, readonly: bool) -> Any:
        try:
            return original(self, readonly=readonly)
        except DatabaseDamaged as damaged:
            raise damaged.__cause__ or damaged from None

    return connect


def send_text_as_it_is(original: Any) -> Any:
    from psycopg.types.string import StrDumperUnknown

    return StrDumperUnknown.dump


def count_interrupted_work_as_done(original: Any) -> Any:
    from deborgen_coordinator.storage.database import DatabaseUnavailable

    def commit_all(self: Any, group: list[Any]) -> Any:
        done = original(self, group)
        for item in group:
            if isinstance(item.error, DatabaseUnavailable):
                item.error = None
        return done

    return commit_all


def commit_now_and_then(original: Any) -> Any:
    return lambda self: original(self) if time.time() % 1 < 0.5 else None


def do_not_flush_commits(original: Any) -> Any:
    def connect(self: Any, path: Any, *, readonly: bool) -> None:
        original(self, path, readonly=readonly)
        self.run("PRAGMA synchronous = NORMAL")

    return connect


def believe_the_digest(original: Any) -> Any:
    def finish(self: Any, file: Any, path: Any, found: str, digest: str, commit: Any) -> Any:
        return original(self, file, path, digest, digest, commit)

    return finish


def keep_what_did_not_fit(original: Any) -> Any:
    from deborgen_coordinator.blobs import NoSpace

    return lambda file, problem: isinstance(problem, NoSpace) or original(file, problem)


PLANTED: list[Planted] = [
    Planted(
        "claimers at two coordinators look at the same rows",
        (Patch("deborgen_coordinator.storage.statements:Locked.__sql__", lock_nothing),),
        ("contract/coordinator/test_waiting.py::test_fault_08_64_claimers_on_1000_jobs_never_get_the_same_job",),
        "a running job cannot be claimed|assert",
    ),
    Planted(
        "a migration that fails is committed as far as it went",
        (Patch(f"{DATABASE}:transaction", commit_what_failed),),
        (
            "contract/coordinator/test_migrations.py::test_fault_60_a_migration_that_fails_half_way_leaves_the_old_database_as_it_was",
        ),
        "half",
    ),
    Planted(
        "the whole file is not checked",
        (Patch(f"{SQLITE}:SqliteDatabase.check", nothing),),
        (f"{STORAGE}_44_a_damaged_database_file_is_refused",),
        "DID NOT RAISE",
    ),
    Planted(
        "a damaged file is an error like any other",
        (Patch(f"{SQLITE}:SqliteDatabase.check", nothing), Patch(f"{SQLITE}:SqliteDatabase.connect", pass_damage_on)),
        (
            f"{SERVER}/test_start_and_stop.py::test_fault_44_a_damaged_database_is_refused_with_the_way_back",
            f"{SERVER}/test_start_and_stop.py::test_fault_44_a_truncated_database_is_refused",
        ),
    ),
    Planted(
        "a large file that was cut is an error like any other",
        (Patch(f"{SQLITE}:SqliteDatabase.check", nothing), Patch(f"{SQLITE}:SqliteDatabase.connect", pass_damage_on)),
        (f"{STORAGE}_44_a_large_truncated_file_is_refused_at_the_start",),
        "malformed",
    ),
    Planted(
        "the rest of a large file is never read",
        (Patch(f"{SQLITE}:SqliteDatabase.examine", nothing),),
        (f"{STORAGE}_44_a_large_file_is_served_at_once_and_damage_is_noticed_while_serving",),
    ),
    Planted(
        "damage that a query meets is an error like any other",
        (Patch(f"{SQLITE}:SqliteDatabase.is_damage", gives(False)),),
        (f"{STORAGE}_44_a_read_or_write_of_a_damaged_page_is_refused_and_stops_all_writing",),
        "malformed",
    ),
    Planted(
        "an error of the database is passed on as it is",
        (Patch(f"{WRITER}:GroupWriter._refusal", first_argument),),
        (
            f"{STORAGE}_42_a_file_that_another_process_keeps_locked_is_a_refusal_and_then_all_is_well",
            f"{SERVER}/test_start_and_stop.py::test_fault_42_a_locked_database_is_503_with_retry_after_and_then_all_is_well",
        ),
        "database is locked|500",
    ),
    Planted(
        "NUL goes to PostgreSQL as it is",
        (Patch(f"{POSTGRES}:TextDumper.dump", send_text_as_it_is),),
        (f"{STORAGE}_68_text_with_nul_is_accepted_by_either_database",),
        "NUL",
    ),
    Planted(
        "work that the database interrupted counts as done",
        (
            Patch(f"{WRITER}:PATIENCE_SECONDS", becomes(-1.0)),
            Patch(f"{WRITER}:GroupWriter._commit_all", count_interrupted_work_as_done),
        ),
        (
            f"{STORAGE}_45_postgres_restarted_under_load_loses_nothing",
            f"{SERVER}/test_postgres.py::test_fault_45_a_restart_of_postgres_loses_nothing_and_nobody_notices",
        ),
        "lost|500|assert",
    ),
    Planted(
        "an answer is sent before the commit",
        (Patch("deborgen_coordinator.storage.transactions:Tx.commit", commit_now_and_then),),
        (
            f"{SERVER}/test_kill.py::test_fault_01_thirty_kills_in_the_middle_of_everything_lose_nothing_that_was_acknowledged",
            f"{SERVER}/test_kill.py::test_fault_01_kills_lose_nothing_on_postgres_either",
        ),
        "rror",
        300,
    ),
    Planted(
        "commits are not flushed to the disk",
        (Patch(f"{SQLITE}:SqliteConnection.__init__", do_not_flush_commits),),
        (f"{INPUT}_03_every_answer_comes_after_the_flush_of_the_data_it_acknowledges",),
        "sqlite-wal",
    ),
    Planted(
        "blobs are not flushed to the disk",
        (Patch(f"{LOCAL}:sync_file", nothing),),
        (f"{INPUT}_03_every_answer_comes_after_the_flush_of_the_data_it_acknowledges",),
        "/blobs/uploads/",
    ),
    Planted(
        "the digest of bytes is not checked",
        (Patch(f"{LOCAL}:LocalBlobs._finish", believe_the_digest),),
        (
            f"{BLOBS}_40_a_flipped_bit_is_refused_by_digest_and_the_repeat_works",
            f"{HTTP_BLOBS}_40_bytes_with_another_digest_are_refused_and_nothing_is_kept",
            f"{NETWORK}_40_a_bit_that_flips_in_transit_is_found_and_the_retry_works",
        ),
        "DID NOT RAISE|KeyError: 'error'",
    ),
    Planted(
        "an interrupted upload is discarded",
        (Patch(f"{LOCAL}:_worth_keeping", gives(False)),),
        (
            f"{BLOBS}_19_an_upload_cut_fifty_times_at_random_bytes_is_resumed",
            f"{HTTP_BLOBS}_19_an_upload_cut_at_random_bytes_is_resumed_from_what_head_tells",
            "integration/cli/test_submit.py::test_fault_19_an_upload_that_is_cut_is_resumed",
            f"{NETWORK}_19_an_upload_that_is_interrupted_repeatedly_arrives_intact",
        ),
    ),
    Planted(
        "an upload that did not fit stays on the disk",
        (Patch(f"{LOCAL}:_worth_keeping", keep_what_did_not_fit),),
        (f"{BLOBS}_31_a_full_disk_leaves_no_temporary_file_and_the_repeat_works",),
        r"\.part",
    ),
]
