"""The fenced blocks of the documents: what a reader would type, and what the document says they will see."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"(^|\s+)# .*$")


@dataclass(frozen=True)
class Block:
    """The text between two fences, and where it stands."""

    document: str
    line: int
    language: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.document}:{self.line}"


def documents() -> list[str]:
    """Every document of the project."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return sorted(name for name in listed.stdout.splitlines() if (ROOT / name).is_file())


def clone_into(folder: Path) -> Path:
    """Copy what a fresh clone of the working tree would have."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, check=True,
    )  # fmt: skip
    for name in listed.stdout.decode().split("\0"):
        if name and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


def blocks_of(document: str) -> list[Block]:
    text = (ROOT / document).read_text("utf-8")
    return [Block(document, text[: m.start()].count("\n") + 1, m[1], m[2]) for m in _BLOCK.finditer(text)]


def commands(document: str) -> list[str]:
    """The commands of all `sh` blocks, one per line as it would be typed, without comments."""
    lines = "".join(blocks(ROOT / document, "sh")).replace("\\\n", " ").splitlines()
    return [typed for line in lines if (typed := _COMMENT.sub("", line).strip())]


def is_for_the_organiser(command: str) -> bool:
    """Whether it is for the computer that runs the playbooks: those commands are run by tests/fleet."""
    return "ansible" in command or "inventory" in command


def commands_in_tables(document: str, program: str) -> list[str]:
    """What a table tells the reader to type: a cell that is one command and nothing else."""
    cells = re.findall(r"^\|(.*)\|$", (ROOT / document).read_text("utf-8"), re.MULTILINE)
    found = [re.fullmatch(rf" `((?:sudo )?{program}(?: .*)?)` ", cell) for row in cells for cell in row.split("|")]
    return [match[1] for match in found if match]


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
    # Whether Podman works depends on the machine; this one line says it.
    line = re.sub(r"^runner: .*", "runner: RUNNER", line)
    # A duration may have one unit or two: "8.1s", or "2m 22s" if the machine is slow.
    line = re.sub(r"\b(\d+[hm] )+(?=\d+[ms]\b)", "", line)
    line = re.sub(r"\d[\d.e,+-]*(KiB|MiB|GiB|s|m|h)?\b", "#", line)
    line = re.sub(r"(?<= )(you|root|[a-z_][\w-]*)(?= +[#\d.]+(s|m)? ago)", "PERSON", line)
    return " ".join(line.split())


def differences(expected: list[str], screen: str) -> list[str]:
    """What the document shows and the screen does not, in order. A lone … stands for any number of lines."""
    lines = [shape(line) for line in screen.splitlines()]
    missing = []
    position = 0
    may_skip = False
    for line in expected:
        if line.strip() == "…":
            may_skip = True
            continue
        wanted = shape(line)
        matches = [i for i in range(position, len(lines)) if lines[i] == wanted]
        if not matches or (not may_skip and matches[0] != position):
            missing.append(line)
            continue
        position = matches[0] + 1
        may_skip = False
    return missing
