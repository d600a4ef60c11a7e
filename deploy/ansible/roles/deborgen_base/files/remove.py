#!/usr/bin/env python3
"""Remove deborgen's worker from this machine, using the manifest that was written when it joined the pool.

leave.yml runs this after it has told the coordinator. The owner of the machine may run it too, as root, at any time.
Packages stay unless `--packages` is given. Then those are removed that were installed for deborgen and that nothing
else needs. It ends with "nothing of deborgen is left" (exit 0), or lists what is left (exit 3).
"""

import argparse
import contextlib
import json
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

ETC = Path("/etc/deborgen")
MANIFEST = ETC / "manifest"
#: The manifests of a worker. A coordinator on the same machine keeps its files, and those that both use.
MANIFESTS = ("worker", "podman", "overlay")
#: Folders that an older Podman makes when it runs any command.
FOLDERS_OF_PODMAN = (Path("/etc/cni"), Path("/var/lib/cni"))
SHARED = [Path("/opt/deborgen"), MANIFEST, ETC, Path("/usr/local/sbin/deborgen-remove")]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--packages", action="store_true", help="also remove packages that were installed for deborgen")
    given = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("deborgen-remove: only root can remove users and units; try sudo")
    found = {name: json.loads(file.read_text()) for name in MANIFESTS if (file := MANIFEST / f"{name}.json").exists()}
    packages = lines(MANIFEST / "packages")
    coordinator_stays = (MANIFEST / "coordinator.json").exists()
    units = [unit for part in found.values() for unit in part["units"]]
    users = [user for part in found.values() for user in part["users"]]
    paths = [Path(path) for part in found.values() for path in part["paths"]]

    for unit in units:
        run("systemctl", "disable", "--now", unit)
    for user in users:
        paths += remove_user(user)
    kill_containers_in(paths)
    for path in paths:
        remove(path)
    for name in found:
        (MANIFEST / f"{name}.json").unlink()
    kept = []
    if given.packages:
        kept = remove_packages(packages)
        if not kept:
            for part in found.values():
                for path in part.get("with_packages", []):
                    remove(Path(path))
    owner_files = []
    if not coordinator_stays:
        owner_files = sorted(str(path) for path in ETC.glob("*") if path != MANIFEST and path not in paths)
        for path in SHARED:
            if path != ETC or not owner_files:
                remove(path)
    run("systemctl", "daemon-reload")
    run("systemctl", "reset-failed", *units)
    if not coordinator_stays:
        paths += [path for path in SHARED if path != ETC or not owner_files]
    report(paths, users, kept, owner_files)


def report(paths, users, packages, owner_files):
    left = [str(path) for path in paths if path.exists() or path.is_symlink()]
    left += [f"the user {user}" for user in users if known(user)]
    left += [f"the package {name}" for name in packages]
    left += [f"{path}, which its owner wrote" for path in owner_files]
    if left:
        print("this is left of deborgen: " + "; ".join(left))
        sys.exit(3)
    print("nothing of deborgen is left")


def remove_user(name):
    """Kill the user's processes, then delete the user. Returns the paths that belonged to this user alone."""
    account = known(name)
    if account is None:
        return []
    uid = account.pw_uid
    run("loginctl", "disable-linger", name)
    run("systemctl", "stop", f"user@{uid}.service")
    ids = [range(uid, uid + 1)] + [
        range(int(first), int(first) + int(count))
        for line in lines(Path("/etc/subuid"))
        for owner, first, count in [line.split(":")]
        if owner == name
    ]
    kill_all(lambda pid: any(owner_of(pid) in each for each in ids))
    paths = [Path(f"/etc/systemd/system/user-{uid}.slice.d"), Path(f"/run/user/{uid}")]
    for folder in (Path("/tmp"), Path("/var/tmp"), Path("/dev/shm")):
        paths += [path for path in folder.iterdir() if path.lstat().st_uid == uid]
    run("userdel", name)
    run("groupdel", name)
    for table in (Path("/etc/subuid"), Path("/etc/subgid")):
        rest = [line for line in lines(table) if not line.startswith(f"{name}:")]
        if table.exists() and rest != lines(table):
            table.write_text("".join(f"{line}\n" for line in rest))
    return paths


def kill_containers_in(paths):
    """Kill containers that still run with their files in these folders, and unmount what is mounted installed."""
    folders = [str(path) for path in paths if path.is_dir()]
    kill_all(lambda pid: any(folder in command_of(pid) for folder in folders if folder.startswith("/var/lib/")))
    mounts = [line.split()[1].replace("\\040", " ") for line in lines(Path("/proc/self/mounts"))]
    for mount in reversed(mounts):
        if any(mount.startswith(f"{folder}/") for folder in folders):
            run("umount", "-l", mount)


def kill_all(condition):
    """Kill all processes that meet the condition, and their children, until none is left or 20 seconds are over."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
        victims = [pid for pid in pids if pid not in (1, os.getpid()) and condition(pid)]
        victims += [pid for pid in pids if parent_of(pid) in victims and pid not in victims]
        if not victims:
            return
        for pid in victims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)


def owner_of(pid):
    try:
        return Path(f"/proc/{pid}").stat().st_uid
    except OSError:
        return -1


def parent_of(pid):
    found = re.search(r"^PPid:\s+(\d+)", text_of(f"/proc/{pid}/status"), re.MULTILINE)
    return int(found[1]) if found else 0


def command_of(pid):
    command = text_of(f"/proc/{pid}/cmdline")
    return command if "conmon" in command.split("\0")[0] or "/podman" in command.split("\0")[0] else ""


def text_of(path):
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def remove_packages(names):
    """Purge packages that were installed for deborgen, unless something else needs them. Returns those that stay."""
    if not names:
        return []
    if shutil.which("apt-get"):
        status = ("dpkg-query", "-W", "-f", "${db:Status-Status}")
        installed = [name for name in names if run(*status, name).stdout == "installed"]
        plan = run("apt-get", "-s", "purge", *installed).stdout if installed else ""
        planned = set(re.findall(r"^(?:Purg|Remv) (\S+)", plan, re.MULTILINE))
        if planned - set(names):
            return installed
        unused = unused_podman_folders() if "podman" in installed else []
        run("apt-get", "-y", "-q", "purge", *installed, environment={"DEBIAN_FRONTEND": "noninteractive"})
        kept = [name for name in installed if run(*status, name).stdout == "installed"]
    else:
        unused = unused_podman_folders() if "podman" in names else []
        run("dnf", "-y", "--setopt=clean_requirements_on_remove=False", "remove", *names)
        kept = [name for name in names if run("rpm", "-q", name).returncode == 0]
    if "podman" not in kept:
        for path in unused:
            remove(path)
        for path in FOLDERS_OF_PODMAN:
            remove_empty(path)
    return kept


def unused_podman_folders():
    """The folders that root's Podman made when it was installed, if nobody has used them since."""
    for what in (["images", "-q"], ["ps", "-aq"], ["volume", "ls", "-q"], ["secret", "ls", "-q"]):
        asked = run("podman", *what)
        if asked.returncode != 0 or asked.stdout.strip():
            return []
    own_networks = [path for path in Path("/etc/containers/networks").glob("*") if path.name not in ("netavark.lock",)]
    return [Path("/var/lib/containers")] + ([] if own_networks else [Path("/etc/containers")])


def remove_empty(path):
    """Remove folders that contain only empty folders, or a lock that is then useless."""
    for folder, _, _ in os.walk(path, topdown=False):
        with contextlib.suppress(OSError):
            if [path.name for path in Path(folder).iterdir()] == ["cni.lock"]:
                Path(folder, "cni.lock").unlink()
            Path(folder).rmdir()


def remove(path):
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.is_dir():
        shutil.rmtree(path, ignore_errors=True)


def known(user):
    try:
        return pwd.getpwnam(user)
    except KeyError:
        return None


def lines(file):
    return file.read_text().splitlines() if file.exists() else []


def run(*command, environment=None):
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, **(environment or {})}
    )


if __name__ == "__main__":
    main()
