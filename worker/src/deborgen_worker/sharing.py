"""The folders of this machine that its owner shares with jobs, as the owner has named them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from deborgen_shared.repositories import SHARED_PROCESS, shared_label

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_KEYS = ("path", "write")


@dataclass(frozen=True)
class SharedFolder:
    """A folder that jobs may read, and may write to if its owner says so."""

    path: str
    write: bool = False


def parse_shared(text: str) -> dict[str, SharedFolder]:
    """The folders in a setting: `datasets=/mnt/datasets`, or with `write` the parts of a TOML table in one line,
    `scratch=path=/mnt/scratch,write=true`. Raises ValueError if it is not valid."""
    found: dict[str, dict[str, str]] = {}
    last = ""
    for part in filter(None, (each.strip() for each in text.split(","))):
        name, _, rest = part.partition("=")
        if name in _KEYS and last:
            found[last][name] = rest
            continue
        if not _NAME.fullmatch(name) or name in _KEYS:
            raise ValueError('write it like datasets = {path = "/mnt/datasets", write = false}')
        last, values = name, found.setdefault(name, {})
        key, equals, value = rest.partition("=")
        values.update({key: value} if equals and key in _KEYS else {"path": rest})
    return {name: _folder(name, values) for name, values in found.items()}


def _folder(name: str, values: Mapping[str, str]) -> SharedFolder:
    path, write = values.get("path", ""), values.get("write", "false").lower()
    if not path.startswith("/") or "\0" in path:
        raise ValueError(f"the path of {name} must be absolute, and without a comma")
    if write not in ("true", "false"):
        raise ValueError(f"write of {name} must be true or false")
    return SharedFolder(os.path.normpath(path), write == "true")


def check_apart(shared: Mapping[str, SharedFolder], own: Sequence[str]) -> str:
    """Why a folder cannot be shared: it would open the worker's own files to jobs. Empty if all are apart from them."""
    for name, folder in shared.items():
        path = os.path.realpath(folder.path)
        for each in map(os.path.realpath, filter(None, own)):
            if path == "/" or os.path.commonpath([path, each]) in (path, each):
                return f"the shared folder {name} ({folder.path}) and the worker's own {each} must be apart"
    return ""


def labels(shared: Mapping[str, SharedFolder], holds_processes: bool) -> dict[str, str | bool]:
    """What the worker says about the folders that are there."""
    there = {name: folder for name, folder in shared.items() if Path(folder.path).is_dir()}
    found: dict[str, str | bool] = {
        shared_label(name): "write" if folder.write else "read" for name, folder in there.items()
    }
    return found | ({SHARED_PROCESS: holds_processes} if there else {})
