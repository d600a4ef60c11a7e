"""One table of settings. The flags, the environment, the configuration files and docs/worker.md all follow it.

A setting is given by its flag, else by its variable `DEBORGEN_WORKER_…`, else by its line in the owner's
`worker.local.toml` beside the file that `--config` names, else by its line in that file, else it has its default. So an
owner's word on a machine always wins over the file that a fleet's administrator rolls out.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import re
import socket
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deborgen_shared.jobfile.units import parse_duration, parse_size

PREFIX = "DEBORGEN_WORKER_"
LOCAL_FILE = "worker.local.toml"


class SettingsError(Exception):
    """A setting that cannot be used; the message is one sentence for the person who wrote it."""


@dataclass(frozen=True)
class Kind:
    """How a value is read from text, and the word for it in help and docs."""

    words: str
    read: Callable[[str], Any]


def _number(text: str) -> float:
    value = float(text)
    if not 0 < value <= 65536:
        raise ValueError("it must be above 0")
    return value


def _whole(text: str) -> int:
    value = int(text)
    if value < 0:
        raise ValueError("it must not be below 0")
    return value


def _duration(text: str) -> float:
    return float(text) if re.fullmatch(r"\d+(\.\d+)?", text) else float(parse_duration(text))


def _size(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() else int(parse_size(text))


def _switch(text: str) -> bool:
    if text.lower() not in {"true", "false", "yes", "no", "1", "0"}:
        raise ValueError("it must be true or false")
    return text.lower() in {"true", "yes", "1"}


def _choice(*values: str) -> Kind:
    def read(text: str) -> str:
        if text not in values:
            raise ValueError(f"it must be one of {', '.join(values)}")
        return text

    return Kind(" or ".join(values), read)


def _folder(text: str) -> str:
    return str(Path(text).expanduser().absolute()) if text else ""


def _name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", text):
        raise ValueError("it may have letters, digits, '.', '_' and '-', at most 63, and begins with a letter or digit")
    return text


def _hours(text: str) -> str:
    if text and not re.fullmatch(r"(?:[01]\d|2[0-3]):[0-5]\d-(?:[01]\d|2[0-3]):[0-5]\d", text):
        raise ValueError("write it like 22:00-07:00")
    return text


def _labels(text: str) -> dict[str, str]:
    pairs = [pair.partition("=") for pair in text.split(",") if pair.strip()]
    if any(not equals or not key.strip() for key, equals, _ in pairs):
        raise ValueError("write it like site=garage,disk=fast")
    return {key.strip(): value.strip() for key, _, value in pairs}


TEXT = Kind("text", str)
SIZE = Kind("size", _size)
DURATION = Kind("duration", _duration)
NUMBER = Kind("number", _number)
WHOLE = Kind("whole number", _whole)
FOLDER = Kind("path", _folder)
SWITCH = Kind("switch", _switch)


def default_state_dir() -> str:
    if os.geteuid() == 0:
        return "/var/lib/deborgen-worker"
    base = os.environ.get("XDG_STATE_HOME") or str(Path("~/.local/state").expanduser())
    return str(Path(base) / "deborgen-worker")


def default_name() -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname()).strip("-._")[:63] or "worker"


def _setting(default: Any, kind: Kind, explanation: str, shown: str | None = None) -> Any:
    """A row of the table. `shown` is what the docs say where the default depends on the machine."""
    metadata = {"kind": kind, "help": explanation, "shown": str(default) if shown is None else shown}
    if callable(default):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the worker was told. Durations are seconds, sizes are bytes; 0 means "as much as the machine has"."""

    coordinator: str = _setting("", TEXT, "address of the coordinator, for example https://pool.example")
    name: str = _setting(
        default_name, Kind("name", _name), "name of this worker; its token is bound to it", "host name"
    )
    token_file: str = _setting("", FOLDER, "file that holds the worker's token and nothing else")
    ca_file: str = _setting("", FOLDER, "certificates to trust for https, instead of the system's")
    state_dir: str = _setting(
        default_state_dir, FOLDER, "directory of the spool, the cache and the workspaces",
        "/var/lib/deborgen-worker for root, else $XDG_STATE_HOME/deborgen-worker",
    )  # fmt: skip
    runner: str = _setting(
        "auto", _choice("auto", "podman", "subprocess", "both"),
        "how jobs run: in Podman, as plain processes of this user, or either; auto means Podman, and "
        "the worker does not start where that does not work",
    )  # fmt: skip
    podman_socket: str = _setting(
        "", TEXT, "Podman's socket; empty means that of the user or of root, or a service of our own"
    )
    slots: int = _setting(0, WHOLE, "jobs that run at once, whatever they ask for", "as many as fit")
    cpus: float = _setting(0.0, NUMBER, "processors offered to jobs", "all")
    memory: int = _setting(0, SIZE, "memory offered to jobs", "all but 1/8 of the machine's")
    gpus: int = _setting(-1, WHOLE, "GPUs offered to jobs", "all that are found")
    disk: int = _setting(0, SIZE, "disk offered to workspaces", "what is free, less min_free_disk")
    network: str = _setting(
        "none", _choice("none", "internet"), "the most that a job may have: no network, or the internet"
    )
    hours: str = _setting(
        "", Kind("hours", _hours), "time of day in which work is taken, for example 22:00-07:00", "always"
    )
    labels: dict[str, str] = _setting(  # noqa: RUF009 - it makes a field, as the others
        dict, Kind("labels", _labels), "further labels, for example site=garage,disk=fast", "none"
    )
    pids: int = _setting(1024, WHOLE, "processes that one job may have")
    tmp_size: int = _setting(256 << 20, SIZE, "size of /tmp in a container", "256MiB")
    cache_size: int = _setting(10 << 30, SIZE, "disk for input files kept for the next job", "10GiB")
    log_cap: int = _setting(64 << 20, SIZE, "size above which a job's log keeps its head and its tail only", "64MiB")
    min_free_disk: int = _setting(1 << 30, SIZE, "free disk below which no work is taken", "1GiB")
    keep_failed: bool = _setting(False, SWITCH, "keep the workspace of a job that failed", "false")
    kill_grace: float = _setting(10.0, DURATION, "from TERM to KILL when a job is stopped", "10s")
    drain_grace: float = _setting(30.0, DURATION, "from SIGTERM until what still runs is given back", "30s")
    freeze_limit: float = _setting(
        0.0, DURATION, "how long `pause --now` freezes a job before it is given back", "the lease"
    )


def table() -> list[tuple[str, str, str, str, str]]:
    """For each setting: flag, variable, kind, default, meaning. Help and docs follow it."""
    return [
        (
            f"--{each.name.replace('_', '-')}",
            PREFIX + each.name.upper(),
            each.metadata["kind"].words,
            each.metadata["shown"],
            each.metadata["help"],
        )
        for each in dataclasses.fields(Settings)
    ]


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", metavar="FILE", help=f"TOML file of settings; {LOCAL_FILE} beside it wins over it")
    for each in dataclasses.fields(Settings):
        kind: Kind = each.metadata["kind"]
        described = f"{each.metadata['help']} (default: {each.metadata['shown'] or 'none'})".replace("%", "%%")
        options: dict[str, Any] = {"help": described, "default": None, "dest": each.name}
        if kind is SWITCH:
            options |= {"nargs": "?", "const": "true"}
        parser.add_argument(f"--{each.name.replace('_', '-')}", metavar=kind.words.upper().replace(" ", "_"), **options)


def load(flags: Mapping[str, str | None], environment: Mapping[str, str], config: str | None) -> Settings:
    """The settings in their order of precedence, each read and checked; the first bad one is refused by name."""
    rolled_out = _read_file(Path(config)) if config else {}
    local = Path(config).absolute().parent / LOCAL_FILE if config else None
    owners = _read_file(local) if local is not None and local.exists() else {}
    values: dict[str, Any] = {}
    for each in dataclasses.fields(Settings):
        places: list[tuple[str, Any]] = [
            (f"--{each.name.replace('_', '-')}", flags.get(each.name)),
            (PREFIX + each.name.upper(), environment.get(PREFIX + each.name.upper())),
            (f"{local}: {each.name}", owners.get(each.name)),
            (f"{config}: {each.name}", rolled_out.get(each.name)),
        ]
        for where, text in places:
            if text is not None:
                values[each.name] = _read(where, text, each.metadata["kind"])
                break
    return Settings(**values)


def _read(where: str, value: Any, kind: Kind) -> Any:
    if isinstance(value, dict):
        value = ",".join(f"{key}={item}" for key, item in value.items())
    if isinstance(value, bool):
        value = "true" if value else "false"
    try:
        return kind.read(str(value))
    except ValueError as error:
        raise SettingsError(f"{where} is not a {kind.words}: {value!r}; {error}") from None


def _read_file(path: Path) -> dict[str, Any]:
    try:
        found = tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise SettingsError(f"{path} cannot be read: {error}") from None
    known = {each.name for each in dataclasses.fields(Settings)}
    unknown = sorted(set(found) - known)
    if unknown:
        raise SettingsError(f"{path} has an unknown setting: {unknown[0]}")
    return found
