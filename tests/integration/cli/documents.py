"""The command blocks of a document: what a reader would type, and what the document says they will see."""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass, field
from pathlib import Path

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass
class Typed:
    """A command of a `console` block, and the lines below it."""

    command: str
    shown: list[str] = field(default_factory=list)


def blocks(path: Path, language: str) -> list[str]:
    return [text for name, text in _BLOCK.findall(path.read_text("utf-8")) if name == language]


def typed(path: Path) -> list[Typed]:
    """The commands of all `console` blocks, in order."""
    found: list[Typed] = []
    for text in blocks(path, "console"):
        for line in text.splitlines():
            if line.startswith("$ "):
                found.append(Typed(line[2:]))
            else:
                found[-1].shown.append(line)
    return found


def shape(line: str) -> str:
    """A line without what differs from one run, machine or person to the next: numbers, names, widths."""
    host = re.escape(socket.gethostname().split(".")[0])
    line = re.sub(rf"\b({host}|laptop)\b", "HOST", line)
    line = re.sub(r"/\S*/deborgen/up\b", "DATA", line)
    # Whether Podman works is the machine's affair, and it is said in one line.
    line = re.sub(r"^runner: .*", "runner: RUNNER", line)
    line = re.sub(r"\d[\d.e,+-]*(KiB|MiB|GiB|s)?\b", "#", line)
    line = re.sub(r"(?<= )(you|root|[a-z_][\w-]*)(?= +[#\d.]+(s|m)? ago)", "PERSON", line)
    return re.sub(r"#( ?m #)?( ago|$)", r"#\2", " ".join(line.split()))


def differences(expected: list[str], screen: str) -> list[str]:
    """What the document shows and the screen does not, in order. A lone … stands for any number of lines."""
    lines = [shape(line) for line in screen.splitlines()]
    missing = []
    at = 0
    free = False
    for line in expected:
        if line.strip() == "…":
            free = True
            continue
        wanted = shape(line)
        matches = [i for i in range(at, len(lines)) if lines[i] == wanted]
        if not matches or (not free and matches[0] != at):
            missing.append(line)
            continue
        at = matches[0] + 1
        free = False
    return missing
