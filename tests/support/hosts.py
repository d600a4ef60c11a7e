"""Real hosts on one machine: each boots systemd, has its own address, answers SSH, and can be killed and started.

A host is a privileged container on its fleet's network. Its /var/lib is a volume on a real file system, so that Podman
runs inside it as it does on a PC. A `Fleet` makes hosts and removes exactly those. Fleets do not disturb each other:
each has names and a network of its own.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support import fleet_claims
from support.host_images import image, podman
from support.waiting import wait_until

#: A fleet uses the first of these /16 networks that is free. Podman refuses one that is in use on this machine. Host N
#: has the address NET.0.N, and NET.9.N in the overlay. While the tunnel is down, packets to NET.9.N reach nobody and
#: do not leave this machine.
NETWORKS = (*(f"10.{second}" for second in range(213, 243)), *(f"172.{second}" for second in range(20, 32)))


@dataclass
class Host:
    """One machine. `address` is where SSH answers, `overlay` its address in the organiser's VPN."""

    name: str
    kind: str
    number: int
    fleet: Fleet
    private_key: str = ""
    public_key: str = ""

    @property
    def container(self) -> str:
        return f"{self.fleet.prefix}-{self.name}"

    @property
    def volume(self) -> str:
        return f"{self.container}-varlib"

    @property
    def address(self) -> str:
        return f"{self.fleet.net}.0.{self.number}"

    @property
    def overlay(self) -> str:
        return f"{self.fleet.net}.9.{self.number}"

    def boot(self) -> None:
        """Start it for the first time, with a new disk."""
        extra = []
        if self.kind == "debian13":
            # Its systemd would refuse the hybrid cgroups of an older kernel configuration.
            extra = ["-e", "SYSTEMD_CGROUP_ENABLE_LEGACY_FORCE=1",
                     "-e", "SYSTEMD_PROC_CMDLINE=systemd.unified_cgroup_hierarchy=0"]  # fmt: skip
        _podman(
            "run", "-d", "--name", self.container, "--hostname", self.name, "--privileged", "--cgroupns=private",
            "--systemd=always", "--network", f"{self.fleet.network}:ip={self.address}", "-v", f"{self.volume}:/var/lib",
            *extra, image(self.kind), "/sbin/init",
        )  # fmt: skip
        self.write("/root/.ssh/authorized_keys", self.fleet.public_key, mode="0600")
        self.await_ssh()

    def kill(self) -> None:
        """Pull the plug: no process can react."""
        self._hang_up()
        _podman("kill", "-s", "KILL", self.container)
        wait_until(lambda: not self.is_up, 60, f"{self.name} to be down", every=0.2)

    def shut_down(self) -> None:
        """Stop the units as a shutdown does, and pull the plug when those are gone that end before all others.

        A real poweroff also removes empty control groups. On a machine with cgroups v1, hosts share those of systemd,
        and the other hosts would be broken.
        """
        self.write("/run/systemd/system/end-of-day.target", "[Unit]\nDefaultDependencies=no\nRequires=shutdown.target\n"
                   "After=shutdown.target\n")  # fmt: skip
        start = "systemctl start --no-block --job-mode=replace-irreversibly end-of-day.target"
        _podman("exec", self.container, "sh", "-c", f"systemctl daemon-reload && {start}")
        ask = ("exec", self.container, "systemctl", "is-active", "multi-user.target")
        wait_until(lambda: _podman(*ask, check=False).strip() == "inactive", 120, f"{self.name} to end", every=0.5)
        self.kill()

    def start(self) -> None:
        _podman("start", self.container)
        self.await_ssh()

    def restart(self) -> None:
        self.kill()
        self.start()

    def freeze(self) -> None:
        _podman("pause", self.container)

    def thaw(self) -> None:
        _podman("unpause", self.container)

    def destroy(self) -> None:
        """Remove the machine and its disk."""
        self._hang_up()
        _podman("rm", "-f", "-t", "0", "-v", self.container, check=False)
        _podman("volume", "rm", "-f", self.volume, check=False)

    @property
    def is_up(self) -> bool:
        return _podman("inspect", "-f", "{{.State.Running}}", self.container, check=False).strip() == "true"

    def await_ssh(self) -> None:
        wait_until(lambda: self.ssh("true", check=False).returncode == 0, 180, f"SSH of {self.name}", every=0.2)

    def ssh(self, command: str, *, check: bool = True, timeout: float = 300) -> subprocess.CompletedProcess[str]:
        """Run a shell command as root over SSH. The connection is kept open, because a new one per command is slow."""
        done = subprocess.run(
            ["ssh", *self._ssh_options, "-o", "ControlMaster=auto", "-o", "ControlPersist=300",
             f"root@{self.address}", command],
            capture_output=True, text=True, check=False, timeout=timeout, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        if check and done.returncode != 0:
            raise AssertionError(f"{self.name}: {command!r} gave {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    @property
    def _ssh_options(self) -> list[str]:
        return [*self.fleet.ssh_options, "-o", f"ControlPath={self.fleet.connections}/{self.name}"]

    def _hang_up(self) -> None:
        """Close the open connection, which would not notice that the machine is gone."""
        subprocess.run(
            ["ssh", *self._ssh_options, "-O", "exit", f"root@{self.address}"],
            capture_output=True, check=False, timeout=60,
        )  # fmt: skip

    def output(self, command: str, *, timeout: float = 300) -> str:
        return self.ssh(command, timeout=timeout).stdout.strip()

    def await_output(self, command: str, what: str, *, seconds: float = 120) -> str:
        """What the command prints, once it prints anything."""
        return wait_until(lambda: self.ssh(command, check=False).stdout.strip(), seconds, what, every=0.5)

    def write(self, path: str, text: str, *, mode: str = "0644") -> None:
        script = f"mkdir -p $(dirname {path}) && cat > {path} && chmod {mode} {path}"
        subprocess.run(
            [*podman(), "exec", "-i", self.container, "sh", "-c", script], input=text, text=True, check=True, timeout=60
        )

    def send(self, source: Path, target: str) -> None:
        _podman("cp", str(source), f"{self.container}:{target}")


@dataclass
class Fleet:
    """The hosts of one story, their network, and the SSH key for them. It first removes what killed runs left."""

    folder: Path
    prefix: str = field(default_factory=lambda: f"deborgen-fleet-{os.getpid()}-{secrets.token_hex(2)}")
    hosts: dict[str, Host] = field(default_factory=dict)
    public_key: str = ""
    #: The first two numbers of the network, such as 10.213.
    net: str = ""

    def __post_init__(self) -> None:
        fleet_claims.remove_leftovers()
        self._claim: Any = fleet_claims.claim(self.prefix)
        self.network = self.prefix
        self.folder.mkdir(parents=True, exist_ok=True)
        key = self.folder / "id_ed25519"
        if not key.exists():
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
        self.public_key = key.with_suffix(".pub").read_text()
        self.ssh_options = [
            "-i", str(key), "-o", "IdentitiesOnly=yes", "-o", "StrictHostKeyChecking=no", "-o", "BatchMode=yes",
            "-o", "UserKnownHostsFile=/dev/null", "-o", "ConnectTimeout=20", "-o", "LogLevel=ERROR", "-F", "/dev/null",
        ]  # fmt: skip
        self.connections.mkdir(mode=0o700, exist_ok=True)
        self.net = _make_network(self.network)

    def add(self, name: str, kind: str, number: int) -> Host:
        """A new host that is up and answers."""
        host = Host(name, kind, number, self)
        self.hosts[name] = host
        host.boot()
        return host

    def replace(self, host: Host) -> Host:
        """A new machine in the place of one that was destroyed: same name and addresses, same VPN key, empty disk."""
        fresh = Host(host.name, host.kind, host.number, self, host.private_key, host.public_key)
        self.hosts[host.name] = fresh
        fresh.boot()
        self._write_overlay(fresh)
        return fresh

    def join_overlay(self) -> None:
        """Bring up WireGuard between all hosts, as an organiser would have done by hand."""
        for host in self.hosts.values():
            if not host.private_key:
                host.private_key = host.output("wg genkey")
                host.public_key = host.output(f"echo {host.private_key} | wg pubkey")
        for host in self.hosts.values():
            self._write_overlay(host)

    def _write_overlay(self, host: Host) -> None:
        peers = "".join(
            f"\n[Peer]\nPublicKey = {other.public_key}\nAllowedIPs = {other.overlay}/32\n"
            f"Endpoint = {other.address}:51820\nPersistentKeepalive = 5\n"
            for other in self.hosts.values()
            if other is not host
        )
        text = f"[Interface]\nPrivateKey = {host.private_key}\nListenPort = 51820\n{peers}"
        host.write("/etc/wireguard/wg0.conf", text, mode="0600")
        host.write("/etc/wireguard/wg0.address", f"{host.overlay}/24\n")
        if host.ssh("systemctl is-active wireguard-wg0", check=False).returncode == 0:
            host.ssh("wg syncconf wg0 /etc/wireguard/wg0.conf")
        else:
            host.ssh("systemctl start wireguard-wg0")

    def remove(self) -> None:
        """Remove everything that this fleet made on the machine."""
        for host in self.hosts.values():
            host.destroy()
        fleet_claims.remove(self.prefix)
        fleet_claims.give_up(self.prefix)

    def keep(self) -> None:
        """Let the hosts stay when this process ends, until somebody removes them by hand."""
        fleet_claims.give_up(self.prefix)

    def __getstate__(self) -> dict[str, Any]:
        # Without the open file of the claim, which cannot be pickled.
        return {**self.__dict__, "_claim": None}

    @property
    def connections(self) -> Path:
        """The folder of open connections, one per fleet: another fleet may have had the same addresses."""
        return fleet_claims.connections(self.prefix)


def why_no_hosts() -> str | None:
    """Why hosts cannot run on this machine, in one sentence, or None."""
    if os.geteuid() != 0:
        return "the fleet was not tested: its hosts need root on this machine"
    missing = [tool for tool in ("podman", "mmdebstrap", "ssh", "ssh-keygen") if shutil.which(tool) is None]
    if missing:
        return f"the fleet was not tested: {', '.join(missing)} is missing; tools/fleet.sh installs it"
    return None


def _make_network(name: str) -> str:
    """Make the network on the first free subnet, and return that subnet's first two numbers."""
    *others, last = NETWORKS
    for net in others:
        if name in _podman("network", "create", "--subnet", f"{net}.0.0/16", "--disable-dns", name, check=False):
            return net
    _podman("network", "create", "--subnet", f"{last}.0.0/16", "--disable-dns", name)
    return last


def _podman(*arguments: str, check: bool = True) -> str:
    done = subprocess.run([*podman(), *arguments], capture_output=True, text=True, check=False, timeout=180)
    if check and done.returncode != 0:
        raise AssertionError(f"podman {arguments[0]} failed: {done.stderr.strip()}")
    return done.stdout
