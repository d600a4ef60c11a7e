"""The WSGI application: one module of short handlers per noun, and one table of all handlers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from flask import Flask

from deborgen_coordinator.disk_reserve import DiskReserve
from deborgen_coordinator.http import (
    blobs,
    checkpoints,
    events,
    images,
    jobs,
    ledger,
    logs,
    runs,
    secrets,
    service,
    tokens,
    workers,
)
from deborgen_coordinator.http.answers import answer_problem
from deborgen_coordinator.http.bodies import BodyAwaited
from deborgen_coordinator.http.routes import View, register
from deborgen_coordinator.http.streams import Streams
from deborgen_coordinator.operations.context import Context
from deborgen_shared.errors import Code, Refusal

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

#: The page about a problem, or None if the request does not come from a browser.
ProblemPage = Callable[[Exception, dict[str, Any]], Callable[..., Iterable[bytes]] | None]

NOUNS = (service, runs, jobs, logs, blobs, checkpoints, events, workers, ledger, tokens, secrets, images)


class Application(Flask):
    """Flask, with a shortcut for the calls of the contract.

    A call needs only the WSGI environment of its request. Flask's contexts, session and signals, which no call uses,
    would cost more than all checks of the call. Every other request goes through Flask as usual.
    """

    def __init__(self, ctx: Context, streams: Streams, reserve: DiskReserve) -> None:
        super().__init__("deborgen_coordinator", static_folder=None)
        self.url_map.redirect_defaults = False
        self.url_map.merge_slashes = False
        self.url_map.strict_slashes = False
        self._problem_answer = partial(answer_problem, reserve=reserve)
        self.register_error_handler(Exception, self._problem_answer)
        self._calls = register(self, ctx, streams, reserve)
        # Clients request the same paths again and again, so recent matches are cached.
        self._find = lru_cache(1000)(self.url_map.bind("localhost").match)
        #: The page about a problem, for a browser that asked for a page that does not exist; see `web/`.
        self.show_problem: ProblemPage = lambda problem, environ: None
        self._allowed = {name.strip().lower() for name in ctx.settings.allowed_hosts.split(",") if name.strip()}

    def add_view(self, rule: str, method: str, view: View) -> None:
        """Let this view serve the requests for a path in Flask's notation."""
        endpoint = f"{method} {rule}"
        self._calls[endpoint] = view
        self.add_url_rule(rule, endpoint, methods=[method], provide_automatic_options=False)

    def wsgi_app(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        path: str = environ["PATH_INFO"]
        if not path.isascii():
            path = path.encode("latin-1").decode(errors="replace")
        try:
            if self._allowed and not _is_allowed(environ.get("HTTP_HOST", "").lower(), self._allowed):
                raise Refusal(
                    Code.FORBIDDEN,
                    "this coordinator does not answer to that host name",
                    "use a name in the coordinator's setting allowed-hosts",
                )
            endpoint, parts = self._find(path, environ["REQUEST_METHOD"])
            view = self._calls.get(endpoint)
            answer = super().wsgi_app if view is None else view(environ, parts)
        except BodyAwaited:
            raise
        except Exception as problem:
            answer = self.show_problem(problem, environ) or self._problem_answer(problem)
        return answer(environ, start_response)


def _is_allowed(host: str, allowed: set[str]) -> bool:
    """Whether a Host header, with or without a port, has an allowed name."""
    return host in allowed or host.rpartition(":")[0] in allowed
