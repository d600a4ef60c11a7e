#!/usr/bin/python3
"""Look at a service of deborgen, or wait until it answers or is in contact with the pool."""

import json
import platform
import subprocess
import time
import urllib.request

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = """
module: deborgen_service
short_description: Look at a service of deborgen, or wait until it works
description: [Waits in one round trip. A failure says what was wanted, what was seen, and where to look.]
options:
  unit: {description: The unit., type: str, required: true}
  health: {description: Wait until a coordinator answers at this address., type: str}
  version: {description: The version that the coordinator must have., type: str, default: ""}
  contact: {description: Wait until this program says that its worker has reached the coordinator., type: str}
  seconds: {description: How long to wait., type: int, default: 60}
author: [deborgen]
"""
EXAMPLES = """
- name: Wait until the coordinator answers
  deborgen_service:
    unit: deborgen-coordinator.service
    health: http://10.8.0.1:8765
"""
RETURN = """
state: {description: The unit's state as systemd has it., type: str, returned: always}
restarts: {description: How often systemd has restarted the unit., type: int, returned: always}
crash_looping: {description: Whether the service ends again soon after each start., type: bool, returned: always}
log: {description: The last line of its log., type: str, returned: always}
"""

SPEC = {
    "unit": {"required": True}, "health": {}, "version": {"default": ""}, "contact": {},
    "seconds": {"type": "int", "default": 60},
}  # fmt: skip
#: A service that systemd has restarted this often, and that has not lived this many seconds since, is crash-looping.
RESTARTS, LIVES_SECONDS = 3, 60
#: A worker whose last contact is older than this many seconds has lost it.
CONTACT_SECONDS = 60


def main():
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    wanted = module.params
    look = health if wanted["health"] else contact if wanted["contact"] else None
    deadline = time.monotonic() + wanted["seconds"]
    seen = ""
    while look:
        works, seen = look(wanted)
        if works:
            break
        if time.monotonic() > deadline:
            module.fail_json(changed=False, msg=explain(wanted, seen, unit(wanted["unit"])), **unit(wanted["unit"]))
        time.sleep(0.5)
    module.exit_json(changed=False, seen=seen, **unit(wanted["unit"]))


def explain(wanted, seen, found):
    if wanted["health"]:
        version = f" of version {wanted['version']}" if wanted["version"] else ""
        goal = f"a coordinator{version} that answers at {wanted['health']}/health"
    else:
        goal = "a worker that reaches the coordinator"
    looping = f", and was restarted {found['restarts']} times" if found["restarts"] else ""
    said = f' The last line of its log is: "{found["log"]}".' if found["log"] else ""
    return (
        f"Wanted: {goal}, within {wanted['seconds']} seconds. Seen: {seen}; {wanted['unit']} is {found['state']}"
        f"{looping}.{said} Look at `journalctl -u {wanted['unit'].removesuffix('.service')}` on {platform.node()}."
    )


def health(wanted):
    try:
        with urllib.request.urlopen(f"{wanted['health']}/health", timeout=5) as answer:
            version = json.load(answer).get("version", "")
    except (OSError, ValueError) as error:
        return False, str(getattr(error, "reason", error))
    return wanted["version"] in ("", version), f"version {version}"


def contact(wanted):
    command = [wanted["contact"], "status", "--json", "--state-dir", "/var/lib/deborgen-worker"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return False, str(error)
    if done.returncode != 0:
        return False, (done.stderr.strip().splitlines() or ["no answer"])[-1]
    status = json.loads(done.stdout)
    age = status["last_contact_seconds"]
    return age is not None and age < CONTACT_SECONDS, status["headline"]


def unit(name):
    """The unit's state, how often it was restarted, whether it is crash-looping, and the last line of its log."""
    shown = run("systemctl", "show", name, "-p", "ActiveState,SubState,NRestarts,ActiveEnterTimestampMonotonic")
    has = dict(line.split("=", 1) for line in shown.splitlines() if "=" in line)
    restarts = int(has.get("NRestarts") or 0)
    lived = time.clock_gettime(time.CLOCK_MONOTONIC) - int(has.get("ActiveEnterTimestampMonotonic") or 0) / 1e6
    again = has.get("SubState") == "auto-restart"
    log = run("journalctl", f"_SYSTEMD_UNIT={name}", "-n", "1", "-o", "cat", "--no-pager")
    return {
        "state": f"{has.get('ActiveState', 'unknown')} ({has.get('SubState', 'unknown')})",
        "restarts": restarts,
        "crash_looping": again or (restarts >= RESTARTS and lived < LIVES_SECONDS),
        "log": log.strip()[:500],
    }


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60).stdout


if __name__ == "__main__":
    main()
