"""Whom a fetch may contact on this machine, and with which key.

A submitter chooses the address, and with it what this machine would contact. So the owner says which protocols and
hosts are allowed, and git contacts exactly the addresses that were checked.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import secrets
import shlex
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from deborgen_shared.registries import is_public
from deborgen_shared.repositories import Address, host_allowed, parse_address
from deborgen_worker.git.command import GitFailed

#: The addresses of a host. Raises an OSError if it has none.
Lookup = Callable[[str], list[str]]
_PORTS = {"https": "443", "http": "80"}
#: The user of a token for https, where the secret does not name one. The large hosts ignore it.
USER_OF_A_KEY = "git"


class Remote(NamedTuple):
    """A repository's address, and the value of the secret that opens it; empty for a public one."""

    url: str
    key: str = ""


@dataclass(frozen=True)
class Way:
    """How git gets to a checked remote: the variables of its environment, and further options."""

    address: Address
    env: dict[str, str] = field(repr=False)
    options: tuple[str, ...] = ()


def look_up(host: str) -> list[str]:
    return [str(found[4][0]) for found in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]


@dataclass(frozen=True)
class Access:
    """What the owner allows. Key files are kept in `keys` while a command of git runs; `known_hosts` is the owner's own
    list of ssh hosts, without which the first key of a host is trusted and remembered in `state`."""

    protocols: frozenset[str]
    hosts: frozenset[str]
    state: Path
    keys: Path
    known_hosts: str = ""
    lookup: Lookup = look_up

    def check(self, url: str) -> tuple[Address, str]:
        """The parts of a URL that this machine may contact, and the address to contact; empty if any will do.

        Raises `GitFailed` for any other URL.
        """
        try:
            address = parse_address(url)
        except ValueError as why:
            raise GitFailed(f"the URL {why}") from None
        if address.protocol not in self.protocols:
            raise GitFailed(f"the owner of this machine does not allow the protocol {address.protocol}")
        refusal = GitFailed(f"the owner of this machine does not allow the host {address.host}")
        if not host_allowed(address, self.hosts):
            raise refusal
        if address.protocol == "file" or self._is_named(address):
            return address, ""
        try:
            found = self.lookup(address.host.strip("[]"))
        except (OSError, UnicodeError):
            raise GitFailed(f"the host {address.host} is not known") from None
        if not found or not all(map(is_public, found)):
            raise refusal
        return address, found[0]

    def _is_named(self, address: Address) -> bool:
        return address.server in self.hosts or address.host in self.hosts

    @contextlib.contextmanager
    def way(self, remote: Remote) -> Iterator[Way]:
        """The way to a remote. Its key is on this machine only until the block ends, and never in an argument."""
        address, contact = self.check(remote.url)
        env = {"GIT_ALLOW_PROTOCOL": address.protocol}
        if address.protocol == "ssh":
            with self._key_file(remote.key) as path:
                yield Way(
                    address, {**env, "GIT_SSH_COMMAND": self._ssh(path, address, contact), "GIT_SSH_VARIANT": "ssh"}
                )
            return
        settings = {}
        if address.protocol in _PORTS:
            if contact:
                port = address.port or _PORTS[address.protocol]
                numbers = f"[{contact}]" if ":" in contact else contact
                settings["http.curloptResolve"] = f"{address.host.strip('[]')}:{port}:{numbers}"
            if remote.key:
                user, colon, password = remote.key.strip().partition(":")
                pair = f"{user}:{password}" if colon else f"{USER_OF_A_KEY}:{user}"
                name = f"http.{address.protocol}://{address.server}/.extraHeader"
                settings[name] = f"Authorization: Basic {base64.b64encode(pair.encode()).decode()}"
        for number, (name, value) in enumerate(settings.items()):
            env |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
        yield Way(address, env | ({"GIT_CONFIG_COUNT": str(len(settings))} if settings else {}))

    def _ssh(self, key: str, address: Address, contact: str) -> str:
        """The command for ssh: no configuration, no agent, no prompt, and only this key."""
        known = self.known_hosts or str(self.state / "known_hosts")
        options = {
            "IdentitiesOnly": "yes", "IdentityAgent": "none", "BatchMode": "yes", "ForwardAgent": "no",
            "StrictHostKeyChecking": "yes" if self.known_hosts else "accept-new", "UserKnownHostsFile": known,
            "GlobalKnownHostsFile": "/dev/null", "ConnectTimeout": "10", "ServerAliveInterval": "10",
            "ServerAliveCountMax": "2", "UpdateHostKeys": "no", "LogLevel": "ERROR",
            **({"HostName": contact, "HostKeyAlias": address.host, "CheckHostIP": "no"} if contact else {}),
        }  # fmt: skip
        parts = ["ssh", "-F", "/dev/null", "-i", key or "/dev/null"]
        for name, value in options.items():
            parts += ["-o", f"{name}={value}"]
        return shlex.join(parts)

    @contextlib.contextmanager
    def _key_file(self, key: str) -> Iterator[str]:
        if not key:
            yield ""
            return
        self.keys.mkdir(mode=0o700, exist_ok=True)
        path = self.keys / f"key-{secrets.token_hex(8)}"
        try:
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "w") as file:
                file.write(key.strip() + "\n")  # without the line break, ssh does not read it
            yield str(path)
        finally:
            path.unlink(missing_ok=True)


def same_server(one: str, other: str) -> bool:
    """Whether a key for one address may be shown to the other: they have the same protocol, host and port."""
    first, second = parse_address(one), parse_address(other)
    return (first.protocol, first.server) == (second.protocol, second.server)


def fingerprint(remote: Remote) -> str:
    """The name of a remote's mirror. It depends on the key: whoever lacks it does not get what it has opened."""
    digest = hashlib.sha256(remote.key.strip().encode()).hexdigest() if remote.key else ""
    return hashlib.sha256(f"{remote.url}\n{digest}".encode()).hexdigest()[:32]
