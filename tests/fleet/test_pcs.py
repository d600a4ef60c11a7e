"""The story of the PCs: bare machines join a pool, work in it through good and bad days, and leave it."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from fleet.play import figure
from fleet.pool import FleetPool, sleepers
from fleet.traces import traces
from support.waiting import wait_until

pytestmark = [pytest.mark.root, pytest.mark.podman, pytest.mark.timeout(1800)]

WORKERS = {
    "ada": {"deborgen_worker_cpus": 2, "deborgen_worker_memory": "2GiB"},
    "bob": {
        "deborgen_worker_cpus": 2, "deborgen_worker_memory": "2GiB", "deborgen_worker_labels": {"room": "kitchen"},
        "deborgen_worker_runner": "both",
    },
}  # fmt: skip


def test_check_mode_on_bare_hosts_finds_nothing_wrong_and_changes_nothing(pool: FleetPool) -> None:
    pool.before = {name: traces(pool[name]) for name in ("droplet", "ada", "bob")}
    played = pool.must_play("site.yml", "--check")
    assert "would make" in played.text
    for name, traces_before in pool.before.items():
        assert traces(pool[name]).since(traces_before) == []


def test_a_pc_is_not_touched_while_there_is_no_coordinator(pool: FleetPool) -> None:
    played = pool.play("site.yml", "--limit", "ada")
    assert played.code != 0
    assert "There is no coordinator on droplet yet" in played.words
    assert traces(pool["ada"]).since(pool.before["ada"]) == []


def test_a_first_run_joins_the_droplet_and_both_pcs(
    pool: FleetPool, record_property: Callable[[str, object], None]
) -> None:
    played = pool.must_play("site.yml")
    record_property("figure", figure("the first site.yml", played))
    login, token = played.text.rstrip().splitlines()[-2:]
    assert (login, token[:17]) == (f"deborgen login {pool.url}", "Token: dbg_admin_"), "the very last lines"
    pool.log_in_as_printed(played)
    for name in ("ada", "bob"):
        assert re.search(rf"{name} +changed +\d+ s ago +0\.1\.0 +2 +2\.0 GiB", played.text), played.text[-3000:]
    assert {worker["name"]: worker["state"] for worker in pool.api("/v1/workers")["items"]} == {
        "ada": "open",
        "bob": "open",
    }
    assert "dbg_worker_" not in played.text


def test_a_second_run_changes_nothing(pool: FleetPool, record_property: Callable[[str, object], None]) -> None:
    played = pool.must_play("site.yml")
    record_property("figure", figure("the second site.yml", played))
    assert played.changed == 0, played.text
    assert "dbg_" not in played.text, "no secret is printed again"
    assert re.search(r"ada +ready", played.text)


def test_check_mode_on_joined_hosts_sees_no_difference(pool: FleetPool) -> None:
    assert pool.must_play("site.yml", "--check").changed == 0


def test_all_mistakes_in_the_inventory_are_named_before_anything_is_changed(pool: FleetPool) -> None:
    """Seen to fail: `--check` passed, the worker crashed again and again, and the wrong address took the pool down."""
    wrong = {
        "deborgen_worker_memory": "2 gigs", "deborgen_worker_hours": "22-7", "deborgen_worker_cpu": 2,
        "deborgen_worker_labels": {"in room": "a"},
    }  # fmt: skip
    pool.enlist("deborgen_workers", "ada", **wrong)
    pool.enlist("deborgen_coordinator", "droplet", deborgen_overlay_address="10.254.254.254")
    try:
        plays = [pool.play("site.yml", "--check"), pool.play("site.yml")]
    finally:
        pool.enlist("deborgen_coordinator", "droplet")
        pool.enlist("deborgen_workers", "ada", **WORKERS["ada"])
    for played in plays:
        assert played.code != 0
        assert "The inventory has 5 mistakes. Nothing was changed." in played.words
        assert "droplet: deborgen_overlay_address: the machine does not have the address 10.254.254.254" in played.words
        for name in wrong:
            assert f"- ada: {name}: " in played.text
        assert played.changed == 0
    assert pool.api("/health")["status"] == "ok"
    pool.await_worker("ada")


def test_a_worker_that_does_not_come_back_is_reported_with_the_reason(pool: FleetPool) -> None:
    """Ada's PC cannot reach the coordinator, and Bob's worker refuses a file that Bob wrote.

    Seen to fail: the play was content with the contact of the old worker, and the table called both PCs ready.
    """
    ada, bob = pool["ada"], pool["bob"]
    for host in (ada, bob):
        host.ssh("cp -a /etc/deborgen/worker.toml /root/worker.toml")
    ada.ssh(f"ip route add blackhole {pool['droplet'].overlay}/32")
    bob.write("/etc/deborgen/worker.local.toml", 'cpus = "all of them"\n')
    bob.ssh("systemctl restart deborgen-worker")
    try:
        labels = '{"deborgen_worker_labels": {"desk": "big"}}'
        played = pool.play("site.yml", "--limit", "ada,bob", "-e", labels, "-e", "deborgen_worker_seconds=8")
        assert bob.ssh("cmp /etc/deborgen/worker.toml /root/worker.toml", check=False).returncode == 0
    finally:
        ada.ssh(f"ip route del blackhole {pool['droplet'].overlay}/32")
        bob.ssh("rm /etc/deborgen/worker.local.toml")
        for host in (ada, bob):
            host.ssh("mv /root/worker.toml /etc/deborgen/worker.toml && systemctl restart deborgen-worker")
    assert played.code != 0
    assert "Wanted: a worker that reaches the coordinator, within 8 seconds. Seen: " in played.words
    assert "Look at `journalctl -u deborgen-worker` on ada." in played.words
    assert "Nothing was changed, because the program refuses its new settings" in played.words
    assert "cpus in /etc/deborgen/worker.local.toml: 'all of them' is not a valid number" in played.words
    assert re.search(r"^ada +failed", played.text, re.MULTILINE)
    assert re.search(
        r"^bob +crash-looping.*\n +restarted \d+ times; its last line is: .*worker.local", played.text, re.M
    )
    for name in ("ada", "bob"):
        pool.await_worker(name)


def test_systemd_understands_every_line_of_our_units(pool: FleetPool) -> None:
    for name in ("droplet", "ada", "bob"):
        units = pool[name].output("ls /etc/systemd/system/deborgen-*")
        said = pool[name].ssh(f"systemd-analyze verify {' '.join(units.split())}", check=False)
        ours = [line for line in (said.stdout + said.stderr).splitlines() if "deborgen" in line]
        assert (said.returncode, ours) == (0, []), name


def test_the_units_are_hardened_and_secrets_are_for_their_owner_alone(pool: FleetPool) -> None:
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
        assert "--time=0" in pool[name].output("pgrep -u deborgen-worker -af 'system service'"), "Podman always runs"
    assert pool["ada"].output("getent passwd deborgen-worker").endswith("/usr/sbin/nologin")
    assert pool["ada"].output("getent shadow deborgen-worker").split(":")[1].startswith("!")
    show = "systemctl show deborgen-worker -p CPUWeight -p IOWeight -p KillMode -p Nice"
    assert set(pool["ada"].output(show).splitlines()) == {"CPUWeight=5", "IOWeight=5", "KillMode=process", "Nice=10"}


def test_the_owners_own_file_wins_and_is_never_touched(pool: FleetPool) -> None:
    ada = pool["ada"]
    ada.write("/etc/deborgen/worker.local.toml", "cpus = 1\n")
    stamp = ada.output("stat -c '%y %i' /etc/deborgen/worker.local.toml")
    ada.ssh("systemctl restart deborgen-worker")
    wait_until(lambda: pool.worker("ada")["capacity"]["cpus"] == 1, 120, "the owner's limit to apply", every=0.5)
    assert pool.must_play("site.yml", "--limit", "ada").changed == 0
    assert ada.output("stat -c '%y %i' /etc/deborgen/worker.local.toml") == stamp
    assert pool.worker("ada")["capacity"]["cpus"] == 1
    ada.ssh("rm /etc/deborgen/worker.local.toml && systemctl restart deborgen-worker")
    wait_until(lambda: pool.worker("ada")["capacity"]["cpus"] == 2, 120, "the inventory's limit to apply", every=0.5)


def test_the_owner_pauses_and_resumes_with_a_command(pool: FleetPool) -> None:
    ada = pool["ada"]
    ada.ssh("sudo deborgen-worker pause 2h")
    wait_until(lambda: pool.worker("ada")["state"] != "open", 120, "the coordinator to hear of the pause", every=0.5)
    assert "paused" in ada.output("sudo deborgen-worker status")
    ada.ssh("sudo deborgen-worker resume")
    pool.await_worker("ada", "open")


def test_a_sweep_from_outside_runs_in_rootless_podman_on_both_pcs(pool: FleetPool) -> None:
    for name in ("ada", "bob"):
        pool.load_job_image(name)
    run = pool.submit(sleepers(6, 8))
    for name in ("ada", "bob"):
        inspect = f"{pool.podman_on(name)} ps --format '{{{{.Pid}}}}' | head -1 | xargs -r ps -o uid= -p"
        outside = pool[name].await_output(inspect, f"a container on {name}")
        assert int(outside) != 0, "root in the container is not root outside"
    jobs = pool.await_state(run, "succeeded")
    assert {job["worker"] for job in jobs} == {"ada", "bob"}
    assert "slept 1" in pool.deborgen(f"logs {jobs[0]['id']}").stdout
    labels = {worker["name"]: worker["labels"]["rootless"] for worker in pool.api("/v1/workers")["items"]}
    assert labels == {"ada": True, "bob": True}
    assert pool.worker("bob")["labels"]["room"] == "kitchen"


def test_every_example_and_every_starter_runs_as_it_stands(pool: FleetPool) -> None:
    """Seen to fail: without a default image, most of them stayed queued in a pool made by the documents."""
    pool.load_images_of_examples("ada")
    pool.deborgen("workers pause bob")  # it lacks the images, and there is no registry to pull them from
    try:
        pool.run_every_example()
    finally:
        pool.deborgen("workers resume bob")
    assert pool.worker("bob")["labels"]["runner.process"], "as deborgen_worker_runner says"
    assert not pool.worker("ada")["labels"]["runner.process"]


def test_a_restart_of_the_worker_kills_no_job(pool: FleetPool) -> None:
    run = pool.submit(sleepers(4, 12))
    pool.await_running(run, 4)
    for name in ("ada", "bob"):
        pool[name].ssh("systemctl restart deborgen-worker")
    assert [job["attempts"] for job in pool.await_state(run, "succeeded")] == [1, 1, 1, 1]
    assert [each["number"] for name in ("ada", "bob") for each in pool.attempts_on(name, run)] == [1, 1, 1, 1]


def test_a_stopped_unit_gives_its_job_back_at_once_and_nothing_of_deborgen_runs_on(pool: FleetPool) -> None:
    """Seen to fail when the worker hands over at every end."""
    run = pool.submit(sleepers(2, 10, resources={"cpus": 2}))
    pool.await_running(run, 2)
    ada = pool["ada"]
    ada.ssh("systemctl stop deborgen-worker")
    assert [each["outcome"] for each in pool.attempts_on("ada", run)] == ["released"]
    assert ada.output(f"{pool.podman_on('ada')} ps -aq") == ""
    assert ada.output("pgrep -af 'deborgen[-_]worker|conmon' | grep -v 'system service' || true") == ""
    status = ada.ssh("sudo deborgen-worker status", check=False)
    assert (status.returncode, "nothing of deborgen runs there" in status.stderr) == (7, True), status
    jobs = pool.await_state(run, "succeeded")
    assert [(job["worker"], job["attempts"]) for job in jobs] == [("bob", 1), ("bob", 1)]
    ada.ssh("systemctl start deborgen-worker")
    pool.await_worker("ada", "open")


def test_a_worker_that_its_owner_stops_after_a_crash_is_not_started_again(pool: FleetPool) -> None:
    """Seen to fail when the command does not talk to systemd, which starts a crashed worker again."""
    ada = pool["ada"]
    state = "systemctl is-active deborgen-worker"
    said = ada.ssh(f"systemctl kill -s KILL deborgen-worker; sudo deborgen-worker stop; {state}", check=False).stdout
    assert said == (
        "no worker was running on /var/lib/deborgen-worker; nothing of deborgen runs here now\ninactive\n"
    ), "it would be `activating` if systemd were about to start it again"
    ada.ssh("systemctl start deborgen-worker")
    pool.await_worker("ada", "open")


def test_a_pc_that_is_shut_down_gives_its_job_back_at_once(pool: FleetPool) -> None:
    """Seen to fail when the worker hands over at every end."""
    run = pool.submit(sleepers(2, 10, resources={"cpus": 2}))
    pool.await_running(run, 2)
    pool["ada"].shut_down()
    assert [each["outcome"] for each in pool.attempts_on("ada", run)] == ["released"]
    jobs = pool.await_state(run, "succeeded")
    assert [(job["worker"], job["attempts"]) for job in jobs] == [("bob", 1), ("bob", 1)]
    pool["ada"].start()
    pool.await_worker("ada", "open")


def test_the_job_of_a_pc_that_dies_is_run_by_another(pool: FleetPool) -> None:
    run = pool.submit(sleepers(2, 10, resources={"cpus": 2}))
    pool.await_running(run, 2)
    pool["ada"].kill()
    jobs = pool.await_state(run, "succeeded")
    assert {job["worker"] for job in jobs} == {"bob"}
    assert sorted(job["attempts"] for job in jobs) == [1, 2]


def test_a_pc_that_does_not_answer_does_not_fail_the_play_and_is_listed_with_the_reason(pool: FleetPool) -> None:
    played = pool.must_play("site.yml")
    reason = "(No route to host|timed out)"
    assert re.search(rf"ada +unreachable.*\n +ssh: .*{reason}; run this again with --limit ada", played.text)
    assert re.search(r"bob +ready +\d+ s ago +0\.1\.0", played.text)
    assert played.changed == 0
    pool["ada"].start()
    pool.await_worker("ada", "open")  # it comes back by itself


def test_a_restart_of_the_droplet_costs_no_lease_and_no_job(pool: FleetPool) -> None:
    run = pool.submit(sleepers(6, 15))
    pool.await_running(run, 4)
    pool["droplet"].restart()
    pool.await_health()
    jobs = pool.await_state(run, "succeeded")
    assert [job["attempts"] for job in jobs] == [1] * 6


def test_a_play_stops_at_once_when_the_coordinator_is_down(pool: FleetPool) -> None:
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
    pool.await_health()


def test_a_third_pc_joins_alone_with_a_rootful_podman_and_from_an_index(pool: FleetPool) -> None:
    cy = pool.add("cy")
    pool.fleet.join_overlay()
    index = pool.serve_an_index("cy")
    pool.before["cy"] = traces(cy)
    pool.enlist(
        "deborgen_workers", "cy", deborgen_worker_cpus=2, deborgen_worker_memory="1GiB", deborgen_podman_rootful=True,
        deborgen_base_index_url=index,
    )  # fmt: skip
    played = pool.must_play("site.yml", "--limit", "cy")
    assert set(played.recap) <= {"cy", "localhost"}, "no other machine was touched"
    assert re.search(r"cy +changed +\d+ s ago +0\.1\.0 +2 +1\.0 GiB", played.text)
    assert "GET /msgspec/" in cy.output("cat /tmp/index.log"), "the dependencies came from the index"
    assert cy.output("stat -c '%a %U' /etc/deborgen/worker.token") == "600 root"
    pool.load_job_image("cy")


def test_a_restart_of_a_rootful_worker_and_of_its_podman_kills_no_job(pool: FleetPool) -> None:
    run = pool.submit(sleepers(1, 12, requires={"rootless": False}))
    pool.await_running(run, 1)
    pool["cy"].ssh("systemctl restart deborgen-podman deborgen-worker")
    jobs = pool.await_state(run, "succeeded")
    assert [(job["worker"], job["attempts"]) for job in jobs] == [("cy", 1)]


def test_status_shows_the_pool_and_changes_nothing(pool: FleetPool) -> None:
    played = pool.must_play("status.yml")
    assert played.changed == 0
    for name in ("ada", "bob", "cy"):
        assert re.search(rf"{name} +ready", played.text)


def test_a_pc_leaves_without_a_trace_while_a_job_runs(pool: FleetPool) -> None:
    run = pool.submit(sleepers(1, 600, requires={"rootless": False}))
    pool.await_running(run, 1)
    assert "cy would leave the pool" in pool.must_play("leave.yml", "-e", "pc=cy", "--check").words
    assert (pool.worker("cy")["state"], pool.jobs(run)[0]["state"]) == ("open", "running")
    assert pool["cy"].output("ls /etc/deborgen/worker.token")
    played = pool.must_play(
        "leave.yml", "-e", "pc=cy", "-e", "also_packages=true", "-e", "deborgen_worker_drain_seconds=4"
    )
    assert "cy: nothing of deborgen is left" in played.text
    assert traces(pool["cy"]).since(pool.before["cy"]) == []
    assert pool.worker("cy")["state"] == "left"
    assert not [token for token in pool.api("/v1/tokens")["items"] if token["name"] == "cy"]
    assert pool.jobs(run)[0]["state"] == "queued", "its job was given back, and lost no attempt"
    pool.deborgen(f"cancel {run}")


def test_a_pc_that_leaves_while_it_sleeps_loses_its_token_at_once(pool: FleetPool) -> None:
    pool["bob"].kill()
    try:
        played = pool.must_play("leave.yml", "-e", "pc=bob")
    finally:
        pool["bob"].start()
    assert re.search(r"bob does not answer \(.*\): its token is revoked", played.words)
    assert not [token for token in pool.api("/v1/tokens")["items"] if token["name"] == "bob"]


def test_a_pc_that_leaves_keeps_its_packages_and_its_owners_file(pool: FleetPool) -> None:
    pool["bob"].write("/etc/deborgen/worker.local.toml", "cpus = 1\n")
    played = pool.must_play("leave.yml", "-e", "pc=bob")
    assert "/etc/deborgen/worker.local.toml, which its owner wrote" in played.words
    bob = pool["bob"]
    assert bob.ssh("podman --version", check=False).returncode == 0
    assert bob.output(
        "find /etc/deborgen /opt /usr/local /var/lib/deborgen-worker -name '*deborgen*' 2>/dev/null || true"
    ) == ("/etc/deborgen")


def test_an_unsupported_distribution_is_refused_before_any_change(pool: FleetPool) -> None:
    cy = pool["cy"]
    release_file = cy.output("readlink -f /etc/os-release")
    text = cy.output(f"cat {release_file}")
    cy.write(release_file, 'NAME="Devuan GNU/Linux"\nID=devuan\nVERSION_ID="5"\nPRETTY_NAME="Devuan 5"\n')
    try:
        before = traces(cy)
        played = pool.play("site.yml", "--limit", "cy")
        assert played.code != 0
        assert "supports Debian 12 and 13, Ubuntu 24.04 and Fedora" in played.words
        assert traces(cy).since(before) == []
    finally:
        cy.write(release_file, text + "\n")
