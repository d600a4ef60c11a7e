"""The table of all settings. The flags, the environment, the configuration file and docs/settings.md derive from it.

A setting comes from its flag, else from its variable `DEBORGEN_…`, else from its line in the TOML file that `--config`
names, else from its default. An invalid value is refused in one line before anything starts.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from deborgen_shared.jobfile import limits
from deborgen_shared.jobfile.images import check_image, registry_of
from deborgen_shared.registries import PUBLIC, parse_registries
from deborgen_shared.settings import (
    PATH,
    SIZE,
    TEXT,
    Kind,
    SettingsError,
    Table,
    choice,
    duration,
    number,
    setting,
    whole,
)

__all__ = ["TABLE", "CoordinatorSettings", "SettingsError"]


def _address(text: str) -> str:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ValueError("write HOST:PORT, for example 127.0.0.1:8765")
    return text


def _database(text: str) -> str:
    if text and not text.startswith(("postgresql://", "postgres://", "sqlite://")):
        raise ValueError("write postgresql://USER@HOST/NAME, or leave it out for SQLite in the data directory")
    return text


def _artifact_store(text: str) -> str:
    bucket, _, prefix = text.removeprefix("s3://").partition("/")
    if text and not (
        text.startswith("s3://")
        and re.fullmatch(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", bucket)
        and re.fullmatch(r"([A-Za-z0-9!_.*'()-]+/)*[A-Za-z0-9!_.*'()-]*", prefix)
    ):
        raise ValueError("write s3://BUCKET or s3://BUCKET/PREFIX, or leave it out to use the data directory")
    return text.rstrip("/") if bucket else text


def _endpoint(text: str) -> str:
    parts = urlsplit(text)
    if text and (parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.username):
        raise ValueError("write http://HOST:PORT or https://HOST")
    return text.rstrip("/")


def _part_size(text: str) -> int:
    size = int(SIZE.read(text))
    if not LEAST_PART <= size <= MOST_PART:
        raise ValueError("it must be at least 5MiB and at most 1GiB")
    return size


def _image(text: str) -> str:
    if text and (wrong := check_image(text)):
        because, hint = wrong
        raise ValueError(": ".join(filter(None, (because, hint))))
    return text


def _folder(text: str) -> str:
    if not text:
        raise ValueError("write the path of a directory")
    return str(PATH.read(text))


def _registry(text: str) -> str:
    place = text.removeprefix("http://").rstrip("/")
    if place and (check_image(f"{place}/x") or not registry_of(f"{place}/x") or "@" in place):
        raise ValueError("write HOST:PORT/PATH, for example registry.example.org:5000/pool")
    return text.rstrip("/")


FOLDER = Kind("path", _folder)
PART_SIZE = Kind("size", _part_size)
#: S3 refuses smaller parts, and larger ones are too much to send again.
LEAST_PART, MOST_PART = 5 * 2**20, 2**30


class BucketAddress(NamedTuple):
    """`s3://BUCKET/PREFIX`, taken apart, and how the store is reached. Empty fields are left to boto3."""

    bucket: str
    prefix: str
    endpoint: str = ""
    public_endpoint: str = ""
    region: str = ""
    signature_seconds: int = 3600

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")


def default_data_dir() -> str:
    base = os.environ.get("XDG_DATA_HOME") or str(Path("~/.local/share").expanduser())
    return str(Path(base) / "deborgen")


@dataclass(frozen=True, kw_only=True)
class CoordinatorSettings:
    """The coordinator's settings. Durations are seconds, sizes are bytes."""

    listen: str = setting("127.0.0.1:8765", Kind("address", _address), "address to listen on; port 0 picks a free one")
    data_dir: str = setting(
        default_data_dir, FOLDER, "directory of the database and the blobs", "$XDG_DATA_HOME/deborgen"
    )
    database: str = setting(
        "",
        Kind("database URL", _database),
        "postgresql://… to use PostgreSQL; empty means SQLite in the data directory",
    )
    artifact_store: str = setting(
        "",
        Kind("address of an object store", _artifact_store),
        "s3://BUCKET/PREFIX to keep blobs in an object store; empty means the data directory",
    )
    s3_endpoint: str = setting(
        "", Kind("URL", _endpoint), "address of the object store; empty means that of boto3, which is Amazon's"
    )
    s3_public_endpoint: str = setting(
        "", Kind("URL", _endpoint), "address at which workers and people reach the object store, if it is another"
    )
    s3_region: str = setting("", TEXT, "region of the object store; empty means that of boto3")
    s3_part_size: int = setting(
        32 * 2**20, PART_SIZE, "larger blobs are put into the object store in parts of this size", "32MiB"
    )
    s3_signature_seconds: float = setting(
        3600.0, duration(1.0), "how long the addresses of the object store work that workers and people get"
    )
    lease_seconds: float = setting(60.0, duration(0.1), "how long a worker keeps an attempt without a heartbeat")
    heartbeat_seconds: float = setting(10.0, duration(0.05), "how often workers send a heartbeat")
    scheduler: str = setting(
        "fifo",
        choice("fifo", "fair"),
        "which job comes first: the oldest, or one of the submitter with the least usage",
    )
    max_running_per_submitter: int = setting(
        0, whole(0), "how many jobs of one submitter may run at once; 0 means no limit"
    )
    max_waiters: int = setting(32, whole(1), "how many claims may wait on the server at once")
    poll_rate: float = setting(
        20.0, number(), "how often per second all workers together may poll, once max_waiters claims are waiting"
    )
    threads: int = setting(96, whole(4), "how many requests are handled at once")
    max_connections: int = setting(4000, whole(8), "how many connections may be open at once")
    max_streams: int = setting(400, whole(0), "how many event streams and followed logs may be open at once")
    max_transfers: int = setting(16, whole(1), "how many uploads and downloads of more than 64 KiB may run at once")
    max_body: int = setting(8 * 2**20, SIZE, "largest JSON body that a worker may send", "8MiB")
    max_document: int = setting(2**20, SIZE, "largest job file, and largest JSON body that a person may send", "1MiB")
    max_log_chunk: int = setting(4 * 2**20, SIZE, "largest piece of a log in one request, after unpacking", "4MiB")
    max_blob: int = setting(64 * 2**30, SIZE, "largest blob", "64GiB")
    disk_reserve: int = setting(
        32 * 2**20,
        SIZE,
        "disk space that is reserved for heartbeats and results on a full disk (SQLite); 0 reserves none",
        "32MiB",
    )
    max_jobs_per_run: int = setting(100_000, whole(1), "how many jobs a run may have")
    allowed_hosts: str = setting(
        "", TEXT, "host names that requests may be addressed to, separated by commas; empty allows every name"
    )
    default_max_attempts: int = setting(
        3, whole(*limits.MAX_ATTEMPTS), "how many attempts a job may have if its job file does not set max_attempts"
    )
    default_watchdog: float = setting(
        0.0,
        duration(),
        "how long a job may write neither output nor progress before it fails as stalled, if its job file does not set "
        "watchdog; 0 means no limit",
    )
    default_image: str = setting(
        "", Kind("image", _image), "container image of jobs that do not name one; empty means no container"
    )
    registries: frozenset[str] = setting(
        frozenset({PUBLIC}),
        Kind("list of registries", parse_registries),
        "registries that images may come from, for example public,registry.example.org:5000; public means all that are "
        "not addresses in a private network",
        PUBLIC,
    )
    registry: str = setting(
        "", Kind("registry", _registry),
        "registry that images built in this pool are pushed to, as HOST:PORT/PATH, or http://HOST:PORT/PATH if it has "
        "no certificate; empty means the pool's own store",
        "the pool's own store",
    )  # fmt: skip
    registry_secret: str = setting(
        "", TEXT, "name of a shared secret with USER:PASSWORD for the registry; empty if it asks for none"
    )
    secret_key_file: str = setting(
        "", TEXT, "file with the keys that encrypt secrets; by default secrets.key in the data directory"
    )
    retention_days: int = setting(
        0, whole(0), "how many days the logs and artifacts of finished runs are kept; 0 keeps them forever"
    )
    retention_bytes: int = setting(
        0,
        SIZE,
        "if all blobs together are larger, the oldest finished runs lose their logs and artifacts; 0 means no limit",
    )
    retention_bytes_per_submitter: int = setting(
        0,
        SIZE,
        "if the logs and artifacts of one submitter are larger, their oldest finished runs lose them; 0 means no limit",
    )
    log_format: str = setting("text", choice("text", "json"), "format of the coordinator's own log")
    log_level: str = setting("info", choice("debug", "info", "warning", "error"), "minimum log level")

    def __post_init__(self) -> None:
        problems = []
        if self.heartbeat_seconds * 2 > self.lease_seconds:
            problems.append(
                f"heartbeat-seconds is {self.heartbeat_seconds:g} and lease-seconds {self.lease_seconds:g}: "
                "a lease must last at least two heartbeats"
            )
        if self.max_waiters + self.max_transfers > self.threads - 2:
            problems.append(
                f"max-waiters ({self.max_waiters}) and max-transfers ({self.max_transfers}) together must leave "
                f"2 of the {self.threads} threads free for other requests"
            )
        if not self.artifact_store and (self.s3_endpoint or self.s3_public_endpoint):
            problems.append("s3-endpoint names an object store, but artifact-store is empty: write s3://BUCKET/PREFIX")
        if problems:
            raise SettingsError(*problems)

    @property
    def uses_sqlite(self) -> bool:
        return not self.database or self.database.startswith("sqlite:")

    @property
    def bucket(self) -> BucketAddress | None:
        """The object store; None if blobs are in the data directory."""
        if not self.artifact_store:
            return None
        name, _, prefix = self.artifact_store.removeprefix("s3://").partition("/")
        return BucketAddress(
            name, prefix, self.s3_endpoint, self.s3_public_endpoint, self.s3_region, int(self.s3_signature_seconds)
        )

    @property
    def secret_key_path(self) -> Path:
        return Path(self.secret_key_file or Path(self.data_dir) / "secrets.key")

    @property
    def blob_dir(self) -> Path:
        return Path(self.data_dir) / "blobs"


TABLE = Table(CoordinatorSettings, "DEBORGEN_")
