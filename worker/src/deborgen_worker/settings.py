"""The table of all settings. The flags, the environment, the configuration files and docs/worker.md derive from it.

A setting comes from its flag, else from its variable `DEBORGEN_WORKER_…`, else from the owner's `worker.local.toml`
beside the file that `--config` names, else from that file, else from its default. So the owner of a machine always wins
over the file that a fleet's administrator rolls out.
"""

from __future__ import annotations

import os
import re
import socket
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from deborgen_shared.jobfile import limits
from deborgen_shared.registries import PUBLIC, parse_registries
from deborgen_shared.repositories import parse_hosts, parse_protocols
from deborgen_shared.settings import (
    PATH,
    SIZE,
    SWITCH,
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
from deborgen_shared.states import RunAs
from deborgen_worker.sharing import SharedFolder, parse_shared

__all__ = ["TABLE", "SettingsError", "WorkerSettings"]

#: Neither Linux distributions nor systemd give these numbers to users.
FIRST_USER, LAST_USER = 1_900_000_000, 2_147_483_646


def _name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", text):
        raise ValueError("use at most 63 letters, digits, '.', '_' and '-', and begin with a letter or a digit")
    return text


def _hours(text: str) -> str:
    if text and not re.fullmatch(r"(?:[01]\d|2[0-3]):[0-5]\d-(?:[01]\d|2[0-3]):[0-5]\d", text):
        raise ValueError("write it like 22:00-07:00")
    return text


def _labels(text: str) -> dict[str, str]:
    pairs = [pair.partition("=") for pair in text.split(",") if pair.strip()]
    if any(not equals or not key.strip() for key, equals, _ in pairs):
        raise ValueError("write it like site=garage,disk=fast")
    labels = {key.strip(): value.strip() for key, _, value in pairs}
    for key, value in labels.items():
        if len(key) > limits.LABEL_KEY or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._/-]*", key):
            raise ValueError(f"name a label with at most {limits.LABEL_KEY} letters, digits and . _ / -")
        if len(value) > limits.LABEL_VALUE:
            raise ValueError(f"the label {key} is longer than {limits.LABEL_VALUE} characters")
    return labels


def _url(text: str) -> str:
    for url in text.split(",") if text else ():
        parts = urlsplit(url.strip())
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError("write http://HOST:PORT or https://HOST, or several with commas")
    return text


def _users(text: str) -> range:
    found = re.fullmatch(r"(\d{4,10})-(\d{4,10})", text, re.ASCII)
    first, last = (int(found[1]), int(found[2])) if found else (0, 0)
    if not (first >= 1000 and first + 255 <= last < 2**32 - 2):
        raise ValueError(f"write it like {FIRST_USER}-{FIRST_USER + 2047}, with at least 256 numbers from 1000 on")
    return range(first + first % 2, last, 2)


def _paths(text: str) -> tuple[str, ...]:
    return tuple(str(Path(each.strip()).expanduser()) for each in text.split(",") if each.strip())


def default_state_dir() -> str:
    if os.geteuid() == 0:
        return "/var/lib/deborgen-worker"
    base = os.environ.get("XDG_STATE_HOME") or str(Path("~/.local/state").expanduser())
    return str(Path(base) / "deborgen-worker")


RUNNERS = choice("auto", "podman", RunAs.PROCESS.value, "both")


def _runner(text: str) -> str:
    return str(RUNNERS.read(RunAs.PROCESS.value if text == "subprocess" else text))


def default_name() -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname()).strip("-._")[:63] or "worker"


@dataclass(frozen=True, kw_only=True)
class WorkerSettings:
    """The worker's settings. Durations are in seconds, sizes in bytes; 0 means "as much as the machine has"."""

    coordinator: str = setting(
        "", Kind("URL", _url), "address of the coordinator, for example https://pool.example; or of several of one "
        "pool, with commas, the preferred one first"
    )  # fmt: skip
    name: str = setting(default_name, Kind("name", _name), "name of this worker; its token is bound to it", "host name")
    token_file: str = setting("", PATH, "file that holds the worker's token and nothing else")
    ca_file: str = setting("", PATH, "certificates to trust for https, instead of the system's")
    state_dir: str = setting(
        default_state_dir, PATH, "directory of the spool, the cache and the workspaces",
        "/var/lib/deborgen-worker for root, else $XDG_STATE_HOME/deborgen-worker",
    )  # fmt: skip
    runner: str = setting(
        "auto", Kind(RUNNERS.words, _runner, RUNNERS.noun),
        "how jobs run: in Podman, as plain processes, or either; auto means Podman, and the worker does not start if "
        "Podman does not work; subprocess is an older word for process",
    )  # fmt: skip
    isolation: str = setting(
        "auto", choice("auto", "off"),
        "whether plain processes are kept away from the worker's token and files and from other jobs, as well as this "
        "machine can",
    )  # fmt: skip
    process_users: range = setting(
        range(FIRST_USER, LAST_USER, 2), Kind("range of user numbers", _users),
        "if the worker is root: numbers of users that plain processes run as, each job as one of them",
        f"{FIRST_USER}-{LAST_USER}",
    )  # fmt: skip
    hide: tuple[str, ...] = setting(
        (), Kind("list of paths", _paths),
        "if plain processes run as the worker's own user: further files and folders that they must not reach, "
        "for example ~/.ssh,~/.gnupg", "none",
    )  # fmt: skip
    podman_socket: str = setting(
        "", TEXT, "Podman's socket; empty means the user's or root's socket, or a service that the worker starts"
    )
    supervisor: str = setting(
        "own", choice("own", "apart"),
        "who runs the supervisor that watches running jobs: own means the worker, apart means a separate container",
    )  # fmt: skip
    slots: int = setting(0, whole(), "jobs that may run at once, however small they are", "as many as fit")
    cpus: float = setting(0.0, number(most=65536), "processors offered to jobs", "all")
    memory: int = setting(0, SIZE, "memory offered to jobs", "all but 1/8 of the machine's")
    gpus: int = setting(-1, whole(), "GPUs offered to jobs", "all")
    disk: int = setting(0, SIZE, "disk offered to workspaces", "the free space minus min_free_disk")
    priority: str = setting(
        "idle", choice("idle", "normal"),
        "priority of jobs: idle means that they get only the processor and disk time that other programs leave; normal "
        "is for a machine that nobody else uses",
    )  # fmt: skip
    network: str = setting("none", choice("none", "internet"), "network that jobs may ask for: none, or the internet")
    registries: frozenset[str] = setting(
        frozenset({PUBLIC}), Kind("list of registries", parse_registries),
        "registries that images may be pulled from, for example public,registry.example.org:5000; public means all "
        "with public addresses, and one in a private network must be named", "public",
    )  # fmt: skip
    git: bool = setting(True, SWITCH, "whether this machine checks out repositories that jobs name", "true")
    git_protocols: frozenset[str] = setting(
        frozenset({"https", "ssh"}), Kind("list of protocols", parse_protocols),
        "how repositories may be reached: https, ssh, http, git and file; file opens the repositories of this machine",
        "https,ssh",
    )  # fmt: skip
    git_hosts: frozenset[str] = setting(
        frozenset({PUBLIC}), Kind("list of hosts", parse_hosts),
        "hosts that repositories may be fetched from, for example public,git.example.org:3000; public means all with "
        "public addresses, and one in a private network must be named", "public",
    )  # fmt: skip
    git_cache_size: int = setting(10 << 30, SIZE, "disk for repositories kept for the next job", "10GiB")
    git_timeout: float = setting(600.0, duration(1.0), "how long one fetch may take", "10m")
    git_known_hosts: str = setting(
        "", PATH, "the keys of the ssh hosts that may be contacted, in the form of known_hosts; without this file, the "
        "first key of each host is trusted and remembered",
    )  # fmt: skip
    shared: dict[str, SharedFolder] = setting(  # noqa: RUF009 - it makes a field, like the others
        dict, Kind("list of folders", parse_shared),
        "folders that jobs may use as their workspace, for example datasets=/mnt/datasets; jobs only read them, unless "
        "the configuration file says write = true", "none",
    )  # fmt: skip
    hours: str = setting(
        "", Kind("hours", _hours, "time of day"),
        "time of day at which work is taken, for example 22:00-07:00", "always",
    )  # fmt: skip
    builds: bool = setting(
        False, SWITCH, "whether jobs may build images here, with Podman; docs/builds.md says what a build may reach",
        "false",
    )  # fmt: skip
    image_cache: int = setting(
        20 << 30, SIZE, "disk for images of the pool, and for the layers that builds keep for the next build", "20GiB"
    )
    labels: dict[str, str] = setting(  # noqa: RUF009 - it makes a field, like the others
        dict, Kind("list of labels", _labels), "further labels, for example site=garage,disk=fast", "none"
    )
    pids: int = setting(1024, whole(), "processes that one job may have")
    tmp_size: int = setting(256 << 20, SIZE, "size of /tmp in a container", "256MiB")
    cache_size: int = setting(10 << 30, SIZE, "disk for input files kept for the next job", "10GiB")
    log_cap: int = setting(64 << 20, SIZE, "size above which a job's log keeps only its head and its tail", "64MiB")
    min_free_disk: int = setting(1 << 30, SIZE, "free disk below which no work is taken", "1GiB")
    log_format: str = setting("text", choice("text", "json"), "format of the worker's own output")
    keep_failed: bool = setting(False, SWITCH, "keep the workspace of a job that failed", "false")
    kill_grace: float = setting(10.0, duration(), "time from TERM to KILL when a job is stopped", "10s")
    drain_grace: float = setting(
        30.0, duration(), "time for running jobs to finish after Ctrl-C or a closed terminal", "30s"
    )
    finish: float = setting(
        600.0, duration(), "how long jobs may go on after the end of the hours, or after `pause`; then they are frozen",
        "10m",
    )  # fmt: skip
    keep_frozen: float = setting(
        900.0, duration(), "how long a job stays frozen before it is given back: after the end of the hours always, "
        "and during a pause if another machine can run it", "15m",
    )  # fmt: skip


TABLE = Table(
    WorkerSettings, "DEBORGEN_WORKER_", local_file="worker.local.toml", renamed={"freeze_limit": "keep_frozen"}
)
