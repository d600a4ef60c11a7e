"""One table of refusals: a code, its HTTP status, and nothing else. Every refusal has one shape on the wire."""

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
