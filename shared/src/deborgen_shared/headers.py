"""The names of all HTTP headers that deborgen sends and reads."""

from __future__ import annotations

ACCEPT = "Accept"
ACCEPT_ENCODING = "Accept-Encoding"
ACCEPT_RANGES = "Accept-Ranges"
ALLOW = "Allow"
AUTHORIZATION = "Authorization"
CACHE_CONTROL = "Cache-Control"
CONTENT_DISPOSITION = "Content-Disposition"
CONTENT_ENCODING = "Content-Encoding"
CONTENT_LENGTH = "Content-Length"
CONTENT_RANGE = "Content-Range"
CONTENT_SECURITY_POLICY = "Content-Security-Policy"
CONTENT_TYPE = "Content-Type"
CONTENT_TYPE_OPTIONS = "X-Content-Type-Options"
COOKIE = "Cookie"
#: Proves that a change was sent by a page of the dashboard.
CSRF = "Deborgen-CSRF"
ETAG = "ETag"
IDEMPOTENCY_KEY = "Idempotency-Key"
IF_NONE_MATCH = "If-None-Match"
IF_RANGE = "If-Range"
LAST_EVENT_ID = "Last-Event-ID"
LOCATION = "Location"
LOG_ATTEMPT = "Deborgen-Log-Attempt"
LOG_SIZE = "Deborgen-Log-Size"
#: What a bridge knows about the message that became a run, as a JSON object in ASCII.
ORIGIN = "Deborgen-Origin"
NO_BUFFERING = "X-Accel-Buffering"
RANGE = "Range"
REFERRER_POLICY = "Referrer-Policy"
RETRY_AFTER = "Retry-After"
#: Workers of release 0.1 send their session with log bytes in this header. It counts as the query's `session`.
SESSION = "Deborgen-Session"
SET_COOKIE = "Set-Cookie"
TRACEPARENT = "traceparent"
UPLOAD_LENGTH = "Upload-Length"
UPLOAD_OFFSET = "Upload-Offset"
USER_AGENT = "User-Agent"
WWW_AUTHENTICATE = "WWW-Authenticate"


def environ_key(name: str) -> str:
    """The key of a request header in a WSGI environment, such as `HTTP_ACCEPT`."""
    key = name.upper().replace("-", "_")
    return key if name in (CONTENT_LENGTH, CONTENT_TYPE) else f"HTTP_{key}"
