"""A few steps of descent towards the line that fits best: python3 refine.py MEASUREMENTS RATE

It goes on from the line of the last round, if there is one, and writes its own to model/line.json.
"""

import csv
import json
import os
import sys
from pathlib import Path

STEPS = 40

rows = [(float(x), float(y)) for x, y in csv.reader(Path(sys.argv[1]).read_text().splitlines())]
rate = float(sys.argv[2])
last = Path("inputs/previous/model/line.json")
line = json.loads(last.read_text()) if last.exists() else {"slope": 0.0, "offset": 0.0}

for _ in range(STEPS):
    misses = [(line["slope"] * x + line["offset"] - y, x) for x, y in rows]
    line["slope"] -= rate * sum(miss * x for miss, x in misses) / len(rows)
    line["offset"] -= rate * sum(miss for miss, _ in misses) / len(rows)

Path("model").mkdir()
Path("model/line.json").write_text(json.dumps(line) + "\n")
Path(os.environ.get("DEBORGEN_RESULT", "result.json")).write_text(json.dumps(line))
print(f"round {os.environ.get('DEBORGEN_ROUND', '1')}: {line['slope']:.4f} x + {line['offset']:.4f}")
