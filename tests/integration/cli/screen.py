"""A small terminal: runs a command in a pseudo-terminal, and tracks what its screen shows."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Mapping
from fcntl import ioctl
from pathlib import Path

ROWS, COLUMNS = 30, 110
_ESCAPE = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[()][A-Z0-9]|\x1b[=>78]")


class Screen:
    """What a terminal would show. It supports the escape sequences of the live view, and refuses all others."""

    def __init__(self) -> None:
        self.lines = [""]
        self.row = self.column = 0
        self.cursor_shown = True
        self.styled = False
        self.other_screen = False
        self.updates = 0
        self._rest = ""

    def feed(self, text: str) -> None:
        text = self._rest + text
        self._rest = ""
        at = 0
        while at < len(text):
            if text[at] == "\x1b":
                match = _ESCAPE.match(text, at)
                if not match:
                    assert len(text) - at < 30, f"an escape sequence that no terminal knows: {text[at : at + 30]!r}"
                    self._rest = text[at:]
                    return
                self._escape(match[1] or "", match[2] or "")
                at = match.end()
            else:
                self._character(text[at])
                at += 1

    def _character(self, character: str) -> None:
        if character == "\n":
            self.row += 1
            while len(self.lines) <= self.row:
                self.lines.append("")
        elif character == "\r":
            self.column = 0
        else:
            assert character.isprintable() or character == "\t", f"a control character: {character!r}"
            line = self.lines[self.row].ljust(self.column)
            self.lines[self.row] = line[: self.column] + character + line[self.column + 1 :]
            self.column += 1

    def _escape(self, numbers: str, letter: str) -> None:
        count = int(numbers) if numbers.isdigit() else 1
        if letter == "A":
            self.row = max(0, self.row - count)
        elif letter == "K":
            self.lines[self.row] = "" if numbers == "2" else self.lines[self.row][: self.column]
            self.updates += 1
        elif letter == "m":
            self.styled = numbers not in ("", "0")
        elif letter in "hl" and numbers == "?25":
            self.cursor_shown = letter == "h"
        elif letter in "hl" and numbers == "?1049":
            self.other_screen = letter == "h"
        else:
            raise AssertionError(f"an escape sequence that is not expected: {numbers!r} {letter!r}")

    @property
    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self.lines).rstrip()


class Terminal:
    """A command in its own pseudo-terminal."""

    def __init__(self, command: list[str], folder: Path, environment: Mapping[str, str]) -> None:
        self.master, slave = pty.openpty()
        ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self.before = termios.tcgetattr(slave)
        self._slave = slave
        self.screen = Screen()
        self.raw = b""
        self.process = subprocess.Popen(
            command, cwd=folder, env={**environment, "TERM": "xterm-256color"}, stdin=slave, stdout=slave, stderr=slave,
            start_new_session=True, preexec_fn=lambda: ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip

    def read(self, seconds: float = 0.05) -> None:
        """Read what the command has written in the meantime."""
        while select.select([self.master], [], [], seconds)[0]:
            data = os.read(self.master, 65536)
            self.raw += data
            self.screen.feed(data.decode("utf-8", "replace"))
            seconds = 0

    def until(self, condition: Callable[[Screen], object], seconds: float = 30) -> Screen:
        deadline = time.monotonic() + seconds
        while not condition(self.screen):
            assert time.monotonic() < deadline, f"never shown; the screen is:\n{self.screen.text}"
            self.read()
        return self.screen

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def end(self, seconds: float = 30) -> int:
        """Wait until it has ended, and return its exit code."""
        deadline = time.monotonic() + seconds
        while self.process.poll() is None:
            if time.monotonic() > deadline:
                os.killpg(self.process.pid, signal.SIGKILL)
                raise AssertionError(f"it does not end; the screen is:\n{self.screen.text}")
            self.read()
        self.read()
        return self.process.returncode

    def is_clean(self) -> bool:
        """Whether the terminal is as before the command: modes, cursor, style, screen."""
        same = termios.tcgetattr(self._slave) == self.before
        return same and self.screen.cursor_shown and not self.screen.styled and not self.screen.other_screen

    def close(self) -> None:
        os.close(self.master)
        os.close(self._slave)


#: Opens a terminal for a command of a person: its words, and variables for its environment.
Open = Callable[..., Terminal]
