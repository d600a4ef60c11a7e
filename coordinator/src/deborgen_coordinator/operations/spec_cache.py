"""A cache of specs, and of the needs of each class: the jobs of a class need the same of a worker.

Neither ever changes, so a cached one stays valid.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
from cachetools import LRUCache

from deborgen_shared.jobfile.model import JobSpec
from deborgen_shared.jobfile.template import has_templates
from deborgen_shared.states import RunAs

from ..caches import SharedCache
from ..placement import Amounts, Needs
from ..storage import specs
from ..storage.database import DatabaseConnection
from ..storage.transactions import Tx

_spec = msgspec.json.Decoder(JobSpec)


@dataclass(frozen=True, slots=True)
class CachedSpec:
    id: int
    class_id: int
    job: JobSpec
    raw: msgspec.Raw
    plain: dict[str, Any] | None
    """The spec as a dictionary if it has templates to fill in, otherwise None."""


class SpecCache:
    """At most `most` entries of each kind.

    Reading adds nothing to the cache. Its callers add what they read with `keep`, after the commit: the id of a spec
    that was rolled back may be given to another spec.
    """

    def __init__(self, most: int = 2000) -> None:
        self.submitters: SharedCache[str, int] = SharedCache(LRUCache(most))
        #: The ids of a spec and of its class, by the spec's digest.
        self.stored: SharedCache[str, tuple[int, int]] = SharedCache(LRUCache(most))
        self._specs: SharedCache[int, CachedSpec] = SharedCache(LRUCache(most))
        self._needs: SharedCache[int, Needs] = SharedCache(LRUCache(most))

    def spec(self, reader: Tx | DatabaseConnection, spec_id: int) -> CachedSpec:
        return self._specs.get(spec_id) or decode_spec(spec_id, *specs.get(reader, spec_id))

    def needs(self, reader: Tx | DatabaseConnection, class_id: int) -> Needs:
        return self._needs.get(class_id) or decode_needs(specs.needs_of_class(reader, class_id))

    def keep_submission(self, submitter: str, submitter_id: int, stored: dict[str, tuple[int, int]]) -> None:
        """Remember the ids of a committed submitter, and of committed specs by their digest."""
        self.submitters.update({submitter: submitter_id})
        self.stored.update(stored)

    def keep(self, found: dict[int, CachedSpec], needs: dict[int, Needs]) -> None:
        self._specs.update(found)
        self._needs.update(needs)


def decode_spec(spec_id: int, class_id: int, body: bytes) -> CachedSpec:
    plain = msgspec.json.decode(body)
    return CachedSpec(spec_id, class_id, _spec.decode(body), msgspec.Raw(body), plain if has_templates(plain) else None)


def decode_needs(text: str) -> Needs:
    data = msgspec.json.decode(text)
    asked = data["resources"]
    amounts = Amounts(float(asked["cpus"]), int(asked["memory"]), int(asked["gpus"]), int(asked["disk"]))
    return Needs(amounts, data["requires"], data["network"], RunAs(data["runner"]))
