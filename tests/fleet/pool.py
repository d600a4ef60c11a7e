"""A pool on real hosts, driven as an organiser and a submitter would: by ansible-playbook and by `deborgen`."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from fleet.traces import Traces
from support import compose
from support.host_images import make_all, podman
from support.hosts import Fleet, Host, wait_until

ROOT = Path(__file__).parents[2]
ANSIBLE = ROOT / "deploy" / "ansible"
PARTS = ("shared", "coordinator", "worker", "cli")
JOB_IMAGE = "localhost/deborgen-fleet-job:1"
PORT = 8765


@dataclass
class Play:
    """How a playbook went."""

    code: int
    text: str
    seconds: float
    load: float = 0.0
    recap: dict[str, dict[str, int]] = field(default_factory=dict)

    @property
    def changed(self) -> int:
        return sum(host["changed"] for host in self.recap.values())


#: What organisers are promised of `site.yml` over a droplet and two PCs with warm package caches, on a quiet machine.
PROMISED = {"the first site.yml": 120, "the second site.yml": 30}


def figures(plays: dict[str, Play]) -> list[str]:
    """A line for each play that was promised a time: how long it took, and how busy the machine was before it."""
    return [
        f"{what:<22} {plays[what].seconds:5.0f} s   promised {seconds:3} s   load before it {plays[what].load:.1f}"
        for what, seconds in PROMISED.items()
        if what in plays
    ]


class Pool:
    """`droplet` is the coordinator's machine; `ada`, `bob` and later `cy` lend PCs; `laptop` submits."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.fleet = Fleet(folder)
        self.source = folder / "source"
        self.token = ""
        #: The plays that are promised to be quick, to be shown at the end.
        self.timed: dict[str, Play] = {}
        #: What was on a PC before it joined, to compare with what is there after it left.
        self.before: dict[str, Traces] = {}
        self.inventory_hosts: dict[str, dict[str, dict[str, Any]]] = {
            "deborgen_coordinator": {},
            "deborgen_workers": {},
        }

    def boot(self) -> None:
        """Bare hosts in a VPN; the laptop has the command `deborgen`, and the packages to install are at hand."""
        make_all()
        hosts = [
            ("droplet", "debian12", 10),
            ("ada", "debian12", 11),
            ("bob", "debian13", 12),
            ("laptop", "debian12", 20),
        ]
        with ThreadPoolExecutor() as threads:
            list(threads.map(lambda each: self.fleet.add(*each), hosts))
        self.fleet.join_overlay()
        self.snapshot_source()
        archives = {version: self.build(version) for version in ("3.11", "3.13")}
        self._install_command(Path(archives["3.11"]["archive"]))
        self.enlist("deborgen_coordinator", "droplet")
        self.enlist("deborgen_workers", "ada", deborgen_worker_cpus=2, deborgen_worker_memory="2GiB")
        self.enlist(
            "deborgen_workers", "bob", deborgen_worker_cpus=2, deborgen_worker_memory="2GiB",
            deborgen_worker_labels={"room": "kitchen"},
        )  # fmt: skip

    def __getitem__(self, name: str) -> Host:
        return self.fleet.hosts[name]

    # The organiser

    def snapshot_source(self) -> None:
        """The checkout as it is now, so that an edit in the middle of the test changes no release."""
        for part in PARTS:
            ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "build")
            shutil.copytree(ROOT / part, self.source / part, ignore=ignored)
        shutil.copy2(ROOT / "constraints.txt", self.source)

    def build(self, version: str) -> dict[str, Any]:
        """Build what hosts with that Python install, as the playbooks would; later they find it in the cache."""
        script = ANSIBLE / "roles" / "deborgen_base" / "files" / "build_wheelhouse.py"
        command = [
            sys.executable, str(script), f"--source={self.source}", f"--cache={self.cache}", f"--python={version}",
            f"--machine={os.uname().machine}",
        ]  # fmt: skip
        return dict(json.loads(subprocess.run(command, check=True, capture_output=True, text=True, timeout=600).stdout))

    @property
    def cache(self) -> Path:
        return ROOT / ".cache" / "wheelhouse"

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
                    "deborgen_base_cache": str(self.cache),
                    "deborgen_coordinator_settings": {"lease_seconds": 12, "heartbeat_seconds": 3},
                },
                "children": {group: {"hosts": hosts} for group, hosts in self.inventory_hosts.items()},
            }
        }
        (self.folder / "inventory.yml").write_text(yaml.safe_dump(document))

    def play(self, playbook: str, *arguments: str, timeout: float = 900) -> Play:
        """Run a playbook as the organiser would, from deploy/ansible."""
        environment = {
            **os.environ, "ANSIBLE_CONFIG": str(ANSIBLE / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_TIMEOUT": "5", "ANSIBLE_SSH_CONTROL_PATH_DIR": f"/tmp/{self.fleet.prefix}-cp",
        }  # fmt: skip
        began, load = time.monotonic(), os.getloadavg()[0]
        program = Path(sys.executable).parent / "ansible-playbook"
        done = subprocess.run(
            [program, "-i", self.folder / "inventory.yml", playbook, *arguments],
            cwd=ANSIBLE, env=environment, capture_output=True, text=True, check=False, timeout=timeout,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        text = done.stdout + done.stderr
        (self.folder / f"play-{len(list(self.folder.glob('play-*')))}-{Path(playbook).stem}.log").write_text(text)
        recap = {
            line.split()[0]: {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", line)}
            for line in text.splitlines()
            if re.match(r"\S+\s+: ok=\d+", line)
        }
        return Play(done.returncode, text, time.monotonic() - began, load, recap)

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

    def log_in(self, token: str) -> None:
        self.token = token
        self["laptop"].write("/root/token", token, mode="0600")

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

    def job(self, run: int) -> dict[str, Any]:
        return dict(self.api(f"/v1/jobs/{self.jobs(run)[0]['id']}"))

    def await_state(self, run: int, state: str, seconds: float = 120) -> list[dict[str, Any]]:
        """The jobs of the run, once the run is in that state."""
        wait_until(
            lambda: self.api(f"/v1/runs/{run}")["state"] == state, seconds, f"run {run} to be {state}", every=0.5
        )
        return self.jobs(run)

    # The PCs

    def podman_on(self, name: str) -> str:
        """The command line of the Podman that jobs use on that PC."""
        if self.inventory_hosts["deborgen_workers"][name].get("deborgen_podman_rootful"):
            return "podman --root /var/lib/deborgen-worker/storage --runroot /run/deborgen-podman/storage"
        uid = self[name].output("id -u deborgen-worker")
        return f"cd / && runuser -u deborgen-worker -- env XDG_RUNTIME_DIR=/run/user/{uid} podman"

    def load_job_image(self, name: str) -> None:
        """There is no registry here, so the image of the jobs is brought to the PC as a file."""
        archive = self.folder / "job-image.tar"
        if not archive.exists():
            archive.write_bytes(job_image(self.folder))
        self[name].send(archive, "/var/tmp/job-image.tar")
        self[name].ssh(f"chmod 644 /var/tmp/job-image.tar; {self.podman_on(name)} load -q -i /var/tmp/job-image.tar")
        self[name].ssh("rm /var/tmp/job-image.tar")


def job_image(folder: Path) -> bytes:
    """A tiny image that can be loaded: busybox and nothing else."""
    tree = folder / "job-image"
    (tree / "bin").mkdir(parents=True)
    (tree / "tmp").mkdir()
    shutil.copy2("/bin/busybox", tree / "bin" / "busybox")
    for applet in ("sh", "sleep", "echo", "cat", "id", "hostname", "true", "mkdir", "seq", "date"):
        (tree / "bin" / applet).symlink_to("busybox")
    subprocess.run(["tar", "-C", tree, "-cf", folder / "tree.tar", "."], check=True)
    subprocess.run([*podman(), "import", "-q", folder / "tree.tar", JOB_IMAGE], check=True, capture_output=True)
    saved = subprocess.run([*podman(), "save", "-q", JOB_IMAGE], check=True, capture_output=True).stdout
    subprocess.run([*podman(), "rmi", JOB_IMAGE], check=False, capture_output=True)
    return saved


def coordinator_image(pool: Pool) -> tuple[str, Path]:
    """The image that deploy/compose builds of the pool's sources, without any registry: its name, and an archive."""
    context = pool.folder / "context"
    if not context.exists():
        compose.make_base()
        compose.make_context(pool.folder)
    for part in ("shared", "coordinator"):
        shutil.rmtree(context / part)
        shutil.copytree(pool.source / part, context / part)
    version = re.search(r'^version = "([^"]+)"', (context / "coordinator/pyproject.toml").read_text(), re.MULTILINE)
    assert version is not None
    name, archive = f"localhost/deborgen-fleet-coordinator:{version[1]}", pool.folder / f"image-{version[1]}.tar"
    compose.Compose(context, pool.folder, "build", COORDINATOR_IMAGE=name).run("build", "coordinator")
    subprocess.run([*podman(), "save", "-q", "-o", archive, name], check=True, capture_output=True)
    subprocess.run([*podman(), "rmi", name], check=False, capture_output=True)
    return name, archive
