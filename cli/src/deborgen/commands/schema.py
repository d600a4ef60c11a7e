"""deborgen schema"""

from __future__ import annotations

import json

import click

from deborgen import output
from deborgen.cli import CONTEXT
from deborgen_shared.jobfile.json_schema import schema


@click.command(name="schema", context_settings=CONTEXT)
def command() -> None:
    """Print the JSON Schema of the job file, for editors.

    \b
    To use it with your editor's YAML extension:
      deborgen schema > job.schema.json
      # yaml-language-server: $schema=job.schema.json      (first line of the job file)
    """
    output.write(json.dumps(schema(wire=False), indent=2, ensure_ascii=False) + "\n")
