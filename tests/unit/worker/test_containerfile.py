"""What a build is made from: the base images that the worker fetches, and what is refused."""

from __future__ import annotations

import pytest

from deborgen_worker.runners.builds.containerfile import base_images, remote_source


@pytest.mark.parametrize(
    ("text", "images"),
    [
        ("FROM busybox", ["busybox"]),
        ("from busybox as a\nFROM a\nFROM scratch", ["busybox"]),
        ("FROM --platform=linux/arm64 python:3.12 AS b\nCOPY --from=0 /a /b\nCOPY --from=alpine:3 /a /b", None),
        ("ARG BASE=busybox\nFROM $BASE", ["busybox"]),
        ("ARG BASE\nFROM ${BASE:-alpine}", ["alpine"]),
        ("ARG TAG=3\nFROM python:${TAG}-slim", ["python:3-slim"]),
        ("ARG V=1\nFROM ${V:+debian}", ["debian"]),
        ("# escape=`\nFROM `\n  busybox", ["busybox"]),
        ("FROM \\\n# a comment\n  busybox", ["busybox"]),
        ("FROM a\nRUN --mount=type=bind,from=tools:1,target=/t ls", ["a", "tools:1"]),
        ("FROM a\nONBUILD COPY --from=b /x /y", ["a", "b"]),
        ("", []),
        ("RUN <<EOF\nfrom x import y\nEOF", []),
    ],
)
def test_the_base_images_are_found(text: str, images: list[str] | None) -> None:
    assert base_images(text, {}) == (images if images is not None else ["python:3.12", "alpine:3"])


def test_a_build_argument_chooses_the_base_image() -> None:
    assert base_images("ARG BASE=busybox\nFROM ${BASE}", {"BASE": "localhost/mine:2"}) == ["localhost/mine:2"]


@pytest.mark.parametrize(
    "line",
    [
        "ADD http://127.0.0.1:22/a /a",
        'ADD ["https://example.org/a", "/a"]',
        "add --chown=1:1 git@example.org:a/b.git /a",
        "ADD $URL /a",
        "ONBUILD ADD http://nas/a /a",
        "ADD \\\n  http://nas/a /a",
        "ADD 'unfinished /a",
        "ADD\thttp://nas/a /a",
    ],
)
def test_a_source_that_would_be_fetched_past_the_jobs_network_is_found(line: str) -> None:
    """Podman fetches it itself, also for a job without a network, and from the owner's own network."""
    assert remote_source(f"FROM a\n{line}\n")


def test_local_sources_are_allowed() -> None:
    assert remote_source("FROM a\nADD a.tar /a\nCOPY http /a\nRUN curl https://example.org") == ""
