"""Which coordinator and which token are used: the order of precedence, and one address per token."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deborgen import profile, runtime
from deborgen.errors import NotAllowed, Unreachable, WrongUsage


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("CONFIG", "DATA", "STATE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    for name in ("DEBORGEN_URL", "DEBORGEN_TOKEN", "DEBORGEN_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def up(url: str = "http://127.0.0.1:8765") -> runtime.Runtime:
    state = runtime.Runtime(url, "dbg_admin_up", 1, "/data", "box", "subprocess")
    runtime.write(state)
    return state


@contextmanager
def held() -> Iterator[bool]:
    """Hold the lock of `deborgen up` while the block runs; False if another process holds it."""
    descriptor = runtime.lock()
    yield descriptor is not None
    if descriptor is not None:
        os.close(descriptor)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("pool:8765", "http://pool:8765"),
        ("HTTPS://Pool.Example/", "https://pool.example"),
        ("https://pool.example:443/deborgen/", "https://pool.example/deborgen"),
        ("http://[::1]:8765", "http://[::1]:8765"),
        ("http://pool:80", "http://pool"),
    ],
)
def test_an_address_is_normalized(written: str, meant: str) -> None:
    assert profile.normalize(written) == meant


@pytest.mark.parametrize(
    "wrong", ["ftp://pool", "http://", "http://pool:port", "http://me:secret@pool", "http://pool:99999"]
)
def test_an_invalid_address_is_refused(wrong: str) -> None:
    with pytest.raises(WrongUsage) as refusal:
        profile.normalize(wrong)
    assert refusal.value.exit_code == 2


def test_without_any_configuration_the_error_says_what_to_do() -> None:
    with pytest.raises(Unreachable, match="no coordinator is known") as refusal:
        profile.find()
    assert "deborgen up" in refusal.value.hint


def test_the_address_comes_from_flag_environment_profile_or_up_in_this_order(monkeypatch: pytest.MonkeyPatch) -> None:
    with held() as ours:
        assert ours
        up()
        assert profile.find().url == "http://127.0.0.1:8765"
        profile.store("http://profile", "t1")
        assert profile.find().url == "http://profile"
        monkeypatch.setenv("DEBORGEN_URL", "http://environment")
        assert profile.find().url == "http://environment"
        assert profile.find("flag").url == "http://flag"


def test_a_token_is_stored_in_a_file_that_only_its_owner_can_read() -> None:
    path = profile.store("http://pool", "dbg_submitter_x_secret")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert profile.find().token == "dbg_submitter_x_secret"


def test_a_token_is_never_sent_to_another_address() -> None:
    profile.store("http://pool", "mine")
    assert profile.find("http://pool:81").token == ""
    assert profile.find("https://pool").token == ""
    assert profile.find("http://pool/other").token == ""
    assert profile.find("http://POOL:80/").token == "mine"


def test_a_token_from_the_environment_is_not_sent_to_an_up_that_was_merely_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DEBORGEN_TOKEN", "for-the-big-pool")
    with held():
        state = up()
        assert profile.find().token == state.token
        monkeypatch.setenv("DEBORGEN_URL", "http://big-pool")
        assert profile.find().token == "for-the-big-pool"


def test_a_token_from_the_environment_is_sent_only_to_its_own_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DEBORGEN_URL", "http://pool")
    monkeypatch.setenv("DEBORGEN_TOKEN", "for-pool")
    assert profile.find().token == "for-pool"
    assert profile.find("http://POOL/").token == "for-pool"
    assert profile.find("http://elsewhere").token == ""
    monkeypatch.delenv("DEBORGEN_URL")
    assert profile.find("http://elsewhere").token == "for-pool", (
        "without DEBORGEN_URL, it is for any address that is given"
    )


def test_a_token_file_that_others_can_read_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = home / "token"
    path.write_text("secret\n")
    path.chmod(0o644)
    monkeypatch.setenv("DEBORGEN_URL", "http://pool")
    monkeypatch.setenv("DEBORGEN_TOKEN_FILE", str(path))
    with pytest.raises(NotAllowed, match="can be read by others"):
        profile.find()
    path.chmod(0o600)
    assert profile.find().token == "secret"


def test_the_runtime_file_of_an_up_that_has_ended_is_stale() -> None:
    with held() as ours:
        assert ours
        state = up()
        assert runtime.find() == state
    assert runtime.read() == state
    assert runtime.find() is None


def test_only_one_up_holds_the_lock() -> None:
    with held() as first, held() as second:
        assert (first, second) == (True, False)
    with held() as again:
        assert again


def test_a_broken_runtime_file_is_ignored() -> None:
    with held():
        up()
        runtime.file().write_text("{")
        assert runtime.find() is None


def test_localhost_finds_the_token_of_127_0_0_1() -> None:
    profile.store("http://127.0.0.1:8765", "dbg_submitter_1_x")
    assert profile.find("localhost:8765").token == "dbg_submitter_1_x"
    assert profile.find("http://example.org:8765").token == ""
