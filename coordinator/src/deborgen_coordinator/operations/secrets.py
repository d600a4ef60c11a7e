"""Secrets: people set them, and a worker that claims a job gets the values of the secrets that the job names.

A person has secrets of their own, and an admin may share secrets with the pool. A person's own secret hides a shared
one of the same name. No answer to a person contains a value.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from deborgen_shared.errors import Code, Refusal
from deborgen_shared.jobfile.model import JobFile, Step
from deborgen_shared.jobfile.problems import Path, Problem
from deborgen_shared.messages import REGISTRY_CREDENTIALS, NewSecret, Secrets, SecretView
from deborgen_shared.states import Role

from ..secret_keys import SecretKeys, SecretUnreadable
from ..storage import runs, secrets
from ..storage.database import DatabaseConnection
from ..storage.rows import SecretRow
from ..storage.transactions import Tx
from . import views
from .context import Actor, Context
from .lookup import Noun, UnknownName
from .work import About, Work

#: The use of a secret is written down once in this many seconds, so that a sweep does not write for each of its jobs.
USE_SECONDS = 60.0


def set_secret(ctx: Context, actor: Actor, name: str, body: NewSecret) -> SecretView:
    _check_may_share(actor, body.shared)
    value = _encrypted(ctx, body.value)

    def save(work: Work) -> SecretRow:
        owner_id = _owner_id(work, body.shared)
        secrets.save(work.tx, owner_id, name, value, work.now)
        work.record("secret.set", About(), data={"name": name, "shared": body.shared})
        work.wake("jobs")  # a job may have waited for it
        return next(
            row
            for row in secrets.visible_to(work.tx, owner_id, [name])
            if row.owner == (None if body.shared else actor.name)
        )

    return _view(ctx.secret_keys, ctx.work(actor, save))


def list_secrets(ctx: Context, actor: Actor) -> Secrets:
    """The secrets that this person may use. An admin sees the names of all secrets."""

    def look(reader: DatabaseConnection) -> list[SecretRow]:
        if actor.role is Role.ADMIN:
            return secrets.list_all(reader)
        return secrets.visible_to(reader, runs.find_submitter(reader, actor.name))

    return Secrets(items=[_view(ctx.secret_keys, row) for row in ctx.store.read(look)], next=None)


def remove_secret(ctx: Context, actor: Actor, name: str, shared: bool) -> None:
    _check_may_share(actor, shared)

    def remove(work: Work) -> None:
        if not secrets.remove(work.tx, _owner_id(work, shared), name):
            whose = "shared with the pool" if shared else f"of {actor.name}"
            raise UnknownName(Noun.SECRET, f"there is no secret {name} {whose}")
        work.record("secret.removed", About(), data={"name": name, "shared": shared})

    ctx.work(actor, remove)


def rotate(ctx: Context, actor: Actor) -> int:
    """Encrypt all secrets with a new key, and remove the old keys; return how many secrets there are.

    If this is interrupted, the file still has every key that is needed.
    """
    unreadable = [row.name for row in ctx.store.read(secrets.list_all) if not _is_readable(ctx.secret_keys, row)]
    if unreadable:
        raise Refusal(
            Code.UNAVAILABLE,
            f"these secrets cannot be decrypted: {', '.join(sorted(unreadable))}",
            "restore their key file, or remove them or set them again first",
        )
    ctx.secret_keys.add()

    def encrypt(work: Work) -> int:
        rows = secrets.list_all(work.tx)
        for row in rows:
            secrets.replace_value(work.tx, row.id, ctx.secret_keys.encrypt(ctx.secret_keys.decrypt(row.value)))
        work.record("secret.rotated", About(), data={"secrets": len(rows)})
        return len(rows)

    count = ctx.work(actor, encrypt)
    ctx.secret_keys.keep_newest()
    return count


def secret_problems(ctx: Context, actor: Actor, document: Any, jobfile: JobFile) -> list[Problem]:
    """A problem for each secret that a job file names and its submitter does not have."""
    if not any(step.spec.all_secrets for step in jobfile.steps):
        return []

    def look(reader: DatabaseConnection) -> set[str]:
        return {row.name for row in secrets.visible_to(reader, runs.find_submitter(reader, actor.name))}

    known = ctx.store.read(look)
    unknown = {path: name for step in jobfile.steps for path, name in _named(document, step) if name not in known}
    return [
        Problem(path, f"there is no secret '{name}' that {actor.name} may use", f"set it: deborgen secret set {name}")
        for path, name in unknown.items()
    ]


def _named(document: Any, step: Step) -> Iterator[tuple[Path, str]]:
    """The secrets of a step, each with its place in the document: in the step itself or, for all steps, at the top."""
    own = document
    for part in step.path:
        own = own[part]

    def at(key: str) -> Path:
        return (*(step.path if key in own else ()), key)

    yield from (((*at("secrets"), number), name) for number, name in enumerate(step.spec.secrets))
    if step.spec.source is not None and step.spec.source.key:
        yield (*at("build" if step.spec.build is not None else "workspace"), "key"), step.spec.source.key


def missing_secrets(
    ctx: Context, reader: Tx | DatabaseConnection, submitter_id: int, names: Collection[str]
) -> list[str]:
    """The names that a job of this submitter has to wait for: the secrets that do not exist or cannot be decrypted."""
    readable = {
        row.name for row in secrets.visible_to(reader, submitter_id, names) if _is_readable(ctx.secret_keys, row)
    }
    return [name for name in names if name not in readable]


def secret_values(work: Work, submitter_id: int, names: Sequence[str]) -> dict[str, str]:
    """The values of these secrets for a job of this submitter. A secret that is missing is left out."""
    keys = work.ctx.secret_keys
    rows = {row.name: row for row in secrets.visible_to(work.tx, submitter_id, names) if _is_readable(keys, row)}
    unnoted = [row.id for row in rows.values() if work.now - (row.last_used_at or 0.0) > USE_SECONDS]
    if unnoted:
        secrets.note_use(work.tx, unnoted, work.now)
    return {name: keys.decrypt(row.value) for name, row in rows.items()}


def registry_credentials(work: Work) -> dict[str, str]:
    """The user name and password for the pool's registry, if an admin has shared a secret of the name in the
    settings."""
    name = work.ctx.settings.registry_secret
    rows = secrets.visible_to(work.tx, None, [name]) if name else []
    keys = work.ctx.secret_keys
    values = [keys.decrypt(row.value) for row in rows if _is_readable(keys, row)]
    return {REGISTRY_CREDENTIALS: values[0]} if values else {}


def _check_may_share(actor: Actor, shared: bool) -> None:
    if shared and actor.role is not Role.ADMIN:
        raise Refusal(
            Code.FORBIDDEN, "only an admin shares secrets with the pool", "leave out `shared`, or ask an admin"
        )


def _encrypted(ctx: Context, value: str) -> bytes:
    """The encrypted value. It is refused if the key file is gone: a new key would hide that the old one must be
    restored."""
    hint = "restore the key file, or remove the secrets that were encrypted with it"
    if not ctx.secret_keys.exist and ctx.store.read(secrets.list_all):
        raise Refusal(Code.UNAVAILABLE, "the key file of the secrets is missing on the coordinator", hint)
    try:
        return ctx.secret_keys.encrypt(value)
    except SecretUnreadable as problem:
        raise Refusal(Code.UNAVAILABLE, str(problem), hint) from None


def _owner_id(work: Work, shared: bool) -> int | None:
    return None if shared else runs.submitter_id(work.tx, work.actor.name)


def _is_readable(keys: SecretKeys, row: SecretRow) -> bool:
    try:
        keys.decrypt(row.value)
    except SecretUnreadable:
        return False
    return True


def _view(keys: SecretKeys, row: SecretRow) -> SecretView:
    return SecretView(
        name=row.name,
        owner=row.owner,
        set_at=views.when(row.set_at),
        last_used_at=views.maybe_when(row.last_used_at),
        readable=_is_readable(keys, row),
    )
