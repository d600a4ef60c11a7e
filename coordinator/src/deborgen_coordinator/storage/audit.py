"""What must never be found in the database: one query a sentence, in the SQL that both databases understand.

Each query gives the job (or run, or digest) it is about, and the attempt where it is about one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

from deborgen_shared.program_events import JOB_EVENT
from deborgen_shared.states import INFRASTRUCTURE_FAILURES, PROGRAM_FAILURES, TERMINAL, Outcome, State

from .database import Connection

LOST, DUPLICATED, UNEXPECTED = "lost", "duplicated", "unexpected"


#: The jobs of a run, and of a step, by the span of their keys.
OF_RUN = "job.id BETWEEN run.id * 1048576 + 1 AND run.id * 1048576 + 1048575"
OF_STEP = "job.id BETWEEN step.run_id * 1048576 + step.first_index AND step.run_id * 1048576 + step.last_index"


#: The outcomes that can fail a job, and the events that end one, as SQL lists them.
FAILURES = ", ".join(f"'{outcome}'" for outcome in sorted(PROGRAM_FAILURES | INFRASTRUCTURE_FAILURES))
ENDS = ", ".join(f"'job.{state}'" for state in sorted(TERMINAL))

#: How many jobs of a run are in each state, and the runs whose own counts say something else.
COUNTED = ", ".join(f"sum(CASE WHEN state = '{state}' THEN 1 ELSE 0 END) AS {state}" for state in State)
MISCOUNTED = " OR ".join(f"run.{state} <> counted.{state}" for state in State)

#: The pieces of each log, with the byte at which each should begin.
CHUNKS = (
    "(SELECT job_id, number, first,"
    " COALESCE(lag(first + length(data)) OVER (PARTITION BY job_id, number ORDER BY first), 0) AS wanted"
    " FROM log_chunk) AS chunks"
)


class Check(NamedTuple):
    """A sentence that must not be true of anything; `subject` says what the first column names."""

    kind: str
    name: str
    sentence: str
    subject: str
    sql: str


CHECKS = [
    Check(
        LOST, "jobs_missing", "the run has fewer jobs than were submitted", "run",
        f"SELECT run.id, NULL FROM run WHERE (SELECT count(*) FROM job WHERE {OF_RUN}) < run.jobs",
    ),
    Check(
        UNEXPECTED, "jobs_too_many", "the run has more jobs than were submitted", "run",
        f"SELECT run.id, NULL FROM run WHERE (SELECT count(*) FROM job WHERE {OF_RUN}) > run.jobs",
    ),
    Check(
        UNEXPECTED, "run_counts", "the run's counts are not those of its jobs", "run",
        f"SELECT run.id, NULL FROM run JOIN (SELECT id / 1048576 AS run_id, {COUNTED} FROM job GROUP BY id / 1048576)"
        f" AS counted ON counted.run_id = run.id WHERE {MISCOUNTED}",
    ),
    Check(
        UNEXPECTED, "step_counts", "the step's counts are not those of its jobs", "run",
        f"SELECT step.run_id, NULL FROM step WHERE step.jobs <> (SELECT count(*) FROM job WHERE {OF_STEP})"
        f" OR step.unfinished <> (SELECT count(*) FROM job WHERE {OF_STEP} AND job.finished_at IS NULL)",
    ),
    Check(
        LOST, "attempts_missing", "attempts of the job are missing", "job",
        "SELECT job.id, job.last_attempt FROM job LEFT JOIN (SELECT job_id, count(*) AS n, max(number) AS newest"
        " FROM attempt GROUP BY job_id) AS had ON had.job_id = job.id"
        " WHERE COALESCE(had.n, 0) < job.last_attempt",
    ),
    Check(
        UNEXPECTED, "attempts_beyond", "the job has attempts beyond its last", "job",
        "SELECT attempt.job_id, attempt.number FROM attempt JOIN job ON job.id = attempt.job_id"
        " WHERE attempt.number > job.last_attempt",
    ),
    Check(
        UNEXPECTED, "attempts_charged", "the attempts charged to the job are not those that were used", "job",
        "SELECT job.id, NULL FROM job LEFT JOIN (SELECT job_id,"
        f" sum(CASE WHEN outcome = '{Outcome.RELEASED}' THEN 0 ELSE 1 END) AS used FROM attempt GROUP BY job_id) AS had"
        " ON had.job_id = job.id WHERE job.attempts <> COALESCE(had.used, 0)"
        f" AND NOT (job.state = '{State.CANCELED}' AND job.attempts = COALESCE(had.used, 0) + 1)",
    ),
    Check(
        DUPLICATED, "live_twice", "the job has two live attempts", "job",
        "SELECT job_id, max(number) FROM attempt WHERE outcome IS NULL GROUP BY job_id HAVING count(*) > 1",
    ),
    Check(
        DUPLICATED, "succeeded_twice", "the job succeeded twice", "job",
        f"SELECT job_id, max(number) FROM attempt WHERE outcome = '{Outcome.SUCCEEDED}'"
        " GROUP BY job_id HAVING count(*) > 1",
    ),
    Check(
        LOST, "running_without_attempt", "the job runs, and nobody holds it", "job",
        f"SELECT job.id, job.last_attempt FROM job WHERE job.state = '{State.RUNNING}'"
        " AND NOT EXISTS (SELECT 1 FROM attempt"
        " WHERE attempt.job_id = job.id AND attempt.number = job.last_attempt AND attempt.outcome IS NULL)",
    ),
    Check(
        UNEXPECTED, "held_without_running", "the job does not run, and somebody holds it", "job",
        "SELECT job.id, attempt.number FROM job JOIN attempt ON attempt.job_id = job.id AND attempt.outcome IS NULL"
        f" WHERE job.state <> '{State.RUNNING}' OR attempt.number <> job.last_attempt",
    ),
    Check(
        UNEXPECTED, "state_and_outcome", "the job's state is not what its last attempt ended as", "job",
        "SELECT job.id, attempt.number FROM job JOIN attempt ON attempt.job_id = job.id"
        " AND attempt.number = job.last_attempt WHERE attempt.outcome IS NOT NULL AND NOT ("
        f" (job.state = '{State.SUCCEEDED}' AND attempt.outcome = '{Outcome.SUCCEEDED}')"
        f" OR (job.state = '{State.FAILED}' AND attempt.outcome IN ({FAILURES}))"
        f" OR (job.state = '{State.CANCELED}' AND attempt.outcome <> '{Outcome.SUCCEEDED}')"
        f" OR (job.state = '{State.QUEUED}' AND attempt.outcome NOT IN ('{Outcome.SUCCEEDED}', '{Outcome.CANCELED}')))",
    ),
    Check(
        UNEXPECTED, "after_the_end", "the job was tried again after an attempt that was final", "job",
        "SELECT attempt.job_id, attempt.number FROM attempt JOIN job ON job.id = attempt.job_id"
        " WHERE attempt.number < job.last_attempt"
        f" AND attempt.outcome IN ('{Outcome.SUCCEEDED}', '{Outcome.CANCELED}')",
    ),
    Check(
        UNEXPECTED, "exit_code", "the attempt succeeded with another exit code than 0", "job",
        f"SELECT job_id, number FROM attempt WHERE outcome = '{Outcome.SUCCEEDED}'"
        " AND exit_code IS NOT NULL AND exit_code <> 0",
    ),
    Check(
        LOST, "stuck", "the job is queued, nothing holds it back, and yet nobody can claim it", "job",
        "SELECT job.id, NULL FROM job JOIN step ON step.run_id = job.id / 1048576 AND step.number = job.step"
        f" WHERE job.state = '{State.QUEUED}' AND job.ready = 0 AND job.wait_clock IS NULL AND step.blockers = 0",
    ),
    Check(
        UNEXPECTED, "ahead_of_its_need", "the job can be claimed before the steps that it needs are through", "job",
        "SELECT job.id, NULL FROM job JOIN step ON step.run_id = job.id / 1048576 AND step.number = job.step"
        " WHERE step.blockers > 0 AND (job.ready = 1 OR job.last_attempt > 0)",
    ),
    Check(
        LOST, "grant_not_recorded", "the history does not say that the attempt was granted", "job",
        "SELECT attempt.job_id, attempt.number FROM attempt LEFT JOIN event ON event.job_id = attempt.job_id"
        " AND event.attempt = attempt.number AND event.type = 'lease.granted' WHERE event.seq IS NULL",
    ),
    Check(
        DUPLICATED, "granted_twice", "the history says that the attempt was granted twice", "job",
        "SELECT job_id, attempt FROM event WHERE type = 'lease.granted' GROUP BY job_id, attempt HAVING count(*) > 1",
    ),
    Check(
        LOST, "grant_without_attempt", "the history tells of an attempt that is not there", "job",
        "SELECT event.job_id, event.attempt FROM event LEFT JOIN attempt ON attempt.job_id = event.job_id"
        " AND attempt.number = event.attempt WHERE event.type = 'lease.granted' AND attempt.number IS NULL",
    ),
    Check(
        DUPLICATED, "ended_twice", "the history says that the job ended twice", "job",
        f"SELECT job_id, NULL FROM event WHERE type IN ({ENDS})"
        " GROUP BY job_id HAVING count(*) > 1",
    ),
    Check(
        LOST, "log_hole", "bytes are missing in the middle of the log", "job",
        f"SELECT job_id, number FROM {CHUNKS} WHERE first > wanted",
    ),
    Check(
        DUPLICATED, "log_overlap", "bytes of the log are there twice", "job",
        f"SELECT job_id, number FROM {CHUNKS} WHERE first < wanted",
    ),
    Check(
        LOST, "log_size", "the log is not as long as its attempt says", "job",
        "SELECT attempt.job_id, attempt.number FROM attempt LEFT JOIN (SELECT job_id, number,"
        " sum(length(data)) AS bytes FROM log_chunk GROUP BY job_id, number) AS chunks"
        " ON chunks.job_id = attempt.job_id AND chunks.number = attempt.number"
        " WHERE attempt.log_digest IS NULL AND attempt.log_size <> COALESCE(chunks.bytes, 0)",
    ),
    Check(
        LOST, "log_unfinished", "the log was sealed before all of it had come", "job",
        "SELECT job_id, number FROM attempt WHERE log_digest IS NOT NULL AND log_told IS NOT NULL"
        " AND log_size < log_told",
    ),
    Check(
        UNEXPECTED, "log_beyond", "the log is longer than its result said", "job",
        "SELECT job_id, number FROM attempt WHERE log_told IS NOT NULL AND log_size > log_told"
        f" AND outcome NOT IN ('{Outcome.RELEASED}', '{Outcome.ERROR}')",
    ),
    Check(
        DUPLICATED, "log_sealed_and_not", "the log is sealed, and its pieces are still there", "job",
        "SELECT DISTINCT attempt.job_id, attempt.number FROM attempt JOIN log_chunk"
        " ON log_chunk.job_id = attempt.job_id AND log_chunk.number = attempt.number"
        " WHERE attempt.log_digest IS NOT NULL",
    ),
    Check(
        LOST, "log_blob", "the blob of a sealed log is not known, or has another size", "job",
        "SELECT attempt.job_id, attempt.number FROM attempt LEFT JOIN blob ON blob.digest = attempt.log_digest"
        " WHERE attempt.log_digest IS NOT NULL AND (blob.size IS NULL OR blob.size <> attempt.log_size)",
    ),
    Check(
        LOST, "artifact_blob", "the blob of an artifact is not known, or has another size", "job",
        "SELECT artifact.job_id, artifact.number FROM artifact LEFT JOIN blob ON blob.digest = artifact.digest"
        " WHERE blob.size IS NULL OR blob.size <> artifact.size",
    ),
    Check(
        UNEXPECTED, "artifact_of_nothing", "an artifact belongs to an attempt that has no result", "job",
        "SELECT DISTINCT artifact.job_id, artifact.number FROM artifact JOIN attempt"
        " ON attempt.job_id = artifact.job_id AND attempt.number = artifact.number"
        f" WHERE attempt.outcome IS NULL OR attempt.outcome IN ('{Outcome.LOST}', '{Outcome.RELEASED}')",
    ),
    Check(
        LOST, "input_blob", "the blob of an input file is not known", "blob",
        "SELECT DISTINCT spec_file.digest, NULL FROM spec_file LEFT JOIN blob ON blob.digest = spec_file.digest"
        " WHERE blob.digest IS NULL AND EXISTS (SELECT 1 FROM job WHERE job.spec_id = spec_file.spec_id"
        " AND job.finished_at IS NULL)",
    ),
    Check(
        DUPLICATED, "program_events", "the history has more events of the program than its attempt has sent", "job",
        "SELECT event.job_id, event.attempt FROM event LEFT JOIN attempt ON attempt.job_id = event.job_id"
        f" AND attempt.number = event.attempt WHERE event.type = '{JOB_EVENT}'"
        " GROUP BY event.job_id, event.attempt, attempt.events HAVING count(*) > COALESCE(attempt.events, 0)",
    ),
    Check(
        DUPLICATED, "submitted_twice", "the history says that the run was submitted twice", "run",
        "SELECT job_id / 1048576, NULL FROM event WHERE type = 'run.submitted' GROUP BY job_id / 1048576"
        " HAVING count(*) > 1",
    ),
    Check(
        LOST, "run_missing", "the history tells of a run that is not there", "run",
        "SELECT event.job_id / 1048576, NULL FROM event LEFT JOIN run ON run.id = event.job_id / 1048576"
        " WHERE event.type = 'run.submitted' AND run.id IS NULL",
    ),
]  # fmt: skip


def totals(reader: Connection) -> dict[str, int]:
    """How much there is: for people, and to see that an audit looked at something."""
    tables = ("run", "job", "attempt", "event", "artifact", "blob")
    return {f"{table}s": int(reader.value(f"SELECT count(*) FROM {table}")) for table in tables}


def states(reader: Connection) -> list[tuple[int, str]]:
    """Every job and its state, in the order of the jobs."""
    return reader.rows("SELECT id, state FROM job ORDER BY id")


def moves(reader: Connection, first: int, last: int) -> list[tuple[int, int, str, str | None, str]]:
    """What the history says of the states of these jobs, in order: job, seq, type, old state, new state."""
    return reader.rows(
        "SELECT job_id, seq, type, old_state, new_state FROM event WHERE job_id BETWEEN ? AND ?"
        " AND new_state IS NOT NULL ORDER BY job_id, seq",
        (first, last),
    )


BLOCKERS = (
    "SELECT step.run_id, step.number, step.name, step.needs, step.blockers, NOT EXISTS (SELECT 1 FROM job"
    f" WHERE {OF_STEP} AND job.state <> '{State.SUCCEEDED}')"
    " FROM step JOIN run ON run.id = step.run_id WHERE run.steps > 1 ORDER BY step.run_id, step.number"
)


def blockers(reader: Connection) -> Iterator[tuple[int, int, int, int]]:
    """For each step that needs others: run, step, its blockers as stored, and as they should be."""
    rows = reader.rows(BLOCKERS)
    unfinished = {(run, name) for run, _, name, _, _, through in rows if not through}
    for run, number, _, needs, count, _ in rows:
        yield run, number, count, sum((run, need) in unfinished for need in json.loads(needs))
