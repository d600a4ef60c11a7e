"""The stylesheet, the scripts and the icon."""

from __future__ import annotations

from deborgen_coordinator.operations.lookup import Noun, UnknownName
from deborgen_coordinator.web.assets import ASSET_HEADERS, FOREVER, TYPES, asset, contents, version
from deborgen_coordinator.web.pages import NOBODY, PageRequest, page
from deborgen_coordinator.web.rendering import HtmlAnswer
from deborgen_shared import headers


@page("/static/{version}/{file}", by=NOBODY)
def static_file(request: PageRequest) -> HtmlAnswer:
    name = request.names["file"]
    data = contents().get(name)
    if data is None:
        raise UnknownName(Noun.PAGE, "there is nothing at this path")
    # A page of the previous release may ask for its own version: it gets the newest one, and must not keep it.
    kept = FOREVER if request.names["version"] == version() else "no-store"
    kind = TYPES[name.rpartition(".")[2]]
    return HtmlAnswer(200, data, {**ASSET_HEADERS, headers.CONTENT_TYPE: kind, headers.CACHE_CONTROL: kept})


@page("/favicon.ico", by=NOBODY)
def favicon(request: PageRequest) -> HtmlAnswer:
    return request.go(asset("icon.svg"))
