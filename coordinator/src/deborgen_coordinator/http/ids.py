"""The names in paths: run 42, job 42.7, a worker, a digest. One spelling each; everything else names nothing."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from deborgen_shared.errors import Code, Refusal

NUMBER = r"[1-9][0-9]{0,8}"
RUN = r"[1-9][0-9]{0,11}"
NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}"
DIGEST = r"[0-9a-f]{64}"
#: The digest of `hello`, for examples.
HELLO = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"


#: Run and index.
JobId = tuple[int, int]


@dataclass(frozen=True)
class PathName:
    """A variable part of a path: how it is spelt, how it is read, and what to say when it is neither."""

    pattern: str
    read: Callable[[str], Any]
    hint: str
    example: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "_match", re.compile(self.pattern, re.ASCII).fullmatch)

    def value(self, text: str) -> Any:
        if not self._match(text):  # type: ignore[attr-defined]
            raise Refusal(Code.NOT_FOUND, f"There is nothing by the name {text[:100]!r} here.", self.hint)
        return self.read(text)


def _job(text: str) -> JobId:
    run, _, index = text.partition(".")
    return int(run), int(index)


PATH_NAMES: dict[str, PathName] = {
    "run": PathName(RUN, int, "A run is named by its number, like 42.", "1"),
    "job": PathName(rf"{RUN}\.{NUMBER}", _job, "A job is named by run and index, like 42.7.", "1.1"),
    "number": PathName(NUMBER, int, "Attempts are numbered from 1.", "1"),
    "name": PathName(NAME, str, "A worker's name has letters, digits, dots, dashes and underscores.", "desk-3"),
    "sha256": PathName(DIGEST, str, "A blob is named by its SHA-256 in 64 lower-case hexadecimal digits.", HELLO),
    "token": PathName(r"[A-Za-z0-9]{1,64}", str, "A token is named by its id, as the list of tokens tells it.", "4f2a"),
    "path": PathName(r"[^\0]{1,1024}", str, "An artifact is named by its path.", "out/plot.png"),
}
