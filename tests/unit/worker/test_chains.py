"""Chains of short programs: which program waits behind which."""

from __future__ import annotations

from pathlib import Path

from deborgen_worker.runners.chains import CHAIN_MAX_PROGRAMS, JOIN_WITHIN_SECONDS, Chains
from deborgen_worker.runners.protocol import Launch


def launch(name: str, cpus: float = 1.0) -> Launch:
    return Launch(name, (), {}, Path(), Path(), cpus=cpus)


def busy(*running: Launch, average: float = 0.001) -> Chains:
    chains = Chains(average=average)
    for each in running:
        chains.open(each, now=0.0)
    return chains


def wait(chains: Chains, *launches: Launch, now: float = 0.0) -> list[str]:
    chains.backlog |= {each.attempt: each for each in launches}
    return [each.attempt for each, _ in chains.assign(now)]


def test_short_programs_are_spread_evenly_behind_the_running_ones() -> None:
    chains = busy(launch("a"), launch("b"))
    assert wait(chains, *[launch(f"w{n}") for n in range(6)]) == [f"w{n}" for n in range(6)]
    assert sorted(len(chains.chain_of[name].queue) for name in ("a", "b")) == [4, 4]


def test_the_room_passes_down_the_chain() -> None:
    chains = busy(launch("a"))
    wait(chains, launch("w1"), launch("w2"))
    assert chains.remove("a", 1.0, 0.001) == ("w1", "")
    assert chains.remove("w2", 1.0) is None, "it was given back, and nothing begins for that"
    assert chains.remove("w1", 2.0, 0.001) is None
    assert chains.chain_of == {}


def test_no_program_waits_behind_one_with_less_room() -> None:
    chains = busy(launch("a", cpus=1.0))
    assert wait(chains, launch("small", cpus=0.5)) == ["small"]
    assert wait(chains, launch("large", cpus=1.0)) == [], "there is less room behind the small one"


def test_no_program_waits_behind_one_that_has_run_for_a_while_or_is_being_ended() -> None:
    assert wait(busy(launch("a")), launch("w"), now=JOIN_WITHIN_SECONDS + 0.1) == []
    chains = busy(launch("a"))
    chains.close("a")
    assert wait(chains, launch("w")) == []
    chains.close("a", closed=False)
    assert [each.attempt for each, _ in chains.assign(0.0)] == ["w"]


def test_only_a_moment_of_work_waits_in_a_chain_and_the_rest_stays_in_the_backlog() -> None:
    chains = busy(launch("a"), average=1e-6)
    assert len(wait(chains, *[launch(f"w{n}") for n in range(100)])) == CHAIN_MAX_PROGRAMS
    assert len(chains.backlog) == 100 - CHAIN_MAX_PROGRAMS
    assert wait(busy(launch("a"), average=0.5), launch("w")) == []


def test_a_program_that_could_not_be_handed_over_does_not_affect_the_backlog() -> None:
    """Seen to fail when the next program of the backlog starts instead, and nobody hears of it."""
    chains = busy(launch("a"), average=0.5)
    wait(chains, launch("w1"), launch("w2"))
    chains.drop("a")
    assert (chains.chain_of, list(chains.backlog)) == ({}, ["w1", "w2"])


def test_the_backlog_goes_on_in_a_chain_that_is_empty() -> None:
    chains = busy(launch("a"), average=0.5)
    wait(chains, launch("large", cpus=2.0), launch("w"))
    name, chain = chains.remove("a", 1.0, 0.5) or ("", "")
    assert name == "w", "the large one does not fit into the room of the one that ended"
    assert chain == chains.chain_of["w"].name
    assert list(chains.backlog) == ["large"]
