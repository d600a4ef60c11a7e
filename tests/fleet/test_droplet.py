"""The story of the droplet: who can reach it, its releases, its backups, its loss, its container and its databases."""

from __future__ import annotations

import json
import re

import pytest

from fleet.pool import PORT, PYTHONS, FleetPool, sleepers
from fleet.releases import build_archive, coordinator_image, make_release
from fleet.traces import traces
from support.waiting import wait_until

pytestmark = [pytest.mark.root, pytest.mark.podman, pytest.mark.timeout(1800)]

WORKERS = {
    "ada": {"deborgen_worker_cpus": 2, "deborgen_worker_memory": "2GiB"},
    "cy": {"deborgen_worker_cpus": 2, "deborgen_worker_memory": "2GiB", "deborgen_podman_rootful": True},
}


def test_a_droplet_a_rootless_and_a_rootful_pc_join(pool: FleetPool) -> None:
    pool.before["ada"] = traces(pool["ada"])
    pool.log_in_as_told(pool.must_play("site.yml"))
    labels = {worker["name"]: worker["labels"]["rootless"] for worker in pool.api("/v1/workers")["items"]}
    assert labels == {"ada": True, "cy": False}
    for name in WORKERS:
        pool.load_job_image(name)


def test_the_coordinator_answers_on_the_overlay_and_on_no_other_address(pool: FleetPool) -> None:
    laptop, droplet = pool["laptop"], pool["droplet"]
    assert json.loads(laptop.output(f"curl -sf -m 20 {pool.url}/health"))["status"] == "ok"
    assert laptop.ssh(f"curl -s -m 20 http://{droplet.address}:{PORT}/health", check=False).returncode == 7
    assert droplet.ssh(f"curl -s -m 20 http://127.0.0.1:{PORT}/health", check=False).returncode == 7
    listening = droplet.output(f"ss -Hltn 'sport = :{PORT}'").splitlines()
    assert [line.split()[3] for line in listening] == [f"{droplet.overlay}:{PORT}"]


def test_a_neighbour_who_goes_around_the_vpn_gets_no_answer(pool: FleetPool) -> None:
    """The laptop is in the droplet's other network too, and sends there what is meant for the overlay's address."""
    laptop, droplet = pool["laptop"], pool["droplet"]
    ask = f"curl -s -m 3 -o /dev/null {pool.url}/health"
    laptop.ssh(f"ip route add {droplet.overlay}/32 via {droplet.address} dev eth0")
    try:
        assert laptop.ssh(ask, check=False).returncode == 28, "nothing came back, not even a refusal"
        droplet.ssh("nft delete table inet deborgen")
        wait_until(
            lambda: laptop.ssh(ask, check=False).returncode == 0, 120, "an answer around the VPN: the table is gone"
        )
        assert pool.must_play("site.yml", "--limit", "droplet").changed > 0, "a run puts back what somebody took away"
        wait_until(lambda: laptop.ssh(ask, check=False).returncode == 28, 120, "the way around to be closed again")
        for verb in ("start", "reload", "restart", "stop"):
            # The machine's own firewall, with Debian's own file, which begins with a flush of everybody's rules.
            droplet.ssh(f"systemctl {verb} nftables.service")
            assert "deborgen" in droplet.output("nft list tables"), verb
        assert laptop.ssh(ask, check=False).returncode == 28
    finally:
        laptop.ssh(f"ip route del {droplet.overlay}/32 via {droplet.address} dev eth0")
    pool.await_health()
    assert laptop.output("wg show wg0 latest-handshakes"), "which is WireGuard"


def test_a_coordinator_that_dies_comes_back(pool: FleetPool) -> None:
    pool["droplet"].ssh("systemctl kill -s KILL deborgen-coordinator")
    pool.await_health()


def test_an_upgrade_goes_on_under_running_jobs(pool: FleetPool) -> None:
    make_release(pool.source, "0.1.1")
    for python in PYTHONS.values():
        build_archive(pool.source, python)
    patient = "hostname > name.txt; until test -e stop; do sleep 1; done; echo was stopped"
    run = pool.submit(sleepers(4, 0, run=patient))
    pool.await_running(run, 4)
    played = pool.must_play("upgrade.yml")
    assert all(job["state"] == "running" for job in pool.jobs(run))
    for name in WORKERS:
        pool[name].ssh("find /var/lib/deborgen-worker -name name.txt -execdir touch stop ';'")
    assert pool.api("/health")["version"] == "0.1.1"
    assert {worker["version"] for worker in pool.api("/v1/workers")["items"]} == {"0.1.1"}
    jobs = pool.await_state(run, "succeeded")
    assert [job["attempts"] for job in jobs] == [1] * 4
    assert {job["worker"] for job in jobs} == {"ada", "cy"}
    changes = re.findall(r"^changed: \[(\w+)\]", played.text, re.MULTILINE)
    assert [name for number, name in enumerate(changes) if number == 0 or changes[number - 1] != name] == [
        "droplet", "ada", "cy",
    ]  # fmt: skip


def test_an_upgrade_that_cannot_back_up_changes_nothing(pool: FleetPool) -> None:
    make_release(pool.source, "0.1.2", broken=True)
    run = pool.submit(sleepers(1, 1))
    pool.await_state(run, "succeeded")
    pool["droplet"].ssh("chmod 0500 /var/lib/deborgen/backups")
    try:
        played = pool.play("upgrade.yml")
    finally:
        pool["droplet"].ssh("chmod 0700 /var/lib/deborgen/backups")
    assert played.code != 0
    assert pool.api("/health")["version"] == "0.1.1"
    assert pool.api(f"/v1/runs/{run}")["state"] == "succeeded", "what came after the last upgrade is still there"


def test_an_upgrade_that_does_not_answer_is_rolled_back(pool: FleetPool) -> None:
    played = pool.play("upgrade.yml")
    assert played.code != 0
    assert "the coordinator is back on 0.1.1-" in played.words
    assert pool.api("/health")["version"] == "0.1.1"
    assert all(name == "droplet" or host["changed"] == 0 for name, host in played.recap.items()), (
        "no worker was touched"
    )
    make_release(pool.source, "0.1.1")


def test_a_lost_droplet_comes_back_from_its_backup_with_tokens_and_history(pool: FleetPool) -> None:
    folder = pool.folder / "backups"
    pool.must_play("backup.yml", "-e", f"deborgen_backup_folder={folder}")
    (backup,) = folder.glob("*.backup")
    runs, tokens = pool.runs(), pool.api("/v1/tokens")
    pool["droplet"].destroy()
    pool.fleet.replace(pool["droplet"])
    played = pool.must_play("restore.yml", "-e", f"from={backup}")
    assert "Token: dbg_admin" not in played.text, "the admin's token still holds"
    assert pool.runs() == runs
    assert {token["id"] for token in tokens["items"]} <= {token["id"] for token in pool.api("/v1/tokens")["items"]}
    for name in WORKERS:
        pool.await_worker(name, "open")
    assert len(pool.await_state(pool.submit(sleepers(3, 1)), "succeeded")) == 3


def test_the_daily_backup_is_checked_and_old_copies_are_forgotten(pool: FleetPool) -> None:
    droplet = pool["droplet"]
    assert "deborgen-backup.service" in droplet.output("systemctl list-timers --no-pager deborgen-backup.timer")
    droplet.ssh("for n in $(seq -w 10 30); do touch /var/lib/deborgen/backups/deborgen-20200101T0000${n}Z.backup; done")
    droplet.ssh("systemctl start deborgen-backup.service")
    kept = droplet.output("ls /var/lib/deborgen/backups").splitlines()
    assert len(kept) == 14
    newest = f"/var/lib/deborgen/backups/{kept[-1]}"
    check = "cd / && runuser -u deborgen -- /usr/local/sbin/deborgen-backup check"
    assert droplet.ssh(f"{check} {newest}", check=False).returncode == 0
    droplet.ssh(f"dd if=/dev/zero of={newest} bs=1 seek=100 count=20 conv=notrunc status=none")
    assert droplet.ssh(f"{check} {newest}", check=False).returncode != 0


def test_the_coordinator_may_run_as_a_container_on_the_same_data(pool: FleetPool) -> None:
    droplet, runs = pool["droplet"], pool.runs()
    words = ["--limit", "droplet", *in_a_container(pool)]
    pool.must_play("site.yml", *words)
    assert "deborgen-fleet-coordinator:0.1.1" in droplet.output("podman ps --format '{{.Names}} {{.Image}}'")
    assert pool.runs() == runs
    listening = droplet.output(f"ss -Hltn 'sport = :{PORT}'").splitlines()
    assert [line.split()[3] for line in listening] == [f"{droplet.overlay}:{PORT}"]
    assert pool.must_play("site.yml", *words).changed == 0
    pool.await_state(pool.submit(sleepers(1, 1)), "succeeded")


def test_a_container_is_upgraded_and_taken_away_again(pool: FleetPool) -> None:
    droplet = pool["droplet"]
    make_release(pool.source, "0.1.3")
    words = in_a_container(pool)
    pool.must_play("upgrade.yml", *words)
    assert "deborgen-fleet-coordinator:0.1.3" in droplet.output("podman ps --format '{{.Names}} {{.Image}}'")
    assert {worker["version"] for worker in pool.api("/v1/workers")["items"]} == {"0.1.3"}
    assert pool.must_play("site.yml", "--limit", "droplet", *words).changed == 0
    pool.must_play("site.yml", "--limit", "droplet")
    assert droplet.output("podman ps -q") == ""
    assert pool.api("/health") == {"status": "ok", "version": "0.1.3"}


def test_the_pool_moves_to_postgresql_and_back_with_tokens_and_history(pool: FleetPool) -> None:
    """Debian's own server on the droplet, as its package makes it. Each move is a backup and a restore."""
    droplet = pool["droplet"]
    droplet.ssh("apt-get install -y -qq --no-install-recommends postgresql >/dev/null", timeout=600)
    wait_until(lambda: droplet.ssh("runuser -u postgres -- psql -c ''", check=False).returncode == 0, 120, "PostgreSQL")
    for statement in ("CREATE ROLE deborgen LOGIN PASSWORD 'sesame'", "CREATE DATABASE deborgen OWNER deborgen"):
        droplet.ssh(f'cd / && runuser -u postgres -- psql -c "{statement}"')
    runs = pool.runs()
    there = ["-e", "deborgen_coordinator_database=postgresql://deborgen:sesame@127.0.0.1/deborgen"]
    for move, words in (("there", there), ("back", [])):
        folder = pool.folder / f"move-{move}"
        pool.must_play("backup.yml", "-e", f"deborgen_backup_folder={folder}")
        (backup,) = folder.glob("*.backup")
        played = pool.must_play("restore.yml", "-e", f"from={backup}", *words)
        assert "sesame" not in played.text
        count = "cd / && runuser -u postgres -- psql -At -d deborgen -c 'SELECT count(*) FROM run'"
        assert int(droplet.output(count)) == len(runs), "PostgreSQL has them"
        assert pool.runs() == runs
        if move == "there":
            assert pool.must_play("site.yml", "--limit", "droplet", *words).changed == 0
            runs.insert(0, pool.submit(sleepers(1, 1)))
            pool.await_state(runs[0], "succeeded")
            droplet.ssh("systemctl start deborgen-backup.service")
    assert pool.jobs(runs[0])[0]["state"] == "succeeded"


def test_a_rootless_pc_that_was_upgraded_leaves_without_a_trace(pool: FleetPool) -> None:
    assert int(pool["ada"].output("ls /opt/deborgen/worker/releases | wc -l")) > 1, "it has had more than one release"
    played = pool.must_play("leave.yml", "-e", "pc=ada", "-e", "also_packages=true")
    assert "ada: nothing of deborgen is left" in played.text
    assert traces(pool["ada"]).since(pool.before["ada"]) == []


def in_a_container(pool: FleetPool) -> list[str]:
    """The words that make a playbook run the image of the sources as they are now."""
    name, archive = coordinator_image(pool.source, pool.folder)
    return [
        "-e", "deborgen_coordinator_runtime=container", "-e", f"deborgen_coordinator_image={name}",
        "-e", f"deborgen_coordinator_image_archive={archive}",
    ]  # fmt: skip
