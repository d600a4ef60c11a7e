"""Secrets: who may use them, what is stored of them, and what happens without their key."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deborgen_coordinator.operations import secrets
from deborgen_coordinator.operations.jobs.why import why
from deborgen_coordinator.storage import secrets as stored
from deborgen_shared.errors import Code, Refusal
from deborgen_shared.messages import NewSecret
from deborgen_shared.states import Role
from support.in_process import InProcessCoordinator, person

VALUE = "correct horse battery staple"


def set_secret(pool: InProcessCoordinator, name: str = "KEY", value: str = VALUE, by: str = "alice") -> None:
    secrets.set_secret(pool.ctx, person(by), name, NewSecret(value=value))


def share(pool: InProcessCoordinator, name: str = "KEY", value: str = VALUE) -> None:
    secrets.set_secret(pool.ctx, person("root", Role.ADMIN), name, NewSecret(value=value, shared=True))


def names(pool: InProcessCoordinator, by: str = "alice", role: Role = Role.SUBMITTER) -> list[tuple[str, str | None]]:
    return [(each.name, each.owner) for each in secrets.list_secrets(pool.ctx, person(by, role)).items]


def problems(pool: InProcessCoordinator, **document: Any) -> list[str]:
    with pytest.raises(Refusal) as refused:
        pool.submit(**document)
    assert refused.value.code is Code.INVALID_JOB
    return [each["path"] for each in refused.value.details["problems"]]


def test_a_claim_brings_the_values_and_nothing_else_has_them(pool: InProcessCoordinator) -> None:
    set_secret(pool)
    run = pool.submit(secrets=["KEY"])
    [assignment] = pool.worker().assignments()
    assert assignment.secrets == {"KEY": VALUE}
    told = [run, pool.job("1.1"), pool.events(), secrets.list_secrets(pool.ctx, person("alice"))]
    assert VALUE not in repr(told)
    assert VALUE not in repr(assignment.spec)
    rows = pool.ctx.store.read(stored.list_all)
    assert all(VALUE.encode() not in row.value for row in rows), "it is encrypted"


def test_a_job_without_secrets_gets_none(pool: InProcessCoordinator) -> None:
    set_secret(pool)
    pool.submit()
    assert pool.worker().assignments()[0].secrets == {}


def test_a_persons_own_secret_hides_a_shared_one(pool: InProcessCoordinator) -> None:
    share(pool, value="for everybody")
    set_secret(pool, value="for alice alone")
    for by in ("alice", "bob"):
        pool.submit(by=by, secrets=["KEY"])
    worker = pool.worker()
    values = {each.submitter: each.secrets["KEY"] for each in worker.assignments(2)}
    assert values == {"alice": "for alice alone", "bob": "for everybody"}
    assert names(pool) == [("KEY", None), ("KEY", "alice")]
    assert names(pool, "bob") == [("KEY", None)]
    assert len(names(pool, "root", Role.ADMIN)) == 2


def test_nobody_uses_the_secret_of_another(pool: InProcessCoordinator) -> None:
    set_secret(pool, by="bob")
    assert problems(pool, secrets=["KEY"]) == ["secrets[0]"]


def test_an_unknown_secret_is_a_problem_where_it_is_named(pool: InProcessCoordinator) -> None:
    set_secret(pool)
    steps = [{"id": "a", "run": "true"}, {"id": "b", "run": "true", "secrets": ["KEY", "OTHER"]}]
    assert problems(pool, steps=steps) == ["steps[1].secrets[1]"]
    assert problems(pool, secrets=["LOST"], steps=[{"id": "a", "run": "true"}, {"id": "b", "run": "true"}]) == [
        "secrets[0]"
    ]


def test_only_an_admin_shares(pool: InProcessCoordinator) -> None:
    with pytest.raises(Refusal, match="only an admin"):
        secrets.set_secret(pool.ctx, person("alice"), "KEY", NewSecret(value=VALUE, shared=True))
    share(pool)
    with pytest.raises(Refusal, match="only an admin"):
        secrets.remove_secret(pool.ctx, person("alice"), "KEY", True)


def test_a_removed_secret_makes_the_job_wait_and_why_says_so(pool: InProcessCoordinator) -> None:
    set_secret(pool)
    pool.submit(secrets=["KEY"])
    pool.submit()
    secrets.remove_secret(pool.ctx, person("alice"), "KEY", False)
    worker = pool.worker()
    assert worker.claim(5) == ["2.1/1"], "other jobs go on"
    assert why(pool.ctx, 1, 1).summary == "Queued: it waits for the secret KEY, which is missing: set it again."
    set_secret(pool, value="another value")
    [assignment] = worker.assignments()
    assert assignment.secrets == {"KEY": "another value"}


def test_setting_and_removing_are_on_the_record(pool: InProcessCoordinator) -> None:
    set_secret(pool)
    share(pool)
    secrets.remove_secret(pool.ctx, person("alice"), "KEY", False)
    found = [(event.type, event.actor, event.data) for event in pool.events() if event.type.startswith("secret.")]
    assert found == [
        ("secret.set", "submitter:alice", {"name": "KEY", "shared": False}),
        ("secret.set", "admin:root", {"name": "KEY", "shared": True}),
        ("secret.removed", "submitter:alice", {"name": "KEY", "shared": False}),
    ]


def test_an_unknown_secret_is_not_removed(pool: InProcessCoordinator) -> None:
    with pytest.raises(Refusal) as refused:
        secrets.remove_secret(pool.ctx, person("alice"), "KEY", False)
    assert refused.value.code is Code.NOT_FOUND


def test_the_list_says_when_each_was_last_used(pool: InProcessCoordinator) -> None:
    set_secret(pool)
    pool.submit(secrets=["KEY"])
    assert secrets.list_secrets(pool.ctx, person("alice")).items[0].last_used_at is None
    pool.worker().claim()
    assert secrets.list_secrets(pool.ctx, person("alice")).items[0].last_used_at is not None


def test_a_rotation_keeps_every_value_and_drops_the_old_key(pool: InProcessCoordinator) -> None:
    set_secret(pool)
    share(pool, "OTHER", "second value")
    path = pool.ctx.secret_keys.path
    before, rows = path.read_text(), pool.ctx.store.read(stored.list_all)
    assert path.stat().st_mode & 0o777 == 0o600
    assert secrets.rotate(pool.ctx, person("root", Role.ADMIN)) == 2
    assert len(path.read_text().split()) == 1
    assert path.read_text() != before
    assert {row.value for row in rows}.isdisjoint(row.value for row in pool.ctx.store.read(stored.list_all))
    pool.submit(secrets=["KEY", "OTHER"])
    assert pool.worker().assignments()[0].secrets == {"KEY": VALUE, "OTHER": "second value"}


def test_a_lost_key_breaks_nothing_but_the_secrets(make_pool: Callable[..., InProcessCoordinator]) -> None:
    pool = make_pool()
    set_secret(pool)
    pool.submit(secrets=["KEY"])
    pool.submit()
    path: Path = pool.ctx.secret_keys.path
    kept = path.rename(path.with_suffix(".away"))
    worker = pool.worker()
    assert worker.claim(5) == ["2.1/1"]
    assert [each.readable for each in secrets.list_secrets(pool.ctx, person("alice")).items] == [False]
    with pytest.raises(Refusal, match="key file of the secrets is missing"):
        set_secret(pool, "NEW")
    with pytest.raises(Refusal, match="cannot be decrypted: KEY"):
        secrets.rotate(pool.ctx, person("root", Role.ADMIN))
    kept.rename(path)
    assert worker.assignments()[0].secrets == {"KEY": VALUE}


def test_a_damaged_key_file_is_reported_and_breaks_nothing_else(pool: InProcessCoordinator) -> None:
    set_secret(pool)
    pool.ctx.secret_keys.path.write_text("nonsense\n")
    assert [each.readable for each in secrets.list_secrets(pool.ctx, person("alice")).items] == [False]
    with pytest.raises(Refusal, match="is not a file of keys"):
        set_secret(pool, "NEW")
