"""One table of refusals: a code, its HTTP status and its meaning. Every refusal has one shape on the wire."""

from __future__ import annotations

from enum import StrEnum
from typing import Any


class Code(StrEnum):
    MALFORMED = "malformed"
    UNAUTHENTICATED = "unauthenticated"
    FORBIDDEN = "forbidden"
    NOT_FOUND = "not_found"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    STALE_ATTEMPT = "stale_attempt"
    SUPERSEDED = "superseded"
    INVALID_TRANSITION = "invalid_transition"
    IDEMPOTENCY_CONFLICT = "idempotency_conflict"
    LOG_GAP = "log_gap"
    EVENT_GAP = "event_gap"
    UPLOAD_CONFLICT = "upload_conflict"
    LENGTH_REQUIRED = "length_required"
    TOO_LARGE = "too_large"
    UNSUPPORTED_MEDIA_TYPE = "unsupported_media_type"
    RANGE_NOT_SATISFIABLE = "range_not_satisfiable"
    INVALID_JOB = "invalid_job"
    SLOW_DOWN = "slow_down"
    UNAVAILABLE = "unavailable"


STATUS: dict[Code, int] = {
    Code.MALFORMED: 400,
    Code.UNAUTHENTICATED: 401,
    Code.FORBIDDEN: 403,
    Code.NOT_FOUND: 404,
    Code.METHOD_NOT_ALLOWED: 405,
    Code.STALE_ATTEMPT: 409,
    Code.SUPERSEDED: 409,
    Code.INVALID_TRANSITION: 409,
    Code.IDEMPOTENCY_CONFLICT: 409,
    Code.LOG_GAP: 409,
    Code.EVENT_GAP: 409,
    Code.UPLOAD_CONFLICT: 409,
    Code.LENGTH_REQUIRED: 411,
    Code.TOO_LARGE: 413,
    Code.UNSUPPORTED_MEDIA_TYPE: 415,
    Code.RANGE_NOT_SATISFIABLE: 416,
    Code.INVALID_JOB: 422,
    Code.SLOW_DOWN: 429,
    Code.UNAVAILABLE: 503,
}

#: What each code means, in docs/http-api.md.
MEANING: dict[Code, str] = {
    Code.MALFORMED: "it cannot be read, or does not fit; the message says where",
    Code.UNAUTHENTICATED: "no token, or one that is not valid",
    Code.FORBIDDEN: "the token's role, or its name, does not allow it",
    Code.NOT_FOUND: "there is nothing of that name",
    Code.METHOD_NOT_ALLOWED: "the path does not take that method",
    Code.STALE_ATTEMPT: "the attempt is over, or another worker's",
    Code.SUPERSEDED: "a newer session of the worker has taken over",
    Code.INVALID_TRANSITION: "not possible in this state",
    Code.IDEMPOTENCY_CONFLICT: "the key was used for another request",
    Code.LOG_GAP: "bytes before these are missing",
    Code.EVENT_GAP: "events before these are missing",
    Code.UPLOAD_CONFLICT: "the upload goes on at another byte",
    Code.LENGTH_REQUIRED: "the body has no Content-Length",
    Code.TOO_LARGE: "the body is larger than the limit in the message",
    Code.UNSUPPORTED_MEDIA_TYPE: "the body is not of the type that the call takes",
    Code.RANGE_NOT_SATISFIABLE: "the range is beyond the end",
    Code.INVALID_JOB: "the job file has mistakes, all in `problems`",
    Code.SLOW_DOWN: "too many at once",
    Code.UNAVAILABLE: "the database or the disk cannot take it right now",
}


class Refusal(Exception):
    """Something asked for that deborgen will not do: a code, a sentence, and what to do about it.

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
        return STATUS[self.code]

    def body(self) -> dict[str, Any]:
        return {"error": {"code": str(self.code), "message": self.message, "hint": self.hint, **self.details}}
