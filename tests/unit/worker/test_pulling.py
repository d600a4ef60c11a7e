"""From where images may be pulled, and what is told of a pull that fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from deborgen_shared.registries import PUBLIC, is_public, parse_registries
from deborgen_shared.states import Cause
from deborgen_worker.runners.containers.engine import PullFailed
from deborgen_worker.runners.containers.pulling import pull
from deborgen_worker.runners.podman.reading import cause_of
from deborgen_worker.runners.protocol import Unavailable
from support.worker_in_steps import SteppedWorker

#: Where the names of these tests lead.
ADDRESSES = {
    "registry.example.org": ["203.0.114.7"],
    "inside.example.org": ["192.168.1.5"],
    "both.example.org": ["203.0.114.7", "10.0.0.1"],
    "nas": ["192.168.1.9"],
    "127.1": ["127.0.0.1"],
}


class PullingEngine:
    """An engine that only counts what it is asked to pull."""

    def __init__(self, failure: PullFailed | None = None) -> None:
        self.pulled: list[str] = []
        self.failure = failure

    def pull(self, image: str, _credentials: str = "", *, plain: bool = False) -> None:
        self.pulled.append(image)
        if self.failure is not None:
            raise self.failure


def look_up(host: str) -> list[str]:
    if host not in ADDRESSES:
        raise OSError(f"there is no {host}")
    return ADDRESSES[host]


def tried(image: str, registries: str = PUBLIC, failure: PullFailed | None = None) -> tuple[bool, Cause | None, str]:
    """Whether the engine was asked to pull it, the cause if it failed, and the reason."""
    engine: Any = PullingEngine(failure)
    try:
        pull(engine, image, parse_registries(registries), look_up)
    except Unavailable as error:
        return bool(engine.pulled), error.cause, str(error)
    return bool(engine.pulled), None, ""


@pytest.mark.parametrize(
    ("image", "registries", "cause"),
    [
        ("python:3.12", "public", None),
        ("registry.example.org/a", "public", None),
        ("registry.example.org:5000/a", "public", None),
        ("inside.example.org/a", "public,inside.example.org", None),
        ("inside.example.org:5000/a", "inside.example.org:5000", None),
        ("Inside.Example.org/a", "inside.example.org", None),
        ("localhost/a", "localhost", None),
        ("localhost:5000/a", "localhost:5000", None),
        ("127.0.0.1:5000/a", "127.0.0.1:5000", None),
        ("127.0.0.1:5000/a", "public", Cause.IMAGE_NOT_ALLOWED),
        ("127.0.0.1:22/a", "public,127.0.0.1:5000", Cause.IMAGE_NOT_ALLOWED),
        ("192.168.1.1/a", "public", Cause.IMAGE_NOT_ALLOWED),
        ("169.254.169.254/a", "public", Cause.IMAGE_NOT_ALLOWED),
        ("100.64.0.1:5000/a", "public", Cause.IMAGE_NOT_ALLOWED),
        ("127.1/a", "public", Cause.IMAGE_NOT_ALLOWED),
        ("inside.example.org/a", "public", Cause.IMAGE_NOT_ALLOWED),
        ("inside.example.org:22/a", "public,inside.example.org", Cause.IMAGE_NOT_ALLOWED),
        ("both.example.org/a", "public", Cause.IMAGE_NOT_ALLOWED),
        ("nas:5000/a", "public", Cause.IMAGE_NOT_ALLOWED),
        ("localhost:5000/a", "public", Cause.IMAGE_NOT_ALLOWED),
        ("python:3.12", "registry.example.org", Cause.IMAGE_NOT_ALLOWED),
        ("python:3.12", "", Cause.IMAGE_NOT_ALLOWED),
        ("localhost/a", "public", Cause.IMAGE_UNKNOWN),
        ("nowhere.example.org/a", "public", Cause.REGISTRY_UNREACHABLE),
        ("docker-archive:/etc/passwd", "public", Cause.IMAGE_UNKNOWN),
    ],
)
def test_fault_96_only_registries_that_the_owner_allows_are_contacted(
    image: str, registries: str, cause: Cause | None
) -> None:
    """Seen to fail when every registry is allowed."""
    asked, found, _ = tried(image, registries)
    assert (asked, found) == (cause is None, cause)


REPORTS = {
    "reading manifest 1 in registry.example.org/a: manifest unknown": Cause.IMAGE_UNKNOWN,
    "denied: requested access to the resource is denied\nunauthorized: authentication required": Cause.IMAGE_REFUSED,
    'pinging container registry 10.0.0.1:22: malformed HTTP response "SSH-2.0-Open"': Cause.REGISTRY_UNREACHABLE,
    "dial tcp 10.0.0.1:81: connect: connection refused": Cause.REGISTRY_UNREACHABLE,
    "copying image: writing blob: no space left on device": Cause.IMAGE,
    'short-name "a" did not resolve to an alias': Cause.IMAGE_UNKNOWN,
}


@pytest.mark.parametrize("report", REPORTS)
def test_fault_96_what_a_registry_answered_is_told_in_our_own_words(report: str) -> None:
    """Seen to fail when Podman's report is the reason."""
    assert cause_of(report) is REPORTS[report]
    asked, found, reason = tried("registry.example.org/a:1", failure=PullFailed(cause_of(report), report))
    assert (asked, found) == (True, REPORTS[report])
    assert reason.startswith("the image registry.example.org/a:1 could not be pulled: ")
    assert report not in reason
    assert "SSH" not in reason


def test_the_result_says_which_image_could_not_be_had_and_only_the_owner_sees_what_was_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def prepare(_launch: object) -> None:
        raise Unavailable(Cause.REGISTRY_UNREACHABLE, "the image a could not be pulled", "SSH-2.0-Open")

    world = SteppedWorker(tmp_path)
    monkeypatch.setattr(world.runner, "prepare", prepare)
    world.queue("1.1/1", image="registry.example.org/a")
    world.take()
    world.deliver()
    [result] = world.coordinator.results
    assert (result.outcome, result.cause, result.image) == ("error", "registry_unreachable", "registry.example.org/a")
    assert "SSH" not in f"{result}"
    assert any("SSH" in line for line in world.said)


@pytest.mark.parametrize("text", ["public", "", "public, registry.example.org:5000 ,localhost", "10.0.0.1:5000"])
def test_a_list_of_registries_is_read(text: str) -> None:
    assert parse_registries(text) == {each.strip() for each in text.split(",") if each.strip()}


@pytest.mark.parametrize("text", ["everything", "https://a.example.org", "a.example.org/path", "a.example.org:x"])
def test_a_list_of_registries_with_a_mistake_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a registry"):
        parse_registries(text)


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "10.1.2.3", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1", "::1", "fe80::1%eth0"),
        *("fd00::1", "::ffff:10.0.0.1", "64:ff9b::a00:1", "2002:a00:1::", "::10.0.0.1"),
    ],
)
def test_an_address_of_a_private_network_is_not_public_however_it_is_written(address: str) -> None:
    assert not is_public(address)
    assert is_public("203.0.114.7")
    assert is_public("2001:4860:4860::8888")
