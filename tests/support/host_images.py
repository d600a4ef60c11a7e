"""Images of real hosts: Debian 12 and 13 with systemd and an SSH server, made from Debian's packages alone.

An image has no more than a fresh droplet or PC: no Podman, and nothing of deborgen. Podman's packages are in its
package cache, downloaded but not installed, so that a test measures our work and not the network. Images stay on the
machine between runs. They are made again when their contents change. Runs at the same time share one build.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

#: Where tests keep files that take long to make. They may be deleted at any time between runs.
CACHE = Path(os.environ.get("DEBORGEN_FLEET_CACHE", "/var/tmp/deborgen-fleet"))

SUITES = {"debian12": "bookworm", "debian13": "trixie"}

INSTALLED = (
    "systemd systemd-sysv dbus dbus-user-session libpam-systemd openssh-server python3 sudo iproute2 iptables "
    "ca-certificates curl procps python3-apt wireguard-go wireguard-tools"
)
#: Downloaded to the package cache, but not installed: what the roles will install.
DOWNLOADED = (
    "python3-venv podman crun netavark aardvark-dns uidmap slirp4netns passt fuse-overlayfs catatonit tar "
    "containers-storage golang-github-containers-common nftables"
)
#: Downloaded on Debian 12 alone: what the tests themselves install on the droplet and on a PC.
DOWNLOADED_ALSO = {"debian12": "postgresql gpg gpgv apt-utils gpg-agent"}

#: A host that runs in a container lacks udev, so the devices that rootless Podman needs get their modes at boot.
FILES = {
    "etc/systemd/system/host-keys.service": """[Unit]
Description=SSH host keys of this host
Before=ssh.service
[Service]
Type=oneshot
ExecStart=/usr/bin/ssh-keygen -A
ExecStart=/bin/sh -c 'chmod 0666 /dev/fuse /dev/net/tun || true'
RemainAfterExit=yes
[Install]
WantedBy=multi-user.target
""",
    # The organiser's own VPN, which is there before deborgen: WireGuard in user space.
    "etc/systemd/system/wireguard-wg0.service": """[Unit]
Description=The organiser's WireGuard
ConditionPathExists=/etc/wireguard/wg0.conf
After=network.target
[Service]
ExecStart=/usr/bin/wireguard-go -f wg0
ExecStartPost=/bin/sh -c 'for i in 1 2 3 4 5 6 7 8 9 10; do wg show wg0 >/dev/null 2>&1 && break; sleep 0.1; done'
ExecStartPost=/usr/bin/wg setconf wg0 /etc/wireguard/wg0.conf
ExecStartPost=/bin/sh -c 'ip address add "$(cat /etc/wireguard/wg0.address)" dev wg0'
ExecStartPost=/sbin/ip link set wg0 mtu 1380 up
Restart=on-failure
[Install]
WantedBy=multi-user.target
""",
    # A test's disk need not survive a power cut, and packages are installed many times.
    "etc/dpkg/dpkg.cfg.d/fleet": "force-unsafe-io\n",
    "etc/ssh/sshd_config.d/fleet.conf": "UseDNS no\nPasswordAuthentication no\nPermitRootLogin prohibit-password\n",
}
SHELL = (
    "systemctl enable host-keys.service wireguard-wg0.service ssh.service >/dev/null 2>&1; "
    "systemctl mask apt-daily.timer apt-daily-upgrade.timer systemd-networkd.service e2scrub_all.timer "
    "fstrim.timer man-db.timer systemd-journald-audit.socket >/dev/null 2>&1; "
    "rm -f /etc/ssh/ssh_host_*; install -d -m 0700 /root/.ssh; passwd -l root >/dev/null 2>&1; true"
)


class CannotBuild(Exception):
    """An image could not be made; the message says which, and quotes the tool."""


def make_all() -> None:
    """Make every image that is not there, side by side."""
    with ThreadPoolExecutor() as threads:
        list(threads.map(image, SUITES))


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Let in one process or thread of this machine at a time. A process that dies releases the lock."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def image(kind: str) -> str:
    """The name of the image of that kind of host, made if it is not there."""
    name = f"localhost/deborgen-fleet-{kind}:{_fingerprint(kind)}"
    with locked(kind):
        if subprocess.run([*podman(), "image", "exists", name], check=False).returncode != 0:
            _make(kind, name)
    return name


def _make(kind: str, name: str) -> None:
    tree = CACHE / f"{kind}.tar"
    command = [
        "mmdebstrap", "--variant=minbase", "--mode=root", "--skip=cleanup/apt,cleanup/reproducible",
        f"--include={','.join(INSTALLED.split())}",
        '--customize-hook=chroot "$1" apt-get install -y -qq --download-only --no-install-recommends ' + _cached(kind),
    ]  # fmt: skip
    staging = CACHE / f"{kind}.files"
    shutil.rmtree(staging, ignore_errors=True)
    for path, text in FILES.items():
        (staging / path).parent.mkdir(parents=True, exist_ok=True)
        (staging / path).write_text(text)
        command.append(f"--customize-hook=upload {staging / path} /{path}")
    command += [f"--customize-hook=chroot \"$1\" sh -c '{SHELL}'", SUITES[kind], str(tree)]
    built = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1200)
    if built.returncode != 0:
        raise CannotBuild(f"mmdebstrap could not make {kind}: {built.stderr[-2000:]}")
    subprocess.run([*podman(), "import", "-q", str(tree), name], check=True, capture_output=True, timeout=300)
    tree.unlink()


def _cached(kind: str) -> str:
    return f"{DOWNLOADED} {DOWNLOADED_ALSO.get(kind, '')}".strip()


def _fingerprint(kind: str) -> str:
    parts = [kind, SUITES[kind], INSTALLED, _cached(kind), SHELL, repr(sorted(FILES.items()))]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


def podman() -> list[str]:
    """Podman with the settings that hosts need, whatever this machine's own are."""
    settings = CACHE / "containers.conf"
    text = (
        '[containers]\ndefault_ulimits=["nofile=20000:20000","nproc=4096:4096"]\nlog_driver="k8s-file"\n'
        '[engine]\nruntime="runc"\ncgroup_manager="cgroupfs"\nevents_logger="file"\n'
    )
    if not settings.exists() or settings.read_text() != text:
        CACHE.mkdir(parents=True, exist_ok=True)
        draft = CACHE / f"containers.conf.{os.getpid()}.{threading.get_ident()}"
        draft.write_text(text)
        draft.replace(settings)  # atomically, because another run may be reading it
    return ["env", f"CONTAINERS_CONF={settings}", "podman"]
