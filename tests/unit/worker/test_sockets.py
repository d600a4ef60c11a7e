"""Unix sockets whose paths are too long for their addresses."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from deborgen_worker.sockets import MAX_PATH_BYTES, short_path


@pytest.mark.parametrize("name", ["s", "s" * 100])
def test_a_socket_is_reached_however_long_its_path_is(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as line:
        with short_path(folder / "a.sock") as path:
            assert len(path) <= MAX_PATH_BYTES
            listener.bind(path)
        listener.listen()
        with short_path(folder / "a.sock") as again:
            line.connect(again)
    assert (folder / "a.sock").is_socket()
    assert not Path(again).exists() or Path(again).parent == folder, "no link is left"
