"""The checks before a play and the report after it, by the real playbooks and plugins, without any host."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import yaml

from fleet.play import ANSIBLE, ROOT, Play, run_playbook
from support.documents import blocks

pytest.importorskip("ansible", reason="the checks were not tested: ansible is missing; `make fleet` installs it")


def plugin(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, ANSIBLE / "action_plugins" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def inventory(
    folder: Path, workers: dict[str, dict[str, Any]], droplet: dict[str, Any] | None = None, **groups: Any
) -> Path:
    """An inventory file, right unless the arguments say otherwise. Its addresses are of nobody."""
    here = {"deborgen_overlay_address": "10.8.0.1", **(droplet or {})}
    pcs = {name: {"deborgen_overlay_address": "10.8.0.2", **variables} for name, variables in workers.items()}
    children = {"deborgen_coordinator": {"hosts": {"droplet": here}}, "deborgen_workers": {"hosts": pcs}, **groups}
    file = folder / "inventory.yml"
    file.write_text(yaml.safe_dump({"all": {"vars": {"deborgen_overlay": "none"}, "children": children}}))
    return file


def play(playbook: str, file: Path, *arguments: str) -> Play:
    return run_playbook(
        playbook, *arguments, inventory=file, connections=file.parent, ANSIBLE_CONFIG=str(ANSIBLE / "ansible.cfg")
    )


def mistakes(file: Path, *arguments: str) -> list[str]:
    """What the check says, one line per mistake."""
    played = play("playbooks/check.yml", file, *arguments)
    lines = [line.strip()[2:] for line in played.text.splitlines() if line.strip().startswith("- ")]
    assert (played.code != 0) == bool(lines), played.text
    return list(dict.fromkeys(lines))


def test_a_right_inventory_has_no_mistake(tmp_path: Path) -> None:
    ada = {
        "deborgen_worker_cpus": 6, "deborgen_worker_memory": "16GiB", "deborgen_worker_hours": "22:00-07:00",
        "deborgen_worker_labels": {"room": "attic"}, "deborgen_worker_settings": {"cache_size": "50GiB"},
        "deborgen_podman_rootful": True, "deborgen_worker_gpus": 0, "deborgen_worker_runner": "subprocess",
    }  # fmt: skip
    settings = {"lease_seconds": "2m", "scheduler": "fair"}
    droplet = {"deborgen_coordinator_settings": settings, "deborgen_default_image": "docker.io/library/alpine:3"}
    assert mistakes(inventory(tmp_path, {"ada": ada, "bob": {}}, droplet)) == []
    assert mistakes(ANSIBLE / "inventory.example.yml") == []


def test_every_mistake_is_named_with_its_host_and_variable(tmp_path: Path) -> None:
    ada = {
        "deborgen_worker_memory": "2 gigs", "deborgen_worker_hours": "22-7", "deborgen_worker_cpu": 2,
        "deborgen_worker_labels": {"in room": "a"}, "deborgen_worker_network": "all",
        "deborgen_worker_runner": "docker",
        "deborgen_worker_settings": {"cash_size": "1GiB", "memory": "2GiB", "state_dir": "/x", "pids": "many"},
    }  # fmt: skip
    bob = {
        "deborgen_worker_name": "bob!", "deborgen_worker_drain_seconds": "soon", "deborgen_podman_rootful": "perhaps",
        "deborgen_overlay_address": "", "deborgen_worker_coordinator": "{{ nobody_knows }}",
    }  # fmt: skip
    droplet = {
        "deborgen_overlay_address": "8.8.8.8", "deborgen_coordinator_port": 123456,
        "deborgen_coordinator_backup_at": 750, "deborgen_coordinator_database": "mysql://me:sesame@here/x",
        "deborgen_coordinator_settings": {"heartbeat_seconds": 50},
        "deborgen_coordinator_image_archive": "/no/such/file", "deborgen_default_image": "Ubuntu:Latest",
    }  # fmt: skip
    lines = mistakes(inventory(tmp_path, {"ada": ada, "bob": bob}, droplet))
    wanted = [
        "ada: deborgen_worker_memory: '2 gigs' is not a valid size",
        "ada: deborgen_worker_hours: '22-7' is not a valid time of day: write it like 22:00-07:00",
        "ada: deborgen_worker_cpu: there is no such variable; did you mean deborgen_worker_cpus?",
        "ada: deborgen_worker_labels: 'in room=a' is not a valid list of labels",
        "ada: deborgen_worker_network: 'all' is not a valid choice: it must be none or internet",
        "ada: deborgen_worker_runner: 'docker' is not a valid choice: it must be auto, podman, process or both",
        "ada: deborgen_worker_settings.cash_size: the program has no such setting: did you mean 'cache_size'?",
        "ada: deborgen_worker_settings.memory: write it as deborgen_worker_memory",
        "ada: deborgen_worker_settings.state_dir: the playbooks themselves write this setting",
        "ada: deborgen_worker_settings.pids: 'many' is not a valid whole number",
        "bob: deborgen_worker_name: 'bob!' is not a valid name",
        "bob: deborgen_worker_drain_seconds: 'soon' is not a whole number",
        "bob: deborgen_podman_rootful: 'perhaps' is not true or false",
        "bob: deborgen_overlay_address: with deborgen_overlay: none, each machine needs its address",
        "bob: deborgen_worker_coordinator: it cannot be evaluated: ",
        "droplet: deborgen_overlay_address: the coordinator listens on private addresses only, and 8.8.8.8 is public",
        "droplet: deborgen_coordinator_port: it must be at most 65535",
        "droplet: deborgen_coordinator_backup_at: 750 is not a time of day: write it in quotation marks",
        "droplet: deborgen_coordinator_database: 'mysql://me:***@here/x' is not a valid database URL",
        "droplet: deborgen_default_image: 'Ubuntu:Latest' is not a valid image: it has capital letters: write ubuntu",
        "droplet: deborgen_coordinator_image_archive: there is no file /no/such/file on this computer",
    ]
    for sentence in wanted:
        assert [line for line in lines if line.startswith(sentence)], (sentence, lines)
    assert len(lines) == len(wanted), lines
    assert mistakes(inventory(tmp_path, {"ada": ada}, droplet), "--check", "--limit", "ada"), "in check mode too"
    cross = {"deborgen_coordinator_settings": {"heartbeat_seconds": 50}}
    assert mistakes(inventory(tmp_path, {}, cross)) == [
        "droplet: deborgen_coordinator_settings: heartbeat-seconds is 50 and lease-seconds 60: "
        "a lease must last at least two heartbeats"
    ]


def test_the_document_shows_what_the_check_says(tmp_path: Path) -> None:
    (shown,) = blocks(ROOT / "docs/fleet.md", "text")
    file = inventory(tmp_path, {"ada": {"deborgen_worker_cpu": 6, "deborgen_worker_memory": "2 gigs"}})
    assert [f"- {line}" for line in mistakes(file)] == shown.splitlines()[1:]


def test_missing_and_misspelled_groups_and_doubled_names_are_mistakes(tmp_path: Path) -> None:
    check = plugin("deborgen_inventory")

    def found(groups: dict[str, list[str]], **hosts: dict[str, Any]) -> list[str]:
        every = sorted({host for each in groups.values() for host in each})
        mistakes = check.Mistakes()
        check.check({**groups, "all": every}, {host: hosts.get(host, {}) for host in every}, {}, mistakes)
        return list(mistakes.lines())

    right = {"deborgen_coordinator": ["droplet"], "deborgen_workers": ["ada", "bob"]}
    assert found(right) == []
    assert found({"deborgen_coordinator": ["droplet"]}) == [], "a pool may have no PC yet"
    assert found({**right, "web": ["shop"]}) == [], "other machines may be in the inventory"
    assert found({"deborgen_coordinator": ["droplet"], "deborgen_worker": ["ada"]}) == [
        "group deborgen_worker: no playbook uses a group of this name; did you mean deborgen_workers?"
    ]
    assert found({"deborgen_coordinator": ["droplet"], "pcs": ["ada"]}) == [
        "group deborgen_workers: it is missing; the playbooks do nothing for ada until they are in it"
    ]
    assert found({"deborgen_workers": ["ada"]}) == [
        "group deborgen_coordinator: a pool has exactly one machine in this group, and it has none"
    ]
    assert found({**right, "deborgen_coordinator": ["droplet", "other"]}) == [
        "group deborgen_coordinator: a pool has exactly one machine in this group, and it has 2: droplet, other"
    ]
    assert found(right, ada={"deborgen_worker_name": "bob"}) == [
        "ada, bob: deborgen_worker_name: each of them is called 'bob'; give each its own"
    ]
    (tmp_path / "inventory.yml").write_text("all:\n")
    assert "it names no machine; copy inventory.example.yml" in mistakes(tmp_path / "inventory.yml")[0]


@pytest.mark.parametrize(
    ("address", "has", "sentence"),
    [
        ("10.8.0.1", ["192.168.1.5", "10.8.0.1"], None),
        ("10.8.0.1", [], None),
        ("10.8.0.9", ["10.8.0.1"], "the machine does not have the address 10.8.0.9; it has 10.8.0.1"),
        ("::1", ["10.8.0.1"], None),
        ("[fd00::1]", ["fd00::1"], None),
        ("fd00::1", ["fd00:0:0::1"], None),
        ("100.64.0.1", [], None),
        ("100.128.0.1", [], "is public"),
        ("2001:db8::1", [], "is public"),
        ("::12", [], "is public"),
        ("droplet.lan", [], "'droplet.lan' is not an IP address"),
    ],
)
def test_the_coordinators_address_is_private_and_its_own(address: str, has: list[str], sentence: str | None) -> None:
    """`::1` counted as public. Seen to fail with the old pattern."""
    variables = {"deborgen_overlay": "none", "deborgen_overlay_address": address}
    problem = plugin("deborgen_inventory").wrong_address(variables, has, listens=True)
    assert problem is None if sentence is None else sentence in problem


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "No PC is named: ansible-playbook leave.yml -e pc=NAME. Nothing was changed."),
        (["-e", "pc=adda"], "There is no PC adda in the group deborgen_workers, which has ada. Nothing was changed."),
        (["-e", "pc=droplet"], "droplet is the coordinator, which holds the queue and all results."),
        (["-e", "pc=all", "--check"], "There is no PC all in the group deborgen_workers"),
    ],
)
def test_leaving_needs_the_name_of_a_pc(tmp_path: Path, arguments: list[str], sentence: str) -> None:
    """Seen to fail: without a name the play did nothing and succeeded, and `pc=droplet` drained the coordinator."""
    played = play("leave.yml", inventory(tmp_path, {"ada": {}}), *arguments)
    assert played.code != 0
    assert sentence in played.words
    assert "Ask the coordinator" not in played.text


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "No backup is named: ansible-playbook restore.yml -e from=FILE"),
        (["-e", "from=/no/such.backup"], "There is no file /no/such.backup. Nothing was changed."),
    ],
)
def test_restoring_needs_a_file_that_exists(tmp_path: Path, arguments: list[str], sentence: str) -> None:
    played = play("restore.yml", inventory(tmp_path, {}), *arguments)
    assert played.code != 0
    assert sentence in played.words
    assert "Gather facts" not in played.text


POOL = {
    "address": "http://10.8.0.1:8765", "now": 1_000_000.0, "backup": None,
    "health": {"version": "1.2", "status": "ok"},
    "workers": [
        {"name": name, "state": state, "reason": reason, "version": "1.2", "labels": {"network": "none"},
         "capacity": {"cpus": 2, "memory": 2**31, "gpus": 0}, "last_seen_at": "1970-01-12T13:46:30+00:00"}
        for name, state, reason in (
            ("ada", "open", ""), ("bob", "paused", "paused by its owner"), ("cy", "offline", "no heartbeat"),
            ("dan", "open", ""), ("eve", "open", ""), ("fay", "left", ""), ("gus", "open", ""),
        )
    ],
}  # fmt: skip


def pc(name: str, **known: Any) -> dict[str, Any]:
    return dict(plugin("deborgen_report").pc_of(name, known, False))


def test_the_table_says_what_is_so_and_why() -> None:
    unreachable = {"unreachable": True, "msg": "Task failed: Failed to connect via ssh: No route to host"}
    looping = {"crash_looping": True, "restarts": 7, "log": "deborgen-worker: memory is wrong", "state": "activating"}
    lines = plugin("deborgen_report").report(
        POOL,
        [
            pc("ada", deborgen_worker_changed=True), pc("bob"), pc("cy", gathered=unreachable),
            pc("dan", service=looping), pc("eve", failed_because="Install Podman: the disk is full"), pc("fay"),
            pc("gus", service={"state": "inactive (dead)"}),
        ],
        "droplet",
    )  # fmt: skip
    text = "\n".join(lines)
    rows = {line.split()[0]: line.split()[1] for line in lines if line and line[0] != " "}
    assert {name: rows[name] for name in ("ada", "bob", "cy", "dan", "eve", "fay", "gus")} == {
        "ada": "changed", "bob": "paused", "cy": "unreachable", "dan": "crash-looping", "eve": "failed",
        "fay": "absent", "gus": "stopped",
    }  # fmt: skip
    for sentence in (
        " No route to host; run this again with --limit cy when it answers", "paused by its owner", "10 s ago", "1.2",
        "2.0 GiB", "restarted 7 times; its last line is: deborgen-worker: memory is wrong",
        "Install Podman: the disk is full", "deborgen-worker is inactive (dead)", "There is no backup yet",
    ):  # fmt: skip
        assert sentence in text
    assert "asleep" not in text


def test_a_coordinator_that_does_not_answer_is_not_hidden() -> None:
    report = plugin("deborgen_report")
    down = report.answer_of({"stdout": "", "msg": "Failed to connect: No route to host", "unreachable": True})
    lines = report.report(down, [pc("ada")], "droplet")
    assert "The coordinator does not answer: Failed to connect: No route to host." in lines
    assert "Look at `journalctl -u deborgen-coordinator` on droplet." in lines
    assert any(line.split()[:2] == ["ada", "unknown"] for line in lines)


def test_the_login_is_the_last_thing_that_a_first_run_says() -> None:
    ending = plugin("deborgen_report").ending(POOL, ["deborgen login http://10.8.0.1:8765", "Token: dbg_admin_x"])
    assert ending[-2:] == ["deborgen login http://10.8.0.1:8765", "Token: dbg_admin_x"]


def test_a_restore_names_tokens_that_are_valid_again() -> None:
    restored = plugin("deborgen_report").restored
    assert restored([{"role": "viewer", "name": "eve", "id": "abc"}], {"status": 200})[1:] == [
        "These tokens were revoked after the backup was made, and are valid again:",
        "  viewer eve: deborgen token revoke abc",
    ]
    assert restored([], {"status": 200}) == restored(None, None) == []
    assert "deborgen token list" in restored(None, {"status": 0})[1]
