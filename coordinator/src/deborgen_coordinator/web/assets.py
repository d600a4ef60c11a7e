"""The stylesheet, the scripts and the icon. Their addresses contain a digest of them all, so browsers may keep them."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files

from deborgen_shared import headers

#: The files' types, by the end of their names.
TYPES = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}
ASSET_HEADERS = {
    headers.CONTENT_TYPE_OPTIONS: "nosniff",
    headers.CONTENT_SECURITY_POLICY: "default-src 'none'; frame-ancestors 'none'",
}
FOREVER = "public, max-age=31536000, immutable"


@cache
def contents() -> dict[str, bytes]:
    """The bytes of each file."""
    folder = files("deborgen_coordinator.web") / "static"
    return {each.name: each.read_bytes() for each in folder.iterdir() if each.name.rpartition(".")[2] in TYPES}


@cache
def version() -> str:
    """A digest of all files. Scripts import each other by relative addresses, so they share one version."""
    whole = hashlib.sha256()
    for name, data in sorted(contents().items()):
        whole.update(name.encode() + data)
    return whole.hexdigest()[:12]


def asset(name: str) -> str:
    """The address of a file."""
    return f"/static/{version()}/{name}"
