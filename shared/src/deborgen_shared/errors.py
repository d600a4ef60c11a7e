"""The table of refusals: a code, its HTTP status and its meaning. On the wire, all refusals have the same shape."""

from __future__ import annotations

from enum import StrEnum
from typing import Any


class Code(StrEnum):
    """Why something was refused: the word on the wire, its HTTP status, and its meaning in docs/http-api.md."""

    status: int
    meaning: str

    def __new__(cls, word: str, status: int, meaning: str) -> Code:
        code = str.__new__(cls, word)
        code._value_, code.status, code.meaning = word, status, meaning
        return code

    MALFORMED = "malformed", 400, "the request cannot be read, or is not valid; the message says where"
    UNAUTHENTICATED = "unauthenticated", 401, "no token was sent, or it is not valid"
    FORBIDDEN = "forbidden", 403, "the token's role or name does not allow it"
    NOT_FOUND = "not_found", 404, "nothing has that name"
    METHOD_NOT_ALLOWED = "method_not_allowed", 405, "the path does not support that method"
    REQUEST_TIMEOUT = "request_timeout", 408, "the body arrived too slowly"
    STALE_ATTEMPT = "stale_attempt", 409, "the attempt has ended, or belongs to another worker"
    SUPERSEDED = "superseded", 409, "a newer session of the worker has taken over"
    INVALID_TRANSITION = "invalid_transition", 409, "not possible in the current state"
    IDEMPOTENCY_CONFLICT = "idempotency_conflict", 409, "the key was used for a different request"
    LOG_GAP = "log_gap", 409, "bytes before these are missing"
    EVENT_GAP = "event_gap", 409, "events before these are missing"
    UPLOAD_CONFLICT = "upload_conflict", 409, "the upload resumes at a different byte"
    LENGTH_REQUIRED = "length_required", 411, "the body has no Content-Length"
    TOO_LARGE = "too_large", 413, "the body is larger than the limit in the message"
    UNSUPPORTED_MEDIA_TYPE = "unsupported_media_type", 415, "the body does not have the type that the call takes"
    RANGE_NOT_SATISFIABLE = "range_not_satisfiable", 416, "the range is beyond the end"
    INVALID_JOB = "invalid_job", 422, "the job file has mistakes; `problems` lists them all"
    SLOW_DOWN = "slow_down", 429, "too many requests at once"
    UNAVAILABLE = "unavailable", 503, "the database or the disk cannot handle it right now"
    STORE_UNAVAILABLE = "store_unavailable", 503, "the object store does not answer, or refuses"


class Refusal(Exception):
    """A request that deborgen refuses: a code, a sentence, and what to do about it.

    `details` are further fields of the error on the wire (`problems` of an invalid job, `size` of a log gap, `count` of
    an event gap); `headers` go with the HTTP answer.
    """

    def __init__(
        self,
        code: Code,
        message: str,
        hint: str = "",
        *,
        details: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint
        self.details = details or {}
        self.headers = headers or {}

    @property
    def status(self) -> int:
        return self.code.status

    def body(self) -> dict[str, Any]:
        return {"error": {"code": str(self.code), "message": self.message, "hint": self.hint, **self.details}}
