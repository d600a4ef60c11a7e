"""The log as a stream: exact bytes, any offset, head and tail when it is too long."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from deborgen_worker.logs import BLOCK, CappedLog, K8sLog, RawLog, decode

STAMP = b"2026-11-16T03:16:04.681550054+00:00"


@given(st.lists(st.tuples(st.sampled_from([b"stdout", b"stderr"]), st.binary(max_size=200))))
def test_conmons_file_is_decoded_to_the_bytes_that_the_program_wrote(pieces: list[tuple[bytes, bytes]]) -> None:
    out = b""
    for stream, data in pieces:
        *lines, rest = data.split(b"\n")
        out += b"".join(STAMP + b" " + stream + b" F " + line + b"\n" for line in lines)
        if rest:
            out += STAMP + b" " + stream + b" P " + rest + b"\n"
    assert decode(out) == b"".join(data for _, data in pieces)


def write_k8s(path: Path, lines: int) -> bytes:
    written = [b"%07d%s\n" % (number, b"y" * 992) for number in range(lines)]
    path.write_bytes(b"".join(STAMP + b" stdout F " + line for line in written))
    return b"".join(written)


def test_any_offset_of_a_long_log_can_be_read(tmp_path: Path) -> None:
    body = write_k8s(tmp_path / "output", 4000)
    log = K8sLog(tmp_path / "output")
    assert log.size() == len(body)
    for offset in (0, 1, 999, 1000, BLOCK - 3, 3 * BLOCK + 17, len(body) - 5):
        assert log.read(offset, 1234) == body[offset : offset + 1234]


def test_forgotten_bytes_free_disk_space_and_a_new_worker_goes_on_from_there(tmp_path: Path) -> None:
    path = tmp_path / "output"
    body = write_k8s(path, 12_000)
    log = K8sLog(path)
    size = log.size()
    used = path.stat().st_blocks
    log.forget(BLOCK, size - BLOCK)
    assert path.stat().st_blocks < used // 2
    again = K8sLog(path)
    assert again.size() == size == len(body)
    assert again.read(0, 1000) == body[:1000]
    assert again.read(size - 500, 500) == body[-500:]


def read_all(log: CappedLog) -> bytes:
    out = b""
    while piece := log.read(len(out), 777):
        out += piece
    return out


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=3000), st.integers(min_value=40, max_value=2000), st.binary(max_size=50))
def test_the_head_and_the_tail_are_kept_and_the_rest_is_counted(
    tmp_path_factory: object, data: bytes, cap: int, notes: bytes
) -> None:
    path = tmp_path_factory.mktemp("log") / "output"  # type: ignore[attr-defined]
    path.write_bytes(data)
    log = CappedLog(RawLog(path), cap)
    assert log.finish(notes) == len(read_all(log))
    sent = read_all(log)
    if len(data) <= cap:
        assert sent == data + notes
        return
    tail = cap // 4
    head = cap - tail
    seam = f"\n[deborgen: {len(data) - cap} bytes of this log were dropped here, to stay below {cap} bytes]\n".encode()
    assert sent == data[:head] + seam + data[len(data) - tail :] + notes


def test_nothing_beyond_the_head_is_sent_while_the_program_runs(tmp_path: Path) -> None:
    path = tmp_path / "output"
    path.write_bytes(b"x" * 90)
    log = CappedLog(RawLog(path), 100)
    assert log.size() == 75
    assert log.read(70, 100) == b"x" * 5
    path.write_bytes(b"x" * 99)
    assert log.finish() == 99
