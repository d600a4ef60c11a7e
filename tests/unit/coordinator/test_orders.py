"""A message of RabbitMQ becomes an order, or is refused with what is wrong with it."""

from __future__ import annotations

import json
from typing import Any

import pika
import pytest

from deborgen_coordinator.bridges.rabbitmq.desk import Delivery, Refuse
from deborgen_coordinator.bridges.rabbitmq.intake import MOST_HEADERS, dead_letter
from deborgen_coordinator.bridges.rabbitmq.orders import NeverAJob, Order, key_of, problem, read

YAML = b"run: echo hello\nenv: {VERSION: 3.10}\n"
JSON = b'{"run": "echo hello"}'


def order(body: bytes, headers: dict[str, Any] | None = None, **properties: Any) -> Order:
    return read(body, pika.BasicProperties(headers=headers, **properties), "rabbitmq")


@pytest.mark.parametrize("kind", ["application/json", "application/vnd.job+json; charset=utf-8", "text/plain", None])
def test_a_body_may_be_json(kind: str | None) -> None:
    assert order(JSON, content_type=kind).document == {"run": "echo hello"}


@pytest.mark.parametrize("kind", ["application/yaml", "text/x-yaml", "application/octet-stream", "", None])
def test_a_body_may_be_yaml(kind: str | None) -> None:
    assert order(YAML, content_type=kind).document == {"run": "echo hello", "env": {"VERSION": "3.10"}}


@pytest.mark.parametrize(
    ("body", "properties", "words"),
    [
        (b"", {}, "the job file is empty"),
        (b"\xff\xfe", {"content_type": "application/json"}, "is not UTF-8"),
        (b"run: [", {}, "line "),
        (b'{"run": 1, "run": 2}', {"content_type": "application/json"}, "twice"),
        (b"[" * 5000, {"content_type": "application/json"}, "nests deeper"),
        (b"{" * 5000, {}, "never closed|deep"),
        (b"run: x\nsweep: {grid: {a: [.nan]}}", {}, "job file"),
        (JSON, {"content_type": "image/png"}, "neither JSON nor YAML"),
        (JSON, {"content_encoding": "gzip"}, "content_encoding 'gzip'"),
    ],
)
def test_what_can_never_be_a_job_is_refused_with_a_reason(body: bytes, properties: dict[str, Any], words: str) -> None:
    with pytest.raises(NeverAJob, match=words):
        order(body, **properties)


def test_the_message_id_is_the_key_and_one_that_no_header_can_hold_is_hashed() -> None:
    assert order(JSON, message_id="order-7").key == "order-7"
    assert order(JSON, message_id="órder 7").key == order(YAML, message_id="órder 7").key != "órder 7"
    assert len(order(JSON, message_id="x" * 255).key) < 200


def test_without_an_id_messages_are_the_same_if_body_and_own_properties_are() -> None:
    def key(body: bytes = JSON, headers: dict[str, Any] | None = None, **properties: Any) -> str:
        return key_of(body, pika.BasicProperties(headers=headers, **properties))

    assert key() == key(headers={"x-death": [{"count": 1}], "deborgen-problems": "[]"}) == key(delivery_mode=2)
    different = [
        key(), key(YAML), key(correlation_id="1"), key(reply_to="1"), key(headers={"a": 1}), key(headers={"a": b"1"}),
        key(app_id="1"), key(timestamp=1),
    ]  # fmt: skip
    assert len(set(different)) == len(different)


def test_an_order_knows_where_it_came_from_and_the_header_names_the_run() -> None:
    found = order(YAML, {"deborgen-name": "tuesday"}, correlation_id="7", reply_to="answers")
    assert found.document["name"] == "tuesday"
    assert (found.origin.bridge, found.origin.correlation_id, found.origin.reply_to) == ("rabbitmq", "7", "answers")


def test_an_order_knows_which_of_its_jobs_can_start_at_once() -> None:
    steps = b"""
steps:
  - {id: join, run: x, needs: [a, b]}
  - {id: a, run: x, needs: [], sweep: {grid: {n: [1, 2, 3]}}}
  - {id: b, run: x, needs: [], requires: {disk: fast}}
"""
    first = order(steps).first
    assert [index for _, index in first] == [2, 5]
    assert "fast" in first[1][0]
    assert order(b"rum: x").first == ()


def test_a_dead_letter_fits_into_a_frame_whatever_is_wrong_with_it() -> None:
    given = pika.BasicProperties(headers={"mine": "x" * 100_000}, message_id="7", expiration="60000")
    for problems in ([problem("y" * 50_000)], [problem("y" * 500)] * 100):
        made = dead_letter(given, Refuse(Delivery(1, 1, b"", given), "7", problems))
        assert sum(map(len, made.encode())) < MOST_HEADERS
        assert json.loads(made.headers["deborgen-problems"])[0]["message"].startswith("yyy")
        assert (made.message_id, made.expiration) == ("7", None), "a dead letter does not expire"
