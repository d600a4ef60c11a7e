"""A cache of specs, and of the needs that the jobs of each class share. Neither ever changes, so they stay valid."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

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

    Looking something up does not change the cache. What has to be read from the database goes into the caller's
    dictionary `read`, which the caller passes to `keep` after the commit: if a spec is rolled back, another spec may
    get its id.
    """

    def __init__(self, most: int = 2000) -> None:
        self.submitters: SharedCache[str, int] = SharedCache(most)
        #: The ids of a spec and of its class, by the spec's digest.
        self.stored: SharedCache[str, tuple[int, int]] = SharedCache(most)
        self._specs: SharedCache[int, CachedSpec] = SharedCache(most)
        self._needs: SharedCache[int, Needs] = SharedCache(most)

    def spec(
        self, reader: Tx | DatabaseConnection, spec_id: int, read: dict[int, CachedSpec] | None = None
    ) -> CachedSpec:
        found = self._specs.get(spec_id) or (read.get(spec_id) if read else None)
        if found is None:
            found = decode_spec(spec_id, *specs.get(reader, spec_id))
            if read is not None:
                read[spec_id] = found
        return found

    def needs(self, reader: Tx | DatabaseConnection, class_id: int, read: dict[int, Needs] | None = None) -> Needs:
        found = self._needs.get(class_id) or (read.get(class_id) if read else None)
        if found is None:
            found = decode_needs(specs.needs_of_class(reader, class_id))
            if read is not None:
                read[class_id] = found
        return found

    def keep_submission(self, submitter: str, submitter_id: int, stored: dict[str, tuple[int, int]]) -> None:
        """Remember the ids of a committed submitter, and of committed specs by their digest, if they are new here."""
        if self.submitters.get(submitter) is None:
            self.submitters.update({submitter: submitter_id})
        self.stored.update({digest: ids for digest, ids in stored.items() if self.stored.get(digest) is None})

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
    secrets = tuple(data.get("secrets", ()))
    return Needs(amounts, data["requires"], data["network"], RunAs(data["runner"]), secrets, data.get("offers", {}))
