"""The first page."""

from __future__ import annotations

from deborgen_coordinator.web.pages import PageRequest, page
from deborgen_coordinator.web.rendering import HtmlAnswer


@page("/")
def now(request: PageRequest) -> HtmlAnswer:
    return request.go("/runs")
