"""Check everything in the inventory on the controller, and name all mistakes at once, before anything is changed.

The programs' own tables of settings say which values they accept. They come from this checkout, and need no package.
"""

import difflib
import ipaddress
import re
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import yaml
from ansible.module_utils.parsing.convert_bool import BOOLEANS, boolean
from ansible.plugins.action import ActionBase

ANSIBLE = Path(__file__).parents[1]
CHECKOUT = ANSIBLE.parents[1]
COORDINATOR, WORKERS = "deborgen_coordinator", "deborgen_workers"
#: Variables of the inventory that belong to no role.
OTHERS = {
    "deborgen_overlay": {"type": "str", "choices": ["tailscale", "none"]},
    "deborgen_backup_folder": {"type": "path"},
    "deborgen_default_image": {"type": "str"},
}
#: The settings that have a variable of their own.
OWN = {
    COORDINATOR: ("database", "default_image"),
    WORKERS: ("coordinator", "name", "cpus", "memory", "gpus", "disk", "hours", "runner", "network", "labels"),
}
#: The variables that the programs' own tables judge.
SETTINGS = {f"deborgen_worker_{name}" for name in OWN[WORKERS]} | {
    f"deborgen_coordinator_{name}" for name in OWN[COORDINATOR]
}
#: Variables of the inventory that stand for one of a role.
SHORT = {"deborgen_coordinator_default_image": "deborgen_default_image"}
#: The settings that the playbooks write themselves.
WRITTEN = {COORDINATOR: ("listen", "data_dir"), WORKERS: ("token_file", "state_dir", "podman_socket")}
LEAST = {
    "deborgen_coordinator_port": 1, "deborgen_coordinator_backups_kept": 1, "deborgen_worker_drain_seconds": 0,
    "deborgen_podman_ids": 1, "deborgen_coordinator_seconds": 1, "deborgen_worker_seconds": 1,
}  # fmt: skip


class ActionModule(ActionBase):
    """Takes no arguments: it reads the groups and the variables of all hosts, and the addresses that facts name."""

    TRANSFERS_FILES = False
    _requires_connection = False
    _VALID_ARGS = frozenset()

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        groups = {name: list(hosts) for name, hosts in task_vars["groups"].items()}
        found = Mistakes()
        hosts, addresses = {}, {}
        for host in groups["all"]:
            variables = task_vars["hostvars"][host]
            hosts[host] = _evaluated(host, variables, found)
            facts = variables.get("ansible_facts", {})
            addresses[host] = [*facts.get("all_ipv4_addresses", []), *facts.get("all_ipv6_addresses", [])]
        check(groups, hosts, addresses, found)
        lines = found.lines()
        if lines:
            count = "a mistake" if len(lines) == 1 else f"{len(lines)} mistakes"
            listed = "\n".join(f"- {line}" for line in lines)
            result.update(failed=True, msg=f"The inventory has {count}. Nothing was changed.\n{listed}")
        return result


def _evaluated(host, variables, found):
    """The host's variables for deborgen."""
    values = {}
    for name in sorted(name for name in variables if name.startswith("deborgen_")):
        try:
            values[name] = variables[name]
        except Exception as error:  # Ansible has many kinds of these
            found.add(host, name, f"it cannot be evaluated: {str(error).splitlines()[0]}")
    return values


class Mistakes:
    """What is wrong, and on which hosts."""

    def __init__(self):
        self._hosts = {}

    def add(self, host, variable, problem):
        self._hosts.setdefault((variable, problem), []).append(host)

    def lines(self):
        """One sentence per mistake. A mistake of several hosts, or of all, is named once."""
        lines = [
            ": ".join(filter(None, [", ".join(filter(None, hosts)), variable, problem]))
            for (variable, problem), hosts in self._hosts.items()
        ]
        return [re.sub(r"(://[^:/@\s]+:)[^@\s]+@", r"\1***@", line) for line in lines]  # no password is printed


@cache
def tables():
    """The programs' tables of settings, by the group of the machines that run them, and the error that they raise."""
    for part in ("shared", "coordinator", "worker"):
        sys.path.insert(0, str(CHECKOUT / part / "src"))
    from deborgen_coordinator.settings import TABLE as COORDINATORS_TABLE
    from deborgen_shared.settings import SettingsError, as_text
    from deborgen_worker.settings import TABLE as WORKERS_TABLE

    return {COORDINATOR: COORDINATORS_TABLE, WORKERS: WORKERS_TABLE}, SettingsError, as_text


@cache
def specified():
    """What the roles take: the specification of each variable, by name."""
    options = dict(OTHERS)
    for file in sorted(ANSIBLE.glob("roles/*/meta/argument_specs.yml")):
        for entry in yaml.safe_load(file.read_text())["argument_specs"].values():
            options |= entry["options"]
    return options


@cache
def private():
    """The pattern of the addresses that the coordinator may listen on."""
    variables = yaml.safe_load((ANSIBLE / "roles" / COORDINATOR / "vars" / "main.yml").read_text())
    return re.compile(variables["deborgen_coordinator_private"])


def check(groups, hosts, addresses, found):
    """Add every mistake of the inventory. `addresses` are those that each machine has; none if it was not asked."""
    check_groups(groups, found)
    for host, variables in hosts.items():
        for name, value in variables.items():
            problem = wrong_variable(name, value)
            if problem:
                found.add(host, name, problem)
        if host in groups.get(COORDINATOR, []):
            check_settings(COORDINATOR, host, variables, found)
        if host in groups.get(WORKERS, []):
            check_settings(WORKERS, host, {"deborgen_worker_name": host, **variables}, found)
        if host in {*groups.get(COORDINATOR, []), *groups.get(WORKERS, [])}:
            problem = wrong_address(variables, addresses.get(host, []), listens=host in groups.get(COORDINATOR, []))
            if problem:
                found.add(host, "deborgen_overlay_address", problem)
    names = {}
    for host in groups.get(WORKERS, []):
        names.setdefault(hosts[host].get("deborgen_worker_name", host), []).append(host)
    for name, same in names.items():
        if len(same) > 1:
            found.add(", ".join(same), "deborgen_worker_name", f"each of them is called {name!r}; give each its own")


def check_groups(groups, found):
    if not groups.get("all"):
        problem = "it names no machine; copy inventory.example.yml to inventory.yml, and put your machines in it"
        found.add("", "inventory", problem)
        return
    ours = [name for name in (COORDINATOR, WORKERS) if groups.get(name)]
    lost = set(groups["all"]) - {host for name in ours for host in groups[name]}
    for name in sorted(set(groups) - {COORDINATOR, WORKERS, "all", "ungrouped"}):
        near = difflib.get_close_matches(name, (COORDINATOR, WORKERS), 1, cutoff=0.8)
        if near and lost & set(groups[name]):
            found.add("", f"group {name}", f"no playbook uses a group of this name; did you mean {near[0]}?")
            lost -= set(groups[name])
    coordinators = groups.get(COORDINATOR, [])
    if len(coordinators) != 1:
        count = f"it has {len(coordinators)}: {', '.join(coordinators)}" if coordinators else "it has none"
        found.add("", f"group {COORDINATOR}", f"a pool has exactly one machine in this group, and {count}")
    if lost and WORKERS not in ours:
        names = ", ".join(sorted(lost))
        found.add("", f"group {WORKERS}", f"it is missing; the playbooks do nothing for {names} until they are in it")


def wrong_variable(name, value):
    """What is wrong with a variable, as far as the roles' specifications say, or None."""
    option = specified().get(name)
    if option is None:
        near = difflib.get_close_matches(name, specified(), 1)
        return "there is no such variable" + (f"; did you mean {near[0]}?" if near else "")
    problem = wrong_type(value, option.get("type", "str"))
    if problem or option.get("type") == "dict":
        return problem
    if "choices" in option and name not in SETTINGS and value not in option["choices"]:
        return f"{value!r} is not one of its values, which are {', '.join(option['choices'])}"
    if name in LEAST and int(value) < LEAST[name]:
        return f"it must be at least {LEAST[name]}"
    if name == "deborgen_coordinator_port" and int(value) > 65535:
        return "it must be at most 65535"
    if name == "deborgen_coordinator_backup_at" and not re.fullmatch(r"([01]\d|2[0-3]):[0-5]\d", str(value)):
        return f'{value!r} is not a time of day: write it in quotation marks, like "04:30"'
    if name == "deborgen_coordinator_image_archive" and value and not Path(value).expanduser().is_file():
        return f"there is no file {value} on this computer"
    if name == "deborgen_coordinator_admin" and value == "fleet":
        return "the playbooks' own token has this name; choose another one"
    return None


def wrong_type(value, wanted):
    if wanted == "bool":
        return None if value in BOOLEANS and boolean(value) in (True, False) else f"{value!r} is not true or false"
    if wanted == "int":
        return None if re.fullmatch(r"-?\d+", str(value)) else f"{value!r} is not a whole number"
    if wanted == "dict":
        return None if isinstance(value, Mapping) else f"{value!r} is not a list of names with values, like {{a: b}}"
    if wanted == "list":
        return None if isinstance(value, list) else f"{value!r} is not a list, like [a, b]"
    return f"{value!r} is not a text" if isinstance(value, (Mapping, list)) else None


def check_settings(group, host, variables, found):
    """Ask the program's own table about every setting that the playbooks would write for it."""
    by_group, settings_error, as_text = tables()
    table, prefix = by_group[group], {COORDINATOR: "deborgen_coordinator_", WORKERS: "deborgen_worker_"}[group]
    wanted = {name: _chosen(f"{prefix}{name}", variables) for name in OWN[group]}
    others = variables.get(f"{prefix}settings", {})
    for name, value in others.items() if isinstance(others, Mapping) else ():
        variable = f"{prefix}settings.{name}"
        if name in OWN[group]:
            found.add(host, variable, f"write it as {prefix}{name}")
        elif name in WRITTEN[group]:
            found.add(host, variable, "the playbooks themselves write this setting")
        elif str(name).replace("-", "_") not in table.rows:
            found.add(host, variable, f"the program has no such setting{table.near_match(str(name))}")
        else:
            wanted[name.replace("-", "_")] = (variable, value)
    texts, problems = {}, []
    for name, (variable, value) in wanted.items():
        try:
            text = as_text(value, variable)
            if text or name not in OWN[group]:
                table.rows[name].read(text, variable)
                texts[name] = text
        except settings_error as error:
            problems += error.problems
    if not problems:
        try:
            table.load(texts, {})
        except settings_error as error:
            problems += [f"{prefix}settings: {problem}" for problem in error.problems]
    for problem in problems:
        variable, _, rest = problem.partition(": ")
        found.add(host, variable, rest)


def _chosen(name, variables):
    """The variable that sets this one of a role, and its value."""
    name = name if name in variables else SHORT.get(name, name)
    return name, variables.get(name, "")


def wrong_address(variables, has, *, listens):
    """What is wrong with the machine's address in the private network, or None."""
    if variables.get("deborgen_overlay_kind", variables.get("deborgen_overlay", "tailscale")) != "none":
        return None
    text = str(variables.get("deborgen_overlay_address", ""))
    if not text:
        return "with deborgen_overlay: none, each machine needs its address in the private network here"
    try:
        address = ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        return f"{text!r} is not an IP address"
    if listens and not private().match(text):
        return f"the coordinator listens on private addresses only, and {text} is public; use an address in a VPN"
    if has and not address.is_loopback and address not in map(ipaddress.ip_address, has):
        shown = [each for each in has if not each.startswith("fe80:")]
        return f"the machine does not have the address {text}; it has {', '.join(shown)}"
    return None
