"""What each person used of each machine, per stretch of time; the depth of the queue; and two indexes for timelines.

What the attempts of the past used counts for the day on which they ended.
"""

from __future__ import annotations

import json
from collections import defaultdict

from peewee import SQL, BigIntegerField, Check, CompositeKey, DoubleField, Model

from ..database import DatabaseConnection
from . import create_table


class MinuteField(BigIntegerField):
    field_type = "KEY"


class UsageTable(Model):
    begin = BigIntegerField()
    length = BigIntegerField(constraints=[Check("length > 0")])
    worker_id = BigIntegerField()
    submitter_id = BigIntegerField()
    attempts = BigIntegerField()
    succeeded = BigIntegerField()
    seconds = DoubleField()
    cores = DoubleField()
    gpus = DoubleField()
    memory = DoubleField()

    class Meta:
        table_name = "usage"
        primary_key = CompositeKey("begin", "length", "worker_id", "submitter_id")
        without_rowid = True
        constraints = (
            SQL("FOREIGN KEY (worker_id) REFERENCES worker (id)"),
            SQL("FOREIGN KEY (submitter_id) REFERENCES submitter (id)"),
        )


class DepthTable(Model):
    minute = MinuteField(primary_key=True)
    queued = BigIntegerField(constraints=[Check("queued >= 0")])
    running = BigIntegerField(constraints=[Check("running >= 0")])

    class Meta:
        table_name = "queue_depth"


INDEXES = (
    "CREATE INDEX attempt_ended ON attempt (worker_id, finished_at) WHERE finished_at IS NOT NULL",
    "CREATE INDEX event_machine ON event (worker, seq) WHERE worker IS NOT NULL AND job_id IS NULL",
)
DAY = 86_400
PAST = f"""
SELECT CAST(a.finished_at AS BIGINT) / {DAY}, a.worker_id, j.submitter_id, j.spec_id, COUNT(*),
    SUM(CASE a.outcome WHEN 'succeeded' THEN 1 ELSE 0 END), SUM(CASE a.outcome WHEN 'released' THEN 1 ELSE 0 END),
    SUM(CASE WHEN COALESCE(a.seconds, 0) < a.finished_at - a.started_at THEN COALESCE(a.seconds, 0)
        WHEN a.finished_at > a.started_at THEN a.finished_at - a.started_at ELSE 0 END)
FROM attempt a JOIN job j ON j.id = a.job_id WHERE a.outcome IS NOT NULL
GROUP BY 1, a.worker_id, j.submitter_id, j.spec_id
"""


def migrate(connection: DatabaseConnection) -> None:
    create_table(connection, UsageTable)
    create_table(connection, DepthTable)
    for text in INDEXES:
        connection.run(text)
    _count_the_past(connection)


def _count_the_past(connection: DatabaseConnection) -> None:
    sums: defaultdict[tuple[int, int, int], list[float]] = defaultdict(lambda: [0, 0, 0.0, 0.0, 0.0, 0.0])
    asked: dict[int, tuple[float, float, float]] = {}
    for day, worker, submitter, spec, attempts, succeeded, released, seconds in connection.rows(PAST):
        if spec not in asked:
            [(body,)] = connection.rows("SELECT body FROM spec WHERE id = ?", (spec,))
            resources = json.loads(body).get("resources", {})
            asked[spec] = (resources.get("cpus", 1.0), resources.get("gpus", 0), resources.get("memory", 2**30))
        cpus, gpus, memory = asked[spec]
        row = sums[int(day), worker, submitter]
        more = (attempts - released, succeeded, seconds, seconds * cpus, seconds * gpus, seconds * memory)
        row[:] = [float(old) + float(new) for old, new in zip(row, more, strict=True)]
    columns = "begin length worker_id submitter_id attempts succeeded seconds cores gpus memory".split()
    rows = (
        (day * DAY, DAY, worker, submitter, int(row[0]), int(row[1]), *row[2:])
        for (day, worker, submitter), row in sorted(sums.items())
    )
    connection.bulk_insert(UsageTable, columns, rows)
