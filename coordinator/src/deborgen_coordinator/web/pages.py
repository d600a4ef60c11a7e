"""Pages and the forms on them: their routes, and the checks that run before each.

`@page("/runs/{run}")` serves a page to everybody who is signed in. `@action("/runs/{run}/cancel")` serves a form that
changes something: only to those who may, and only if a page of the same session has sent it.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeVar
from urllib.parse import parse_qs, parse_qsl, quote, urlencode

import msgspec

from deborgen_coordinator.disk_reserve import DiskReserve
from deborgen_coordinator.http import bodies, sessions
from deborgen_coordinator.http.answers import answer_problem, disk_full
from deborgen_coordinator.http.application import Application
from deborgen_coordinator.http.decoding import malformed
from deborgen_coordinator.http.hints import add_hint
from deborgen_coordinator.http.streams import Streams
from deborgen_coordinator.operations.context import Actor, Context
from deborgen_coordinator.operations.sign_ins import csrf_of
from deborgen_coordinator.web.rendering import HtmlAnswer, render
from deborgen_shared import headers
from deborgen_shared.calls import PATH_NAMES, JobId
from deborgen_shared.contract import ADMINS, API, NOBODY, PEOPLE, SUBMITTERS
from deborgen_shared.errors import Code, Refusal
from deborgen_shared.queries import Query
from deborgen_shared.states import Role

Q = TypeVar("Q", bound=Query)
#: A WSGI answer: `HtmlAnswer`, or an answer of `http`.
WebAnswer = Callable[..., Iterable[bytes]]
#: The form field with the word that proves that a page of this session has sent the form.
CSRF_FIELD = "csrf"
#: A form may have at most this many fields.
MOST_FIELDS = 2000
NOBODY_YET = Actor(Role.VIEWER, "", "")


@dataclass(slots=True)
class PageRequest:
    """A checked request for a page, or a form that was sent from one."""

    ctx: Context
    streams: Streams
    #: Who is signed in. On pages that need nobody to be signed in, it may be `NOBODY_YET`.
    actor: Actor
    environ: dict[str, Any]
    names: dict[str, Any] = field(default_factory=dict)
    #: The parameters behind the question mark: the last value of each.
    query: dict[str, str] = field(default_factory=dict)
    form: dict[str, list[str]] = field(default_factory=dict)

    @property
    def run(self) -> int:
        return int(self.names["run"])

    @property
    def job(self) -> JobId:
        job: JobId = self.names["job"]
        return job

    @property
    def path(self) -> str:
        return str(self.environ["PATH_INFO"])

    def field(self, name: str, default: str = "") -> str:
        """The value of a field of the form."""
        return self.form.get(name, [default])[-1]

    def once(self) -> str:
        """The word of a form that must have its effect once, even if it is sent twice."""
        word = self.field("once")
        if not re.fullmatch(r"[A-Za-z0-9_-]{8,40}", word):
            raise malformed("the form is not complete", "reload the page and try again")
        return f"page.{word}"

    def read(self, kind: type[Q], **fixed: Any) -> Q:
        """The parameters behind the question mark, as those of a call. Empty and unknown ones are ignored."""
        known = {each.encode_name for each in msgspec.structs.fields(kind)}
        given: dict[str, Any] = {name: text for name, text in self.query.items() if name in known and text}
        try:
            return msgspec.convert(given | fixed, kind, strict=False)
        except msgspec.ValidationError as problem:
            raise malformed(f"the address is not valid: {problem}", "remove what is behind the question mark") from None

    def render(self, template: str, status: int = 200, **values: Any) -> HtmlAnswer:
        """The page. Its template also knows who is signed in, and what they may do."""
        is_in = self.actor is not NOBODY_YET
        return render(
            template,
            status,
            me=self.actor if is_in else None,
            csrf=csrf_of(sessions.secret_of(self.environ)) if is_in else "",
            may_change=is_in and self.actor.role in SUBMITTERS,
            is_admin=is_in and self.actor.role in ADMINS,
            once=secrets.token_urlsafe(9),
            nav=navigation(),
            has_page=has_page,
            path=self.path,
            query=self.query,
            **values,
        )

    def go(self, path: str, **query: str) -> HtmlAnswer:
        """Send the browser to another page, which it then requests with GET."""
        where = f"{path}?{urlencode(query)}" if query else path
        return HtmlAnswer(303, b"", {headers.LOCATION: where})


PageHandler = Callable[[PageRequest], WebAnswer]


class PageRoute(NamedTuple):
    method: str
    path: str
    by: frozenset[Role]
    handler: PageHandler


PAGES: list[PageRoute] = []
#: The pages that every page links to.
NAVIGATION = {"/": "Now", "/runs": "Runs", "/workers": "Workers", "/events": "Events", "/ledger": "Ledger"}


def has_page(path: str) -> bool:
    return any(route.path == path and route.method == "GET" for route in PAGES)


def navigation() -> list[tuple[str, str]]:
    paths = {route.path for route in PAGES}
    return [(path, name) for path, name in NAVIGATION.items() if path in paths]


def page(path: str, by: frozenset[Role] = PEOPLE) -> Callable[[PageHandler], PageHandler]:
    """Make the decorated function serve a page. With `by=NOBODY`, nobody needs to be signed in."""
    return partial(_add, "GET", path, by)


def action(path: str, by: frozenset[Role] = SUBMITTERS) -> Callable[[PageHandler], PageHandler]:
    """Make the decorated function handle a form that changes something."""
    return partial(_add, "POST", path, by)


def _add(method: str, path: str, by: frozenset[Role], handler: PageHandler) -> PageHandler:
    PAGES.append(PageRoute(method, path, by, handler))
    return handler


def register(app: Application, ctx: Context, streams: Streams, reserve: DiskReserve) -> None:
    """Serve all pages. Refusals become pages, too."""
    for route in PAGES:
        app.add_view(_rule(route.path), route.method, _view(route, ctx, streams, reserve))

    def show_problem(problem: Exception, environ: dict[str, Any]) -> WebAnswer | None:
        """The page about a problem outside of all pages; None for other clients than browsers."""
        if "text/html" not in environ.get(headers.environ_key(headers.ACCEPT), ""):
            return None
        if environ["PATH_INFO"].startswith(API):
            return None
        return _problem_page(problem, PageRequest(ctx, streams, _whoever(ctx, environ), environ), reserve)

    app.show_problem = show_problem


def _rule(path: str) -> str:
    return re.sub(r"{(\w+)}", lambda m: "<path:path>" if m[1] == "path" else f"<{m[1]}>", path)


def _view(
    route: PageRoute, ctx: Context, streams: Streams, reserve: DiskReserve
) -> Callable[[dict[str, Any], Mapping[str, Any]], WebAnswer]:
    readers = [(name, PATH_NAMES[name].parse) for name in re.findall(r"{(\w+)}", route.path) if name in PATH_NAMES]

    def view(environ: dict[str, Any], parts: Mapping[str, Any]) -> WebAnswer:
        request = PageRequest(ctx, streams, NOBODY_YET, environ, dict(parts))
        try:
            if not route.by:
                request.actor = _whoever(ctx, environ)
            elif (actor := sessions.signed_in(ctx, environ)) is None:
                return _ask_to_sign_in(route, request)
            else:
                request.actor = actor
                _check_role(route, actor)
            _read(route, request, reserve)
            for name, parse in readers:
                request.names[name] = parse(parts[name])
            return route.handler(request)
        except bodies.BodyAwaited:
            raise
        except Refusal as refusal:
            add_hint(refusal)
            return _problem_page(refusal, request, reserve)
        except Exception as problem:
            return _problem_page(problem, request, reserve)

    return view


def _read(route: PageRoute, request: PageRequest, reserve: DiskReserve) -> None:
    """Read the query and the form, and check that the form comes from a page of this session."""
    environ, settings = request.environ, request.ctx.settings
    text = environ.get("QUERY_STRING", "")
    try:
        request.query = dict(parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=50))
        if route.method != "POST":
            return
        sessions.check_origin(environ)
        body = bodies.read(environ, bodies.length_of(environ, settings.max_document * 4))
        request.form = parse_qs(
            body.decode("utf-8"), keep_blank_values=True, errors="strict", max_num_fields=MOST_FIELDS
        )
    except ValueError:
        raise malformed("the form or the address cannot be read", "go back and try again") from None
    if route.by:
        sessions.check_change(environ, request.field(CSRF_FIELD))
    if not reserve.has_space():
        raise disk_full()


def _check_role(route: PageRoute, actor: Actor) -> None:
    if actor.role not in route.by:
        raise Refusal(
            Code.FORBIDDEN,
            f"you are signed in as {actor.name}, a {actor.role}, who may not do this",
            f"sign in with a token of a role that may: {' or '.join(sorted(route.by))}",
        )


def _ask_to_sign_in(route: PageRoute, request: PageRequest) -> WebAnswer:
    if route.method == "POST":
        raise Refusal(Code.UNAUTHENTICATED, "you are not signed in any more", "sign in, and do it again")
    environ = request.environ
    wanted = quote(environ["PATH_INFO"], safe="/")
    if environ.get("QUERY_STRING"):
        wanted += f"?{environ['QUERY_STRING']}"
    return request.go("/sign-in", **({} if wanted == "/" else {"next": wanted}))


def _whoever(ctx: Context, environ: dict[str, Any]) -> Actor:
    return sessions.signed_in(ctx, environ) or NOBODY_YET


def _problem_page(problem: Exception, request: PageRequest, reserve: DiskReserve) -> WebAnswer:
    """A page that says what is wrong, with the words of the API."""
    plain = answer_problem(problem, reserve)
    error = next(iter(msgspec.json.decode(plain.body).values()))
    answer = request.render("problem.html", plain.status, error=error)
    answer.headers |= {name: text for name, text in plain.headers.items() if name == headers.RETRY_AFTER}
    return answer


__all__ = ["NOBODY", "PEOPLE", "PageRequest", "action", "page", "register"]
