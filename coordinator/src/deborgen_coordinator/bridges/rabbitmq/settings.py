"""The table of the bridge's settings."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from deborgen_shared.messages import NAME
from deborgen_shared.settings import PATH, Kind, Table, choice, setting, whole

#: With this many messages waiting for a worker that does not exist yet, further ones count like all others.
MOST_WAITING = 10_000


def _amqp(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in {"amqp", "amqps"} or not parts.hostname:
        raise ValueError("write amqp://USER:PASSWORD@HOST:PORT/VHOST, with the slash of the virtual host / as %2F")
    return text


def _http(text: str) -> str:
    for url in text.split(","):
        parts = urlsplit(url.strip())
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError("write http://HOST:PORT or https://HOST, or several with commas")
    return text


def _public(text: str) -> str:
    return _http(text).rstrip("/") if text else ""


def _name(text: str) -> str:
    if not re.fullmatch(NAME, text, re.ASCII):
        raise ValueError("write letters, digits, dots, dashes and underscores")
    return text


@dataclass(frozen=True, kw_only=True)
class BridgeSettings:
    """The settings of `deborgen-coordinator rabbitmq`."""

    amqp: str = setting(
        "amqp://127.0.0.1:5672/%2F", Kind("AMQP URL", _amqp), "address of RabbitMQ; other users of this machine can "
        "read a flag, so give a password in the variable or in the file"
    )  # fmt: skip
    coordinator: str = setting(
        "http://127.0.0.1:8765", Kind("URL", _http), "address of the coordinator, for example "
        "https://pool.example; or of several of one pool, with commas, the preferred one first"
    )  # fmt: skip
    token_file: str = setting("", PATH, "file that holds the token of a submitter and nothing else")
    name: str = setting(
        "rabbitmq", Kind("name", _name), "name of the bridge; bridges with the same name, RabbitMQ and token take turns"
    )
    prefetch: int = setting(
        100, whole(1, 50_000), "how many messages the bridge may hold whose jobs no worker has claimed yet"
    )
    public_url: str = setting(
        "", Kind("URL", _public), "address of the coordinator in the statuses; empty means the first one above"
    )
    log_format: str = setting("text", choice("text", "json"), "format of the bridge's log")
    log_level: str = setting("info", choice("debug", "info", "warning", "error"), "minimum log level")


TABLE = Table(BridgeSettings, "DEBORGEN_RABBITMQ_")
