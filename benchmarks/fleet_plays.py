"""How long `site.yml` takes for three bare hosts, and when it is run again: python benchmarks/fleet_plays.py

Needs root, and what `tools/fleet.sh` installs. The hosts are those of tests/fleet: a Debian 12 droplet, a Debian 12 PC
with rootless and a Debian 13 PC with rootful Podman, with packages downloaded but not installed. Controller and hosts
share this machine, so the figures mean something only when it is otherwise idle. The load before each play is shown.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from fleet.play import PROMISED, figure
from fleet.pool import FleetPool
from support.hosts import why_no_hosts

WORKERS = {
    "ada": {"deborgen_worker_cpus": 2, "deborgen_worker_memory": "2GiB"},
    "cy": {"deborgen_worker_cpus": 2, "deborgen_worker_memory": "2GiB", "deborgen_podman_rootful": True},
}


def main() -> None:
    if reason := why_no_hosts():
        sys.exit(reason)
    with tempfile.TemporaryDirectory(prefix="deborgen-fleet-") as folder:
        pool = FleetPool(Path(folder))
        try:
            pool.boot(WORKERS)
            for what in PROMISED:
                print(figure(what, pool.must_play("site.yml")), flush=True)
        finally:
            pool.fleet.remove()


if __name__ == "__main__":
    main()
