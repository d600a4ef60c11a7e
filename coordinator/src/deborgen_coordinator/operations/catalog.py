"""Specs and classes as values. They never change, so what was read once and is committed is kept at hand."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from deborgen_shared.jobfile.model import JobSpec
from deborgen_shared.jobfile.template import has_templates
from deborgen_shared.states import RunAs

from ..placement import Amounts, Needs
from ..storage import specs
from ..storage.database import Connection
from ..storage.transactions import Tx

K = TypeVar("K")
V = TypeVar("V")
_spec = msgspec.json.Decoder(JobSpec)


@dataclass(frozen=True, slots=True)
class Spec:
    id: int
    class_id: int
    job: JobSpec
    raw: msgspec.Raw
    plain: dict[str, Any] | None
    """The spec as a dictionary, only if it has templates to fill in."""


class Catalog:
    """At most `most` of each. Values read in a transaction are kept only by `keep`, once that is committed: a number
    that was rolled back may be given to another spec."""

    def __init__(self, most: int = 2000) -> None:
        self._lock = threading.Lock()
        self._most = most
        self.submitters: dict[str, int] = {}
        self.stored: dict[str, tuple[int, int]] = {}
        self._specs: dict[int, Spec] = {}
        self._needs: dict[int, Needs] = {}

    def spec(self, reader: Tx | Connection, spec_id: int) -> Spec:
        return self._specs.get(spec_id) or decode_spec(spec_id, *specs.get(reader, spec_id))

    def needs(self, reader: Tx | Connection, class_id: int) -> Needs:
        return self._needs.get(class_id) or decode_needs(specs.needs_of_class(reader, class_id))

    def keep_submission(self, submitter: str, submitter_id: int, stored: dict[str, tuple[int, int]]) -> None:
        """Remember the number of a submitter, and of specs by their digest, that are committed."""
        with self._lock:
            self._add(self.submitters, {submitter: submitter_id})
            self._add(self.stored, stored)

    def keep(self, found: dict[int, Spec], needs: dict[int, Needs]) -> None:
        with self._lock:
            self._add(self._specs, found)
            self._add(self._needs, needs)

    def _add(self, known: dict[K, V], found: dict[K, V]) -> None:
        """Add what was found, and let go of what has been known for longest."""
        known.update(found)
        while len(known) > self._most:
            del known[next(iter(known))]


def decode_spec(spec_id: int, class_id: int, body: bytes) -> Spec:
    plain = msgspec.json.decode(body)
    return Spec(spec_id, class_id, _spec.decode(body), msgspec.Raw(body), plain if has_templates(plain) else None)


def decode_needs(text: str) -> Needs:
    data = msgspec.json.decode(text)
    asked = data["resources"]
    amounts = Amounts(float(asked["cpus"]), int(asked["memory"]), int(asked["gpus"]), int(asked["disk"]))
    return Needs(amounts, data["requires"], data["network"], RunAs(data["runner"]))
