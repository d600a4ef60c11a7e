from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import deborgen_shared.jobfile as package

MODULES = sorted(file.stem for file in Path(package.__file__).parent.glob("[a-z]*.py"))


def loaded_after(code: str) -> set[str]:
    code += "; import sys; print(*sys.modules)"
    # Without coverage measurement, which imports modules of its own.
    env = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    found = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    return set(found.stdout.split())


def test_importing_units_does_not_import_the_parser() -> None:
    loaded = loaded_after("from deborgen_shared.jobfile.units import parse_duration")
    assert not loaded & {"deborgen_shared.jobfile.parser", "msgspec", "dataclasses"}


def test_yaml_is_imported_only_to_read_text() -> None:
    assert "yaml" not in loaded_after("import deborgen_shared.jobfile.reading, deborgen_shared.jobfile.json_schema")


@pytest.mark.parametrize("module", MODULES)
def test_every_module_can_be_the_first_one_imported(module: str) -> None:
    assert f"deborgen_shared.jobfile.{module}" in loaded_after(f"import deborgen_shared.jobfile.{module}")
