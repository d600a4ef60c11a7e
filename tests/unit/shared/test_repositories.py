"""Addresses of repositories, and refs in the answers of servers."""

from __future__ import annotations

import pytest

from deborgen_shared.repositories import (
    commit_among,
    host_allowed,
    parse_address,
    parse_hosts,
    parse_protocols,
    relative_address,
)

ONE, TWO = "1" * 40, "2" * 40


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("https://Example.org/team/solver.git", ("https", "", "example.org", "", "team/solver.git")),
        ("ssh://git@example.org:2222/x", ("ssh", "git", "example.org", "2222", "x")),
        ("git@example.org:team/solver.git", ("ssh", "git", "example.org", "", "team/solver.git")),
        ("https://[::1]:8443/x", ("https", "", "[::1]", "8443", "x")),
        ("file:///srv/git/x.git", ("file", "", "", "", "srv/git/x.git")),
    ],
)
def test_an_address_has_parts(text: str, parts: tuple[str, ...]) -> None:
    found = parse_address(text)
    assert (found.protocol, found.user, found.host, found.port, found.path) == parts


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("https://user:word@example.org/x", "a user or a password"), ("https://token@example.org/x", "a user or"),
        ("ext::sh -c id", "characters"), ("ext::sh", "not the URL"), ("/etc/passwd", "not the URL"),
        ("https://", "no valid host"), ("https://example.org", "no repository"), ("ssh://-oX=y/z", "no valid host"),
        ("git@example.org:-x", "no repository"), ("https://example.org:x/y", "no valid port"),
        ("https://example.org:99999/y", "no valid port"), ("gopher://example.org/x", "which is not one of"),
        ("file://host/x", "three slashes"), ("https://example.org/\u202ex", "characters"),
        ("a" + ":" * 200_000, "not the URL"), ("https://" + ":" * 200_000, "a user|no valid"),
        ("https://" + "a:" * 100_000 + "/x", "no valid"), ("a@" * 100_000, "not the URL"),
    ],
)  # fmt: skip
def test_an_address_that_is_none_is_refused_at_once(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_address(text)


def test_a_submodule_may_be_relative_to_its_repository() -> None:
    base = parse_address("https://example.org/team/solver.git")
    assert relative_address(base, "../lib.git") == "https://example.org/team/lib.git"
    assert relative_address(base, "./lib") == "https://example.org/team/solver.git/lib"
    assert relative_address(base, "../../../../etc") == "https://example.org/etc"
    assert relative_address(parse_address("git@example.org:team/x"), "../y") == "git@example.org:team/y"
    assert relative_address(base, "ssh://other.org/x") == "ssh://other.org/x"


def test_the_owner_names_hosts_and_protocols() -> None:
    hosts = parse_hosts("public, GIT.lan,192.168.1.7:3000")
    assert hosts == {"public", "git.lan", "192.168.1.7:3000"}
    for url, allowed in {
        "https://example.org/x": True, "https://git.lan/x": True, "https://git.lan:3000/x": True,
        "http://192.168.1.7:3000/x": True, "http://192.168.1.7/x": False, "http://localhost/x": False,
    }.items():  # fmt: skip
        assert host_allowed(parse_address(url), hosts) is allowed
    assert not host_allowed(parse_address("https://example.org/x"), frozenset({"git.lan"}))
    for wrong in ("a b", "http://x", "x/y", "a:b"):
        with pytest.raises(ValueError, match="is not a host"):
            parse_hosts(wrong)
    assert parse_protocols("https, SSH") == {"https", "ssh"}
    with pytest.raises(ValueError, match="is not one of"):
        parse_protocols("ext")


def test_the_commit_of_a_ref_is_found_in_a_listing() -> None:
    listing = f"{ONE}\trefs/heads/main\n{TWO}\trefs/tags/v1\n{ONE}\trefs/tags/v1^{{}}\n{TWO}\trefs/tags/main\nrubbish\n"
    assert commit_among(listing, "main") == ONE
    assert commit_among(listing, "v1") == ONE
    assert commit_among(listing, "none") is None
    assert commit_among("x\trefs/heads/main\n", "main") is None
