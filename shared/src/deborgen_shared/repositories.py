"""Addresses of git repositories, and the refs in them: what a job file may name, and what a machine may contact.

A worker says in its labels what its owner offers: protocols of repositories, and shared folders.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from deborgen_shared.jobfile.problems import show
from deborgen_shared.registries import PUBLIC, is_allowed

#: The ways to reach a repository. The owner of a machine says which of them it may use.
PROTOCOLS = ("https", "ssh", "http", "git", "file")
_HOST = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,253})|\[[0-9A-Fa-f:.]{2,45}\]")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_PLAIN = re.compile(r"[!-~]+")


#: The labels of offers begin with these words.
GIT, SHARED = "git", "shared"
#: The label of a worker that can keep a plain process from writing to a folder that it may only read.
SHARED_PROCESS = "shared-process-readonly"


def git_label(protocol: str) -> str:
    """The label of a worker that checks out repositories over this protocol."""
    return f"{GIT}.{protocol}"


def shared_label(name: str) -> str:
    """The label of a worker that shares the folder of this name. Its value is `read` or `write`."""
    return f"{SHARED}.{name}"


class Address(NamedTuple):
    """A repository's address in its parts. `host` and `port` are empty for a file."""

    text: str
    protocol: str
    user: str
    host: str
    port: str
    path: str

    @property
    def server(self) -> str:
        """The host, with its port if the address names one."""
        return f"{self.host}:{self.port}" if self.port else self.host


def parse_address(text: str) -> Address:
    """The parts of an address. Raises ValueError with the end of a sentence about it.

    Each step looks at the text once, so a long text takes no longer than its length.
    """
    if not _PLAIN.fullmatch(text):
        raise ValueError("has characters that no address has")
    protocol, found, rest = text.partition("://")
    if not found:  # git@example.org:team/solver.git
        place, colon, path = text.partition(":")
        user, at, host = place.partition("@")
        if not (colon and at):
            raise ValueError("is not the URL of a repository")
        return _checked(Address(text, "ssh", user, host, "", path.lstrip("/")))
    protocol = protocol.lower()
    if protocol not in PROTOCOLS:
        raise ValueError(f"begins with '{show(protocol)}', which is not one of {', '.join(PROTOCOLS)}")
    place, _, path = rest.partition("/")
    if protocol == "file":
        if place or not path:
            raise ValueError("must have three slashes and a path")
        return Address(text, protocol, "", "", "", path)
    user, at, server = place.rpartition("@")
    if ":" in user or (user and protocol in ("https", "http")):
        raise ValueError("has a user or a password in it, which everybody could read")
    host, colon, port = server.rpartition(":") if not server.endswith("]") else (server, "", "")
    if not colon:
        host, port = server, ""
    elif not (port.isascii() and port.isdecimal() and 0 < len(port) <= 5 and 0 < int(port) < 65536):
        raise ValueError("has no valid port")
    return _checked(Address(text, protocol, user, host.lower(), port, path))


def _checked(found: Address) -> Address:
    if not _HOST.fullmatch(found.host) or (found.user and not _USER.fullmatch(found.user)):
        raise ValueError("names no valid host")
    if not found.path.strip("/") or found.path.startswith("-"):
        raise ValueError("names no repository on its host")
    return found


def relative_address(base: Address, text: str) -> str:
    """The address of a submodule that is given relative to the repository in which it is named."""
    if not text.startswith(("./", "../")):
        return text
    start, path = base.text[: len(base.text) - len(base.path)], base.path.rstrip("/")
    for part in text.split("/"):
        if part == "..":
            path = path.rpartition("/")[0]
        elif part not in ("", "."):
            path = f"{path}/{part}" if path else part
    return start + path


def parse_hosts(text: str) -> frozenset[str]:
    """The names in a list of hosts such as `public,git.lan`. Raises ValueError if one cannot be a host."""
    names = frozenset(name.strip().lower() for name in text.split(",") if name.strip())
    for name in names - {PUBLIC}:
        try:
            server = parse_address(f"ssh://{name}/x").server
        except ValueError:
            server = ""
        if server != name:
            raise ValueError(f"{show(name)!r} is not a host: write it like public,git.example.org,192.168.1.7:3000")
    return names


def parse_protocols(text: str) -> frozenset[str]:
    """The names in a list of protocols such as `https,ssh`; empty for none. Raises ValueError for an unknown one."""
    names = frozenset(name.strip().lower() for name in text.split(",") if name.strip())
    for name in names - set(PROTOCOLS):
        raise ValueError(f"{show(name)!r} is not one of {', '.join(PROTOCOLS)}")
    return names


def host_allowed(address: Address, hosts: frozenset[str]) -> bool:
    """Whether the list allows the address, as far as its name tells. A file has no host."""
    if address.protocol == "file" or address.host in hosts:
        return True
    return is_allowed(address.server, hosts)


def is_commit(text: str) -> bool:
    """Whether the text is the full name of a commit."""
    return _COMMIT.fullmatch(text) is not None


def ref_patterns(ref: str) -> list[str]:
    """What to ask a repository for, to find the commit of a branch or a tag. The first one that it has, counts.

    A branch comes before a tag of the same name. If a tag has a message, `^{}` is the commit behind it.
    """
    if ref == "HEAD" or ref.startswith("refs/"):
        return [f"{ref}^{{}}", ref]
    return [f"refs/heads/{ref}", f"refs/tags/{ref}^{{}}", f"refs/tags/{ref}"]


def commit_among(listing: str, ref: str) -> str | None:
    """The commit of a branch or a tag in the answer of `git ls-remote`; None if the repository has neither."""
    found = {name: commit for commit, _, name in (line.partition("\t") for line in listing.splitlines())}
    commits = (found.get(name, "") for name in ref_patterns(ref))
    return next((commit for commit in commits if is_commit(commit)), None)
