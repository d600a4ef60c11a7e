"""A pool on real hosts, driven as an organiser and a submitter would: with ansible-playbook and with `deborgen`."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml

from fleet.play import ANSIBLE, Play, run_playbook
from fleet.releases import (
    JOB_IMAGE,
    WHEELHOUSE,
    build_archive,
    copy_sources,
    default_image_archive,
    job_image_archive,
)
from fleet.traces import Traces
from support.examples import EXAMPLES, NAMED_IMAGE, script
from support.host_images import make_all
from support.hosts import Fleet, Host
from support.waiting import wait_until

PORT = 8765
#: The Python of each kind of host.
PYTHONS = {"debian12": "3.11", "debian13": "3.13"}
#: Every host of the stories, and its number in the addresses. `droplet` is the coordinator's machine, `ada`, `bob` and
#: `cy` are PCs, and `laptop` submits.
HOSTS = {
    "droplet": ("debian12", 10), "ada": ("debian12", 11), "bob": ("debian13", 12), "cy": ("debian13", 13),
    "laptop": ("debian12", 20),
}  # fmt: skip


def sleepers(count: int, seconds: int, **more: object) -> dict[str, object]:
    """A sweep of jobs that each sleep this many seconds in a container."""
    sweep = {"grid": {"n": {"from": 1, "to": count}}}
    script = f"hostname > name.txt; sleep {seconds}; echo slept ${{{{ n }}}}"
    return {"run": script, "image": JOB_IMAGE, "sweep": sweep, "artifacts": ["name.txt"], "max_attempts": 3, **more}


class FleetPool:
    """The hosts of one story and the pool that the playbooks make of them. No other story touches these hosts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.fleet = Fleet(folder)
        self.source = folder / "source"
        self.token = ""
        #: What each host had before it joined, to compare with what it has after it left.
        self.before: dict[str, Traces] = {}
        self.inventory_hosts: dict[str, dict[str, dict[str, Any]]] = {
            "deborgen_coordinator": {},
            "deborgen_workers": {},
        }

    def boot(self, workers: Mapping[str, Mapping[str, Any]]) -> None:
        """Boot a droplet, a laptop and these PCs in a VPN. All are bare, but the laptop has `deborgen`."""
        make_all()
        copy_sources(self.source)
        with ThreadPoolExecutor() as threads:
            hosts = threads.map(self.add, ("droplet", "laptop", *workers))
            archives = {python: build_archive(self.source, python) for python in PYTHONS.values()}
            list(hosts)
        self.fleet.join_overlay()
        self._install_command(archives["3.11"])
        self.enlist("deborgen_coordinator", "droplet")
        for name, variables in workers.items():
            self.enlist("deborgen_workers", name, **variables)

    def add(self, name: str) -> Host:
        return self.fleet.add(name, *HOSTS[name])

    def __getitem__(self, name: str) -> Host:
        return self.fleet.hosts[name]

    # The organiser

    def enlist(self, group: str, name: str, **variables: Any) -> None:
        """Write a host into the inventory."""
        host = self.fleet.hosts[name]
        self.inventory_hosts[group][name] = {
            "ansible_host": host.address, "deborgen_overlay_address": host.overlay, **variables,
        }  # fmt: skip
        document = {
            "all": {
                "vars": {
                    "ansible_user": "root",
                    "ansible_ssh_common_args": " ".join(self.fleet.ssh_options),
                    "deborgen_overlay": "none",
                    "deborgen_base_source": str(self.source),
                    "deborgen_base_cache": str(WHEELHOUSE),
                    # Long enough for a worker to restart on a busy machine, short enough to wait until it ends.
                    "deborgen_coordinator_settings": {"lease_seconds": 30, "heartbeat_seconds": 3},
                },
                "children": {group: {"hosts": hosts} for group, hosts in self.inventory_hosts.items()},
            }
        }
        (self.folder / "inventory.yml").write_text(yaml.safe_dump(document))

    def play(self, playbook: str, *arguments: str) -> Play:
        """Run a playbook as the organiser would, from deploy/ansible. Its output is kept in the story's folder."""
        played = run_playbook(
            playbook, *arguments, inventory=self.folder / "inventory.yml", connections=self.fleet.connections,
            ANSIBLE_CONFIG=str(ANSIBLE / "ansible.cfg"), ANSIBLE_TIMEOUT="20",
        )  # fmt: skip
        number = len(list(self.folder.glob("play-*")))
        (self.folder / f"play-{number}-{Path(playbook).stem}.log").write_text(played.text)
        return played

    def must_play(self, playbook: str, *arguments: str) -> Play:
        played = self.play(playbook, *arguments)
        assert played.code == 0, played.text[-6000:]
        return played

    # The submitter, on the laptop, through the VPN

    @property
    def url(self) -> str:
        return f"http://{self['droplet'].overlay}:{PORT}"

    def _install_command(self, archive: Path) -> None:
        laptop = self["laptop"]
        laptop.ssh("mkdir -p /opt/wheels")
        laptop.send(archive, "/opt/wheels.tar.gz")
        laptop.ssh(
            "tar xzf /opt/wheels.tar.gz -C /opt/wheels && python3 -m venv --without-pip /opt/cli && "
            "/opt/cli/bin/python $(echo /opt/wheels/pip-*.whl)/pip install -q --no-index --find-links /opt/wheels "
            "deborgen"
        )

    def log_in_as_printed(self, played: Play) -> None:
        """Log in with the token that the first `site.yml` printed for the admin."""
        printed = re.search(r"Token: (dbg_admin_\S+?)'?$", played.text, re.MULTILINE)
        assert printed is not None
        self.token = printed[1]
        self["laptop"].write("/root/token", self.token, mode="0600")

    def deborgen(self, words: str, *, check: bool = True, timeout: float = 240) -> subprocess.CompletedProcess[str]:
        """Run `deborgen` on the laptop."""
        command = f"DEBORGEN_URL={self.url} DEBORGEN_TOKEN_FILE=/root/token /opt/cli/bin/deborgen {words}"
        return self["laptop"].ssh(command, check=check, timeout=timeout)

    def api(self, path: str) -> Any:
        """Ask the coordinator, from the laptop."""
        return json.loads(
            self["laptop"].output(f"curl -sf -m 20 -H 'Authorization: Bearer {self.token}' {self.url}{path}")
        )

    def submit(self, document: dict[str, Any]) -> int:
        self["laptop"].write("/root/job.yaml", yaml.safe_dump(document))
        return int(json.loads(self.deborgen("submit --json /root/job.yaml").stdout)["run"]["id"])

    def jobs(self, run: int) -> list[dict[str, Any]]:
        return list(self.api(f"/v1/runs/{run}/jobs?limit=500")["items"])

    def attempts_on(self, worker: str, run: int) -> list[dict[str, Any]]:
        """All attempts of the run on that PC."""
        attempts = [each for job in self.jobs(run) for each in self.api(f"/v1/jobs/{job['id']}")["history"]]
        return [each for each in attempts if each["worker"] == worker]

    def runs(self) -> list[int]:
        """The newest runs, the newest first."""
        return [int(run["id"]) for run in self.api("/v1/runs?limit=200")["items"]]

    def worker(self, name: str) -> dict[str, Any]:
        return dict(self.api(f"/v1/workers/{name}"))

    def await_running(self, run: int, count: int) -> None:
        """Wait until that many jobs of the run are running, and the workers have said that their programs began."""
        wait_until(lambda: self._begun(run) == count, 120, f"{count} jobs of run {run} to be running", every=0.5)

    def _begun(self, run: int) -> int:
        """Count jobs whose program has begun. A claimed job is running too, but a crash only takes its claim back."""
        running = [job["id"] for job in self.jobs(run) if job["state"] == "running"]
        return sum(self.api(f"/v1/jobs/{job}")["history"][-1]["started_at"] is not None for job in running)

    def await_state(self, run: int, state: str, seconds: float = 240) -> list[dict[str, Any]]:
        """The jobs of the run, once the run is in that state."""
        wait_until(
            lambda: self.api(f"/v1/runs/{run}")["state"] == state, seconds, f"run {run} to be {state}", every=0.5
        )
        return self.jobs(run)

    def await_worker(self, name: str, state: str = "open") -> None:
        wait_until(lambda: self.worker(name)["state"] == state, 120, f"{name} to be {state}", every=0.5)

    def await_health(self) -> None:
        ask = f"curl -sf -m 5 {self.url}/health"
        wait_until(lambda: self["laptop"].ssh(ask, check=False).returncode == 0, 120, "the coordinator's answer")

    # The PCs

    def podman_on(self, name: str) -> str:
        """The command line of the Podman that jobs use on that PC."""
        if self.inventory_hosts["deborgen_workers"][name].get("deborgen_podman_rootful"):
            return "podman --root /var/lib/deborgen-worker/storage --runroot /run/deborgen-podman/storage"
        uid = self[name].output("id -u deborgen-worker")
        return f"cd / && runuser -u deborgen-worker -- env XDG_RUNTIME_DIR=/run/user/{uid} podman"

    def load_job_image(self, name: str) -> None:
        self._load(name, job_image_archive())

    def load_images_of_examples(self, name: str) -> None:
        """The images that examples and starters need: the pool's default, and the one that some of them name."""
        self._load(name, default_image_archive())
        self[name].ssh(f"{self.podman_on(name)} tag {JOB_IMAGE} {NAMED_IMAGE}")

    def _load(self, name: str, archive: Path) -> None:
        """Copy an image to the PC as a file, because there is no registry here."""
        self[name].send(archive, "/var/tmp/image.tar")
        self[name].ssh(f"chmod 644 /var/tmp/image.tar; {self.podman_on(name)} load -q -i /var/tmp/image.tar")
        self[name].ssh("rm /var/tmp/image.tar")

    def run_every_example(self) -> None:
        """Submit every example and every starter from the laptop, as they stand, and wait until all have succeeded."""
        laptop = self["laptop"]
        laptop.send(EXAMPLES, "/root/examples")
        command = f"env DEBORGEN_URL={self.url} DEBORGEN_TOKEN_FILE=/root/token /opt/cli/bin/deborgen"
        laptop.write("/root/examples/run.sh", script(command))
        laptop.ssh("cd /root/examples && sh run.sh", timeout=600)

    def serve_an_index(self, name: str) -> str:
        """Serve an index of all dependencies on the PC itself: pip trusts no other host without TLS."""
        self[name].send(build_archive(self.source, PYTHONS[self[name].kind]), "/tmp/wheels.tar.gz")
        self[name].ssh(
            "mkdir -p /tmp/index && cd /tmp/index && tar xzf /tmp/wheels.tar.gz && rm -f deborgen*; "
            "for wheel in *.whl; do folder=$(echo ${wheel%%-*} | tr A-Z_. a-z--); "
            "mkdir -p $folder && mv $wheel $folder/; done; "
            "setsid python3 -m http.server 8099 --bind 127.0.0.1 > /tmp/index.log 2>&1 < /dev/null &"
        )
        return "http://127.0.0.1:8099"
