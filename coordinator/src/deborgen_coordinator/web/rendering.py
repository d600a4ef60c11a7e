"""Templates, and the headers that keep pages safe: nothing that a page shows can run, no other site can frame it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from deborgen_coordinator.http.answers import WsgiAnswer
from deborgen_coordinator.web import words
from deborgen_coordinator.web.assets import asset
from deborgen_coordinator.web.charts.svg import sample
from deborgen_shared import headers
from deborgen_shared.states import State

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

HTML = "text/html; charset=utf-8"
#: Pages load nothing but our own files, run no inline script or style, and cannot be framed.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; frame-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
SAFE_HEADERS = {
    headers.CONTENT_SECURITY_POLICY: POLICY,
    headers.CONTENT_TYPE_OPTIONS: "nosniff",
    # With no-referrer, browsers would send no Origin with forms.
    headers.REFERRER_POLICY: "same-origin",
    headers.CACHE_CONTROL: "no-store",
}

_templates = Environment(
    loader=PackageLoader("deborgen_coordinator.web"),
    autoescape=True,
    finalize=words.finalize,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_templates.globals |= {"asset": asset, "sample": sample, "STATES": list(State), **words.GLOBALS}
_templates.filters |= words.FILTERS


class HtmlAnswer(WsgiAnswer):
    """A complete page."""

    def __init__(self, status: int, body: bytes, sent: dict[str, str] | None = None) -> None:
        super().__init__(status, None, {**SAFE_HEADERS, **(sent or {})})
        self.body = body
        self.headers[headers.CONTENT_LENGTH] = str(len(body))
        self.headers.setdefault(headers.CONTENT_TYPE, HTML)

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        return super().__call__(environ, start_response)


def render(template: str, status: int = 200, **values: Any) -> HtmlAnswer:
    return HtmlAnswer(status, _templates.get_template(template).render(values).encode())
