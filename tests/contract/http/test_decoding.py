"""JSON is decoded strictly: input that two parsers could understand differently is refused with 400."""

from __future__ import annotations

import gzip
import json
import zlib

import pytest

from deborgen_coordinator.http.decoding import convert, inflate, parse
from deborgen_shared.errors import Code, Refusal
from deborgen_shared.messages import Cancel, Claim
from deborgen_shared.strict_json import MAX_DEPTH


@pytest.mark.parametrize(
    ("body", "word"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"[1,]", "not JSON"),
        (b"{'a': 1}", "not JSON"),
        (b'{"a": 1} x', "not JSON"),
        (b"\xff\xfe{}", "not UTF-8"),
        (b"\xef\xbb\xbf{}", "not JSON"),
        (b'{"a": 1, "a": 2}', "twice"),
        (b'[{"b": {"a": 1, "\\u0061": 2}}]', "twice"),
        (b"NaN", "not a JSON number"),
        (b"[-Infinity]", "not a JSON number"),
        (b"1e999", "too large"),
        (b"9" * 21, "digits"),
        (b"9" * 5000, "digits"),
        (b'"\\u0000"', "NUL"),
        (b'{"\\u0000": 1}', "NUL"),
        (b'"\x00"', "not JSON"),
        (b'["\\ud800"]', "surrogate"),
        (b'"\xed\xa0\x80"', "not UTF-8"),
        (b"[" * 65 + b"]" * 65, "nests deeper"),
        (b"[" * 100_000 + b"]" * 100_000, "nests deeper"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "nests deeper"),
        (b"[" * 900_000, "nests deeper"),
    ],
)
def test_fault_62_malformed_deep_huge_and_duplicate_key_json_is_400(body: bytes, word: str) -> None:
    """Seen to fail when the last of two equal keys counts; when nesting has no limit."""
    with pytest.raises(Refusal) as refused:
        parse(body)
    assert refused.value.code is Code.MALFORMED
    assert word in refused.value.message
    assert len(refused.value.message) < 300


@pytest.mark.parametrize("value", [{}, [], None, 1, -1.5e-7, "é\U0001f600", {"a": [{"b": None}]}, "\u2028"])
def test_valid_json_is_decoded_exactly(value: object) -> None:
    assert parse(json.dumps(value).encode()) == value
    assert parse(json.dumps(value, ensure_ascii=False).encode()) == value


def test_nesting_up_to_the_limit_is_accepted() -> None:
    deep = b"[" * MAX_DEPTH + b"]" * MAX_DEPTH
    assert parse(deep)
    with pytest.raises(Refusal):
        parse(b"[" + deep + b"]")


def test_the_refusal_of_an_invalid_body_names_the_position() -> None:
    with pytest.raises(Refusal) as refused:
        convert({"session": "s", "request_id": "r", "free": {"cpus": "many"}}, Claim)
    assert "$.free.cpus" in refused.value.message
    with pytest.raises(Refusal, match="unknown field `raeson`"):
        convert({"raeson": "x"}, Cancel)
    with pytest.raises(Refusal, match="2000"):
        convert({"reason": "x" * 2001}, Cancel)


def test_gzip_is_unpacked_up_to_the_limit_and_no_further() -> None:
    assert inflate(gzip.compress(b"a" * 1000), 1000) == b"a" * 1000
    assert inflate(gzip.compress(b"ab") + gzip.compress(b"cd"), 4) == b"abcd"
    assert inflate(gzip.compress(b""), 4) == b""
    with pytest.raises(Refusal) as refused:
        inflate(gzip.compress(b"a" * 1001), 1000)
    assert refused.value.code is Code.TOO_LARGE
    bomb = gzip.compress(b"\0" * 50_000_000)
    with pytest.raises(Refusal) as refused:
        inflate(bomb, 4 * 2**20)
    assert refused.value.code is Code.TOO_LARGE


@pytest.mark.parametrize(
    "body",
    [b"plain", gzip.compress(b"abc")[:-3], gzip.compress(b"abc") + b"junk", zlib.compress(b"x")],
    ids=["plain", "cut", "with junk behind it", "zlib"],
)
def test_a_broken_gzip_body_is_400(body: bytes) -> None:
    with pytest.raises(Refusal) as refused:
        inflate(body, 1000)
    assert refused.value.code is Code.MALFORMED
