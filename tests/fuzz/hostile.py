"""Values that programs stumble over, and ways to work them into JSON."""

from __future__ import annotations

import json
import random
from typing import Any

#: Texts that mean something to some program. A job may run some of them as a script, so none of them does harm there.
TEXTS = (
    "", " ", "\n", "\r\n", "\t", "\x7f", "\x1b[2J", "a\0b", "\ud800", "\udfff\ud800", "\ufeff", "\ufffe", "\uffff",
    "\u2028", "\u202e", "\u0301", "\u00e9", "e\u0301", "\u0130", "\u1e9e", "日本語", "\U0001f600" * 20, "٣", "½",
    "'; DROP TABLE job; --", '"', "\\", "\\u0000", "%00", "%s%n", "{}", "${{ a }}", "${{", "}}", "${{ params.x }}",
    "<script>alert(1)</script>", "../../etc/hostname", "/etc/hostname", "..", ".", "~", "-", "--help", "C:\\x", "a//b",
    "NaN", "Infinity", "null", "true", "0", "-0", "00", "1e999", "0x10", "1_000", "1" * 30, "9" * 400, "+1", " 1",
    "2030-01-31T18:00:00Z", "9999-12-31T23:59:59+14:00", "0000-00-00T00:00:00Z", "1h30m", "-1s", "1e9h", "5GiB",
    "99999999999999TiB", "*", "**/*", "[!]", "[z-a]", "*a" * 40 + "b", "a" * 64, "A" * 64, "f" * 64, "g" * 64,
    "1.1", "1.1/1", "0.0/0", "1.99999999999/1", "now", "last", "internal", "dbg_admin_x_y", "a" * 129, "a" * 2001,
    "x" * 5000, "é" * 3000,
)  # fmt: skip
NUMBERS = (
    0, -0.0, 1, -1, 0.5, -0.5, 2, 255, 256, 1024, 4096, 65536, 2**31 - 1, 2**31, 2**32, 2**53, 2**53 + 1, 2**60,
    2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64, 10**20, 10**40, 10**308, 1e308, -1e308, 5e-324, 1e-320, 0.1 + 0.2,
    1e9, 1e9 + 1,
)  # fmt: skip
#: JSON text that Python would not write.
SNIPPETS = (
    b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-1e999", b"1E+400", b"1e-9999", b"01", b"+1", b".5", b"1.", b"0x1",
    b"1" * 5000, b"-" + b"9" * 400, b"0." + b"1" * 5000, b'"\\ud800"', b'"\\udc00\\ud800"', b'"\\u0000"', b'"\xff\xfe"',
    b'"\xc0\x80"', b'"\xed\xa0\x80"', b'"\xf4\x90\x80\x80"', b'"\t"', b'"\\x"', b'"', b"'a'", b"[1,]", b"{,}", b"{1:2}",
    b"[", b"}", b"undefined", b"tru", b"nulll", b"/**/1", b"[" * 40 + b"]" * 40, b"[" * 3000 + b"]" * 3000,
    b'{"a":' * 60 + b"1" + b"}" * 60, b'{"a":1,"a":2}', b'{"\\u0061":1,"a":2}', b"[" + b"0," * 5000 + b"0]",
    b"\xef\xbb\xbf1", b"1\x00", b"",
)  # fmt: skip
PLACE = "@@snippet@@"


def text(rng: random.Random) -> str:
    """A text that is likely to be mishandled."""
    match rng.randrange(8):
        case 0:
            return "".join(chr(rng.randrange(32, 127)) for _ in range(rng.randrange(1, 30)))
        case 1:
            return "".join(chr(rng.choice((rng.randrange(0x300), rng.randrange(0x10000)))) for _ in range(8))
        case 2:
            return rng.choice(TEXTS) + rng.choice(TEXTS)
        case _:
            return rng.choice(TEXTS)


def value(rng: random.Random, depth: int = 0) -> Any:
    """Any JSON value."""
    match rng.randrange(9 if depth < 3 else 6):
        case 0 | 1 | 2:
            return text(rng)
        case 3 | 4:
            return rng.choice(NUMBERS)
        case 5:
            return rng.choice((None, True, False))
        case 6:
            return [value(rng, depth + 1) for _ in range(rng.randrange(4))]
        case 7:
            return {text(rng): value(rng, depth + 1) for _ in range(rng.randrange(4))}
        case _:
            return [rng.choice((0, "a", {}, []))] * rng.choice((0, 1, 100, 300))


def mutated(rng: random.Random, body: Any) -> Any:
    """The JSON value with one change at a random place: another value, a missing key, a further key or a repeat."""
    if not body or not isinstance(body, dict | list) or rng.random() < 0.05:
        return value(rng)
    if isinstance(body, list):
        place = rng.randrange(len(body))
        match rng.randrange(6):
            case 0:
                return body[:place] + body[place + 1 :]
            case 1:
                return body + [body[place]] * rng.choice((1, 2, 300))
            case 2:
                return [*body, value(rng)]
            case _:
                return [*body[:place], mutated(rng, body[place]), *body[place + 1 :]]
    key = rng.choice(list(body))
    match rng.randrange(8):
        case 0:
            return {name: each for name, each in body.items() if name != key}
        case 1:
            return body | {text(rng): value(rng)}
        case 2:
            return body | {key: value(rng)}
        case 3:
            return {**{name: each for name, each in body.items() if name != key}, key + rng.choice("sx_ "): body[key]}
        case _:
            return body | {key: mutated(rng, body[key])}


def encoded(rng: random.Random, body: Any) -> bytes:
    """The JSON value as text; seldom with something in it that is not JSON."""
    plain = json.dumps(body, ensure_ascii=rng.random() < 0.9).encode(errors="surrogatepass")
    match rng.randrange(64):
        case 0:
            # Much of it arrives after the head was looked at; seldom it is larger than any document may be.
            return plain + b" " * rng.choice((70_000, 70_000, 70_000, 300_000, 1_100_000))
        case 1 | 2 | 3 | 4:
            marked = json.dumps(_marked(rng, body)).encode()
            return marked.replace(json.dumps(PLACE).encode(), rng.choice(SNIPPETS))
        case 5 | 6 | 7 | 8:
            return _bitten(rng, plain)
        case 9 | 10 | 11:
            return plain[:-1] + b"," + plain[1:] if len(plain) > 2 and plain.startswith(b"{") else plain + plain
        case _:
            return plain


def _marked(rng: random.Random, body: Any) -> Any:
    if not body or not isinstance(body, dict | list):
        return PLACE
    if isinstance(body, list):
        place = rng.randrange(len(body))
        return [*body[:place], _marked(rng, body[place]), *body[place + 1 :]]
    key = rng.choice(list(body))
    return body | {key: _marked(rng, body[key])}


def _bitten(rng: random.Random, data: bytes) -> bytes:
    """The bytes with a part cut out, repeated, or replaced by random ones."""
    start = rng.randrange(len(data) + 1)
    end = min(len(data), start + rng.randrange(1, 9))
    return data[:start] + rng.choice((b"", data[start:end] * 2, rng.randbytes(end - start))) + data[end:]
