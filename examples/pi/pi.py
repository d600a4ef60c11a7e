"""Throw darts at a square; the share that hits the circle is a quarter of pi."""

import argparse
import json
import math
import os
import random
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--samples", type=int, required=True)
parser.add_argument("--seed", type=int, required=True)
options = parser.parse_args()

progress = Path(os.environ.get("DEBORGEN_PROGRESS", os.devnull))
dart = random.Random(options.seed).random
hits = 0
shown = []
for number in range(options.samples):
    x, y = dart(), dart()
    inside = x * x + y * y <= 1
    hits += inside
    if number < 500:  # the picture shows the first darts
        shown.append(f'<circle cx="{x:.3f}" cy="{y:.3f}" r=".004" fill="{"teal" if inside else "orange"}"/>')
    if number % 100_000 == 0:
        progress.write_text(f"{number / options.samples:.2f} {number} darts")

estimate = 4 * hits / options.samples
print(f"{options.samples} darts, {hits} hits: pi is about {estimate}")

# This becomes the job's row in the results table.
result = {"pi": estimate, "error": abs(estimate - math.pi)}
Path(os.environ.get("DEBORGEN_RESULT", "result.json")).write_text(json.dumps(result))
Path("darts.svg").write_text(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1 1">{"".join(shown)}</svg>\n')
