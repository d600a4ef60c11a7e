"""Archives of images: one file per image, always the same bytes for the same image. This module uses only the standard
library.

An archive comes from another machine, so it is checked before Podman sees it: it must hold one image, under no name,
whose id is the expected one.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tarfile
from typing import Any

#: The file of an archive, in the folder of the attempt that built the image.
FILE = "image.tar"
#: No manifest, configuration or index of an image is larger than this many bytes.
MOST_JSON = 4 << 20
_MEMBER = re.compile(r"(\./)?(oci-layout|index\.json|blobs(/sha256(/[0-9a-f]{64})?)?)/?")


class CannotPack(Exception):
    """The archive could not be made."""


class WrongImage(Exception):
    """The archive does not hold what it should."""


def pack(layout: str, target: str) -> None:
    """Pack the folder of an image, as `podman save --format oci-dir` makes it, into one file."""
    try:
        with tarfile.open(target, "w", format=tarfile.GNU_FORMAT) as archive:
            for name in sorted(_files(layout)):
                info = tarfile.TarInfo(name)
                info.size = os.stat(f"{layout}/{name}").st_size  # noqa: PTH116
                with open(f"{layout}/{name}", "rb") as file:  # noqa: PTH123
                    archive.addfile(info, file)
    except OSError as error:
        raise CannotPack(
            f"the image could not be packed: {error.strerror or error}; the job may need more `disk` in its resources"
        ) from None


def _files(layout: str) -> list[str]:
    return [
        os.path.relpath(f"{folder}/{name}", layout) for folder, _, names in os.walk(layout) for name in names
    ]  # fmt: skip


def check(path: str, digest: str) -> None:
    """Check that an archive holds exactly the image with this id, and no name for it. Raises `WrongImage`."""
    try:
        with tarfile.open(path, "r:") as archive:
            for member in archive:
                if not _MEMBER.fullmatch(member.name) or not (member.isreg() or member.isdir()):
                    raise WrongImage("it has files that no archive of an image has")
            index = _read(archive, "index.json")
            [entry] = index["manifests"]
            if set(index) - {"schemaVersion", "manifests", "mediaType"} or entry.get("annotations"):
                raise WrongImage("it gives the image a name")
            manifest = _read(archive, _blob(entry["digest"]), entry["digest"])
            config = manifest["config"]["digest"]
            if config != f"sha256:{digest}":
                raise WrongImage("it holds another image")
            _read(archive, _blob(config), config)
    except (tarfile.TarError, OSError, ValueError, LookupError, TypeError, AttributeError):
        raise WrongImage("it is not an archive of an image") from None


def _blob(digest: str) -> str:
    if not re.fullmatch(r"sha256:[0-9a-f]{64}", digest):
        raise ValueError
    return f"blobs/sha256/{digest[7:]}"


def _read(archive: tarfile.TarFile, name: str, digest: str = "") -> Any:
    """A small JSON file in the archive. If its digest is given, it must be right."""
    found = archive.getmember(name)
    file = archive.extractfile(found) if found.isreg() and found.size <= MOST_JSON else None
    if file is None:
        raise ValueError
    data = file.read()
    if digest and digest != f"sha256:{hashlib.sha256(data).hexdigest()}":
        raise ValueError
    return json.loads(data)
