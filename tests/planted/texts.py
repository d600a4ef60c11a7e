"""Bugs in what the command shows, and in how job files are read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from planted.bug import INPUT, Planted
from planted.patch import Patch, becomes, first_argument, nothing

JOBFILE = "deborgen_shared.jobfile"


def drop_carriage_returns(original: Any) -> Any:
    def chunks(*args: Any, **named: Any) -> Iterator[bytes]:
        for chunk in original(*args, **named):
            yield chunk.replace(b"\r", b"")

    return chunks


NOT_INERT = (
    Patch("deborgen_shared.terminal:inert", first_argument),
    Patch("deborgen_shared.terminal:inert_lines", first_argument),
)

PLANTED: list[Planted] = [
    Planted(
        "a log loses its carriage returns",
        (Patch("deborgen.logs:chunks", drop_carriage_returns),),
        ("integration/cli/test_look.py::test_fault_36_a_log_in_a_pipe_is_byte_for_byte_what_was_written",),
    ),
    Planted(
        "control characters go to the terminal as they are",
        NOT_INERT,
        ("integration/cli/test_terminal.py::test_fault_37_what_a_job_writes_cannot_steer_the_terminal",),
        "rror",
    ),
    Planted(
        "text from other people goes to the terminal as it is",
        NOT_INERT,
        ("integration/cli/test_hostile_text.py::test_fault_95_no_text_of_other_people_can_control_the_terminal",),
        "rror",
    ),
    Planted(
        "aliases may expand without end",
        (Patch(f"{JOBFILE}.limits:DOCUMENT_NODES", becomes(1 << 60)),),
        (f"{INPUT}_67_an_alias_bomb_or_a_tag_in_yaml_is_refused",),
        "DID NOT RAISE",
    ),
    Planted(
        "tags are accepted",
        (Patch(f"{JOBFILE}.loader:_Composer._check_tag", nothing),),
        (f"{INPUT}_67_an_alias_bomb_or_a_tag_in_yaml_is_refused",),
        "DID NOT RAISE",
    ),
]
