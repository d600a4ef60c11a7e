"""Plants a fault in every Python process of an environment, at the import of the modules that it names.

The environment has a `.pth` file that imports this module, so it is there in processes with a cleaned environment and
under `python -I` too. The folder `planted` of the environment has a file `fault`: its first line names the part of the
table and the row, each further line a module to be patched. For each patch that was planted the folder gets a file.

This runs at the start of every process: it imports nothing but what Python has loaded anyway, and reads the table only
when a module of the product is imported that the fault is about.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

FOLDER = "planted"
FAULT = "fault"


class PlantingFinder:
    """Finds the modules that the fault names, and plants it in each right after it was executed."""

    def __init__(self, folder: Path, part: str, number: int, modules: frozenset[str]) -> None:
        self._folder, self._part, self._number, self._modules = folder, part, number, modules

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name not in self._modules:
            return None
        spec = PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_plant(module: ModuleType) -> None:
                execute(module)
                self._plant(name)

            spec.loader.exec_module = execute_and_plant  # type: ignore[method-assign]
        return spec

    def _plant(self, name: str) -> None:
        from planted.table import rows_of

        for place, patch in enumerate(rows_of(self._part)[self._number].patches):
            if patch.module == name:
                patch.plant()
                (self._folder / str(place)).touch()


def install() -> None:
    folder = Path(sys.prefix) / FOLDER
    fault = folder / FAULT
    if fault.exists():
        (part, number), *modules = (line.split() for line in fault.read_text().splitlines())
        named = frozenset(name for (name,) in modules)
        sys.meta_path.insert(0, PlantingFinder(folder, part, int(number), named))


install()
