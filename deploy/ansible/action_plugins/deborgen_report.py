"""Write the report of a play: an honest line per PC, notes, and after a first run the admin's login at the very end."""

import json
from datetime import datetime

from ansible.plugins.action import ActionBase

WIDTHS = "{:<16} {:<13} {:<13} {:<9} {:>5} {:>9} {:>4}  {}"
HEAD = WIDTHS.format("PC", "state", "last contact", "version", "cpus", "memory", "gpus", "policy")


class ActionModule(ActionBase):
    """Takes the answer of playbooks/files/pool.py; reads what the plays have found out about each PC."""

    TRANSFERS_FILES = False
    _requires_connection = False
    _VALID_ARGS = frozenset(["pool"])

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        groups, hostvars = task_vars["groups"], task_vars["hostvars"]
        pool = answer_of(self._task.args["pool"])
        gone = set(task_vars["ansible_play_hosts_all"]) - set(task_vars["ansible_play_hosts"])
        pcs = [pc_of(host, hostvars[host], host in gone) for host in groups.get("deborgen_workers", [])]
        droplet = groups["deborgen_coordinator"][0]
        known = hostvars[droplet]
        lines = report(pool, pcs, droplet)
        lines += restored(known.get("deborgen_coordinator_revived"), known.get("deborgen_coordinator_tokens_before"))
        lines += ending(pool, known.get("deborgen_coordinator_login"))
        result.update(deborgen_summary=["", *lines], msg="The report is at the end.", failed="error" in pool)
        if "error" in pool:
            result["msg"] = pool["error"]
        return result


def answer_of(asked):
    """What pool.py printed, or the reason why there is nothing."""
    try:
        return json.loads(asked["stdout"])
    except (KeyError, ValueError):
        reason = (asked.get("msg") or asked.get("stderr") or "no answer").strip().splitlines()[-1]
        return {"error": reason, "workers": []}


def pc_of(host, known, gone):
    """What the plays know about a PC."""
    gathered, service = known.get("gathered", {}), known.get("service", {})
    name = str(known.get("deborgen_worker_name", host))
    hours = known.get("deborgen_worker_hours", "")
    return {
        "host": host,
        "name": name,
        "unreachable": reason_of(gathered) if gathered.get("unreachable") else "",
        "gone": gone or bool(service.get("unreachable")),
        "failed": known.get("failed_because", ""),
        "changed": known.get("deborgen_worker_changed", False),
        "service": service,
        "hours": f"at {hours}" if hours else "always",
        "network": known.get("deborgen_worker_network", "none"),
        "podman": "rootful" if known.get("deborgen_podman_rootful") else "rootless",
    }


def reason_of(gathered):
    """Why a machine cannot be reached, in SSH's own words."""
    lines = str(gathered.get("msg", "")).strip().splitlines()
    return lines[-1].rpartition("via ssh: ")[2] if lines else "no answer"


def report(pool, pcs, droplet):
    if "error" in pool:
        where = f" at {pool['address']}" if "address" in pool else ""
        lines = [
            f"The coordinator does not answer{where}: {pool['error']}.",
            f"Look at `journalctl -u deborgen-coordinator` on {droplet}.",
        ]
    else:
        health = pool["health"]
        lines = [f"The pool is at {pool['address']}, version {health['version']}, {health['status']}."]
    if "backup" in pool:
        none = "There is no backup yet: one is made every day, or at once with backup.yml."
        lines.append(f"The newest backup is {pool['backup']}." if pool["backup"] else none)
    workers = {worker["name"]: worker for worker in pool["workers"]}
    lines += ["", HEAD] if pcs else []
    for pc in pcs:
        lines += row(pc, workers.get(pc["name"]), pool)
    return lines


def row(pc, worker, pool):
    """The line of a PC, and below it the reason for a state that is not good."""
    state, reason = state_of(pc, worker, known="error" not in pool)
    worker = worker or {}
    has, labels = worker.get("capacity") or {}, worker.get("labels") or {}
    policy = [pc["hours"], f"network {labels.get('network', pc['network'])}", pc["podman"]]
    line = WIDTHS.format(
        pc["name"], state, age(worker.get("last_seen_at"), pool.get("now")), worker.get("version") or "-",
        f"{has.get('cpus', 0):g}", f"{has.get('memory', 0) / 2**30:.1f} GiB", has.get("gpus", 0), ", ".join(policy),
    )  # fmt: skip
    return [line, *(f"{'':<16} {each}" for each in reason.splitlines())]


def state_of(pc, worker, known):
    """The state in one word, and the reason. What was seen on the PC itself comes before what the coordinator says."""
    service, again = pc["service"], f"run this again with --limit {pc['host']}"
    if pc["unreachable"]:
        return "unreachable", f"{pc['unreachable']}; {again} when it answers"
    if pc["gone"] and not pc["failed"]:
        return "unreachable", f"it went away during this run; {again} when it answers"
    if service.get("crash_looping"):
        return "crash-looping", f"restarted {service['restarts']} times; its last line is: {service['log']}"
    if pc["failed"]:
        return "failed", pc["failed"]
    if str(service.get("state", "active")).startswith(("inactive", "failed")):
        return "stopped", f"deborgen-worker is {service['state']}; start it, or {again}"
    if not known:
        return "unknown", ""
    if worker is None or worker["state"] == "left":
        return "absent", f"the coordinator does not know it; {again}"
    if worker["state"] != "open":
        return worker["state"], worker.get("reason", "")
    return ("changed" if pc["changed"] else "ready"), ""


def age(when, now):
    """How long ago that was, as the coordinator's clock has it."""
    if not when or now is None:
        return "never"
    seconds = max(0, round(now - datetime.fromisoformat(when).timestamp()))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit} ago"
    return f"{seconds} s ago"


def restored(revived, before):
    """What a restore means for tokens."""
    if revived:
        listed = [f"  {token['role']} {token['name']}: deborgen token revoke {token['id']}" for token in revived]
        return ["", "These tokens were revoked after the backup was made, and are valid again:", *listed]
    if before is not None and before.get("status") != 200:
        return ["", "A token that was revoked after the backup was made is valid again: look at `deborgen token list`."]
    return []


def ending(pool, login):
    """On the first run, the admin's login; then how to begin."""
    if "error" in pool:
        return []
    if login:
        return ["", "Log in, from a computer in the private network. The token is shown only this once:", *login]
    return ["", "Submit a job, from a computer in the private network:", f"  deborgen login {pool['address']}",
            "  deborgen run --image docker.io/library/alpine:3 -- echo hello"]  # fmt: skip
