"""A random walk in a plane, which goes on from its last state: python3 simulate.py STEPS [SECONDS_PER_STEP]

The state is one file. It is written under another name first and then renamed, so that it is complete at any moment at
which a copy of it is made.
"""

import json
import os
import random
import sys
import time
from pathlib import Path

steps = int(sys.argv[1])
pause = float(sys.argv[2]) if len(sys.argv) > 2 else 0.1
file = Path("state/walk.json")
walk = {"done": 0, "x": 0.0, "y": 0.0, "farthest": 0.0}
dice = random.Random(1)

if file.exists():
    saved = json.loads(file.read_text())
    walk, (version, numbers, gauss) = saved["walk"], saved["dice"]
    dice.setstate((version, tuple(numbers), gauss))
    print(f"going on from step {walk['done']}", flush=True)
file.parent.mkdir(exist_ok=True)

while walk["done"] < steps:
    walk["done"] += 1
    walk["x"] += dice.gauss(0, 1)
    walk["y"] += dice.gauss(0, 1)
    walk["farthest"] = max(walk["farthest"], (walk["x"] ** 2 + walk["y"] ** 2) ** 0.5)
    new = file.with_suffix(".new")
    new.write_text(json.dumps({"walk": walk, "dice": dice.getstate()}))
    new.replace(file)
    if progress := os.environ.get("DEBORGEN_PROGRESS"):
        Path(progress).write_text(f"{walk['done'] / steps:.3f} step {walk['done']}")
    time.sleep(pause)

Path(os.environ.get("DEBORGEN_RESULT", "result.json")).write_text(json.dumps(walk))
print(f"it came {walk['farthest']:.3f} far")
