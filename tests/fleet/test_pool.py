"""The fleet, step by step, on real hosts: each test goes on from where the one before it ended."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from fleet.pool import JOB_IMAGE, PORT, Pool, coordinator_image
from fleet.traces import traces
from support.hosts import Host, wait_until

pytestmark = [pytest.mark.root, pytest.mark.podman, pytest.mark.timeout(1200)]


def sleepers(count: int, seconds: int, **more: object) -> dict[str, object]:
    """A sweep of jobs that each take that long in a container."""
    sweep = {"grid": {"n": {"from": 1, "to": count}}}
    script = f"hostname > name.txt; sleep {seconds}; echo slept ${{{{ n }}}}"
    return {"run": script, "image": JOB_IMAGE, "sweep": sweep, "artifacts": ["name.txt"], "max_attempts": 3, **more}


def test_check_mode_on_bare_hosts_finds_nothing_wrong_and_changes_nothing(pool: Pool) -> None:
    pool.before = {name: traces(pool[name]) for name in ("droplet", "ada", "bob")}
    played = pool.must_play("site.yml", "--check")
    assert "would make" in played.text
    for name, traces_before in pool.before.items():
        assert traces(pool[name]).since(traces_before) == []


def test_a_pc_is_not_touched_while_there_is_no_coordinator(pool: Pool) -> None:
    played = pool.play("site.yml", "--limit", "ada")
    assert played.code != 0
    assert "There is no coordinator on droplet yet" in re.sub(r"\s+", " ", played.text)
    assert traces(pool["ada"]).since(pool.before["ada"]) == []


def test_a_first_run_joins_the_droplet_and_both_pcs(pool: Pool) -> None:
    played = pool.must_play("site.yml")
    assert played.text.count("deborgen login http") == 2, "once for the admin, once on the last screen"
    token = re.search(r"Token: (dbg_admin_\S+?)'?$", played.text, re.MULTILINE)
    assert token is not None
    pool.log_in(token[1])
    for name in ("ada", "bob"):
        assert re.search(rf"{name} +changed +2 +2\.0 GiB", played.text), played.text[-3000:]
    assert {worker["name"]: worker["state"] for worker in pool.api("/v1/workers")["items"]} == {
        "ada": "open",
        "bob": "open",
    }
    assert "dbg_worker_" not in played.text
    pool.timed["the first site.yml"] = played


def test_a_second_run_changes_nothing(pool: Pool) -> None:
    played = pool.must_play("site.yml")
    assert played.changed == 0, played.text
    assert "dbg_" not in played.text, "no secret is printed again"
    assert re.search(r"ada +ready", played.text)
    pool.timed["the second site.yml"] = played


def test_check_mode_on_joined_hosts_sees_no_difference(pool: Pool) -> None:
    assert pool.must_play("site.yml", "--check").changed == 0


def test_the_coordinator_answers_on_the_overlay_and_on_no_other_address(pool: Pool) -> None:
    laptop, droplet = pool["laptop"], pool["droplet"]
    assert json.loads(laptop.output(f"curl -sf -m 5 {pool.url}/health"))["status"] == "ok"
    assert laptop.ssh(f"curl -s -m 5 http://{droplet.address}:{PORT}/health", check=False).returncode == 7
    assert droplet.ssh(f"curl -s -m 5 http://127.0.0.1:{PORT}/health", check=False).returncode == 7
    listening = droplet.output(f"ss -Hltn 'sport = :{PORT}'").splitlines()
    assert [line.split()[3] for line in listening] == [f"{droplet.overlay}:{PORT}"]


def test_a_neighbour_who_goes_around_the_vpn_gets_no_answer(pool: Pool) -> None:
    """The laptop is in the droplet's other network too, and sends there what is meant for the overlay's address."""
    laptop, droplet = pool["laptop"], pool["droplet"]
    ask = f"curl -s -m 3 -o /dev/null {pool.url}/health"
    laptop.ssh(f"ip route add {droplet.overlay}/32 via {droplet.address} dev eth0")
    try:
        assert laptop.ssh(ask, check=False).returncode == 28, "nothing came back, not even a refusal"
        droplet.ssh("nft delete table inet deborgen")
        assert laptop.ssh(ask, check=False).returncode == 0, "it is the table that keeps the neighbour out"
        assert pool.must_play("site.yml", "--limit", "droplet").changed > 0, "a run puts back what somebody took away"
        wait_until(lambda: laptop.ssh(ask, check=False).returncode == 28, 30, "the way around to be closed again")
        for verb in ("start", "reload", "restart", "stop"):
            # The machine's own firewall, with Debian's own file, which begins with a flush of everybody's rules.
            droplet.ssh(f"systemctl {verb} nftables.service")
            assert "deborgen" in droplet.output("nft list tables"), verb
        assert laptop.ssh(ask, check=False).returncode == 28
    finally:
        laptop.ssh(f"ip route del {droplet.overlay}/32 via {droplet.address} dev eth0")
    wait_until(lambda: laptop.ssh(f"curl -sf -m 5 {pool.url}/health", check=False).returncode == 0, 30, "the overlay")
    assert laptop.output("wg show wg0 latest-handshakes"), "which is WireGuard"


def test_a_coordinator_that_dies_comes_back(pool: Pool) -> None:
    droplet = pool["droplet"]
    droplet.ssh("systemctl kill -s KILL deborgen-coordinator")
    wait_until(lambda: droplet.ssh(f"curl -sf {pool.url}/health", check=False).returncode == 0, 30, "an answer")


def test_systemd_understands_every_line_of_our_units(pool: Pool) -> None:
    for name in ("droplet", "ada", "bob"):
        units = pool[name].output("ls /etc/systemd/system/deborgen-*")
        said = pool[name].ssh(f"systemd-analyze verify {' '.join(units.split())}", check=False)
        ours = [line for line in (said.stdout + said.stderr).splitlines() if "deborgen" in line]
        assert (said.returncode, ours) == (0, []), name


def test_the_units_are_hardened_and_secrets_are_for_their_owner_alone(pool: Pool) -> None:
    for unit in ("deborgen-coordinator", "deborgen-backup"):
        words = pool["droplet"].output(f"systemd-analyze security --no-pager {unit}.service | tail -1")
        exposure = re.search(r"level for \S+: ([0-9.]+)", words)
        assert exposure is not None
        assert float(exposure[1]) <= 2.0
    assert pool["ada"].output("stat -c '%a %U' /etc/deborgen/worker.token") == "600 deborgen-worker"
    assert (
        pool["droplet"].output("stat -c '%a %U' /etc/deborgen/fleet.token /var/lib/deborgen")
        == "600 root\n700 deborgen"
    )
    for name in ("ada", "bob"):
        assert "--time=0" in pool[name].output("pgrep -u deborgen-worker -af 'system service'"), (
            "Podman is always there"
        )
    assert pool["ada"].output("getent passwd deborgen-worker").endswith("/usr/sbin/nologin")
    assert pool["ada"].output("getent shadow deborgen-worker").split(":")[1].startswith("!")
    show = "systemctl show deborgen-worker -p CPUWeight -p IOWeight -p KillMode -p Nice"
    assert set(pool["ada"].output(show).splitlines()) == {"CPUWeight=20", "IOWeight=20", "KillMode=process", "Nice=10"}


def test_the_owners_own_file_wins_and_is_never_touched(pool: Pool) -> None:
    ada = pool["ada"]
    ada.write("/etc/deborgen/worker.local.toml", "cpus = 1\n")
    stamp = ada.output("stat -c '%y %i' /etc/deborgen/worker.local.toml")
    ada.ssh("systemctl restart deborgen-worker")
    wait_until(lambda: pool.api("/v1/workers/ada")["capacity"]["cpus"] == 1, 30, "the owner's word to hold")
    assert pool.must_play("site.yml", "--limit", "ada").changed == 0
    assert ada.output("stat -c '%y %i' /etc/deborgen/worker.local.toml") == stamp
    assert pool.api("/v1/workers/ada")["capacity"]["cpus"] == 1
    ada.ssh("rm /etc/deborgen/worker.local.toml && systemctl restart deborgen-worker")
    wait_until(lambda: pool.api("/v1/workers/ada")["capacity"]["cpus"] == 2, 30, "the inventory's word to hold again")


def test_the_owner_pauses_and_goes_on_with_a_command(pool: Pool) -> None:
    ada = pool["ada"]
    ada.ssh("sudo deborgen-worker pause 2h")
    wait_until(lambda: pool.api("/v1/workers/ada")["state"] != "open", 30, "the coordinator to hear of it")
    assert "paused" in ada.output("sudo deborgen-worker status")
    ada.ssh("sudo deborgen-worker resume")
    wait_until(lambda: pool.api("/v1/workers/ada")["state"] == "open", 30, "the coordinator to hear of that")


def test_a_sweep_from_outside_runs_in_rootless_podman_on_both_pcs(pool: Pool) -> None:
    for name in ("ada", "bob"):
        pool.load_job_image(name)
    run = pool.submit(sleepers(6, 8))
    for name in ("ada", "bob"):
        inspect = f"{pool.podman_on(name)} ps --format '{{{{.Pid}}}}' | head -1 | xargs -r ps -o uid= -p"
        outside = wait_until(lambda: pool[name].ssh(inspect, check=False).stdout.strip(), 60, f"a container on {name}")  # noqa: B023
        assert int(outside) != 0, "a job that is root in its container is nobody of importance outside"
    jobs = pool.await_state(run, "succeeded")
    assert {job["worker"] for job in jobs} == {"ada", "bob"}
    assert "slept 1" in pool.deborgen(f"logs {jobs[0]['id']}").stdout
    labels = {worker["name"]: worker["labels"]["rootless"] for worker in pool.api("/v1/workers")["items"]}
    assert labels == {"ada": True, "bob": True}
    assert pool.api("/v1/workers/bob")["labels"]["room"] == "kitchen"


def test_a_restart_of_the_worker_kills_no_job(pool: Pool) -> None:
    run = pool.submit(sleepers(4, 12))
    wait_until(lambda: all(job["state"] == "running" for job in pool.jobs(run)), 60, "all four to run")
    for name in ("ada", "bob"):
        pool[name].ssh("systemctl restart deborgen-worker")
    assert [job["attempts"] for job in pool.await_state(run, "succeeded")] == [1, 1, 1, 1]


def test_a_pc_that_dies_in_mid_job_loses_it_to_the_other(pool: Pool) -> None:
    run = pool.submit(sleepers(2, 20, resources={"cpus": 2}))
    wait_until(lambda: all(job["state"] == "running" for job in pool.jobs(run)), 60, "one job on each PC")
    pool["ada"].kill()
    jobs = pool.await_state(run, "succeeded", 180)
    assert {job["worker"] for job in jobs} == {"bob"}
    assert sorted(job["attempts"] for job in jobs) == [1, 2]


def test_a_pc_that_is_asleep_does_not_fail_the_play_and_is_listed(pool: Pool) -> None:
    played = pool.must_play("site.yml")
    assert "ada is asleep: run this again with --limit ada" in played.text
    assert re.search(r"ada +asleep", played.text)
    assert re.search(r"bob +ready", played.text)
    assert played.changed == 0
    pool["ada"].start()
    wait_until(lambda: pool.api("/v1/workers/ada")["state"] == "open", 90, "ada to come back by itself")


def test_a_restart_of_the_droplet_harms_no_lease_and_no_job(pool: Pool) -> None:
    run = pool.submit(sleepers(6, 15))
    wait_until(lambda: sum(job["state"] == "running" for job in pool.jobs(run)) == 4, 60, "four to run")
    pool["droplet"].restart()
    jobs = pool.await_state(run, "succeeded", 180)
    assert [job["attempts"] for job in jobs] == [1] * 6


def test_a_broken_coordinator_stops_everything_at_once(pool: Pool) -> None:
    pool["droplet"].kill()
    try:
        played = pool.play("site.yml")
        assert played.code != 0
        assert "ada" not in played.text.split("PLAY [Prepare the droplet", 1)[1].split("PLAY RECAP")[0]
        alone = pool.play("site.yml", "--limit", "bob")
        assert alone.code != 0
        assert alone.recap["bob"]["changed"] == 0
    finally:
        pool["droplet"].start()
    wait_until(
        lambda: pool["laptop"].ssh(f"curl -sf -m 5 {pool.url}/health", check=False).returncode == 0, 60, "health"
    )


def test_a_third_pc_joins_alone_with_a_rootful_podman_and_from_an_index(pool: Pool) -> None:
    cy = pool.fleet.add("cy", "debian13", 13)
    pool.fleet.join_overlay()
    index = serve_an_index(pool, cy)
    pool.before["cy"] = traces(cy)
    pool.enlist(
        "deborgen_workers", "cy", deborgen_worker_cpus=2, deborgen_worker_memory="1GiB", deborgen_podman_rootful=True,
        deborgen_base_index_url=index,
    )  # fmt: skip
    played = pool.must_play("site.yml", "--limit", "cy")
    assert set(played.recap) <= {"cy", "localhost"}, "nobody else was touched"
    assert re.search(r"cy +changed +2 +1\.0 GiB", played.text)
    assert "GET /msgspec/" in cy.output("cat /tmp/index.log"), "what is not ours came from the index"
    assert cy.output("stat -c '%a %U' /etc/deborgen/worker.token") == "600 root"
    pool.load_job_image("cy")


def test_a_restart_of_a_rootful_worker_and_of_its_podman_kills_no_job(pool: Pool) -> None:
    run = pool.submit(sleepers(1, 12, requires={"rootless": False}))
    wait_until(lambda: all(job["state"] == "running" for job in pool.jobs(run)), 60, "it to run")
    pool["cy"].ssh("systemctl restart deborgen-podman deborgen-worker")
    jobs = pool.await_state(run, "succeeded")
    assert [(job["worker"], job["attempts"]) for job in jobs] == [("cy", 1)]


def test_an_upgrade_goes_on_under_running_jobs(pool: Pool) -> None:
    release(pool, "0.1.1")
    for version in ("3.11", "3.13"):
        pool.build(version)
    patient = "hostname > name.txt; until test -e stop; do sleep 1; done; echo was stopped"
    run = pool.submit(sleepers(5, 0, run=patient))
    wait_until(lambda: all(job["state"] == "running" for job in pool.jobs(run)), 60, "all to run")
    played = pool.must_play("upgrade.yml")
    assert all(job["state"] == "running" for job in pool.jobs(run))
    for name in ("ada", "bob", "cy"):
        pool[name].ssh("find /var/lib/deborgen-worker -name name.txt -execdir touch stop ';'")
    assert pool.api("/health")["version"] == "0.1.1"
    assert {worker["version"] for worker in pool.api("/v1/workers")["items"]} == {"0.1.1"}
    assert [job["attempts"] for job in pool.await_state(run, "succeeded")] == [1] * 5
    order = [line for line in played.text.splitlines() if line.startswith("changed: [") and "->" not in line]
    hosts = [re.search(r"\[(\w+)\]", line)[1] for line in order]  # type: ignore[index]
    assert [name for number, name in enumerate(hosts) if number == 0 or hosts[number - 1] != name] == [
        "droplet", "ada", "bob", "cy",
    ]  # fmt: skip


def test_an_upgrade_that_cannot_back_up_changes_nothing(pool: Pool) -> None:
    release(pool, "0.1.2", broken=True)
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


def test_an_upgrade_that_does_not_answer_is_rolled_back(pool: Pool) -> None:
    played = pool.play("upgrade.yml")
    assert played.code != 0
    assert "the coordinator is back on 0.1.1-" in re.sub(r"\s+", " ", played.text)
    assert pool.api("/health")["version"] == "0.1.1"
    assert all(name == "droplet" or host["changed"] == 0 for name, host in played.recap.items()), (
        "no worker was touched"
    )
    release(pool, "0.1.1")


def test_a_lost_droplet_comes_back_from_its_backup_with_tokens_and_history(pool: Pool) -> None:
    folder = pool.folder / "backups"
    pool.must_play("backup.yml", "-e", f"deborgen_backup_folder={folder}")
    (backup,) = folder.glob("*.backup")
    runs, tokens = pool.api("/v1/runs?limit=200"), pool.api("/v1/tokens")
    pool["droplet"].destroy()
    pool.fleet.replace(pool["droplet"])
    played = pool.must_play("restore.yml", "-e", f"from={backup}")
    assert "Token: dbg_admin" not in played.text, "the admin's token still holds"
    assert [run["id"] for run in pool.api("/v1/runs?limit=200")["items"]] == [run["id"] for run in runs["items"]]
    assert {token["id"] for token in tokens["items"]} <= {token["id"] for token in pool.api("/v1/tokens")["items"]}
    for name in ("ada", "bob", "cy"):
        wait_until(lambda name=name: pool.api(f"/v1/workers/{name}")["state"] == "open", 90, f"{name} to be back")
    assert len(pool.await_state(pool.submit(sleepers(3, 1)), "succeeded")) == 3


def test_the_daily_backup_is_checked_and_old_copies_are_forgotten(pool: Pool) -> None:
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


def test_the_coordinator_may_run_as_a_container_on_the_same_data(pool: Pool) -> None:
    droplet = pool["droplet"]
    runs = [run["id"] for run in pool.api("/v1/runs?limit=200")["items"]]
    words = ["--limit", "droplet", *in_a_container(pool)]
    pool.must_play("site.yml", *words)
    assert "deborgen-fleet-coordinator:0.1.1" in droplet.output("podman ps --format '{{.Names}} {{.Image}}'")
    assert [run["id"] for run in pool.api("/v1/runs?limit=200")["items"]] == runs
    listening = droplet.output(f"ss -Hltn 'sport = :{PORT}'").splitlines()
    assert [line.split()[3] for line in listening] == [f"{droplet.overlay}:{PORT}"]
    assert pool.must_play("site.yml", *words).changed == 0
    pool.await_state(pool.submit(sleepers(1, 1)), "succeeded")


def test_a_container_is_upgraded_and_taken_away_again(pool: Pool) -> None:
    droplet = pool["droplet"]
    release(pool, "0.1.3")
    words = in_a_container(pool)
    pool.must_play("upgrade.yml", *words)
    assert "deborgen-fleet-coordinator:0.1.3" in droplet.output("podman ps --format '{{.Names}} {{.Image}}'")
    assert {worker["version"] for worker in pool.api("/v1/workers")["items"]} == {"0.1.3"}
    assert pool.must_play("site.yml", "--limit", "droplet", *words).changed == 0
    pool.must_play("site.yml", "--limit", "droplet")
    assert droplet.output("podman ps -q") == ""
    assert pool.api("/health") == {"status": "ok", "version": "0.1.3"}


def test_the_pool_moves_to_postgresql_and_back_with_tokens_and_history(pool: Pool) -> None:
    """Debian's own server on the droplet, as its package makes it. Each move is a backup and a restore."""
    droplet = pool["droplet"]
    droplet.ssh("apt-get install -y -qq --no-install-recommends postgresql >/dev/null", timeout=300)
    wait_until(lambda: droplet.ssh("runuser -u postgres -- psql -c ''", check=False).returncode == 0, 60, "PostgreSQL")
    for statement in ("CREATE ROLE deborgen LOGIN PASSWORD 'sesame'", "CREATE DATABASE deborgen OWNER deborgen"):
        droplet.ssh(f'cd / && runuser -u postgres -- psql -c "{statement}"')
    runs = [run["id"] for run in pool.api("/v1/runs?limit=200")["items"]]
    there = ["-e", "deborgen_coordinator_database=postgresql://deborgen:sesame@127.0.0.1/deborgen"]
    for move, words in (("there", there), ("back", [])):
        folder = pool.folder / f"move-{move}"
        pool.must_play("backup.yml", "-e", f"deborgen_backup_folder={folder}")
        (backup,) = folder.glob("*.backup")
        played = pool.must_play("restore.yml", "-e", f"from={backup}", *words)
        assert "sesame" not in played.text
        count = "cd / && runuser -u postgres -- psql -At -d deborgen -c 'SELECT count(*) FROM run'"
        assert int(droplet.output(count)) == len(runs), "PostgreSQL has them"
        assert [run["id"] for run in pool.api("/v1/runs?limit=200")["items"]] == runs
        if move == "there":
            assert pool.must_play("site.yml", "--limit", "droplet", *words).changed == 0
            runs.insert(0, pool.submit(sleepers(1, 1)))
            pool.await_state(runs[0], "succeeded")
            droplet.ssh("systemctl start deborgen-backup.service")
    assert pool.jobs(runs[0])[0]["state"] == "succeeded"
    droplet.ssh("systemctl disable -q --now postgresql@*-main.service postgresql.service")


def test_status_shows_the_pool_and_changes_nothing(pool: Pool) -> None:
    played = pool.must_play("status.yml")
    assert played.changed == 0
    for name in ("ada", "bob", "cy"):
        assert re.search(rf"{name} +ready", played.text)


def test_a_pc_leaves_in_mid_job_without_a_trace(pool: Pool) -> None:
    run = pool.submit(sleepers(1, 600, requires={"rootless": False}))
    wait_until(lambda: pool.jobs(run)[0]["state"] == "running", 60, "a long job on cy")
    played = pool.must_play(
        "leave.yml", "-e", "pc=cy", "-e", "also_packages=true", "-e", "deborgen_worker_drain_seconds=4"
    )
    assert "cy: nothing of deborgen is left" in played.text
    assert traces(pool["cy"]).since(pool.before["cy"]) == []
    assert pool.api("/v1/workers/cy")["state"] == "left"
    assert not [token for token in pool.api("/v1/tokens")["items"] if token["name"] == "cy"]
    assert pool.jobs(run)[0]["state"] == "queued", "its job was given back, and nobody lost an attempt"
    pool.deborgen(f"cancel {run}")


def test_a_pc_that_leaves_in_its_sleep_loses_its_token_at_once(pool: Pool) -> None:
    pool["bob"].kill()
    try:
        played = pool.must_play("leave.yml", "-e", "pc=bob")
    finally:
        pool["bob"].start()
    assert "bob is asleep: its token is worth nothing now" in re.sub(r"\s+", " ", played.text)
    assert not [token for token in pool.api("/v1/tokens")["items"] if token["name"] == "bob"]


def test_a_pc_that_leaves_keeps_its_packages_and_its_owners_file(pool: Pool) -> None:
    pool["bob"].write("/etc/deborgen/worker.local.toml", "cpus = 1\n")
    played = pool.must_play("leave.yml", "-e", "pc=bob")
    assert "/etc/deborgen/worker.local.toml, which its owner wrote" in re.sub(r"\s+", " ", played.text)
    bob = pool["bob"]
    assert bob.ssh("podman --version", check=False).returncode == 0
    assert bob.output(
        "find /etc/deborgen /opt /usr/local /var/lib/deborgen-worker -name '*deborgen*' 2>/dev/null || true"
    ) == ("/etc/deborgen")


def test_a_rootless_pc_leaves_without_a_trace_too(pool: Pool) -> None:
    played = pool.must_play("leave.yml", "-e", "pc=ada", "-e", "also_packages=true")
    assert "ada: nothing of deborgen is left" in played.text
    assert traces(pool["ada"]).since(pool.before["ada"]) == []


def test_an_unsupported_distribution_is_refused_before_any_change(pool: Pool) -> None:
    cy = pool["cy"]
    release_file = cy.output("readlink -f /etc/os-release")
    text = cy.output(f"cat {release_file}")
    cy.write(release_file, 'NAME="Devuan GNU/Linux"\nID=devuan\nVERSION_ID="5"\nPRETTY_NAME="Devuan 5"\n')
    try:
        before = traces(cy)
        played = pool.play("site.yml", "--limit", "cy")
        assert played.code != 0
        assert "supports Debian 12 and 13, Ubuntu 24.04 and Fedora" in re.sub(r"\s+", " ", played.text)
        assert traces(cy).since(before) == []
    finally:
        cy.write(release_file, text + "\n")


def in_a_container(pool: Pool) -> list[str]:
    """The words that make a playbook run the image of the sources as they are now."""
    name, archive = coordinator_image(pool)
    return [
        "-e", "deborgen_coordinator_runtime=container", "-e", f"deborgen_coordinator_image={name}",
        "-e", f"deborgen_coordinator_image_archive={archive}",
    ]  # fmt: skip


def serve_an_index(pool: Pool, host: Host) -> str:
    """An index of everything but our own parts, on the host itself, because pip believes no other without TLS."""
    host.send(Path(pool.build("3.13")["archive"]), "/tmp/wheels.tar.gz")
    host.ssh(
        "mkdir -p /tmp/index && cd /tmp/index && tar xzf /tmp/wheels.tar.gz && rm -f deborgen*; for wheel in *.whl; do "
        "folder=$(echo ${wheel%%-*} | tr A-Z_. a-z--); mkdir -p $folder && mv $wheel $folder/; done; "
        "setsid python3 -m http.server 8099 --bind 127.0.0.1 > /tmp/index.log 2>&1 < /dev/null &"
    )
    return "http://127.0.0.1:8099"


def release(pool: Pool, version: str, *, broken: bool = False) -> None:
    """Make another release of the sources; a broken one starts and never answers."""
    for file in pool.source.rglob("pyproject.toml"):
        file.write_text(re.sub(r"0\.1\.\d+", version, file.read_text()))
    for file in pool.source.rglob("__init__.py"):
        text = file.read_text()
        if "__version__" in text:
            file.write_text(re.sub(r'"0\.1\.\d+"', f'"{version}"', text))
    server = pool.source / "coordinator" / "src" / "deborgen_coordinator" / "__main__.py"
    mark = "    import time; time.sleep(1e6)  # broken\n"
    text = server.read_text().replace(mark, "")
    if broken:
        text = text.replace(
            "    from deborgen_coordinator.server import serve\n",
            mark + "    from deborgen_coordinator.server import serve\n",
            1,
        )
        assert mark in text
    server.write_text(text)
