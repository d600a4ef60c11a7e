"""Make a picture of every page of the dashboard, in both themes, on a laptop and on a phone: `make screenshots`.

The pictures are in .cache/screenshots/. The one in the README is docs/dashboard.png. They show a pool on this machine
that runs the examples.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from support.coordinator import CoordinatorProcess
from support.person import Person
from support.pool import Pool
from support.tab import Tab, open_browser

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".cache/screenshots"
SWEEP = """
name: learning-rates
labels: {project: thesis}
resources: {cpus: 0.25, memory: 64MiB}
max_attempts: 1
sweep:
  grid:
    lr: [0.3, 0.1, 0.03, 0.01, 0.003, 0.001]
    width: [16, 32, 64, 128, 256]
run: |
  for epoch in 1 2 3 4; do echo "epoch $epoch of 4"; sleep 0.2; done
  if [ $DEBORGEN_PARAM_LR-$DEBORGEN_PARAM_WIDTH = 0.3-256 ]; then echo "the loss is not a number" >&2; exit 3; fi
  awk -v lr=$DEBORGEN_PARAM_LR -v width=$DEBORGEN_PARAM_WIDTH \
    'BEGIN { d = log(lr / 0.012); printf "{\\"loss\\": %.4f}", 0.08 + d * d / 40 + 6 / (width + 20) }' \
    > "$DEBORGEN_RESULT"
  echo "the model" > model.txt
artifacts: [model.txt]
"""
#: Still runs when the pictures are made.
LONG = """
name: molecular-dynamics
resources: {cpus: 0.5, memory: 64MiB}
sweep: {grid: {temperature: {from: 280, to: 330, step: 10}, replica: {from: 1, to: 4}}}
run: sleep 600
"""


def fill(pool: Pool, ada: Person, bob: Person) -> dict[str, int]:
    """Runs of two people, on three machines. The number of each by its name in the addresses."""
    for name in ("laptop", "garage", "gpu-box"):
        pool.add_worker(
            name, cpus=2, memory="4GiB", drain_grace="1s", labels="owner=ada" if name == "laptop" else "room=2"
        )
    sweep = int(ada.submit(SWEEP))
    steps = int(ada.submit((ROOT / "examples/steps/steps.yml").read_text(), name="steps.yml"))
    for run in (sweep, steps):
        pool.done(run)
    bob.submit(LONG, name="long.yml")
    failed = pool.job(f"{sweep}.5")
    assert failed["state"] == "failed", failed
    return {"SWEEP": sweep, "STEPS": steps}


PAGES = {
    "now": "/", "runs": "/runs", "run": "/runs/SWEEP", "steps": "/runs/STEPS", "results": "/runs/SWEEP/results",
    "job": "/jobs/SWEEP.1", "failed-job": "/jobs/SWEEP.5", "workers": "/workers", "worker": "/workers/laptop",
    "events": "/events", "ledger": "/ledger", "submit": "/submit", "me": "/me", "find": "/find?q=",
}  # fmt: skip
WIDTHS = {"laptop": 1200, "phone": 360}


def photograph(browser: Browser, pool: Pool, runs: dict[str, int]) -> None:
    for theme in ("light", "dark"):
        for device, width in WIDTHS.items():
            size = {"width": width, "height": 800}
            with Tab(browser, pool, "admin", "ada", color_scheme=theme, viewport=size) as tab:
                for name, page in PAGES.items():
                    tab.go(page.replace("SWEEP", str(runs["SWEEP"])).replace("STEPS", str(runs["STEPS"])))
                    # The page is complete; its log, if it has one, is read.
                    tab.page.wait_for_timeout(600)
                    tab.page.screenshot(path=FOLDER / f"{name}-{theme}-{device}.png", full_page=True)
    with Tab(browser, pool, "submitter", "ada", viewport={"width": 1100, "height": 760}) as tab:
        tab.go(f"/runs/{runs['SWEEP']}/results")
        tab.page.screenshot(path=ROOT / "docs/dashboard.png")
    with Tab(browser, pool, None, viewport={"width": 360, "height": 640}) as tab:
        tab.go("/sign-in")
        tab.page.screenshot(path=FOLDER / "sign-in.png")


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, open_browser() as browser:
        Path(folder).chmod(0o755)
        with Pool(CoordinatorProcess(Path(folder), heartbeat_seconds=1, lease_seconds=20)) as pool:
            photograph(browser, pool, fill(pool, pool.person("ada"), pool.person("bob")))
    print(f"{len(list(FOLDER.glob('*.png')))} pictures are in {FOLDER}")


if __name__ == "__main__":
    main()
