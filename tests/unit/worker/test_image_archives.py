"""Archives of images: the same bytes for the same image, and nothing in them that the worker did not expect."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deborgen_worker.runners.containers.archives import WrongImage, check, pack


def put(layout: Path, data: bytes) -> str:
    digest = hashlib.sha256(data).hexdigest()
    (layout / "blobs/sha256").mkdir(parents=True, exist_ok=True)
    (layout / "blobs/sha256" / digest).write_bytes(data)
    return f"sha256:{digest}"


def image(layout: Path, **index: Any) -> str:
    """An image as Podman saves it; returns its id."""
    config = put(layout, b'{"architecture": "amd64"}')
    manifest = put(layout, json.dumps({"config": {"digest": config}, "layers": []}).encode())
    found = {"schemaVersion": 2, "manifests": [{"digest": manifest, "size": 1}], **index}
    (layout / "index.json").write_text(json.dumps(found))
    (layout / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    return config.removeprefix("sha256:")


def test_the_same_image_makes_the_same_archive(tmp_path: Path) -> None:
    for name in ("a", "b"):
        image(tmp_path / name)
        pack(str(tmp_path / name), str(tmp_path / f"{name}.tar"))
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()


def test_a_sound_archive_is_accepted(tmp_path: Path) -> None:
    digest = image(tmp_path / "a")
    pack(str(tmp_path / "a"), str(tmp_path / "a.tar"))
    check(str(tmp_path / "a.tar"), digest)


def named(layout: Path) -> None:
    index = json.loads((layout / "index.json").read_text())
    index["manifests"][0]["annotations"] = {"org.opencontainers.image.ref.name": "docker.io/library/python:3.12"}
    (layout / "index.json").write_text(json.dumps(index))


def two_images(layout: Path) -> None:
    index = json.loads((layout / "index.json").read_text())
    index["manifests"] *= 2
    (layout / "index.json").write_text(json.dumps(index))


def changed_manifest(layout: Path) -> None:
    index = json.loads((layout / "index.json").read_text())
    (layout / "blobs/sha256" / index["manifests"][0]["digest"][7:]).write_text("{}")


def second_format(layout: Path) -> None:
    (layout / "manifest.json").write_text('[{"RepoTags": ["docker.io/library/python:3.12"]}]')


def no_index(layout: Path) -> None:
    (layout / "index.json").unlink()


def index_of_a_list(layout: Path) -> None:
    (layout / "index.json").write_text("[]")


@pytest.mark.parametrize(
    "harm",
    [named, two_images, changed_manifest, second_format, no_index, index_of_a_list],
    ids=lambda each: each.__name__,
)
def test_a_harmful_archive_is_refused_before_the_engine_sees_it(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    """An archive may name any image of the machine: loaded as it is, it would take the place of that image."""
    digest = image(tmp_path / "a")
    harm(tmp_path / "a")
    pack(str(tmp_path / "a"), str(tmp_path / "a.tar"))
    with pytest.raises(WrongImage):
        check(str(tmp_path / "a.tar"), digest)


def test_the_archive_of_another_image_is_refused(tmp_path: Path) -> None:
    image(tmp_path / "a")
    pack(str(tmp_path / "a"), str(tmp_path / "a.tar"))
    with pytest.raises(WrongImage, match="another image"):
        check(str(tmp_path / "a.tar"), "0" * 64)


@pytest.mark.parametrize("name", ["../evil", "/etc/passwd", "blobs/sha256/short"])
def test_an_archive_with_another_file_or_a_link_is_refused(tmp_path: Path, name: str) -> None:
    digest = image(tmp_path / "a")
    pack(str(tmp_path / "a"), str(tmp_path / "a.tar"))
    with tarfile.open(tmp_path / "a.tar", "a") as archive:
        archive.addfile(tarfile.TarInfo(name), io.BytesIO())
    with pytest.raises(WrongImage):
        check(str(tmp_path / "a.tar"), digest)


def test_bytes_that_are_no_archive_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(b"\0" * 100 + b"x" * 5000)
    with pytest.raises(WrongImage):
        check(str(tmp_path / "a.tar"), "0" * 64)
