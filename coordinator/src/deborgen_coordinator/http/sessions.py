"""The session of a browser: a cookie that JavaScript cannot read, and that other sites cannot send.

Cookies do not distinguish ports, so the port is a part of the cookie's name: two pools on one machine have two
sessions.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from typing import Any

from deborgen_coordinator.operations import sign_ins
from deborgen_coordinator.operations.context import Actor, Context
from deborgen_shared import headers
from deborgen_shared.errors import Code, Refusal

SAFE_METHODS = frozenset({"GET", "HEAD"})

_COOKIE = headers.environ_key(headers.COOKIE)
_CSRF = headers.environ_key(headers.CSRF)


def host_of(environ: Mapping[str, Any]) -> str:
    """The address in the browser."""
    return str(environ.get("HTTP_HOST", "")).lower()


def cookie_name(host: str) -> str:
    port = host.rpartition(":")[2]
    return f"deborgen_{port}" if port.isascii() and port.isdigit() else "deborgen"


def secret_of(environ: Mapping[str, Any]) -> str:
    """The secret of the session that the request's cookie names, or an empty text."""
    cookies = environ.get(_COOKIE)
    if not cookies:
        return ""
    found = re.search(rf"(?:^|[; ]){cookie_name(host_of(environ))}=([A-Za-z0-9_-]{{20,100}})(?:;|$)", cookies)
    return found[1] if found else ""


def signed_in(ctx: Context, environ: Mapping[str, Any]) -> Actor | None:
    """Who is signed in, or None."""
    return sign_ins.session_of(ctx, secret_of(environ), host_of(environ))


def authenticate_session(ctx: Context, environ: Mapping[str, Any]) -> Actor | None:
    """Who makes a call of the API with a session. A change must prove that it comes from a page of the dashboard."""
    actor = signed_in(ctx, environ)
    if actor is not None and environ["REQUEST_METHOD"] not in SAFE_METHODS:
        check_change(environ, environ.get(_CSRF, ""))
    return actor


def check_origin(environ: Mapping[str, Any]) -> None:
    """Refuse a change that a page of another site has sent."""
    origin = str(environ.get("HTTP_ORIGIN", "")).lower()
    scheme, _, host = origin.partition("://")
    if scheme not in ("http", "https") or not host or host != host_of(environ):
        raise Refusal(
            Code.FORBIDDEN,
            "this request does not come from a page of this dashboard",
            "open the dashboard under one address; a proxy in front of it must pass the Host header on",
        )


def check_change(environ: Mapping[str, Any], csrf: str) -> None:
    """Refuse a change unless a page of this session has sent it."""
    check_origin(environ)
    if not hmac.compare_digest(csrf.encode("utf-8", "replace"), sign_ins.csrf_of(secret_of(environ)).encode()):
        raise Refusal(Code.FORBIDDEN, "this form belongs to a session that has ended", "reload the page and try again")


def set_cookie(environ: Mapping[str, Any], secret: str, seconds: float) -> dict[str, str]:
    """The header that gives the browser its session. Behind TLS, the browser never sends it without."""
    secure = "; Secure" if str(environ.get("HTTP_ORIGIN", "")).lower().startswith("https://") else ""
    name = cookie_name(host_of(environ))
    return {headers.SET_COOKIE: f"{name}={secret}; Path=/; Max-Age={seconds:.0f}; HttpOnly; SameSite=Strict{secure}"}
