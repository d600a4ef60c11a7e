#!/usr/bin/python3
"""Report which parts of deborgen and which packages a machine has, in one round trip. Changes nothing."""

import shutil
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = """
module: deborgen_info
short_description: Report what a machine has of deborgen
description: [Collects in one round trip what the roles of deborgen need to know before they act.]
options: {}
author: [deborgen]
"""
EXAMPLES = """
- name: Find out what is installed
  deborgen_info:
"""
RETURN = """
joined: {description: Whether deborgen was set up on this machine before., type: bool, returned: always}
token: {description: Whether the worker has a token., type: bool, returned: always}
releases: {description: The current release of each part that is installed., type: dict, returned: always}
packages: {description: The names of the installed packages., type: list, returned: always}
"""

ETC = Path("/etc/deborgen")
PARTS = {part: Path("/opt/deborgen") / part / "current" for part in ("coordinator", "worker")}


def main():
    module = AnsibleModule(argument_spec={}, supports_check_mode=True)
    module.exit_json(
        changed=False,
        joined=(ETC / "manifest").exists(),
        token=(ETC / "worker.token").exists(),
        releases={part: current.resolve().name for part, current in PARTS.items() if current.exists()},
        packages=packages(module),
    )


def packages(module):
    if shutil.which("dpkg-query"):
        listing = ["dpkg-query", "-W", "-f", "${db:Status-Status} ${Package}\n"]
    else:
        listing = ["rpm", "-qa", "--qf", "installed %{NAME}\n"]
    lines = module.run_command(listing, check_rc=True)[1].splitlines()
    return sorted({line.partition(" ")[2] for line in lines if line.startswith("installed ")})


if __name__ == "__main__":
    main()
