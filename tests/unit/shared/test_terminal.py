"""Text from other people, made inert for terminals."""

from __future__ import annotations

import sys

from deborgen_shared.terminal import inert, inert_lines

EVERYTHING = "".join(map(chr, range(sys.maxunicode + 1)))


def test_every_character_prints_by_itself_or_is_spelled() -> None:
    assert inert(EVERYTHING).isprintable()
    assert {each for each in inert_lines(EVERYTHING) if not each.isprintable()} == {"\t", "\n"}


def test_text_that_prints_stays_as_it_is() -> None:
    text = "grün ✓ 日本語 €5 \\x1b 🎉"
    assert inert(text) == inert_lines(text) == text


def test_what_does_not_print_is_made_visible() -> None:
    assert inert("\x1b[2Jgone") == "␛[2Jgone"
    assert inert("\x9b2J \u202e \u2028 \udcff \U000e0041") == r"\u009b2J \u202e \u2028 \udcff \udb40\udc41"
    assert inert("non\xa0breaking") == "non breaking"


def test_a_name_stays_on_one_line_and_a_text_keeps_its_lines() -> None:
    assert inert("a\nb\tc\r\n") == "a↵b c␍↵"
    assert inert_lines("a\nb\tc\r\n") == "a\nb\tc\n"


def test_inert_text_stays_as_it_is() -> None:
    once = inert(EVERYTHING)
    assert inert(once) == inert_lines(once) == once
