"""References: `42` is a run, `42.7` a job, `42.7/2` an attempt, and `last` the person's newest run."""

from __future__ import annotations

import re
from dataclasses import dataclass

from deborgen.errors import WrongUsage

_REF = re.compile(r"(last|[1-9][0-9]{0,11})(?:\.([1-9][0-9]{0,8}))?(?:/([1-9][0-9]{0,8}))?")


@dataclass(frozen=True)
class Ref:
    """A reference to a run, a job or an attempt. `run` is None for `last`."""

    run: int | None
    index: int | None = None
    attempt: int | None = None


def parse(text: str) -> Ref:
    match = _REF.fullmatch(text.strip())
    if not match or (match[3] and not match[2]):
        raise WrongUsage(f"{text!r} names neither a run nor a job", "write for example 42, 42.7, last or last.7")
    return Ref(
        None if match[1] == "last" else int(match[1]),
        int(match[2]) if match[2] else None,
        int(match[3]) if match[3] else None,
    )
