"""Every limit of the job file. A message about something too large names the limit.

The limit of a text is in characters, unless its name says bytes. Other single numbers are counts. A pair is the
smallest and the largest allowed value; durations are in seconds, sizes in bytes.
"""

from __future__ import annotations

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB
TIB = 1024 * GIB

DOCUMENT_BYTES = MIB
DOCUMENT_DEPTH = 32
#: A document of 1 MiB has fewer nodes than this, so only aliases can reach it.
DOCUMENT_NODES = 600_000

JOBS = 100_000
STEPS = 1_000
NEEDS = 100
AXES = 32
AXIS_VALUES = 1_000_000
CASES = 1_000_000
EXCLUDES = 1_000
#: The rows of `exclude` may use at most this many different sets of parameters. This limits the work per job.
EXCLUDE_SHAPES = 16

NAME = 200
STEP_ID = 63
PARAMETER_NAME = 64
PARAMETER_TEXT = 4_096
#: The parameters of all jobs of a run together may take the first number of bytes times the maximum number of jobs, or
#: the second number of bytes if that is more.
PARAMETER_BYTES_PER_JOB, PARAMETER_BYTES = 640, 16 * MIB
IMAGE = 500
TAG = 300
URL = 2_000
REF = 250
RUN_BYTES = 100 * KIB
#: The texts of one job with lookups, after these are filled in.
FILLED_BYTES = MIB
ARGUMENTS = 1_000
ENV = 1_000
ENV_NAME = 128
ENV_BYTES = 32 * KIB
SECRETS = 100
LABELS = 64
LABEL_KEY = 63
LABEL_VALUE = 200
FILES = 10_000
FILE_BYTES = 2**50
ARTIFACTS = 100
PATH_BYTES = 1_024
PATH_PART_BYTES = 255

CPUS = (0.01, 1_024.0)
MEMORY = (4 * MIB, 1_024 * TIB)
GPUS = (0, 64)
DISK = (MIB, 1_024 * TIB)
TIMEOUT = (1.0, 365 * 86_400.0)
WATCHDOG = (1.0, 365 * 86_400.0)
BACKOFF = (0.0, 86_400.0)
CHECKPOINT_EVERY = (1.0, 86_400.0)
MAX_ATTEMPTS = (1, 100)
#: A loop makes two jobs per round, so that more rounds would exceed the limit of jobs.
ROUNDS = (1, JOBS // 2)
PRIORITY = (-1_000, 1_000)
INTEGER = (-(2**63), 2**63 - 1)
