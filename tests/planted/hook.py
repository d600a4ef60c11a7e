"""Plants a bug in every Python process of an environment, when the modules that it names are imported.

The environment has a `.pth` file that imports this module, so it also works in processes with a cleaned environment
and under `python -I`. The folder `planted` of the environment has a file `bug`: its first line names the part of the
table and the row, each further line a module to be patched. For each patch that was planted the folder gets a file.

This runs at the start of every process: it imports only what Python has loaded anyway, and reads the table only when a
module that the bug names is imported.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

FOLDER = "planted"
BUG = "bug"


class PlantingFinder:
    """Finds the modules that the bug names, and plants it in each module right after the module was executed."""

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

        for number, patch in enumerate(rows_of(self._part)[self._number].patches):
            if patch.module == name:
                patch.plant()
                (self._folder / str(number)).touch()


def install() -> None:
    folder = Path(sys.prefix) / FOLDER
    bug = folder / BUG
    if bug.exists():
        (part, number), *modules = (line.split() for line in bug.read_text().splitlines())
        named = frozenset(name for (name,) in modules)
        sys.meta_path.insert(0, PlantingFinder(folder, part, int(number), named))


install()
