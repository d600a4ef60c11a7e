from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deborgen_coordinator.placement import Amounts, Head, MachineOffer, Needs, Wish, choose, lacks, shortage
from deborgen_shared.states import RunAs

GIB = 2**30
CONTAINER = RunAs.CONTAINER
NO_NETWORK = (
    "does not give jobs a network, but the job asks for internet: its owner can allow it, "
    "with deborgen-worker run --network internet or deborgen up --network internet"
)
NO_CONTAINERS = "cannot run containers, the job has an image"


def needs(cpus: float = 1, memory: int = GIB, gpus: int = 0, disk: int | None = None, **others: Any) -> Needs:
    facts: dict[str, Any] = {"requires": {}, "network": "none", "runner": RunAs.PROCESS, **others}
    return Needs(Amounts(cpus, memory, gpus, disk), **facts)


def machine(cpus: float = 8, memory: int = 16 * GIB, gpus: int = 0, **labels: Any) -> MachineOffer:
    return MachineOffer({"runner.process": True, "os": "linux", **labels}, Amounts(cpus, memory, gpus))


@pytest.mark.parametrize(
    ("wanted", "have", "sentence"),
    [
        (needs(), machine(), ""),
        (needs(requires={"os": "linux"}), machine(), ""),
        (needs(requires={"gpu": "rtx*"}), machine(gpu="RTX 4090"), ""),
        (needs(requires={"cores": "8"}), machine(cores=8), ""),
        (needs(requires={"fast": "true"}), machine(fast=True), ""),
        (needs(requires={"gpu": "rtx*"}), machine(), "has no label 'gpu', the job requires gpu: rtx*"),
        (needs(requires={"os": "macos"}), machine(), "has os: linux, the job requires os: macos"),
        (needs(runner=CONTAINER), machine(), NO_CONTAINERS),
        (needs(runner=CONTAINER), machine(**{"runner.container": True, "runner.podman": False}), ""),
        (needs(runner=CONTAINER), machine(**{"runner.container": False, "runner.podman": True}), NO_CONTAINERS),
        (needs(), machine(**{"runner.process": False}), "does not run plain processes, the job has no image"),
        (
            needs(network="internet"),
            machine(),
            NO_NETWORK,
        ),
        (needs(network="internet"), machine(**{"network.internet": True}), ""),
        (needs(cpus=16), machine(), "has 8 cpus in total, the job asks for 16"),
        (needs(memory=32 * GIB), machine(), "has 16GiB of memory in total, the job asks for 32GiB"),
        (needs(gpus=1), machine(), "has 0 gpus in total, the job asks for 1"),
    ],
)
def test_a_machine_says_what_it_lacks(wanted: Needs, have: MachineOffer, sentence: str) -> None:
    assert lacks(have, wanted) == sentence


@pytest.mark.parametrize("label", ["runner.podman", "runner.subprocess"])
def test_a_machine_of_release_0_1_offers_what_its_labels_say(label: str) -> None:
    offers = MachineOffer({"runner.podman": False, "runner.subprocess": False, label: True}, Amounts(8, 16 * GIB))
    wanted = {"runner.podman": RunAs.CONTAINER, "runner.subprocess": RunAs.PROCESS}
    for old_label, execution in wanted.items():
        assert bool(lacks(offers, needs(runner=execution))) == (old_label != label)


def test_a_missing_resource_is_named_with_its_amount() -> None:
    assert shortage(Amounts(1, 8 * GIB), needs(memory=16 * GIB)) == "has 8GiB of memory free, the job asks for 16GiB"
    assert shortage(Amounts(1, 8 * GIB, 0, 5), needs(disk=6)).startswith("has 5B of disk free")
    assert shortage(Amounts(1, 8 * GIB), needs(disk=10**15)) == ""


class Queue:
    """Lanes of jobs in memory, in place of the storage that `choose` reads."""

    def __init__(self, *jobs: tuple[int, int, int, int]) -> None:
        self.lanes: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for class_id, submitter, rank, job in sorted(jobs, key=lambda row: (row[2], row[3])):
            self.lanes.setdefault((class_id, submitter), []).append((rank, job))
        self.fetches = 0

    def heads(self) -> list[Head]:
        return [Head(*jobs[0], class_id, who, 0) for (class_id, who), jobs in self.lanes.items()]

    def fetch(self, head: Head, most: int) -> list[tuple[int, int]]:
        self.fetches += 1
        return self.lanes[head.class_id, head.submitter][:most]


def chosen(queue: Queue, most: int = 10, free: Amounts | None = None, **others: Any) -> list[int]:
    room = free or Amounts(100, 100 * GIB)
    found = choose(queue.heads(), Wish(most, room), needs_of=lambda c: needs(cpus=c), fetch=queue.fetch, **others)
    return [job for job, _ in found]


def test_the_order_is_by_priority_and_then_by_submission() -> None:
    queue = Queue((1, 1, 0, 10), (2, 1, 0, 11), (1, 2, -5, 12), (2, 2, 0, 9), (1, 1, 3, 1))
    assert chosen(queue) == [12, 9, 10, 11, 1]


def test_jobs_that_do_not_fit_are_skipped_and_smaller_jobs_go_first() -> None:
    queue = Queue((8, 1, 0, 1), (1, 1, 0, 2), (1, 1, 0, 3), (1, 1, 0, 4))
    assert chosen(queue, free=Amounts(2, 100 * GIB)) == [2, 3]


def test_fair_share_serves_the_submitter_with_the_least_usage_and_then_takes_turns() -> None:
    queue = Queue(*[(1, 1, 0, n) for n in range(1, 6)], *[(1, 2, 0, n) for n in range(11, 16)])
    assert chosen(queue, most=4, used={1: 100.0, 2: 0.0}) == [11, 12, 13, 14]
    assert chosen(queue, most=4, used={1: 0.0, 2: 0.0}) == [1, 11, 2, 12]


def test_a_submitter_at_the_limit_waits_and_others_do_not() -> None:
    queue = Queue(*[(1, 1, 0, n) for n in range(1, 6)], *[(1, 2, 0, n) for n in range(11, 13)])
    assert chosen(queue, allowance={1: 2, 2: 5}) == [1, 2, 11, 12]
    assert chosen(queue, allowance={1: 0}) == [11, 12]


@given(
    st.lists(
        st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(-2, 2), st.integers(1, 10**6)),
        unique_by=lambda row: row[3],
    ),
    st.integers(1, 20),
    st.integers(0, 12),
)
def test_however_the_queue_looks_the_choice_fits_and_keeps_the_order(
    jobs: list[tuple[int, int, int, int]], most: int, cpus: int
) -> None:
    queue = Queue(*jobs)
    picked = chosen(queue, most, Amounts(cpus, 10**15))
    by_job = {row[3]: row for row in jobs}
    assert len(picked) == len(set(picked)) <= most
    assert sum(by_job[job][0] for job in picked) <= cpus
    assert queue.fetches <= len(queue.lanes)
    order = [(by_job[job][2], job) for job in picked]
    assert order == sorted(order)
    if len(picked) < most:  # jobs that were not chosen do not fit any more
        left = cpus - sum(by_job[job][0] for job in picked)
        assert all(row[0] > left for row in jobs if row[3] not in picked)
