"""Bugs in the coordinator as a server: its disk, its memory, its threads, its secrets."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from deborgen_shared import contract
from deborgen_shared.client import blobs
from planted.bug import SERVER, Planted
from planted.patch import Patch, becomes, first_argument, gives, nothing

COORDINATOR = "deborgen_coordinator"


def only_measure_the_disk(original: Any) -> Any:
    return lambda self: self.measure() is None


def start_when_the_head_is_there(original: Any) -> Any:
    return lambda self: b"\r\n\r\n" in self.arrived or original(self)


def wait_for_the_body(original: Any) -> Any:
    def read(environ: dict[str, Any], length: int) -> bytes:
        environ["deborgen.request"].unreader.wait_for_more()
        body: bytes = original(environ | {"deborgen.request": SimpleNamespace(ended=True)}, length)
        return body

    return read


def wait_for_the_reader(original: Any) -> Any:
    return lambda self, data: self.wait_for_reader().sendall(data)


def start_a_program_with_the_token(original: Any) -> Any:
    def create(*args: Any) -> Any:
        created = original(*args)
        subprocess.Popen(["sh", "-c", "sleep 20", created.token])
        return created

    return create


def fetch_without_a_check(original: Any) -> Any:
    def fetch(transport: Any, sha256: str, target: Path) -> None:
        with target.open("ab+", buffering=0) as file:
            blobs.download(transport, contract.GET_BLOB, file, None, sha256=sha256)

    return fetch


#: One person may have all threads.
GREEDY = (
    Patch(f"{COORDINATOR}.shares:PERSONS_PART", becomes(1)),
    Patch(f"{COORDINATOR}.request_threads:THREADS_EACH", becomes(1000)),
)

OBJECTS = f"{SERVER}/test_object_store.py::test_fault"

PLANTED: list[Planted] = [
    Planted(
        "a client asks only the first coordinator",
        (Patch("deborgen_shared.client.addresses:Addresses.in_turn", lambda original: lambda self: self.all[:1]),),
        ("chaos/test_cluster.py::test_fault_82_one_of_two_coordinators_is_killed_every_few_seconds",),
        seconds=240,
    ),
    Planted(
        "an upload to the object store counts although nobody has looked",
        (
            Patch(f"{COORDINATOR}.blobs.bucket:Bucket.holds", gives(True)),
            Patch(f"{COORDINATOR}.blobs.bucket:Bucket.size", gives(1)),
        ),
        (
            f"{OBJECTS}_80_parts_that_do_not_make_the_digest_are_refused_and_nothing_is_kept",
            f"{OBJECTS}_80_nothing_is_acknowledged_while_the_store_is_dead_and_all_goes_on_afterwards",
        ),
    ),
    Planted(
        "every try begins a new upload",
        (Patch(f"{COORDINATOR}.operations.direct_uploads:_resumed", gives(None)),),
        (f"{OBJECTS}_80_parts_that_are_lost_cut_or_refused_are_sent_again_and_no_others",),
    ),
    Planted(
        "an address that has expired is not asked for again",
        (Patch("deborgen_shared.client.object_store:TRIES", becomes(0)),),
        (f"{OBJECTS}_80_an_address_that_is_refused_is_asked_for_again",),
        says="NoAnswer",
    ),
    Planted(
        "a worker tries for ever to reach the object store",
        (Patch("deborgen_worker.store_patience:PATIENCE_SECONDS", becomes(1e9)),),
        (
            "unit/worker/test_store_patience.py::test_fault_80_an_attempt_whose_artifacts_cannot_be_uploaded_ends_as_an_error",
        ),
    ),
    Planted(
        "the object store gets no time to answer",
        (Patch("deborgen_shared.client.object_store:ANSWER_SECONDS", becomes(0.001)),),
        (f"{OBJECTS}_80_a_slow_store_holds_up_nothing_else",),
    ),
    Planted(
        "the digest of a fetched blob is not checked",
        (Patch("deborgen_shared.client.blobs:fetch", fetch_without_a_check),),
        (f"{OBJECTS}_81_bytes_that_arrive_wrong_are_refused_and_fetched_again",),
    ),
    Planted(
        "a blob that was reported is not read",
        (Patch(f"{COORDINATOR}.operations.blobs:is_intact", gives(True)),),
        (f"{OBJECTS}_81_a_blob_that_is_wrong_in_the_store_is_dropped_and_asked_for_again",),
    ),
    Planted(
        "a full disk is written to",
        (Patch(f"{COORDINATOR}.disk_reserve:DiskReserve.has_space", only_measure_the_disk),),
        (f"{SERVER}/test_limits.py::test_fault_30_a_full_disk_is_503_while_reads_go_on_and_it_recovers_by_itself",),
    ),
    Planted(
        "a body is read in one piece",
        (Patch(f"{COORDINATOR}.http.bodies:PIECE", becomes(1 << 60)),),
        (f"{SERVER}/test_limits.py::test_fault_63_refused_bodies_and_fault_38_large_blobs_leave_memory_flat",),
        "40_?000_?000",
    ),
    Planted(
        "a request gets a thread before its body has arrived",
        (
            *GREEDY,
            Patch(f"{COORDINATOR}.connections:ClientConnection.is_complete", start_when_the_head_is_there),
            Patch(f"{COORDINATOR}.connections:_RENEWAL", becomes(re.compile(b"(?!)"))),
            Patch(f"{COORDINATOR}.http.bodies:read", wait_for_the_body),
        ),
        (f"{SERVER}/test_slow_clients.py::test_fault_41_idle_sockets_and_trickling_bodies_do_not_delay_heartbeats",),
        "a heartbeat took|Timeout|timed out",
    ),
    Planted(
        "a thread reads a body while it arrives",
        (*GREEDY, Patch(f"{COORDINATOR}.http.bodies:read", wait_for_the_body)),
        (f"{SERVER}/test_shares.py::test_fault_92_slow_bodies_of_one_submitter_hold_up_nobody_else",),
        "timed out",
    ),
    Planted(
        "a thread waits until a client has read its answer",
        (*GREEDY, Patch(f"{COORDINATOR}.connections:ClientConnection.sendall", wait_for_the_reader)),
        (f"{SERVER}/test_shares.py::test_fault_92_answers_that_one_viewer_does_not_read_hold_up_nobody_else",),
        "timed out",
    ),
    Planted(
        "one person may take everything",
        GREEDY,
        (
            f"{SERVER}/test_shares.py"
            "::test_fault_92_a_person_with_all_streams_that_one_can_have_leaves_streams_to_others",
        ),
    ),
    Planted(
        "any number of unfinished uploads is kept",
        (Patch(f"{COORDINATOR}.operations.uploads:Uploads._make_room", nothing),),
        (
            "contract/coordinator/test_uploads.py::test_fault_92_a_person_keeps_only_a_few_unfinished_uploads",
            "contract/coordinator/test_uploads.py"
            "::test_fault_92_the_unfinished_uploads_of_a_person_have_a_limit_but_the_largest_goes_on",
        ),
        "DID NOT RAISE",
    ),
    Planted(
        "a new token is an argument of a program that the coordinator starts",
        (Patch(f"{COORDINATOR}.operations.tokens:create", start_a_program_with_the_token),),
        (f"{SERVER}/test_logging.py::test_fault_69_no_secret_is_in_a_process_list_or_a_variable",),
    ),
    Planted(
        "tokens in messages are not masked",
        (Patch(f"{COORDINATOR}.logs:masked", first_argument),),
        (f"{SERVER}/test_logging.py::test_fault_69_no_secret_is_in_any_log_whatever_is_sent",),
        "not in",
    ),
    Planted(
        "any host name is accepted",
        (Patch(f"{COORDINATOR}.http.application:_is_allowed", gives(True)),),
        (f"{SERVER}/test_limits.py::test_fault_73_with_allowed_hosts_another_name_is_403",),
        "200",
    ),
]
