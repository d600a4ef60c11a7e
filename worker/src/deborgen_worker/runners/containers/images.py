"""The images of the pool on this machine: fetched once, checked by their id, kept within a disk budget."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path

from deborgen_shared.client.transport import NoAnswer, Refused
from deborgen_shared.messages import MOST_IMAGES, PoolImage
from deborgen_shared.states import Cause
from deborgen_worker.runners.containers import archives
from deborgen_worker.runners.containers.engine import Engine, EngineError
from deborgen_worker.runners.containers.pulling import pull
from deborgen_worker.runners.protocol import Unavailable

#: Fetches a blob into a file.
Fetch = Callable[[str, Path], None]


class ImageStore:
    """Knows the images of the pool that this worker has loaded, pulled or built, one small file per image in `folder`.

    If they take more than `budget` bytes together, the least recently used ones are removed, with the layers that a
    build has left for the next one: `remove_layers` is called with the id of the build.
    """

    def __init__(
        self,
        engine: Engine,
        folder: Path,
        budget: int,
        fetch: Fetch,
        registries: frozenset[str],
        remove_layers: Callable[[str], None] = lambda build: None,
    ) -> None:
        self._engine, self._folder, self._budget, self._fetch = engine, folder, budget, fetch
        self._registries, self._remove_layers = registries, remove_layers
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for rest in folder.glob("*.tar*"):  # an earlier session was interrupted
            rest.unlink()
        self._lock = threading.Lock()
        self._busy: dict[str, threading.Lock] = {}

    def obtain(self, image: PoolImage, name: str, credentials: str = "") -> str:
        """Make sure that an image is on this machine, and return its id. Raises `Unavailable`."""
        with self._lock:
            busy = self._busy.setdefault(image.digest, threading.Lock())
        with busy:
            if not self._engine.has_image(image.digest):
                if image.url is not None:
                    pull(self._engine, image.url, self._registries, credentials=credentials, plain=image.plain)
                elif image.archive is not None:
                    self._load(image.digest, image.archive, name)
                if not self._engine.has_image(image.digest):
                    raise Unavailable(Cause.IMAGE, f"the image {name} is not the one that the pool has built")
            self.note(image.digest, image.size)
        self.evict(keep=image.digest)
        return image.digest

    def _load(self, digest: str, archive: str, name: str) -> None:
        path = self._folder / f"{digest}.tar"
        try:
            self._fetch(archive, path)
            archives.check(str(path), digest)
            self._engine.load_image(path)
        except archives.WrongImage as wrong:
            raise Unavailable(Cause.IMAGE, f"the archive of the image {name} is wrong: {wrong}") from None
        except Refused as refused:
            raise Unavailable(
                Cause.IMAGE_UNKNOWN, f"the pool has no archive of the image {name}", str(refused)
            ) from None
        except NoAnswer as error:
            raise Unavailable(Cause.IMAGE, f"the archive of the image {name} could not be fetched: {error}") from None
        except (EngineError, OSError) as error:
            message = f"the image {name} could not be loaded on this machine"
            raise Unavailable(Cause.IMAGE, message, str(error)) from None
        finally:
            for rest in self._folder.glob(f"{digest}.tar*"):
                rest.unlink(missing_ok=True)

    def note(self, digest: str, size: int, build: str = "") -> None:
        """Note that an image is used now. One that was built here has the id of its build."""
        before = self._read(digest)
        entry = {
            "size": size or before.get("size", 0),
            "made_by": build or before.get("made_by", ""),
            "used": time.time(),
        }
        part = self._folder / f"{digest}.part"
        with contextlib.suppress(OSError):  # a full disk
            part.write_text(json.dumps(entry))
            part.rename(self._folder / f"{digest}.json")

    def _read(self, digest: str) -> dict[str, object]:
        return _entry(self._folder / f"{digest}.json")

    def digests(self) -> list[str]:
        """The ids of the images, for the coordinator."""
        return sorted(each.stem for each in self._folder.glob("*.json"))[:MOST_IMAGES]

    def builds(self) -> set[str]:
        """The builds whose images are kept."""
        return builds_of_images(self._folder)

    def evict(self, keep: str = "", budget: int | None = None) -> list[str]:
        """Remove the least recently used images until the rest is within the budget; return their ids. An image that a
        container uses stays."""
        removed: list[str] = []
        with self._lock:
            entries = {digest: self._read(digest) for digest in self.digests()}
            total = sum(int(str(entry.get("size", 0))) for entry in entries.values())
            for digest in sorted(entries, key=lambda each: float(str(entries[each].get("used", 0)))):
                busy = self._busy.get(digest)
                if total <= (self._budget if budget is None else budget):
                    break
                if digest == keep or (busy is not None and busy.locked()):
                    continue
                if self._engine.remove_image(digest):
                    total -= int(str(entries[digest].get("size", 0)))
                    if build := str(entries[digest].get("made_by", "")):
                        self._remove_layers(build)
                    (self._folder / f"{digest}.json").unlink(missing_ok=True)
                    removed.append(digest)
        return removed

    def remove_all(self) -> list[str]:
        """Remove all images, because the worker leaves the pool; return their ids."""
        return self.evict(budget=-1)


def builds_of_images(folder: Path) -> set[str]:
    """The builds whose images are noted in the folder of an `ImageStore`."""
    return {str(_entry(each).get("made_by", "")) for each in folder.glob("*.json")}


def _entry(path: Path) -> dict[str, object]:
    with contextlib.suppress(OSError, ValueError):
        return dict(json.loads(path.read_text()))
    return {}
