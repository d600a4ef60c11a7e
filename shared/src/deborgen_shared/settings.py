"""One loader for the settings of coordinator and worker.

A program describes its settings once, as the fields of a dataclass made with `setting`. The flags, the environment
variables, the lines of TOML files, `--help` and the documents all follow from that table. Invalid values are refused
before anything starts, all at once, with one sentence each that says where the value was found.

This module and the tables of both programs need only the standard library: the playbooks check an inventory with them
on a computer that has Ansible and nothing of deborgen installed.
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
    """Invalid settings. Each problem is one sentence for the person who wrote the setting."""

    def __init__(self, *problems: str) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


@dataclass(frozen=True)
class Kind:
    """How a value is read from text, and what help and docs call it. Error messages use `noun` instead, if given."""

    words: str
    read: Callable[[str], Any]
    noun: str = ""


def _checked(
    words: str, read: Callable[[str], Any], fits: Callable[[Any], bool], otherwise: str, noun: str = ""
) -> Kind:
    def checked(text: str) -> Any:
        try:
            value = read(text)
        except ValueError as problem:
            raise ValueError(otherwise if read in (int, float) else problem) from None
        if not fits(value):
            raise ValueError(otherwise)
        return value

    return Kind(words, checked, noun)


def number(least: float = 0.0, most: float = 1e9) -> Kind:
    """A number above `least`, and at most `most`."""
    bounds = f"it must be above {least:g} and at most {most:,.0f}"
    return _checked("number", float, lambda value: least < value <= most, bounds)


def whole(least: int = 0, most: float = inf) -> Kind:
    bounds = f"it must be at least {least}" + (f" and at most {most}" if most < inf else "")
    return _checked("whole number", int, lambda value: least <= value <= most, bounds)


def duration(least: float = 0.0) -> Kind:
    """Seconds, or a duration with its unit, such as 5m."""

    def read(text: str) -> float:
        plain = text.isascii() and text.replace(".", "", 1).isdigit()
        return float(text) if plain else float(parse_duration(text))

    return _checked(
        "duration",
        read,
        lambda value: least <= value < 1e9,
        f"it must be at least {least:g} s and below 1,000,000,000 s",
    )


def choice(*values: str) -> Kind:
    listed = f"{', '.join(values[:-1])} or {values[-1]}"
    return _checked(" or ".join(values), str, values.__contains__, f"it must be {listed}", "choice")


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

    def read(self, text: str, source: str) -> Any:
        """The value of this setting. `source` says in the error where the text was found."""
        try:
            return self.kind.read(text)
        except ValueError as problem:
            kind = self.kind.noun or self.kind.words
            raise SettingsError(f"{source}: {text!r} is not a valid {kind}: {problem}") from None


class Table(Generic[S]):
    """All settings of one program. Precedence, highest first: flag, variable, local file, `--config` file, default.

    The local file is called `local_file` and is in the folder of the `--config` file. There the owner of a machine
    overrides the file that an administrator rolls out. In a file, a setting may still have the name that an earlier
    release gave it: `renamed` has the new names.
    """

    def __init__(
        self, settings: type[S], prefix: str, local_file: str = "", renamed: Mapping[str, str] | None = None
    ) -> None:
        self._settings, self._prefix, self._local_file = settings, prefix, local_file
        self._renamed = renamed or {}
        self.rows: dict[str, Row] = {
            each.name: Row(each.name, prefix + each.name.upper(), **each.metadata)
            for each in dataclasses.fields(settings)  # type: ignore[arg-type]
        }

    def add_flags(self, parser: argparse.ArgumentParser, names: list[str] | None = None) -> None:
        """Give the parser `--config` and a flag for each setting, or only for the settings in `names`."""
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
        """Load every setting from the first source that has it, or raise one SettingsError with all problems."""
        config = config or environment.get(self._prefix + "CONFIG") or None
        problems: list[str] = []
        files = [(path, self._read_file(path, problems)) for path in self._files(config)]
        values: dict[str, Any] = {}
        for row in self.rows.values():
            sources = [(row.flag, flags.get(row.name)), (row.variable, environment.get(row.variable))]
            sources += [(f"{row.name} in {path}", lines.get(row.name)) for path, lines in files]
            for source, text in sources:
                if text is not None:
                    try:
                        values[row.name] = row.read(text, source)
                    except SettingsError as error:
                        problems += error.problems
                    break
        if problems:
            raise SettingsError(*problems)
        return self._settings(**values)

    def check_file(self, config: str) -> list[str]:
        """Everything that is wrong with a file of settings and the local file beside it; nothing else is read."""
        try:
            self.load({}, {}, config)
        except SettingsError as error:
            return list(error.problems)
        return []

    def _files(self, config: str | None) -> Iterator[Path]:
        if config:
            local = Path(config).absolute().parent / self._local_file
            if self._local_file and local.exists():
                yield local
            yield Path(config)

    def near_match(self, name: str) -> str:
        """The end of a sentence about an unknown setting: the name that was probably meant, if there is one."""
        near = difflib.get_close_matches(name, self.rows, 1)
        return f": did you mean {near[0]!r}?" if near else ""

    def _read_file(self, path: Path, problems: list[str]) -> dict[str, str]:
        """The lines of the file, as texts. What cannot be read is added to the problems."""
        try:
            document = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as problem:
            problems.append(f"the configuration file {path} cannot be read: {problem.strerror}")
            return {}
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
            problems.append(f"the configuration file {path} is not valid TOML: {problem}")
            return {}
        lines = {}
        for key, value in document.items():
            name = self._renamed.get(key.replace("-", "_"), key.replace("-", "_"))
            try:
                if name not in self.rows:
                    hint = self.near_match(name)
                    raise SettingsError(f"the configuration file {path} has an unknown setting {key!r}{hint}")
                lines[name] = as_text(value, f"{key} in {path}")
            except SettingsError as error:
                problems += error.problems
        return lines


def as_text(value: Any, source: str) -> str:
    """A value of a TOML file as the text that a flag would have. A table becomes NAME=VALUE,NAME=VALUE."""
    if isinstance(value, dict):
        return ",".join(f"{name}={as_text(item, source)}" for name, item in value.items())
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str | int | float):
        raise SettingsError(f"{source} must be a string or a number")
    return str(value)
