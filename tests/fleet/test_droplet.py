"""The story of the droplet: who can reach it, its releases, its backups, its loss, its container and its databases."""

from __future__ import annotations

import json
import re

import pytest

from fleet.play import ROOT
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
    pool.log_in_as_printed(pool.must_play("site.yml"))
    labels = {worker["name"]: worker["labels"]["rootless"] for worker in pool.api("/v1/workers")["items"]}
    assert labels == {"ada": True, "cy": False}
    for name in WORKERS:
        pool.load_job_image(name)


def test_an_admin_who_missed_the_login_makes_another_one(pool: FleetPool) -> None:
    (command,) = re.findall(r"`(runuser [^`]+)`", (ROOT / "docs/evening.md").read_text())
    token = pool["droplet"].output(command)
    ask = f"curl -sf -m 20 -H 'Authorization: Bearer {token}' {pool.url}/v1/me"
    assert json.loads(pool["laptop"].output(ask))["role"] == "admin"


def test_the_coordinator_answers_on_the_overlay_and_on_no_other_address(pool: FleetPool) -> None:
    laptop, droplet = pool["laptop"], pool["droplet"]
    assert json.loads(laptop.output(f"curl -sf -m 20 {pool.url}/health"))["status"] == "ok"
    assert laptop.ssh(f"curl -s -m 20 http://{droplet.address}:{PORT}/health", check=False).returncode == 7
    assert droplet.ssh(f"curl -s -m 20 http://127.0.0.1:{PORT}/health", check=False).returncode == 7
    listening = droplet.output(f"ss -Hltn 'sport = :{PORT}'").splitlines()
    assert [line.split()[3] for line in listening] == [f"{droplet.overlay}:{PORT}"]


def test_a_neighbour_who_goes_around_the_vpn_gets_no_answer(pool: FleetPool) -> None:
    """The laptop is also in the droplet's other network, and sends requests for the overlay's address through it."""
    laptop, droplet = pool["laptop"], pool["droplet"]
    ask = f"curl -s -m 3 -o /dev/null {pool.url}/health"
    laptop.ssh(f"ip route add {droplet.overlay}/32 via {droplet.address} dev eth0")
    try:
        assert laptop.ssh(ask, check=False).returncode == 28, "nothing came back, not even a refusal"
        droplet.ssh("nft delete table inet deborgen")
        wait_until(lambda: laptop.ssh(ask, check=False).returncode == 0, 120, "an answer around the VPN")
        assert pool.must_play("site.yml", "--limit", "droplet").changed > 0, "a run restores what somebody removed"
        wait_until(lambda: laptop.ssh(ask, check=False).returncode == 28, 120, "the way around to be closed again")
        for verb in ("start", "reload", "restart", "stop"):
            # The machine's own firewall, with Debian's own rules, which begin by removing all others.
            droplet.ssh(f"systemctl {verb} nftables.service")
            assert "deborgen" in droplet.output("nft list tables"), verb
        assert laptop.ssh(ask, check=False).returncode == 28
    finally:
        laptop.ssh(f"ip route del {droplet.overlay}/32 via {droplet.address} dev eth0")
    pool.await_health()
    assert laptop.output("wg show wg0 latest-handshakes"), "the VPN is WireGuard"


def test_a_coordinator_that_dies_comes_back(pool: FleetPool) -> None:
    pool["droplet"].ssh("systemctl kill -s KILL deborgen-coordinator")
    pool.await_health()


def test_a_coordinator_that_does_not_come_back_gets_its_old_settings_back(pool: FleetPool) -> None:
    """Its new port is taken. Seen to fail: the pool was down until somebody repaired it by hand."""
    droplet = pool["droplet"]
    droplet.ssh(
        "systemd-run -q --unit squatter python3 -m http.server 8766 --bind " + droplet.overlay,
    )
    before = droplet.output("cat /etc/deborgen/coordinator.toml /etc/deborgen/coordinator.nft; stat -c %a / /etc")
    try:
        played = pool.play(
            "site.yml", "-e", "deborgen_coordinator_port=8766", "-e", "deborgen_coordinator_seconds=6",
        )  # fmt: skip
    finally:
        droplet.ssh("systemctl stop squatter")
    assert played.code != 0
    assert (
        f"Wanted: a coordinator that answers at http://{droplet.overlay}:8766/health, within 6 seconds." in played.words
    )
    assert "in use" in played.words, "the reason, from its log"
    assert "Look at `journalctl -u deborgen-coordinator` on droplet." in played.words
    assert "The coordinator has its old settings back, and answers." in played.words
    assert all(name == "droplet" or host["changed"] == 0 for name, host in played.recap.items())
    after = droplet.output("cat /etc/deborgen/coordinator.toml /etc/deborgen/coordinator.nft; stat -c %a / /etc")
    assert after == before
    assert pool.api("/health")["status"] == "ok"


def test_jobs_keep_running_during_an_upgrade(pool: FleetPool) -> None:
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
    assert (backup.stat().st_mode & 0o777, folder.stat().st_mode & 0o777) == (0o600, 0o700)
    runs, tokens = pool.runs(), pool.api("/v1/tokens")
    pool["droplet"].destroy()
    pool.fleet.replace(pool["droplet"])
    played = pool.must_play("restore.yml", "-e", f"from={backup}")
    assert "Token: dbg_admin" not in played.text, "the admin's token is still valid"
    assert pool.runs() == runs
    kept = {token["id"]: token["name"] for token in pool.api("/v1/tokens")["items"]}
    assert {token["id"] for token in tokens["items"] if token["name"] != "fleet"} <= set(kept)
    assert list(kept.values()).count("fleet") == 1, "seen to fail: each restore left another one"
    assert "A token that was revoked after the backup was made is valid again" in played.text
    for name in WORKERS:
        pool.await_worker(name, "open")
    assert len(pool.await_state(pool.submit(sleepers(3, 1)), "succeeded")) == 3


def test_the_daily_backup_is_checked_and_old_backups_are_removed(pool: FleetPool) -> None:
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
    data = droplet.output("systemctl stop deborgen-coordinator; ls -A /var/lib/deborgen")
    assert droplet.ssh(f"{check.replace(' check', ' restore')} {newest}", check=False).returncode != 0
    assert droplet.output("ls -A /var/lib/deborgen") == data, "a restore that fails leaves the data as it was"
    droplet.ssh("systemctl start deborgen-coordinator")
    pool.await_health()


def test_the_coordinator_may_run_as_a_container_on_the_same_data(pool: FleetPool) -> None:
    droplet, runs = pool["droplet"], pool.runs()
    arguments = ["--limit", "droplet", *in_a_container(pool)]
    pool.must_play("site.yml", *arguments)
    assert "deborgen-fleet-coordinator:0.1.1" in droplet.output("podman ps --format '{{.Names}} {{.Image}}'")
    assert pool.runs() == runs
    listening = droplet.output(f"ss -Hltn 'sport = :{PORT}'").splitlines()
    assert [line.split()[3] for line in listening] == [f"{droplet.overlay}:{PORT}"]
    assert pool.must_play("site.yml", *arguments).changed == 0
    pool.await_state(pool.submit(sleepers(1, 1)), "succeeded")


def test_the_container_is_upgraded_and_then_replaced_by_the_program(pool: FleetPool) -> None:
    """The disk of one PC is read-only. Seen to fail: the other PC was not tried."""
    droplet, releases = pool["droplet"], "/opt/deborgen/worker/releases"
    make_release(pool.source, "0.1.3")
    arguments = in_a_container(pool)
    pool["ada"].ssh(f"mount --bind {releases} {releases} && mount -o remount,ro,bind {releases}")
    try:
        played = pool.play("upgrade.yml", *arguments)
    finally:
        pool["ada"].ssh(f"umount {releases}")
    assert played.code != 0
    assert re.search(r"^ada +failed .*\n.*Read-only", played.text, re.MULTILINE), played.text[-3000:]
    assert re.search(r"^cy +changed +\d+ s ago +0\.1\.3", played.text, re.MULTILINE)
    assert "deborgen-fleet-coordinator:0.1.3" in droplet.output("podman ps --format '{{.Names}} {{.Image}}'")
    versions = {worker["name"]: worker["version"] for worker in pool.api("/v1/workers")["items"]}
    assert versions == {"ada": "0.1.1", "cy": "0.1.3"}
    for name, part in (("droplet", "coordinator"), ("cy", "worker")):
        kept = pool[name].output(f"ls /opt/deborgen/{part}/releases").splitlines()
        assert [release.split("-")[0] for release in kept] == ["0.1.1", "0.1.3"], "the last two"
    assert pool.must_play("site.yml", "--limit", "droplet", *arguments).changed == 0
    pool.must_play("site.yml", "--limit", "droplet")
    assert droplet.output("podman ps -q") == ""
    health = pool.api("/health")
    assert (health["status"], health["version"]) == ("ok", "0.1.3")


def test_the_pool_moves_to_postgresql_and_back_with_tokens_and_history(pool: FleetPool) -> None:
    """Debian's own server on the droplet, as its package sets it up. Each move is a backup and a restore."""
    droplet = pool["droplet"]
    droplet.ssh("apt-get install -y -qq --no-install-recommends postgresql >/dev/null", timeout=600)
    wait_until(lambda: droplet.ssh("runuser -u postgres -- psql -c ''", check=False).returncode == 0, 120, "PostgreSQL")
    for statement in ("CREATE ROLE deborgen LOGIN PASSWORD 'sesame'", "CREATE DATABASE deborgen OWNER deborgen"):
        droplet.ssh(f'cd / && runuser -u postgres -- psql -c "{statement}"')
    runs = pool.runs()
    pool["laptop"].write("/root/licence", "sesame of the licence")
    pool.deborgen("secret set LICENCE --file /root/licence")
    droplet.ssh("cd /var/lib/deborgen && for n in 1 2 3; do mkdir before-restore-2020010${n}T000000Z; done")
    there = ["-e", "deborgen_coordinator_database=postgresql://deborgen:sesame@127.0.0.1/deborgen"]
    for move, words in (("there", there), ("back", [])):
        folder = pool.folder / f"move-{move}"
        token = pool.deborgen(f"token create --role viewer --name {move}").stdout.split("_")[2]
        pool.must_play("backup.yml", "-e", f"deborgen_backup_folder={folder}")
        (backup,) = folder.glob("*.backup")
        pool.deborgen(f"token revoke {token}")
        played = pool.must_play("restore.yml", "-e", f"from={backup}", *words)
        assert f"are valid again:\n  viewer {move}: deborgen token revoke {token}" in played.text
        assert "sesame" not in played.text
        assert droplet.output("cat /var/lib/deborgen/secrets.key"), "no backup has the key of the secrets, so it stays"
        assert int(droplet.output("ls -d /var/lib/deborgen/before-restore-* | wc -l")) == 2
        assert [each["name"] for each in pool.api("/v1/tokens")["items"]].count("fleet") == 1
        count = "cd / && runuser -u postgres -- psql -At -d deborgen -c 'SELECT count(*) FROM run'"
        assert int(droplet.output(count)) == len(runs), "PostgreSQL has the runs"
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
    """The arguments that make a playbook run an image of the current sources."""
    name, archive = coordinator_image(pool.source, pool.folder)
    return [
        "-e", "deborgen_coordinator_runtime=container", "-e", f"deborgen_coordinator_image={name}",
        "-e", f"deborgen_coordinator_image_archive={archive}",
    ]  # fmt: skip
