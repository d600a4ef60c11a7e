"""One loader for the settings of coordinator and worker.

A program describes its settings once, as the fields of a dataclass made with `setting`. The flags, the environment
variables, the lines of TOML files, `--help` and the documents all follow from that table. An invalid value is refused
before anything starts, with one sentence that says where the value was found.
"""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any, Generic, TypeVar

from deborgen_shared.jobfile.units import parse_duration, parse_size

S = TypeVar("S")


class SettingsError(Exception):
    """An invalid setting. The message is one sentence for the person who wrote it."""


@dataclass(frozen=True)
class Kind:
    """How a value is read from text, and what help, docs and error messages call it."""

    words: str
    read: Callable[[str], Any]


def _checked(words: str, read: Callable[[str], Any], fits: Callable[[Any], bool], otherwise: str) -> Kind:
    def checked(text: str) -> Any:
        value = read(text)
        if not fits(value):
            raise ValueError(otherwise)
        return value

    return Kind(words, checked)


def number(least: float = 0.0, most: float = 1e9) -> Kind:
    """A number above `least`, and at most `most`."""
    return _checked("number", float, lambda value: least < value <= most, f"it must be above {least:g}")


def whole(least: int = 0, most: float = inf) -> Kind:
    bounds = f"it must be at least {least}" + (f" and at most {most}" if most < inf else "")
    return _checked("whole number", int, lambda value: least <= value <= most, bounds)


def duration(least: float = 0.0) -> Kind:
    """Seconds, or a duration with its unit, such as 5m."""

    def read(text: str) -> float:
        plain = text.isascii() and text.replace(".", "", 1).isdigit()
        return float(text) if plain else float(parse_duration(text))

    return _checked("duration", read, lambda value: least <= value < 1e9, f"it must be at least {least:g} s")


def choice(*values: str) -> Kind:
    return _checked(" or ".join(values), str, values.__contains__, f"it must be one of {', '.join(values)}")


def _size(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() else int(parse_size(text))


def _path(text: str) -> str:
    if "\0" in text:
        raise ValueError("write the path of a file or directory")
    return str(Path(text).expanduser().absolute()) if text else ""


def _switch(text: str) -> bool:
    if text.lower() not in {"true", "false", "yes", "no", "1", "0"}:
        raise ValueError("it must be true or false")
    return text.lower() in {"true", "yes", "1"}


TEXT = Kind("text", str)
SIZE = Kind("size", _size)
PATH = Kind("path", _path)
SWITCH = Kind("switch", _switch)


def setting(default: Any, kind: Kind, explanation: str, shown: str | None = None) -> Any:
    """A field of a table of settings. `shown` describes a default that depends on the machine."""
    metadata = {"kind": kind, "help": explanation, "default": str(default) if shown is None else shown}
    if callable(default):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Row:
    """One setting, as the flags, the docs and the configuration files see it."""

    name: str
    variable: str
    kind: Kind
    default: str
    help: str

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")


class Table(Generic[S]):
    """All settings of one program. Precedence, highest first: flag, variable, local file, `--config` file, default.

    The local file has the name `local_file` and lies in the folder of the `--config` file. With it, the owner of a
    machine overrides the file that an administrator rolls out.
    """

    def __init__(self, settings: type[S], prefix: str, local_file: str = "") -> None:
        self._settings, self._prefix, self._local_file = settings, prefix, local_file
        self.rows: dict[str, Row] = {
            each.name: Row(each.name, prefix + each.name.upper(), **each.metadata)
            for each in dataclasses.fields(settings)  # type: ignore[arg-type]
        }

    def add_flags(self, parser: argparse.ArgumentParser, names: list[str] | None = None) -> None:
        """Give the parser `--config` and a flag for each setting, or for the named ones."""
        beside = f"; {self._local_file} in the same folder takes precedence" if self._local_file else ""
        parser.add_argument(
            "--config", metavar="FILE", help=f"TOML file of settings, one `name = value` per line{beside}"
        )
        for row in self.rows.values():
            if names is None or row.name in names:
                default = f" (default: {row.default})" if row.default else ""
                options: dict[str, Any] = {"nargs": "?", "const": "true"} if row.kind is SWITCH else {}
                metavar = row.kind.words.upper().replace(" ", "_")
                words = (row.help + default).replace("%", "%%")
                parser.add_argument(row.flag, dest=row.name, metavar=metavar, help=words, **options)

    def load(self, flags: Mapping[str, str | None], environment: Mapping[str, str], config: str | None = None) -> S:
        """Load every setting from the first source that has it."""
        config = config or environment.get(self._prefix + "CONFIG") or None
        files = [(path, self._read_file(path)) for path in self._files(config)]
        values: dict[str, Any] = {}
        for row in self.rows.values():
            sources = [(row.flag, flags.get(row.name)), (row.variable, environment.get(row.variable))]
            sources += [(f"{row.name} in {path}", lines.get(row.name)) for path, lines in files]
            for source, text in sources:
                if text is not None:
                    values[row.name] = _read(row.kind, text, source)
                    break
        return self._settings(**values)

    def _files(self, config: str | None) -> Iterator[Path]:
        if config:
            local = Path(config).absolute().parent / self._local_file
            if self._local_file and local.exists():
                yield local
            yield Path(config)

    def _read_file(self, path: Path) -> dict[str, str]:
        try:
            document = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as problem:
            raise SettingsError(f"the configuration file {path} cannot be read: {problem.strerror}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
            raise SettingsError(f"the configuration file {path} is not valid TOML: {problem}") from None
        lines = {}
        for key, value in document.items():
            name = key.replace("-", "_")
            if name not in self.rows:
                near = difflib.get_close_matches(name, self.rows, 1)
                hint = f": did you mean {near[0]!r}?" if near else ""
                raise SettingsError(f"the configuration file {path} has an unknown setting {key!r}{hint}")
            lines[name] = _text(key, value, path)
        return lines


def _text(key: str, value: Any, path: Path) -> str:
    """A value of a TOML file, as text, as one would write it after a flag. A table becomes NAME=VALUE,NAME=VALUE."""
    if isinstance(value, dict):
        return ",".join(f"{name}={_text(key, item, path)}" for name, item in value.items())
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str | int | float):
        raise SettingsError(f"{key} in {path} must be a string or a number")
    return str(value)


def _read(kind: Kind, text: str, source: str) -> Any:
    try:
        return kind.read(text)
    except ValueError as problem:
        raise SettingsError(f"{source}: {text!r} is not a valid {kind.words}: {problem}") from None
