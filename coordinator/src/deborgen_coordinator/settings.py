"""One table of settings. The flags, the environment, the configuration file and docs/settings.md all follow it.

A setting is given by its flag, else by its variable `DEBORGEN_…`, else by its line in the TOML file that `--config`
names, else it has its default. A value that makes no sense is refused with one sentence before anything starts.
"""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deborgen_shared.jobfile.units import parse_duration, parse_size

ENVIRONMENT_PREFIX = "DEBORGEN_"


class SettingsError(Exception):
    """A setting that cannot be used; the message is one sentence for the person who wrote it."""


@dataclass(frozen=True)
class Kind:
    """How a value is read from text (or from TOML), and the words for it in help and docs."""

    words: str
    read: Callable[[str], Any]


def _integer(least: int) -> Kind:
    def read(text: str) -> int:
        value = int(text)
        if value < least:
            raise ValueError(f"it must be at least {least}")
        return value

    return Kind("whole number", read)


def _duration(least: float) -> Kind:
    def read(text: str) -> float:
        value = float(text) if _is_number(text) else float(parse_duration(text))
        if not least <= value < 1e9:
            raise ValueError(f"it must be at least {least:g} s")
        return value

    return Kind("duration", read)


def _read_size(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() else int(parse_size(text))


def _is_number(text: str) -> bool:
    return text.isascii() and text.replace(".", "", 1).isdigit()


def _number(text: str) -> float:
    value = float(text)
    if not 0 < value < 1e9:
        raise ValueError("it must be above 0")
    return value


def _choice(*values: str) -> Kind:
    def read(text: str) -> str:
        if text not in values:
            raise ValueError(f"it must be one of {', '.join(values)}")
        return text

    return Kind(" or ".join(values), read)


def _address(text: str) -> str:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ValueError("write HOST:PORT, for example 127.0.0.1:8765")
    return text


def _database(text: str) -> str:
    if text and not text.startswith(("postgresql://", "postgres://", "sqlite://")):
        raise ValueError("write postgresql://USER@HOST/NAME, or leave it out for SQLite in the data directory")
    return text


def _folder(text: str) -> str:
    if not text or "\0" in text:
        raise ValueError("write the path of a directory")
    return str(Path(text).expanduser().absolute())


TEXT = Kind("text", str)
SIZE = Kind("size", _read_size)
FOLDER = Kind("path", _folder)


def default_data_dir() -> str:
    base = os.environ.get("XDG_DATA_HOME") or str(Path("~/.local/share").expanduser())
    return str(Path(base) / "deborgen")


def _setting(default: Any, kind: Kind, explanation: str, shown: str | None = None) -> Any:
    """A row of the table. `shown` is what the docs say where the default depends on the machine."""
    metadata = {"kind": kind, "help": explanation, "shown": str(default) if shown is None else shown}
    if callable(default):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the coordinator was told. Durations are seconds, sizes are bytes."""

    listen: str = _setting("127.0.0.1:8765", Kind("address", _address), "address to listen on; port 0 picks a free one")
    data_dir: str = _setting(
        default_data_dir, FOLDER, "directory of the database and the blobs", "$XDG_DATA_HOME/deborgen"
    )
    database: str = _setting(
        "",
        Kind("database URL", _database),
        "postgresql://… to use PostgreSQL; empty means SQLite in the data directory",
    )
    lease_seconds: float = _setting(60.0, _duration(0.1), "how long an attempt stays a worker's without a heartbeat")
    heartbeat_seconds: float = _setting(10.0, _duration(0.05), "how often workers are told to send a heartbeat")
    scheduler: str = _setting(
        "fifo", _choice("fifo", "fair"), "which job first: the oldest, or one of the submitter who has used least"
    )
    max_running_per_submitter: int = _setting(0, _integer(0), "running jobs that one submitter may have; 0 is no cap")
    max_waiters: int = _setting(32, _integer(1), "claims that may wait on the server at once")
    poll_rate: float = _setting(
        20.0, Kind("number", _number), "polls a second that all workers together may make once the waiters are full"
    )
    threads: int = _setting(96, _integer(4), "requests that are handled at once")
    max_connections: int = _setting(4000, _integer(8), "connections that may be open at once")
    max_streams: int = _setting(16, _integer(0), "live event streams and followed logs at once")
    max_transfers: int = _setting(16, _integer(1), "uploads and downloads of more than 64 KiB at once")
    max_body: int = _setting(8 * 2**20, SIZE, "largest JSON body of a worker", "8MiB")
    max_document: int = _setting(2**20, SIZE, "largest job file, and largest JSON body of a person", "1MiB")
    max_log_chunk: int = _setting(4 * 2**20, SIZE, "largest piece of log in one request, after unpacking", "4MiB")
    max_blob: int = _setting(64 * 2**30, SIZE, "largest blob", "64GiB")
    disk_reserve: int = _setting(
        32 * 2**20,
        SIZE,
        "disk space kept for heartbeats and results when the disk is full (SQLite); 0 keeps none",
        "32MiB",
    )
    max_jobs_per_run: int = _setting(100_000, _integer(1), "jobs that one run may have")
    allowed_hosts: str = _setting(
        "", TEXT, "names, separated by commas, that a request may give as its Host; empty allows every name"
    )
    default_image: str = _setting("", TEXT, "container image of jobs that name none; empty means no container")
    retention_days: int = _setting(0, _integer(0), "days that finished runs are kept; 0 keeps them for ever")
    retention_bytes: int = _setting(
        0, SIZE, "bytes of blobs above which the oldest finished runs are removed; 0 is no bound"
    )
    log_format: str = _setting("text", _choice("text", "json"), "how the coordinator's own log reads")
    log_level: str = _setting("info", _choice("debug", "info", "warning", "error"), "least important line to log")

    def __post_init__(self) -> None:
        if self.heartbeat_seconds * 2 > self.lease_seconds:
            raise SettingsError(
                f"heartbeat-seconds is {self.heartbeat_seconds:g} and lease-seconds {self.lease_seconds:g}: "
                "a lease must last at least two heartbeats."
            )
        if self.max_waiters + self.max_streams + self.max_transfers > self.threads - 2:
            raise SettingsError(
                f"max-waiters ({self.max_waiters}), max-streams ({self.max_streams}) and max-transfers "
                f"({self.max_transfers}) together must leave 2 of the {self.threads} threads free for other requests."
            )

    @property
    def uses_sqlite(self) -> bool:
        return not self.database or self.database.startswith("sqlite:")

    @property
    def blob_dir(self) -> Path:
        return Path(self.data_dir) / "blobs"


@dataclass(frozen=True)
class Row:
    """One row of the table, as the flags, the docs and the configuration file see it."""

    name: str
    kind: Kind
    default: str
    help: str

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return ENVIRONMENT_PREFIX + self.name.upper()


TABLE: dict[str, Row] = {
    f.name: Row(f.name, f.metadata["kind"], f.metadata["shown"], f.metadata["help"])
    for f in dataclasses.fields(Settings)
}


def add_flags(parser: argparse.ArgumentParser, names: list[str] | None = None) -> None:
    """Give the parser a flag for each setting (or for the named ones) and `--config`."""
    parser.add_argument("--config", metavar="FILE", help="TOML file with settings, one `name = value` a line")
    for row in TABLE.values():
        if names is None or row.name in names:
            default = f" (default {row.default})" if row.default else ""
            parser.add_argument(row.flag, dest=row.name, metavar="VALUE", help=(row.help + default).replace("%", "%%"))


def load(flags: Mapping[str, str | None], environment: Mapping[str, str], config: str | None = None) -> Settings:
    """The settings, each from the first place that gives it; `SettingsError` names the place of a bad value."""
    config = config or environment.get(ENVIRONMENT_PREFIX + "CONFIG") or None
    lines = _read_file(config) if config else {}
    values: dict[str, Any] = {}
    for row in TABLE.values():
        if (text := flags.get(row.name)) is not None:
            values[row.name] = _value(row, text, row.flag)
        elif (text := environment.get(row.variable)) is not None:
            values[row.name] = _value(row, text, row.variable)
        elif row.name in lines:
            values[row.name] = _value(row, lines[row.name], f"{row.name} in {config}")
    return Settings(**values)


def _value(row: Row, text: str, place: str) -> Any:
    try:
        return row.kind.read(text)
    except ValueError as problem:
        raise SettingsError(f"{place}: {text!r} is not a valid {row.kind.words}: {problem}.") from None


def _read_file(path: str) -> dict[str, str]:
    try:
        document = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as problem:
        raise SettingsError(f"The configuration file {path} cannot be read: {problem.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise SettingsError(f"The configuration file {path} is not valid TOML: {problem}.") from None
    lines = {}
    for key, value in document.items():
        name = key.replace("-", "_")
        if name not in TABLE:
            near = difflib.get_close_matches(name, TABLE, 1)
            raise SettingsError(
                f"The configuration file {path} has an unknown setting {key!r}"
                + (f": did you mean {near[0]!r}?" if near else ".")
            )
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise SettingsError(f"{key} in {path} must be a string or a number.")
        lines[name] = str(value)
    return lines
