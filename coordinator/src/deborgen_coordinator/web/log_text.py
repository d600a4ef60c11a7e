"""A log as plain text, for pages without JavaScript. `log.js` does the same with colours."""

from __future__ import annotations

import re

#: Colours, movements of the cursor, titles of the terminal, and other sequences that do not print.
ESCAPES = re.compile(
    r"\x1b(?:\[[0-9;:?<=>]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[PX^_][^\x1b]*(?:\x1b\\)?|[ -/]*[0-~])"
)
#: Show at most this many lines.
MOST_LINES = 400


def plain(tail: bytes, *, is_whole: bool) -> str:
    """The last lines of a log. A progress bar is shown as it was drawn last."""
    lines = tail.decode("utf-8", "replace").split("\n")
    if not is_whole:
        lines = lines[1:]  # the first line is not complete
    return "\n".join(_drawn(line) for line in lines[-MOST_LINES:])


def _drawn(line: str) -> str:
    frames = [frame for frame in ESCAPES.sub("", line).split("\r") if frame]
    return frames[-1] if frames else ""
