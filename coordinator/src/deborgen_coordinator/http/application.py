"""The WSGI application: a module per noun, handlers of a few lines, and one table of them all."""

from __future__ import annotations

from typing import Any

from flask import Flask, request

from deborgen_coordinator.http import blobs, events, jobs, logs, runs, service, tokens, workers
from deborgen_coordinator.http.answers import register_refusals
from deborgen_coordinator.http.reserve import Reserve
from deborgen_coordinator.http.routes import register
from deborgen_coordinator.http.streams import Streams
from deborgen_coordinator.operations.context import Context
from deborgen_shared.errors import Code, Refusal

NOUNS = (service, runs, jobs, logs, blobs, events, workers, tokens)


def create_wsgi_app(ctx: Context, streams: Streams, reserve: Reserve) -> Flask:
    """The WSGI application over these operations."""
    app = Flask("deborgen_coordinator", static_folder=None)
    app.url_map.redirect_defaults = False
    app.url_map.merge_slashes = False
    app.url_map.strict_slashes = False
    register_refusals(app, reserve)
    register(app, ctx, streams, reserve)
    allowed = {name.strip().lower() for name in ctx.settings.allowed_hosts.split(",") if name.strip()}
    if allowed:

        @app.before_request
        def check_host() -> Any:
            host = request.environ.get("HTTP_HOST", "").lower()
            if not _is_allowed(host, allowed):
                raise Refusal(Code.FORBIDDEN, "This coordinator does not answer to that name.")

    return app


def _is_allowed(host: str, allowed: set[str]) -> bool:
    """Whether the name in a Host header, with or without its port, is one of these."""
    return host in allowed or host.rpartition(":")[0] in allowed
