#!/usr/bin/python3
"""Ask the coordinator on this machine, with the playbooks' own token, which never leaves the machine."""

import json
import platform
import re
import urllib.error
import urllib.request
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = """
module: deborgen_api
short_description: Call the API of the coordinator on this machine
description: [Reads the address and the playbooks' token on the machine itself. In check mode it changes nothing.]
options:
  path: {description: The path of the call., type: str, required: true}
  method: {description: The method of the call., type: str, default: GET}
  body: {description: The body of the call., type: dict}
  accept: {description: Statuses that are not a failure; 0 means that there is no coordinator or no answer., type: list}
author: [deborgen]
"""
EXAMPLES = """
- name: List the tokens
  deborgen_api:
    path: /v1/tokens
"""
RETURN = """
status: {description: The status of the answer., type: int, returned: always}
json: {description: The answer., type: dict, returned: if there is one}
url: {description: The address of the coordinator., type: str, returned: if there is a coordinator}
token_id: {description: The id of the playbooks' token., type: str, returned: if there is a token}
"""

SETTINGS, TOKEN = Path("/etc/deborgen/coordinator.toml"), Path("/etc/deborgen/fleet.token")
SPEC = {
    "path": {"required": True},
    "method": {"default": "GET"},
    "body": {"type": "dict"},
    "accept": {"type": "list", "elements": "int", "default": [200, 201, 204]},
}


def main():
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    wanted, result = module.params, {"changed": module.params["method"] != "GET"}
    if not SETTINGS.exists():
        problem = f"There is no coordinator on {platform.node()} yet: run site.yml without --limit first."
        finish(module, {**result, "status": 0}, problem)
    listen = re.search(r'^listen = "([^"]+)"', SETTINGS.read_text(), re.MULTILINE)[1]
    token = TOKEN.read_text().strip() if TOKEN.exists() else ""
    result |= {"url": f"http://{listen}", "token_id": token.split("_")[2] if token.count("_") > 2 else ""}
    if module.check_mode and result["changed"]:
        module.exit_json(**result, status=200, json={})
    status, text = call(f"{result['url']}{wanted['path']}", token, wanted)
    try:
        answer = json.loads(text) if text else {}
    except ValueError:
        answer = {}
    said = answer.get("error", {}).get("message") if isinstance(answer.get("error"), dict) else None
    problem = (
        f"{wanted['method']} {wanted['path']} of the coordinator at {result['url']} gave {status or 'no answer'}: "
        f"{said or text[:200]}. Look at `journalctl -u deborgen-coordinator` on {platform.node()}."
    )
    finish(module, {**result, "status": status, "json": answer}, problem)


def call(url, token, wanted):
    """The status and the text of the answer; status 0 and the reason if there is none."""
    body = None if wanted["body"] is None else json.dumps(wanted["body"]).encode()
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    headers |= {"Content-Type": "application/json"} if body is not None else {}
    request = urllib.request.Request(url, body, headers, method=wanted["method"])
    try:
        with urllib.request.urlopen(request, timeout=15) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as answer:
        return answer.code, answer.read().decode()
    except OSError as error:
        return 0, str(getattr(error, "reason", error))


def finish(module, result, problem):
    if result["status"] not in module.params["accept"]:
        module.fail_json(msg=problem, **result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
