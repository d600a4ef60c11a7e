-- The whole schema, as a fresh database gets it. What changes here comes with a file in migrations/, and a test
-- compares the two ways. {…} are the words that SQLite and PostgreSQL spell differently.
--
-- A job's id is its run's number times 2^20 plus its index: jobs of a run lie together, and the order of ids is the
-- order of submission. Times `*_at` are wall clock seconds, for the record; `*_clock` are on the lease clock.

CREATE TABLE lease_clock (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    value {double} NOT NULL,
    sweeper TEXT NOT NULL DEFAULT '',
    turns BIGINT NOT NULL DEFAULT 0
);

CREATE TABLE token (
    id TEXT PRIMARY KEY,
    role TEXT NOT NULL CHECK (role IN ('admin', 'submitter', 'viewer', 'worker')),
    name TEXT NOT NULL,
    digest TEXT NOT NULL,
    created_at {double} NOT NULL,
    expires_at {double},
    last_used_at {double},
    revoked_at {double}
);

CREATE TABLE submitter (
    id {serial},
    name TEXT NOT NULL UNIQUE,
    used {double} NOT NULL DEFAULT 0
);

CREATE TABLE run (
    id {serial},
    name TEXT NOT NULL,
    submitter_id BIGINT NOT NULL REFERENCES submitter (id),
    labels TEXT NOT NULL,
    warnings TEXT NOT NULL,
    retry_of BIGINT REFERENCES run (id),
    jobs BIGINT NOT NULL CHECK (jobs > 0),
    steps BIGINT NOT NULL CHECK (steps > 0),
    queued BIGINT NOT NULL CHECK (queued >= 0),
    running BIGINT NOT NULL DEFAULT 0 CHECK (running >= 0),
    succeeded BIGINT NOT NULL DEFAULT 0 CHECK (succeeded >= 0),
    failed BIGINT NOT NULL DEFAULT 0 CHECK (failed >= 0),
    canceled BIGINT NOT NULL DEFAULT 0 CHECK (canceled >= 0),
    created_at {double} NOT NULL,
    finished_at {double},
    pruned_at {double},
    CHECK (queued + running + succeeded + failed + canceled = jobs),
    CHECK ((queued + running = 0) = (finished_at IS NOT NULL))
);
CREATE INDEX run_submitter ON run (submitter_id, id);

-- Where there is no rowid the columns of the key come first, in its order: the quick_check of SQLite 3.40 takes them so.
CREATE TABLE run_label (
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    run_id BIGINT NOT NULL REFERENCES run (id),
    PRIMARY KEY (name, value, run_id)
) {without_rowid};

CREATE TABLE submission (
    submitter_id BIGINT NOT NULL REFERENCES submitter (id),
    key TEXT NOT NULL,
    digest TEXT NOT NULL,
    run_id BIGINT NOT NULL REFERENCES run (id),
    PRIMARY KEY (submitter_id, key)
) {without_rowid};

CREATE TABLE class (
    id {serial},
    needs TEXT NOT NULL UNIQUE
);

CREATE TABLE spec (
    id {serial},
    digest TEXT NOT NULL UNIQUE,
    body TEXT NOT NULL,
    class_id BIGINT NOT NULL REFERENCES class (id)
);

CREATE TABLE spec_file (
    digest TEXT NOT NULL,
    spec_id BIGINT NOT NULL REFERENCES spec (id),
    PRIMARY KEY (digest, spec_id)
) {without_rowid};

-- `blockers` counts the needed steps that are not through; `unfinished` the jobs of this step that are not.
CREATE TABLE step (
    run_id BIGINT NOT NULL REFERENCES run (id),
    number BIGINT NOT NULL,
    name TEXT,
    needs TEXT NOT NULL,
    spec_id BIGINT NOT NULL REFERENCES spec (id),
    first_index BIGINT NOT NULL,
    last_index BIGINT NOT NULL CHECK (last_index >= first_index),
    jobs BIGINT NOT NULL CHECK (jobs > 0),
    unfinished BIGINT NOT NULL CHECK (unfinished >= 0),
    blockers BIGINT NOT NULL CHECK (blockers >= 0),
    PRIMARY KEY (run_id, number)
) {without_rowid};

CREATE TABLE worker (
    id {serial},
    name TEXT NOT NULL UNIQUE,
    session TEXT NOT NULL,
    hostname TEXT NOT NULL,
    version TEXT NOT NULL,
    labels TEXT NOT NULL,
    capacity TEXT NOT NULL,
    free TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('open', 'paused', 'draining', 'left')),
    reason TEXT NOT NULL,
    paused BIGINT NOT NULL DEFAULT 0 CHECK (paused IN (0, 1)),
    drain BIGINT NOT NULL DEFAULT 0 CHECK (drain IN (0, 1)),
    online BIGINT NOT NULL CHECK (online IN (0, 1)),
    failures BIGINT NOT NULL DEFAULT 0,
    rests BIGINT NOT NULL DEFAULT 0,
    rest_clock {double} NOT NULL DEFAULT 0,
    seen_clock {double} NOT NULL,
    seen_at {double} NOT NULL
);

CREATE TABLE session (
    worker_id BIGINT NOT NULL REFERENCES worker (id),
    id TEXT NOT NULL,
    started_at {double} NOT NULL,
    lost TEXT NOT NULL,
    PRIMARY KEY (worker_id, id)
) {without_rowid};

CREATE TABLE claim (
    id {serial},
    worker_id BIGINT NOT NULL REFERENCES worker (id),
    request_id TEXT NOT NULL,
    created_at {double} NOT NULL,
    UNIQUE (worker_id, request_id)
);

CREATE TABLE job (
    id {key},
    step BIGINT NOT NULL,
    spec_id BIGINT NOT NULL REFERENCES spec (id),
    class_id BIGINT NOT NULL REFERENCES class (id),
    submitter_id BIGINT NOT NULL REFERENCES submitter (id),
    rank BIGINT NOT NULL,
    params TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('queued', 'running', 'succeeded', 'failed', 'canceled')),
    ready BIGINT NOT NULL CHECK (ready IN (0, 1)),
    avoid BIGINT NOT NULL DEFAULT 0,
    avoid_clock {double},
    wait_clock {double},
    attempts BIGINT NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    last_attempt BIGINT NOT NULL DEFAULT 0 CHECK (last_attempt >= attempts),
    cancel_requested BIGINT NOT NULL DEFAULT 0 CHECK (cancel_requested IN (0, 1)),
    reason TEXT NOT NULL DEFAULT '',
    worker_id BIGINT REFERENCES worker (id),
    exit_code BIGINT,
    result TEXT,
    warnings TEXT,
    progress {double},
    message TEXT,
    started_at {double},
    finished_at {double},
    CHECK (ready = 0 OR (state = 'queued' AND wait_clock IS NULL)),
    CHECK (state = 'queued' OR (wait_clock IS NULL AND avoid_clock IS NULL)),
    CHECK (state != 'running' OR (started_at IS NOT NULL AND worker_id IS NOT NULL AND last_attempt > 0)),
    CHECK (state NOT IN ('succeeded', 'failed') OR attempts > 0),
    CHECK ((state IN ('succeeded', 'failed', 'canceled')) = (finished_at IS NOT NULL))
);
CREATE INDEX job_lane ON job (class_id, submitter_id, avoid, rank, id) WHERE ready = 1;
CREATE INDEX job_wait ON job (wait_clock) WHERE wait_clock IS NOT NULL;
CREATE INDEX job_avoid ON job (avoid_clock) WHERE avoid_clock IS NOT NULL;
CREATE INDEX job_running ON job (submitter_id, id) WHERE state = 'running';
CREATE INDEX job_failed ON job (id) WHERE state = 'failed';
CREATE INDEX job_worker ON job (worker_id, id) WHERE worker_id IS NOT NULL;

-- `outcome` is null while the attempt lives; a lease belongs to a live attempt and to no other.
CREATE TABLE attempt (
    job_id BIGINT NOT NULL REFERENCES job (id),
    number BIGINT NOT NULL CHECK (number > 0),
    worker_id BIGINT NOT NULL REFERENCES worker (id),
    session TEXT NOT NULL,
    claim_id BIGINT NOT NULL REFERENCES claim (id),
    confirmed BIGINT NOT NULL DEFAULT 0 CHECK (confirmed IN (0, 1)),
    granted_clock {double} NOT NULL,
    deadline_clock {double} NOT NULL,
    lease_clock {double},
    started_at {double} NOT NULL,
    finished_at {double},
    outcome TEXT CHECK (outcome IN
        ('succeeded', 'failed', 'timeout', 'out_of_memory', 'canceled', 'error', 'lost', 'released')),
    reason TEXT NOT NULL DEFAULT '',
    exit_code BIGINT,
    seconds {double},
    cpu_seconds {double},
    peak_memory BIGINT,
    image TEXT NOT NULL DEFAULT '',
    digest TEXT,
    stale BIGINT NOT NULL DEFAULT 0 CHECK (stale IN (0, 1)),
    log_size BIGINT NOT NULL DEFAULT 0 CHECK (log_size >= 0),
    log_told BIGINT,
    log_digest TEXT,
    PRIMARY KEY (job_id, number),
    CHECK ((outcome IS NULL) = (lease_clock IS NOT NULL)),
    CHECK ((outcome IS NULL) = (finished_at IS NULL))
) {without_rowid};
CREATE UNIQUE INDEX attempt_live ON attempt (job_id) WHERE outcome IS NULL;
CREATE INDEX attempt_held ON attempt (worker_id, job_id) WHERE outcome IS NULL;
CREATE INDEX attempt_lease ON attempt (lease_clock) WHERE outcome IS NULL;
CREATE INDEX attempt_claim ON attempt (claim_id);
CREATE INDEX attempt_unsealed ON attempt (finished_at) WHERE outcome IS NOT NULL AND log_size > 0 AND log_digest IS NULL;
CREATE INDEX attempt_log ON attempt (log_digest) WHERE log_digest IS NOT NULL;

CREATE TABLE log_chunk (
    job_id BIGINT NOT NULL,
    number BIGINT NOT NULL,
    first BIGINT NOT NULL CHECK (first >= 0),
    data {bytes} NOT NULL,
    PRIMARY KEY (job_id, number, first),
    FOREIGN KEY (job_id, number) REFERENCES attempt (job_id, number)
);

CREATE TABLE blob (
    digest TEXT PRIMARY KEY,
    size BIGINT NOT NULL CHECK (size >= 0),
    touched_at {double} NOT NULL
);
CREATE INDEX blob_touched ON blob (touched_at);

CREATE TABLE artifact (
    job_id BIGINT NOT NULL,
    number BIGINT NOT NULL,
    path TEXT NOT NULL,
    digest TEXT NOT NULL,
    size BIGINT NOT NULL CHECK (size >= 0),
    PRIMARY KEY (job_id, number, path),
    FOREIGN KEY (job_id, number) REFERENCES attempt (job_id, number)
) {without_rowid};
CREATE INDEX artifact_blob ON artifact (digest);

-- Append-only. `job_id` of a run's own events is the run's number times 2^20.
CREATE TABLE event (
    seq {serial},
    time {double} NOT NULL,
    type TEXT NOT NULL,
    job_id BIGINT,
    attempt BIGINT,
    worker TEXT,
    actor TEXT NOT NULL,
    old_state TEXT,
    new_state TEXT,
    data TEXT
);
CREATE INDEX event_job ON event (job_id, seq) WHERE job_id IS NOT NULL;
CREATE INDEX event_worker ON event (worker, seq) WHERE worker IS NOT NULL;

INSERT INTO lease_clock (id, value) VALUES (1, 0);
