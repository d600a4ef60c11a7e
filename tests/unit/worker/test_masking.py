"""Secrets are masked in what jobs write, in every form and at every border."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deborgen_worker.logs import CappedLog, RawLog
from deborgen_worker.masking import NO_MASK, Mask, MaskedLog

SECRET = 'pa55 "word" \\ with é'
KEY = "-----BEGIN KEY-----\nabcdefghijklmnop\nqrstuvwxyz012345\n-----END KEY-----\n"


def test_a_value_becomes_stars_of_the_same_length() -> None:
    assert Mask(["hunter22"]).apply(b"a hunter22 b hunter22") == b"a ******** b ********"
    assert NO_MASK.apply(b"a hunter22 b") == b"a hunter22 b"


@pytest.mark.parametrize("value", [SECRET, KEY, "hunter22", "x" * 5000])
def test_fault_86_no_form_of_a_value_is_left(value: str) -> None:
    """Seen to fail when only the value itself is masked."""
    mask = Mask([value])
    forms = [value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], repr(value)[1:-1]]
    forms += [line for line in value.splitlines() if len(line) > 5]
    for form in forms:
        assert form.encode() not in mask.apply(f"before {form} after".encode())
    for before in range(4):
        encoded = base64.b64encode(b"-" * before + value.encode() + b"--")
        inner = base64.b64decode(mask.apply(encoded).replace(b"*", b"A"))
        assert value.encode()[1:-1] not in inner


def test_fault_86_base64_on_several_lines_is_masked() -> None:
    """Seen to fail when only the value itself is masked."""
    value = "0123456789abcdef" * 20
    text = base64.encodebytes(value.encode())
    assert set(Mask([value]).apply(text)) <= set(b"*\n=")


@given(st.text("ab", max_size=60), st.sampled_from(["abaabab", "aaaaaa", "bbabba"]), st.integers(1, 9))
def test_fault_86_a_value_that_is_cut_by_the_border_of_a_part_is_masked(
    tmp_path_factory: pytest.TempPathFactory, noise: str, value: str, step: int
) -> None:
    """The log grows a few bytes at a time, and every part is sent as soon as it can be read. Seen to fail when the end
    of the output is not held back."""
    path = tmp_path_factory.mktemp("log") / "output"
    text = f"{noise}{value}{noise[::-1]}{value}".encode()
    mask = Mask([value])
    masked = MaskedLog(RawLog(path), mask)
    path.touch()
    log = CappedLog(masked, 1 << 20, masked.decided)
    sent = b""
    for at in range(0, len(text), step):
        with path.open("ab") as file:
            file.write(text[at : at + step])
        sent += log.read(len(sent), 1 << 20)
    log.finish()
    sent += log.read(len(sent), 1 << 20)
    assert sent == mask.apply(text)


def test_the_end_of_the_output_is_sent_at_once_unless_a_value_may_begin_there(tmp_path: Path) -> None:
    path = tmp_path / "output"
    masked = MaskedLog(RawLog(path), Mask(["hunter22"]))
    log = CappedLog(masked, 1 << 20, masked.decided)
    path.write_bytes(b"step 1\n")
    assert log.read(0, 100) == b"step 1\n"
    path.write_bytes(b"step 1\nhunt")
    assert log.read(7, 100) == b""
    path.write_bytes(b"step 1\nhunting\n")
    assert log.read(7, 100) == b"hunting\n"
