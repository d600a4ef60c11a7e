"""The names of container images: checks a name, and finds its registry."""

from __future__ import annotations

import re

_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?")
_PORT = re.compile(r"[0-9]{1,5}", re.ASCII)
_PART = re.compile(r"[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}")

#: Names that begin like this are images that the pool itself has built.
POOL = "pool/"
EXAMPLE = "write for example python:3.12-slim"


def check_image(name: str) -> tuple[str, str] | None:
    """Why this cannot be the name of an image, and what to write instead; None if it can be one.

    The reason is empty if nothing in particular can be named. All registries have the same rules:
    HOST:PORT/PATH:TAG@DIGEST, where only the path is required.
    """
    scheme, found, _ = name.partition("://")
    if found:
        return f"it starts with '{scheme}://'", "leave that out"
    name, at, digest = name.partition("@")
    if at and not _DIGEST.fullmatch(digest):
        return "its digest is wrong", "write sha256: and 64 hexadecimal digits after the @"
    registry, rest = _split(name)
    host, colon, port = registry.partition(":")
    if colon and not (_PORT.fullmatch(port) and 0 < int(port) < 65536):
        return f"'{port}' is not a port", "write a number up to 65535 after the registry's name"
    path, colon, tag = rest.partition(":")
    if colon and not _TAG.fullmatch(tag):
        return f"'{tag}' is not a tag", "a tag has letters, digits, _ . and -"
    hosts, parts = host.split(".") if registry else [], path.lower().split("/")
    if not all(map(_HOST.fullmatch, hosts)) or not all(map(_PART.fullmatch, parts)):
        return "", EXAMPLE
    if path != path.lower():
        return "it has capital letters", f"write {name.replace(path, path.lower())}"
    return None


def registry_of(image: str) -> str:
    """The registry in a valid name, such as `registry.example.org:5000`; empty if it names none."""
    return _split(image)[0].lower()


def _split(name: str) -> tuple[str, str]:
    """The registry and the rest. The first part is a registry if it has a dot or a port; all engines agree on that."""
    first, slash, rest = name.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        return first, rest
    return "", name


def tagged(name: str) -> str:
    """The name of an image with its tag: every engine adds this one to a name without any."""
    return name if ":" in name.rpartition("/")[2] else f"{name}:latest"
