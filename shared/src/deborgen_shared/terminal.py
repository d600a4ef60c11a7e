"""Makes text from other people harmless on a terminal: names, labels, reasons, paths and logs cannot control it.

A control character could move the cursor, set the title or hide a line. A character that changes the direction of text,
or that nobody can see, could make one name look like another.
"""

from __future__ import annotations


def inert(text: str) -> str:
    """The text on one line. Every character that does not print by itself is made visible."""
    return text if text.isprintable() else text.translate(_ONE_LINE)


def inert_lines(text: str) -> str:
    """A text of several lines, made inert. Its line breaks and tabs stay."""
    return text if text.isprintable() else text.replace("\r\n", "\n").translate(_LINES)


class _Visible(dict[int, str]):
    """A table for `str.translate`: characters that do not print by themselves are spelled as in a JSON string."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        if character.isprintable():
            return character
        units = character.encode("utf-16-be", "surrogatepass")
        return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


#: The pictures that Unicode has for control characters, and plain spaces for all other kinds of spaces.
_PICTURES = {
    **{code: chr(0x2400 + code) for code in range(0x20)},
    0x7F: "␡",
    **dict.fromkeys((0xA0, 0x1680, *range(0x2000, 0x200B), 0x202F, 0x205F, 0x3000), " "),
}
_ONE_LINE = _Visible({**_PICTURES, 0x09: " ", 0x0A: "↵"})
_LINES = _Visible({**_PICTURES, 0x09: "\t", 0x0A: "\n"})
