"""Exits with 0 if a line is close enough to the measurements: python3 good_enough.py MEASUREMENTS LINE"""

import csv
import json
import sys
from pathlib import Path

MOST = 0.12

rows = [(float(x), float(y)) for x, y in csv.reader(Path(sys.argv[1]).read_text().splitlines())]
line = json.loads(Path(sys.argv[2]).read_text())
error = (sum((line["slope"] * x + line["offset"] - y) ** 2 for x, y in rows) / len(rows)) ** 0.5
print(f"the error is {error:.4f}, and may be {MOST}")
sys.exit(error > MOST)
