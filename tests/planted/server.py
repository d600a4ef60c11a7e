"""Faults in the coordinator as a server: its disk, its memory, its threads, its secrets."""

from __future__ import annotations

import subprocess
from typing import Any

from planted.fault import SERVER, Planted
from planted.patch import Patch, becomes, first_argument, gives

COORDINATOR = "deborgen_coordinator"


def only_measure_the_disk(original: Any) -> Any:
    return lambda self: self.measure() is None


def take_a_thread_for_a_head(original: Any) -> Any:
    return lambda self: b"\r\n\r\n" in self.arrived or original(self)


def start_a_program_with_the_token(original: Any) -> Any:
    def create(*args: Any) -> Any:
        created = original(*args)
        subprocess.Popen(["sh", "-c", "sleep 20", created.token])
        return created

    return create


PLANTED: list[Planted] = [
    Planted(
        "a full disk is filled further",
        (Patch(f"{COORDINATOR}.disk_reserve:DiskReserve.has_room", only_measure_the_disk),),
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
        (Patch(f"{COORDINATOR}.connections:ClientConnection.is_complete", take_a_thread_for_a_head),),
        (f"{SERVER}/test_slow_clients.py::test_fault_41_idle_sockets_and_trickling_bodies_do_not_delay_heartbeats",),
        "a heartbeat took|Timeout|timed out",
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
