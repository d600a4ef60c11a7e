"""deborgen from Python, cell by cell. Start a pool first: deborgen up -d"""

# %% Connect to a running `deborgen up`, or to the coordinator of `deborgen login`.
import deborgen

client = deborgen.Client()

# %% One job per case. `{x}` is filled in from each case, quoted for the shell.
run = client.map(
    """x={x}; echo '{{"y": '$(( x * x ))'}}' > "$DEBORGEN_RESULT"; echo computed $x""",
    [{"x": x} for x in range(1, 7)],
    name="squares",
    resources={"cpus": 1, "memory": "64MiB"},
)
print(f"run {run.id}: {run.total} jobs")

# %% Print each job as it ends.
for job in run.as_completed():
    print(f"  job {job.id} {job.state}: x={job.params['x']} y={job.result['y']}")

# %% The results table. `.to_pandas()` turns it into a data frame.
results = run.wait(check=True).results()
for row in results.sorted_by("x"):
    print(row["x"], row["y"])
best = results.best("y", "max")
assert best is not None
print("the largest:", best["x"], best["y"])

# %% The log of one job.
print(client.job(f"{run.id}.1").logs())
