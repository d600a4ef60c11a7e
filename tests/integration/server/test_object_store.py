"""Blobs in a real object store: what clients put there directly, and what the coordinator makes of it."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from deborgen_coordinator.blobs import StoreUnavailable
from deborgen_coordinator.blobs.bucket import Bucket
from deborgen_coordinator.operations import artifact_store, blobs, direct_uploads
from deborgen_coordinator.operations.maintenance import backup, move, restore
from deborgen_coordinator.operations.maintenance.cleanup import Cleaner
from deborgen_coordinator.operations.maintenance.retention import DAY
from deborgen_shared.client import blobs as client_blobs
from deborgen_shared.client.transport import NoAnswer, Refused, Transport
from deborgen_shared.errors import Refusal
from deborgen_shared.messages import CompleteUpload, LogTail, MissingBlob
from deborgen_shared.states import StoreKind
from support.coordinator import Client, CoordinatorProcess
from support.in_process import InProcessCoordinator, person
from support.object_store import ObjectStore
from support.scripted_worker import ScriptedWorker
from support.targeted_proxy import TargetedProxy
from support.waiting import wait_until

PART = 5 << 20
HOUR = 3600.0


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture(scope="module")
def place(object_store: ObjectStore) -> str:
    """The address of the pool that the tests share."""
    return object_store.new_place()


@pytest.fixture(scope="module")
def pool(
    object_store: ObjectStore, place: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[CoordinatorProcess]:
    """A coordinator whose blobs are in the object store."""
    folder = tmp_path_factory.mktemp("pool")
    settings: dict[str, Any] = {
        "artifact_store": place, "s3_endpoint": object_store.endpoint, "s3_part_size": PART,
    }  # fmt: skip
    with CoordinatorProcess(folder, env=object_store.env, **settings) as process:
        yield process


@pytest.fixture
def ada(pool: CoordinatorProcess) -> Client:
    return pool.client("submitter", "ada")


def transport(pool: CoordinatorProcess, name: str = "ada") -> Transport:
    token = pool.token("submitter", name)
    return Transport(pool.url, lambda: token)


def ask(ada: Client, data: bytes) -> dict[str, Any]:
    """What `missing` says about one blob."""
    answer = ada.post("/v1/blobs/missing", json={"digests": [digest_of(data)], "sizes": [len(data)]})
    assert answer.status_code == 200, answer.text
    (place,) = answer.json()["missing"]
    return dict(place)


def put(url: str, data: bytes, headers: dict[str, str] | None = None) -> requests.Response:
    return requests.put(url, data=data, headers=headers or {}, timeout=60)


def complete(ada: Client, data: bytes, upload: str, **more: Any) -> requests.Response:
    return ada.post(f"/v1/blobs/{digest_of(data)}/complete", json={"upload": upload, **more})


def is_missing(ada: Client, data: bytes) -> bool:
    return bool(ada.post("/v1/blobs/missing", json={"digests": [digest_of(data)]}).json()["missing"])


def test_a_blob_is_put_at_a_presigned_address_and_exists_once_it_is_complete(
    pool: CoordinatorProcess, ada: Client, object_store: ObjectStore, place: str
) -> None:
    data = os.urandom(100_000)
    wanted = ask(ada, data)
    assert wanted["url"].startswith(object_store.endpoint)
    assert pool.token("submitter", "ada") not in wanted["url"]
    assert complete(ada, data, wanted["upload"]).json()["error"]["code"] == "upload_conflict"
    assert put(wanted["url"], data, wanted["headers"]).status_code == 200
    assert is_missing(ada, data), "it has not been completed"
    done = complete(ada, data, wanted["upload"])
    assert (done.status_code, done.json()) == (201, {"sha256": digest_of(data), "size": len(data)})
    assert complete(ada, data, wanted["upload"]).status_code == 201, "the answer may have been lost"
    assert not is_missing(ada, data)
    assert f"{digest_of(data)}/{wanted['upload']}" in object_store.keys(place)
    head = ada.head(f"/v1/blobs/{digest_of(data)}")
    assert (head.status_code, head.headers["Content-Length"]) == (200, "100000")


def test_a_download_is_redirected_and_the_store_gets_no_token(pool: CoordinatorProcess, ada: Client) -> None:
    data = os.urandom(50_000)
    ada.put(f"/v1/blobs/{digest_of(data)}", data=data)
    answer = ada.get(f"/v1/blobs/{digest_of(data)}", allow_redirects=False)
    assert answer.status_code == 307
    address = answer.headers["Location"]
    assert "Authorization" not in address
    got = requests.get(address, headers={"Range": "bytes=5-9"}, timeout=60)
    assert (got.status_code, got.content) == (206, data[5:10])
    assert got.headers["Content-Disposition"].startswith("attachment")
    assert got.headers["Content-Type"] == "application/octet-stream"
    seen = ada.get(f"/v1/blobs/{digest_of(data)}", headers={"If-None-Match": f'"{digest_of(data)}"'})
    assert seen.status_code == 304


def test_the_store_takes_only_the_right_bytes_and_only_once(ada: Client) -> None:
    data = b"right" * 100
    place = ask(ada, data)
    assert put(place["url"], b"wrong" * 100, place["headers"]).status_code == 400
    assert put(place["url"], data).status_code == 403, "the checksum is part of the signature"
    assert put(place["url"], data, place["headers"]).status_code == 200
    assert put(place["url"], data, place["headers"]).status_code == 412, "used twice"
    assert ask(ada, data)["upload"] == place["upload"], "the same person continues the same upload"
    assert complete(ada, data, place["upload"]).status_code == 201


def test_two_persons_have_uploads_of_their_own(
    pool: CoordinatorProcess, ada: Client, object_store: ObjectStore
) -> None:
    data = os.urandom(1000)
    bob = pool.client("submitter", "bob")
    first, second = ask(ada, data), ask(bob, data)
    assert first["upload"] != second["upload"]
    for place in (first, second):
        assert put(place["url"], data, place["headers"]).status_code == 200
    assert complete(bob, data, first["upload"]).status_code == 409, "it is ada's"
    assert complete(bob, data, second["upload"]).status_code == 201
    assert complete(ada, data, first["upload"]).status_code == 201
    assert (
        ada.get(f"/v1/blobs/{digest_of(data)}", allow_redirects=False)
        .headers["Location"]
        .startswith(object_store.endpoint)
    )


def test_a_large_blob_goes_in_parts_and_only_the_missing_ones_are_asked_for(ada: Client) -> None:
    data = os.urandom(2 * PART + 1000)
    place = ask(ada, data)
    assert [(part["number"], part["offset"], part["size"]) for part in place["parts"]] == [
        (1, 0, PART), (2, PART, PART), (3, 2 * PART, 1000)
    ]  # fmt: skip
    for part in (place["parts"][0], place["parts"][2]):
        assert put(part["url"], data[part["offset"] : part["offset"] + part["size"]]).status_code == 200
    refused = complete(ada, data, place["upload"])
    assert refused.status_code == 409
    assert "part 2" in refused.json()["error"]["message"]
    again = ask(ada, data)
    assert (again["upload"], again["stored"]) == (place["upload"], PART + 1000)
    (lacking,) = again["parts"]
    etag = put(lacking["url"], data[PART : 2 * PART]).headers["ETag"]
    wrong = complete(ada, data, place["upload"], parts=[{"number": 2, "etag": "another"}])
    assert wrong.status_code == 409
    assert complete(ada, data, place["upload"], parts=[{"number": 2, "etag": etag}]).status_code == 201
    got = ada.get(f"/v1/blobs/{digest_of(data)}")
    assert digest_of(got.content) == digest_of(data)


def test_fault_80_parts_that_do_not_make_the_digest_are_refused_and_nothing_is_kept(ada: Client) -> None:
    """Seen to fail when an upload to the object store counts although nobody has looked."""
    data = os.urandom(PART + 10)
    place = ask(ada, data)
    for part in place["parts"]:
        put(part["url"], b"x" * part["size"])
    refused = complete(ada, data, place["upload"])
    assert refused.status_code == 400
    assert is_missing(ada, data)
    assert complete(ada, data, place["upload"]).status_code == 409
    assert ask(ada, data)["upload"] != place["upload"]


def test_a_client_that_knows_no_object_store_uploads_to_the_coordinator(
    pool: CoordinatorProcess, ada: Client, object_store: ObjectStore, place: str
) -> None:
    data = os.urandom(PART + 5000)
    digest = digest_of(data)
    (wanted,) = ada.post("/v1/blobs/missing", json={"digests": [digest]}).json()["missing"]
    assert wanted == {"sha256": digest, "url": f"/v1/blobs/{digest}", "direct": True}
    half = {"Upload-Offset": "0", "Upload-Length": str(len(data))}
    assert ada.patch(wanted["url"], data=data[:PART], headers=half).status_code == 204
    rest = {"Upload-Offset": str(PART), "Upload-Length": str(len(data))}
    assert ada.patch(wanted["url"], data=data[PART:], headers=rest).status_code == 201
    assert any(key.startswith(f"{digest}/") for key in object_store.keys(place))
    left = [path for path in (pool.data_dir / "blobs").rglob("*") if path.is_file() and path.parent.name != "locks"]
    assert left == [], "nothing stays in the local folder"


def test_sizes_belong_to_digests(ada: Client) -> None:
    answer = ada.post("/v1/blobs/missing", json={"digests": [digest_of(b"a")], "sizes": [1, 2]})
    assert answer.status_code == 400
    assert "sizes" in answer.json()["error"]["message"]


def test_artifacts_name_their_place_and_the_run_names_the_store(
    pool: CoordinatorProcess, ada: Client, place: str
) -> None:
    worker = ScriptedWorker(pool, "w1")
    run = ada.post("/v1/runs", json={"run": "true", "artifacts": ["out/**"]}).json()
    assert run["artifact_store"] == "s3"
    (assignment,) = worker.claim()
    data = os.urandom(2000)
    worker.http.put(f"/v1/blobs/{digest_of(data)}", data=data)
    rows = [{"path": "out/plot.png", "sha256": digest_of(data), "size": len(data)}]
    assert worker.finish(assignment["attempt"], artifacts=rows) == "accepted"
    (item,) = ada.get(f"/v1/jobs/{run['id']}.1/artifacts").json()["items"]
    assert item["uri"].startswith(f"{place}/{digest_of(data)}/")
    got = ada.get(f"/v1/jobs/{run['id']}.1/artifacts/out/plot.png")
    assert got.content == data
    assert "plot.png" in got.headers["Content-Disposition"]


# The client of worker and command


def test_the_client_uploads_and_downloads_directly(pool: CoordinatorProcess, tmp_path: Path) -> None:
    for size in (0, 10, 2 * PART + 77):
        data = os.urandom(size)
        path = tmp_path / f"sent-{size}"
        path.write_bytes(data)
        place = MissingBlob(sha256=digest_of(data), url="", direct=True)
        heard: list[int] = []
        progress = client_blobs.Progress(heard.append)
        client_blobs.upload(transport(pool), path, digest_of(data), size, place, progress)
        assert sum(heard) == size
        client_blobs.fetch(transport(pool), digest_of(data), tmp_path / f"got-{size}")
        assert (tmp_path / f"got-{size}").read_bytes() == data


@contextlib.contextmanager
def behind_proxy(
    object_store: ObjectStore, place: str, folder: Path, **settings: Any
) -> Iterator[tuple[CoordinatorProcess, TargetedProxy]]:
    """A pool whose clients reach the object store through a proxy. The coordinator reaches it directly."""
    folder.mkdir(exist_ok=True)
    with TargetedProxy(object_store.endpoint) as proxy:
        own = {
            "artifact_store": f"{place}-proxied", "s3_endpoint": object_store.endpoint, "s3_part_size": PART,
            "s3_public_endpoint": proxy.url, **settings,
        }  # fmt: skip
        with CoordinatorProcess(folder, env=object_store.env, **own) as pool:
            yield pool, proxy


@pytest.fixture(scope="module")
def shared_proxied(
    object_store: ObjectStore, place: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[CoordinatorProcess, TargetedProxy]]:
    with behind_proxy(object_store, place, tmp_path_factory.mktemp("proxied")) as both:
        yield both


@pytest.fixture
def proxied(
    shared_proxied: tuple[CoordinatorProcess, TargetedProxy],
) -> Iterator[tuple[CoordinatorProcess, TargetedProxy]]:
    """A pool and the proxy in front of its object store, which has seen nothing yet."""
    _, proxy = shared_proxied
    proxy.log.clear()
    proxy.heads.clear()
    yield shared_proxied
    proxy.aim = lambda line, body: ""


def sent_in_the_end(pool: CoordinatorProcess, path: Path, data: bytes) -> None:
    """Upload a file as a worker does, with as many tries as it takes."""
    wanted = MissingBlob(sha256=digest_of(data), url="", direct=True)

    def sent() -> bool:
        with contextlib.suppress(NoAnswer, Refused):
            client_blobs.upload(transport(pool), path, digest_of(data), len(data), wanted)
            return True
        return False

    wait_until(sent, what="the upload to succeed")


def test_fault_80_parts_that_are_lost_cut_or_refused_are_sent_again_and_no_others(
    proxied: tuple[CoordinatorProcess, TargetedProxy], tmp_path: Path
) -> None:
    """Seen to fail when every try begins a new upload."""
    data = os.urandom(3 * PART + 5)
    path = tmp_path / "sent"
    path.write_bytes(data)
    pool, proxy = proxied
    faults = iter(["drop_before", "drop_after", "", "flip", "refuse 503", "cut"])
    proxy.aim = lambda line, body: next(faults, "") if line.startswith("PUT") else ""
    sent_in_the_end(pool, path, data)
    puts = [line for line, _ in proxy.log if line.startswith("PUT")]
    assert len(puts) <= 4 + 5, "four parts, and five faults"
    ada = pool.client("submitter", "ada")
    assert not is_missing(ada, data)
    assert ada.get(f"/v1/blobs/{digest_of(data)}").content == data
    assert proxy.heads
    assert not any(b"authorization" in head.lower() for head in proxy.heads), "the store gets no token"


def test_fault_80_an_address_that_is_refused_is_asked_for_again(
    proxied: tuple[CoordinatorProcess, TargetedProxy], tmp_path: Path
) -> None:
    """Seen to fail when an address that has expired is not asked for again."""
    pool, proxy = proxied
    data = os.urandom(1000)
    path = tmp_path / "sent"
    path.write_bytes(data)
    refusals = iter(["refuse 403"])
    proxy.aim = lambda line, body: next(refusals, "")
    wanted = MissingBlob(sha256=digest_of(data), url="", direct=True)
    client_blobs.upload(transport(pool), path, digest_of(data), len(data), wanted)
    assert [fault for _, fault in proxy.log] == ["refuse 403", ""]


def test_an_address_expires_and_the_next_one_works(object_store: ObjectStore, place: str, tmp_path: Path) -> None:
    data = os.urandom(1000)
    own = {"artifact_store": f"{place}-expiring", "s3_endpoint": object_store.endpoint, "s3_signature_seconds": "2"}
    with CoordinatorProcess(tmp_path, "", env=object_store.env, **own) as pool:
        ada = pool.client("submitter", "ada")
        ada.put(f"/v1/blobs/{digest_of(data)}", data=data).raise_for_status()
        address = ada.get(f"/v1/blobs/{digest_of(data)}", allow_redirects=False).headers["Location"]
        wait_until(lambda: requests.get(address, timeout=60).status_code == 403, what="the address to expire")

        def fetched() -> bool:
            with contextlib.suppress(NoAnswer):  # on a busy machine this one may expire too
                client_blobs.fetch(transport(pool), digest_of(data), tmp_path / "got")
                return True
            return False

        wait_until(fetched, what="the blob to be fetched")
        assert (tmp_path / "got").read_bytes() == data


def test_fault_80_nothing_is_acknowledged_while_the_store_is_dead_and_all_goes_on_afterwards(
    pool: CoordinatorProcess, ada: Client, object_store: ObjectStore, tmp_path: Path
) -> None:
    """Seen to fail when an upload to the object store counts although nobody has looked."""
    data, other = os.urandom(3000), os.urandom(3000)
    (tmp_path / "sent").write_bytes(other)
    wanted = ask(ada, data)
    assert put(wanted["url"], data, wanted["headers"]).status_code == 200
    object_store.kill()
    try:
        refused = complete(ada, data, wanted["upload"])
        assert refused.status_code == 503
        assert refused.json()["error"]["code"] == "store_unavailable"
        assert is_missing(ada, data)
        assert ada.put(f"/v1/blobs/{digest_of(other)}", data=other).status_code == 503
        direct = MissingBlob(sha256=digest_of(other), url="", direct=True)
        with pytest.raises(NoAnswer) as caught:
            client_blobs.upload(transport(pool), tmp_path / "sent", digest_of(other), len(other), direct)
        assert caught.value.of_store
        health = pool.client(None).get("/health")
        assert health.status_code == 200
        assert health.json()["artifact_store_trouble"]
        assert ada.post("/v1/runs", json={"run": "true"}).status_code == 201, "jobs go on"
    finally:
        object_store.start()
    wait_until(lambda: complete(ada, data, wanted["upload"]).status_code == 201, what="the store to work again")
    wait_until(lambda: ada.get(f"/v1/blobs/{digest_of(data)}").content == data, what="the store to have the bytes")
    sent_in_the_end(pool, tmp_path / "sent", other)
    assert pool.client(None).get("/health").json()["artifact_store_trouble"] == ""


def test_fault_80_a_slow_store_holds_up_nothing_else(
    proxied: tuple[CoordinatorProcess, TargetedProxy], tmp_path: Path
) -> None:
    """Seen to fail when the object store gets no time to answer."""
    data = os.urandom(500)
    pool, proxy = proxied
    proxy.aim = lambda line, body: "trickle"
    (tmp_path / "sent").write_bytes(data)
    sent_in_the_end(pool, tmp_path / "sent", data)
    client_blobs.fetch(transport(pool), digest_of(data), tmp_path / "got")
    assert (tmp_path / "got").read_bytes() == data


def test_fault_81_bytes_that_arrive_wrong_are_refused_and_fetched_again(
    proxied: tuple[CoordinatorProcess, TargetedProxy], tmp_path: Path
) -> None:
    """Seen to fail when the digest of a fetched blob is not checked."""
    data = os.urandom(2000)
    (tmp_path / "sent").write_bytes(data)
    pool, proxy = proxied
    sent_in_the_end(pool, tmp_path / "sent", data)
    faults = iter(["flip_answer"])
    proxy.aim = lambda line, body: next(faults, "") if line.startswith("GET") else ""
    with pytest.raises(NoAnswer, match="arrived damaged"):
        client_blobs.fetch(transport(pool), digest_of(data), tmp_path / "got")
    assert not (tmp_path / "got").exists()
    client_blobs.fetch(transport(pool), digest_of(data), tmp_path / "got")
    assert (tmp_path / "got").read_bytes() == data


def test_fault_81_a_blob_that_is_wrong_in_the_store_is_dropped_and_asked_for_again(
    pool: CoordinatorProcess, ada: Client, object_store: ObjectStore, place: str, tmp_path: Path
) -> None:
    """Seen to fail when a blob that was reported is not read."""
    data = os.urandom(2000)
    (tmp_path / "sent").write_bytes(data)
    sent_in_the_end(pool, tmp_path / "sent", data)
    (key,) = [key for key in object_store.keys(place) if key.startswith(digest_of(data))]
    object_store.overwrite(place, key, b"x" * len(data))
    with pytest.raises(NoAnswer, match="has been dropped"):
        client_blobs.fetch(transport(pool), digest_of(data), tmp_path / "got")
    assert is_missing(ada, data)
    with pytest.raises(Refused):
        client_blobs.fetch(transport(pool), digest_of(data), tmp_path / "got")
    sent_in_the_end(pool, tmp_path / "sent", data)
    client_blobs.fetch(transport(pool), digest_of(data), tmp_path / "got")
    assert (tmp_path / "got").read_bytes() == data
    assert ada.post(f"/v1/blobs/{digest_of(data)}/damaged").json() == {"sha256": digest_of(data), "intact": True}


# Moving, keeping and removing, in the process of the test


@pytest.fixture
def store_env(object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in object_store.env.items():
        monkeypatch.setenv(name, value)


def in_process(object_store: ObjectStore, folder: Path, address: str) -> InProcessCoordinator:
    own: dict[str, Any] = {}
    if address:
        own = {"artifact_store": address, "s3_endpoint": object_store.endpoint, "s3_part_size": PART}
    pool = InProcessCoordinator(folder, **own)
    artifact_store.begin(pool.ctx)
    return pool


def stored(pool: InProcessCoordinator, data: bytes) -> bytes:
    return b"".join(blobs.open_range(pool.ctx, digest_of(data), 0, len(data)))


def files(folder: Path) -> list[str]:
    return [path.name for path in (folder / "blobs").rglob("*") if path.is_file() and path.parent.name != "locks"]


@pytest.mark.usefixtures("store_env")
def test_blobs_move_into_the_store_and_back_while_they_are_read(
    object_store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = object_store.new_place()
    contents = [os.urandom(size) for size in (0, 1, 5000, PART + 3)]
    pool = in_process(object_store, tmp_path, "")
    run = pool.submit().id
    for data in contents:
        blobs.put(pool.ctx, digest_of(data), [data])
    pool.stop()

    pool = in_process(object_store, tmp_path, address)
    # An upload while both places are in use.
    fresh = os.urandom(4000)
    blobs.put(pool.ctx, digest_of(fresh), [fresh])
    assert [stored(pool, data) for data in (*contents, fresh)] == [*contents, fresh]
    assert b"".join(blobs.open_range(pool.ctx, digest_of(fresh), 0, 5000)) == fresh, "at most to its end"

    real, calls = Bucket.put, []

    def stops(self: Bucket, *arguments: Any) -> None:
        calls.append(arguments)
        if len(calls) == 3:
            raise StoreUnavailable("unplugged")
        real(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Bucket, "put", stops)
        patch.setattr(move, "PARALLEL", 1)
        with pytest.raises(StoreUnavailable):
            move.move(pool.ctx, StoreKind.S3)
    assert [stored(pool, data) for data in contents] == contents
    report = move.move(pool.ctx, StoreKind.S3)
    assert (report.moved, report.damaged) == (1, []), "the others had been moved before"
    assert files(tmp_path) == []
    assert [stored(pool, data) for data in contents] == contents
    assert pool.run(run).artifact_store == "s3"
    assert pool.audit().clean
    pool.stop()

    with pytest.raises(Refusal, match="are in the object store"):
        in_process(object_store, tmp_path, "")
    pool = in_process(object_store, tmp_path, address)
    report = move.move(pool.ctx, StoreKind.LOCAL)
    assert (report.moved, report.damaged) == (len(contents) + 1, [])
    assert object_store.keys(address) == []
    pool.stop()
    pool = in_process(object_store, tmp_path, "")
    assert [stored(pool, data) for data in (*contents, fresh)] == [*contents, fresh]
    assert pool.audit().clean
    pool.stop()


@pytest.mark.usefixtures("store_env")
def test_a_move_reports_damaged_blobs_and_leaves_them(object_store: ObjectStore, tmp_path: Path) -> None:
    address = object_store.new_place()
    pool = in_process(object_store, tmp_path, "")
    good, bad = b"good", b"bad"
    for data in (good, bad):
        blobs.put(pool.ctx, digest_of(data), [data])
    (tmp_path / "blobs" / digest_of(bad)[:2] / digest_of(bad)).write_bytes(b"bat")
    with pytest.raises(Refusal, match="no object store"):
        move.move(pool.ctx, StoreKind.S3)
    pool.stop()
    unknown = InProcessCoordinator(tmp_path, artifact_store=address, s3_endpoint=object_store.endpoint)
    with pytest.raises(Refusal, match="does not use this object store yet"):
        move.move(unknown.ctx, StoreKind.S3)
    unknown.stop()
    pool = in_process(object_store, tmp_path, address)
    report = move.move(pool.ctx, StoreKind.S3)
    assert (report.moved, report.damaged) == (1, [digest_of(bad)])
    pool.stop()


@pytest.mark.usefixtures("store_env")
def test_unfinished_uploads_and_removed_blobs_go_but_a_later_upload_stays(
    object_store: ObjectStore, tmp_path: Path
) -> None:
    """Seen to fail when an object is removed by the digest of its blob."""
    address = object_store.new_place()
    pool = in_process(object_store, tmp_path, address)
    client, data, large = pool.ctx.blobs.bucket, b"kept" * 100, os.urandom(PART + 1)
    assert client is not None
    ada = person("ada")
    blobs.put(pool.ctx, digest_of(data), [data])
    (old,) = object_store.keys(address)
    places = blobs.find_missing(pool.ctx, [digest_of(large), digest_of(b"x")], ada, [len(large), 1]).missing
    put(places[0].parts[0].url, large[:PART])
    put(places[1].url, b"x", places[1].headers)
    pool.clock.pass_by(DAY - HOUR)
    Cleaner(pool.ctx).run_once()
    assert len(object_store.keys(address)) == 2
    pool.clock.pass_by(2 * HOUR)

    # The blob's row goes, and somebody uploads the same bytes before the object is removed.
    Cleaner(pool.ctx).collect_blobs()
    blobs.put(pool.ctx, digest_of(data), [data])
    Cleaner(pool.ctx).run_once()
    (new,) = object_store.keys(address)
    assert new.startswith(digest_of(data))
    assert new != old
    assert stored(pool, data) == data
    assert client.parts(digest_of(large), places[0].upload, "any") is None
    assert object_store.unfinished(address) == []
    with pytest.raises(Refusal):
        direct_uploads.complete(pool.ctx, ada, digest_of(b"x"), CompleteUpload(upload=places[1].upload))
    pool.stop()


@pytest.mark.usefixtures("store_env")
def test_a_backup_holds_the_blobs_of_the_store_and_restores_into_either_place(
    object_store: ObjectStore, tmp_path: Path
) -> None:
    pool = in_process(object_store, tmp_path / "one", object_store.new_place())
    contents = [os.urandom(100), os.urandom(PART + 1)]
    for data in contents:
        blobs.put(pool.ctx, digest_of(data), [data])
    backup.backup(pool.ctx, tmp_path / "all.backup")
    pool.stop()
    for name, address in (("local", ""), ("other", object_store.new_place())):
        own: dict[str, Any] = {}
        if address:
            own = {"artifact_store": address, "s3_endpoint": object_store.endpoint}
        fresh = InProcessCoordinator(tmp_path / name, **own)
        restore.restore(fresh.ctx, restore.check(tmp_path / "all.backup"))
        assert [stored(fresh, data) for data in contents] == contents
        assert fresh.audit().clean
        fresh.stop()


@pytest.mark.usefixtures("store_env")
def test_a_log_is_sealed_into_the_store_and_read_from_there(object_store: ObjectStore, tmp_path: Path) -> None:
    address = object_store.new_place()
    pool = in_process(object_store, tmp_path, address)
    worker = pool.worker()
    pool.submit()
    (attempt,) = worker.claim()
    log = b"line\n" * 1000
    worker.finish(attempt, log_size=len(log), log=LogTail(offset=0, data=log))
    pool.clock.pass_by(HOUR)
    Cleaner(pool.ctx).run_once()
    assert len(object_store.keys(address)) == 1
    assert pool.log("1.1") == log
    pool.stop()
