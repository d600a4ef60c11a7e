"""The whole HTTP contract, version 1. Every call is defined here, once.

The coordinator's routes, the OpenAPI document, the matrix of roles, the reference in docs/http-api.md, and the calls of
the worker and of the command all derive from this table. Messages may gain fields; a field never changes its meaning.
"""

from __future__ import annotations

from typing import Any

from deborgen_shared import headers as h
from deborgen_shared import messages as m
from deborgen_shared import queries as q
from deborgen_shared.calls import JSON, RAW, Answer, Call, Nothing
from deborgen_shared.errors import Code
from deborgen_shared.states import Role

#: The paths of the API begin with this.
API = "/v1/"
EVERYONE = frozenset(Role)
PEOPLE = frozenset({Role.ADMIN, Role.SUBMITTER, Role.VIEWER})
SUBMITTERS = frozenset({Role.ADMIN, Role.SUBMITTER})
UPLOADERS = frozenset({Role.ADMIN, Role.SUBMITTER, Role.WORKER})
WORKERS = frozenset({Role.WORKER})
ADMINS = frozenset({Role.ADMIN})
#: A call that needs no token.
NOBODY: frozenset[Role] = frozenset()

CSV = "text/csv"
EVENT_STREAM = "text/event-stream"
PLAIN_TEXT = "text/plain"

_KEY = {h.IDEMPOTENCY_KEY: "any word you choose: the same body sent again with it returns the same run"}
_AGAIN = Answer(200, "the run that an earlier copy of this request created", m.Run)
_DIGEST = {h.ETAG: "the digest in quotes"}
_FILE = {**_DIGEST, h.ACCEPT_RANGES: "bytes"}
_OFFSET = {h.UPLOAD_OFFSET: "how many bytes of an interrupted upload are stored"}
_FILE_REFUSALS = (Code.RANGE_NOT_SATISFIABLE, Code.STORE_UNAVAILABLE)
#: Refusals of a worker whose session or attempt is no longer the current one.
_FENCED = (Code.SUPERSEDED, Code.STALE_ATTEMPT)
_FILE_HEADERS = {
    h.RANGE: "bytes=FIRST-LAST, to get only a part",
    h.IF_NONE_MATCH: "the ETag of your copy: the answer is 304 if it is current",
    h.IF_RANGE: "the ETag of the file that the Range refers to",
}
_PART_OR_NOTHING = (
    Answer(206, "the bytes of the range", bytes, (RAW,), _FILE | {h.CONTENT_RANGE: "which part of the file it is"}),
    Answer(304, "your copy is current", Nothing, headers=_DIGEST),
    Answer(
        307,
        "the bytes are in the object store, at this address",
        Nothing,
        headers={
            h.LOCATION: "an address that works for an hour; do not send the token there",
        },
    ),
)

# The coordinator

HEALTH = Call(
    "GET", "/health", NOBODY, "Whether the coordinator is healthy. No token is needed.",
    Answer(200, "it is healthy", m.Health), refuses=(Code.UNAVAILABLE,),
)  # fmt: skip
METRICS = Call(
    "GET", "/metrics", PEOPLE, "Metrics for Prometheus.", Answer(200, "the current metrics", str, (PLAIN_TEXT,))
)
OPENAPI = Call("GET", "/v1/openapi.json", EVERYONE, "This contract, as OpenAPI.", Answer(200, "the contract", dict))
JOB_SCHEMA = Call(
    "GET", "/v1/schema/job.json", EVERYONE, "The JSON Schema of the job file.", Answer(200, "the schema", dict)
)
ME = Call("GET", "/v1/me", EVERYONE, "Whose token this is.", Answer(200, "the owner of the token", m.Me))

# Runs

SUBMIT = Call(
    "POST", "/v1/runs", SUBMITTERS, "Submit a run. The body is the job file as JSON.",
    Answer(201, "the run", m.Run), (_AGAIN,), takes=Any, writes_to_disk=True,
    headers=_KEY | {
        h.ORIGIN: "for bridges: where the job file came from, as a JSON object in ASCII",
        h.TRACEPARENT: "a trace that the run belongs to, as W3C Trace Context defines it; an invalid one is ignored",
    },
    refuses=(Code.INVALID_JOB, Code.IDEMPOTENCY_CONFLICT),
)  # fmt: skip
CHECK = Call(
    "POST", "/v1/runs/check", SUBMITTERS,
    "Check a job file as a submission would be checked, without storing anything. Its files need not be uploaded yet.",
    Answer(200, "it would be accepted", m.Checked), takes=Any, refuses=(Code.INVALID_JOB,),
)  # fmt: skip
LIST_RUNS = Call(
    "GET", "/v1/runs", PEOPLE, "Runs, newest first, with the number of their jobs in each state.",
    Answer(200, "runs", m.Runs), query=q.RunsQuery,
)  # fmt: skip
LAST_RUN = Call(
    "GET", "/v1/runs/last", PEOPLE, "The newest run of the token's owner.",
    Answer(200, "the run", m.Run), refuses=(Code.NOT_FOUND,),
)  # fmt: skip
GET_RUN = Call("GET", "/v1/runs/{run}", PEOPLE, "One run.", Answer(200, "the run", m.Run))
RUN_OVERVIEW = Call(
    "GET", "/v1/runs/{run}/overview", PEOPLE,
    "Why jobs of a run failed, what they are warned about, and which wait for another try: each reason once.",
    Answer(200, "the groups of jobs", m.RunOverview),
)  # fmt: skip
RUN_STEPS = Call(
    "GET", "/v1/runs/{run}/steps", PEOPLE,
    "The steps of a run: what each needs, how many of its jobs have not ended, and what they have in common.",
    Answer(200, "the steps", m.RunSteps),
)  # fmt: skip
LIST_RUN_JOBS = Call(
    "GET", "/v1/runs/{run}/jobs", PEOPLE, "The jobs of a run, in their order.",
    Answer(200, "jobs", m.Jobs), query=q.RunJobsQuery,
)  # fmt: skip
RESULTS = Call(
    "GET", "/v1/runs/{run}/results", PEOPLE,
    "The table of results: one row per job, with its parameters, result, state, seconds and worker.",
    Answer(200, "one row per job", m.ResultRows, (JSON, CSV)), query=q.ResultsQuery,
)  # fmt: skip
LIST_RUN_ARTIFACTS = Call(
    "GET", "/v1/runs/{run}/artifacts", PEOPLE, "The artifacts of a run's jobs: job, path, digest and size of each.",
    Answer(200, "the artifacts", m.RunArtifacts), query=q.RunArtifactsQuery,
)  # fmt: skip
CANCEL_RUN = Call(
    "POST", "/v1/runs/{run}/cancel", SUBMITTERS, "Cancel all jobs of a run that have not ended.",
    Answer(200, "what happened to each job", m.CancelAnswer), takes=m.Cancel, body_optional=True,
)  # fmt: skip
RETRY_RUN = Call(
    "POST", "/v1/runs/{run}/retry", SUBMITTERS, "Run the failed, canceled or all jobs of a run again, as a new run.",
    Answer(201, "the new run", m.Run), (_AGAIN,), takes=m.Retry, body_optional=True, headers=_KEY, writes_to_disk=True,
    refuses=(Code.INVALID_TRANSITION, Code.IDEMPOTENCY_CONFLICT),
)  # fmt: skip

# Jobs

LIST_JOBS = Call(
    "GET", "/v1/jobs", PEOPLE, "Jobs of all runs, by state, run or worker.",
    Answer(200, "jobs", m.Jobs), query=q.JobsQuery, refuses=(Code.NOT_FOUND,),
)  # fmt: skip
GET_JOB = Call(
    "GET", "/v1/jobs/{job}", PEOPLE, "One job, with its specification, its artifacts and all its attempts.",
    Answer(200, "the job", m.JobDetail),
)  # fmt: skip
CANCEL_JOB = Call(
    "POST", "/v1/jobs/{job}/cancel", SUBMITTERS,
    "Cancel one job. A queued job never starts; for a running one, the worker is told to stop it.",
    Answer(200, "what happened to it", m.CancelAnswer), takes=m.Cancel, body_optional=True,
)  # fmt: skip
WHY = Call(
    "GET", "/v1/jobs/{job}/why", PEOPLE, "Why a job is waiting, with one reason per worker, or why it ended as it did.",
    Answer(200, "the reasons", m.Why),
)  # fmt: skip
LIST_ARTIFACTS = Call(
    "GET", "/v1/jobs/{job}/artifacts", PEOPLE,
    "The artifacts of a job, or of one of its attempts: path, digest and size of each.",
    Answer(200, "the artifacts", m.Artifacts), query=q.ArtifactsQuery,
)  # fmt: skip
GET_ARTIFACT = Call(
    "GET", "/v1/jobs/{job}/artifacts/{path}", PEOPLE, "The bytes of one artifact.",
    Answer(200, "all bytes", bytes, (RAW,), _FILE), _PART_OR_NOTHING, query=q.ArtifactsQuery, headers=_FILE_HEADERS,
    refuses=_FILE_REFUSALS,
)  # fmt: skip

# Logs

READ_LOG = Call(
    "GET", "/v1/jobs/{job}/log", PEOPLE,
    "The log of the newest attempt, or of a given one, starting at an offset. With `follow`, it streams until the end.",
    Answer(200, "the bytes of the log", bytes, (RAW,), {
        h.LOG_SIZE: "the size of the log in bytes when the answer began", h.LOG_ATTEMPT: "the attempt that wrote it",
    }),
    query=q.LogQuery,
)  # fmt: skip
APPEND_LOG = Call(
    "POST", "/v1/jobs/{job}/attempts/{number}/log", WORKERS,
    "Append bytes to the log of an attempt, with the worker's `session`. Known bytes are skipped; a gap is refused.",
    Answer(200, "how many bytes the log has now", m.LogSize), takes=bytes, query=q.AppendQuery, writes_to_disk=True,
    limit="max_log_chunk", headers={
        h.CONTENT_ENCODING: "gzip, if the bytes are compressed",
        h.SESSION: "the worker's session, if the query does not name it; workers of release 0.1 send it this way",
    },
    refuses=(Code.STALE_ATTEMPT, Code.SUPERSEDED, Code.LOG_GAP),
)  # fmt: skip

# Blobs

MISSING_BLOBS = Call(
    "POST", "/v1/blobs/missing", UPLOADERS, "Which of these blobs the store lacks.",
    Answer(200, "the missing blobs, and where to upload each", m.MissingBlobs), takes=m.BlobDigests,
    refuses=(Code.STORE_UNAVAILABLE,),
)  # fmt: skip
PUT_BLOB = Call(
    "PUT", "/v1/blobs/{sha256}", UPLOADERS,
    "Upload one whole blob. Bytes that do not match the digest are refused and discarded.",
    Answer(201, "it is stored", m.BlobStored), takes=bytes, limit="max_blob", writes_to_disk=True,
    refuses=(Code.UPLOAD_CONFLICT, Code.STORE_UNAVAILABLE),
)  # fmt: skip
PATCH_BLOB = Call(
    "PATCH", "/v1/blobs/{sha256}", UPLOADERS,
    "Resume an interrupted upload. The body is the rest of the blob or, with Upload-Length, the next part of it.",
    Answer(201, "the blob is complete", m.BlobStored), (Answer(204, "more bytes must come", Nothing, headers=_OFFSET),),
    takes=bytes, limit="max_blob", writes_to_disk=True, refuses=(Code.UPLOAD_CONFLICT, Code.STORE_UNAVAILABLE),
    headers={
        h.UPLOAD_OFFSET: "the byte at which this body starts, as HEAD reports it",
        h.UPLOAD_LENGTH: "the size of the whole blob, if this body does not reach its end",
    },
)  # fmt: skip
COMPLETE_BLOB = Call(
    "POST", "/v1/blobs/{sha256}/complete", UPLOADERS,
    "Complete an upload to the object store. The blob exists once its size and its bytes have been checked.",
    Answer(201, "it is stored", m.BlobStored), takes=m.CompleteUpload, writes_to_disk=True,
    refuses=(Code.UPLOAD_CONFLICT, Code.STORE_UNAVAILABLE),
)  # fmt: skip
REPORT_BLOB = Call(
    "POST", "/v1/blobs/{sha256}/damaged", EVERYONE,
    "Report that the bytes of a blob arrived wrong. The coordinator reads them, and drops the blob if they are wrong.",
    Answer(200, "whether the stored bytes are right", m.BlobChecked), refuses=(Code.STORE_UNAVAILABLE,),
)  # fmt: skip
HEAD_BLOB = Call(
    "HEAD", "/v1/blobs/{sha256}", EVERYONE, "Whether a blob is stored, or where its upload resumes.",
    Answer(200, "it is stored; Content-Length is its size", Nothing, headers=_DIGEST),
    (Answer(204, "its upload was interrupted", Nothing, headers=_OFFSET),),
)  # fmt: skip
GET_BLOB = Call(
    "GET", "/v1/blobs/{sha256}", EVERYONE, "The bytes of one blob.",
    Answer(200, "all bytes", bytes, (RAW,), _FILE), _PART_OR_NOTHING, headers=_FILE_HEADERS, refuses=_FILE_REFUSALS,
)  # fmt: skip

# Events

LIST_EVENTS = Call(
    "GET", "/v1/events", PEOPLE, "The events after a sequence number, or from now on.",
    Answer(200, "events, oldest first; or a stream of them", m.Events, (JSON, EVENT_STREAM)), query=q.EventsQuery,
    headers={
        h.ACCEPT: "text/event-stream, to receive events live",
        h.LAST_EVENT_ID: "in a stream: the last event you have seen; it takes precedence over `after`",
    },
)  # fmt: skip
APPEND_EVENTS = Call(
    "POST", "/v1/jobs/{job}/attempts/{number}/events", WORKERS,
    "Record events that the program of an attempt wrote. Known events are skipped; a gap is refused.",
    Answer(200, "how many events the attempt has now", m.EventCount), takes=m.ProgramEvents, limit="max_body",
    writes_to_disk=True, refuses=(*_FENCED, Code.EVENT_GAP),
)  # fmt: skip

SAVE_CHECKPOINT = Call(
    "PUT", "/v1/jobs/{job}/attempts/{number}/checkpoint", WORKERS,
    "Save a checkpoint of an attempt. It replaces the job's last one, completely or not at all.",
    Answer(200, "the number of the newest checkpoint, and the blobs that must be uploaded first", m.CheckpointSaved),
    takes=m.SaveCheckpoint, limit="max_body", writes_to_disk=True, refuses=(*_FENCED, Code.INVALID_JOB),
)  # fmt: skip
GET_CURSOR = Call(
    "GET", "/v1/cursors/{cursor}", SUBMITTERS, "A place in the history that you have stored.",
    Answer(200, "the place", m.CursorView),
)  # fmt: skip
PUT_CURSOR = Call(
    "PUT", "/v1/cursors/{cursor}", SUBMITTERS,
    "Store a place in the history under a name of your own. With `was`, only if the stored place is still that one.",
    Answer(200, "the place", m.CursorView), takes=m.NewCursor, writes_to_disk=True,
    refuses=(Code.INVALID_TRANSITION,),
)  # fmt: skip
PIN_COMMIT = Call(
    "PUT", "/v1/jobs/{job}/attempts/{number}/commit", WORKERS,
    "Pin the commit that a ref stands for in this run. The first one wins, and the answer names it.",
    Answer(200, "the commit to check out", m.PinnedCommit), takes=m.CommitToPin, refuses=_FENCED,
)  # fmt: skip

# Workers

LIST_WORKERS = Call(
    "GET", "/v1/workers", PEOPLE, "The workers: state, labels, free resources and running jobs of each.",
    Answer(200, "the workers", m.Workers),
)  # fmt: skip
GET_WORKER = Call("GET", "/v1/workers/{name}", PEOPLE, "One worker.", Answer(200, "the worker", m.Worker))
STEER_WORKER = Call(
    "PATCH", "/v1/workers/{name}", ADMINS, "Pause, drain or resume a worker.",
    Answer(200, "the worker", m.Worker), takes=m.SteerWorker,
)  # fmt: skip
REGISTER = Call(
    "PUT", "/v1/workers/{name}", WORKERS, "Register a new session of a worker, with the attempts that it still holds.",
    Answer(200, "the lease and heartbeat intervals, and the lost attempts", m.Registered),
    takes=m.Register, limit="max_body", refuses=_FENCED,
)  # fmt: skip
CLAIM = Call(
    "POST", "/v1/workers/{name}/claim", WORKERS,
    "Claim jobs that fit. The call waits until there is one, or until `wait_seconds` have passed.",
    Answer(200, "the attempts to run", m.Claimed),
    (Answer(204, "nothing to do", Nothing, headers={h.RETRY_AFTER: "ask again after this many seconds"}),),
    takes=m.Claim, limit="max_body", refuses=_FENCED,
)  # fmt: skip
HEARTBEAT = Call(
    "POST", "/v1/workers/{name}/heartbeat", WORKERS, "Renew the leases of the running attempts.",
    Answer(200, "what to do with each attempt, and orders for the worker", m.HeartbeatAnswer), takes=m.Heartbeat,
    limit="max_body", refuses=_FENCED,
)  # fmt: skip
FINISH = Call(
    "POST", "/v1/workers/{name}/finish", WORKERS, "Report how attempts ended.",
    Answer(200, "whether each result was accepted", m.Finished), takes=m.Finish, limit="max_body",
    refuses=(*_FENCED, Code.INVALID_JOB),
)  # fmt: skip
LEAVE = Call(
    "DELETE", "/v1/workers/{name}", WORKERS,
    "Leave the pool: the worker's attempts are released. With `session`, only if that is the newest session.",
    Answer(204, "it has left", Nothing), query=q.LeaveQuery, refuses=(Code.SUPERSEDED,),
)  # fmt: skip

# Tokens

CREATE_TOKEN = Call(
    "POST", "/v1/tokens", ADMINS, "Create a token. Its secret is in this answer and is never shown again.",
    Answer(201, "the token", m.CreatedToken), takes=m.NewToken,
)  # fmt: skip
LIST_TOKENS = Call(
    "GET", "/v1/tokens", ADMINS, "All tokens, without their secrets.", Answer(200, "the tokens", m.Tokens)
)
REVOKE_TOKEN = Call(
    "DELETE", "/v1/tokens/{token}", ADMINS, "Revoke a token. It stops working immediately.",
    Answer(204, "it is revoked", Nothing),
)  # fmt: skip

# The dashboard

CREATE_LINK = Call(
    "POST", "/v1/sign-in-links", PEOPLE,
    "Create a link that signs its reader in to the dashboard as the token's owner, once, within a minute.",
    Answer(201, "the link", m.SignInLink),
)  # fmt: skip

# The ledger

LEDGER = Call(
    "GET", "/v1/ledger", PEOPLE, "Who gave and who used how many core, GPU and memory hours. It limits nobody.",
    Answer(200, "the ledger", m.PoolLedger), query=q.LedgerQuery,
)  # fmt: skip

# Images

LIST_IMAGES = Call(
    "GET", "/v1/images", PEOPLE, "The images that the pool has built, newest first.",
    Answer(200, "the images", m.Images), query=q.ImagesQuery,
)  # fmt: skip
REMOVE_IMAGE = Call(
    "DELETE", "/v1/images/{image}", SUBMITTERS,
    "Remove an image of your own, or any as an admin, by its name and tag. Unfinished jobs that name it keep it.",
    Answer(204, "it is removed", Nothing),
)  # fmt: skip

# Secrets

SET_SECRET = Call(
    "PUT", "/v1/secrets/{secret}", SUBMITTERS,
    "Set a secret of your own or, as an admin with `shared`, one that every submitter may use.",
    Answer(200, "the secret, without its value", m.SecretView), takes=m.NewSecret, writes_to_disk=True,
)  # fmt: skip
LIST_SECRETS = Call(
    "GET", "/v1/secrets", SUBMITTERS, "Your secrets and those that are shared with the pool, without their values.",
    Answer(200, "the secrets", m.Secrets),
)  # fmt: skip
REMOVE_SECRET = Call(
    "DELETE", "/v1/secrets/{secret}", SUBMITTERS,
    "Remove a secret. Queued jobs that name it wait until it is set again.",
    Answer(204, "it is removed", Nothing), query=q.SecretQuery,
)  # fmt: skip

CALLS: tuple[Call[Any], ...] = tuple(each for each in list(globals().values()) if isinstance(each, Call))
