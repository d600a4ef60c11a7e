"""Print the state of the coordinator on this machine, and of its workers, as JSON. Changes nothing.

If the coordinator does not answer, `error` says why.
"""

import json
import re
import time
import urllib.request
from pathlib import Path

ETC = Path("/etc/deborgen")
BACKUPS = Path("/var/lib/deborgen/backups")


def main():
    listen = re.search(r'^listen = "([^"]+)"', (ETC / "coordinator.toml").read_text(), re.MULTILINE)[1]
    address = f"http://{listen}"
    backups = sorted(path.name for path in BACKUPS.glob("deborgen-*.backup"))
    answer = {"address": address, "now": time.time(), "workers": [], "backup": backups[-1] if backups else None}
    try:
        token = (ETC / "fleet.token").read_text().strip()
        answer["health"] = ask(f"{address}/health", token)
        answer["workers"] = ask(f"{address}/v1/workers", token)["items"]
    except OSError as error:
        answer["error"] = str(getattr(error, "reason", error))
    print(json.dumps(answer))


def ask(url, token):
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=15) as answer:
        return json.load(answer)


if __name__ == "__main__":
    main()
