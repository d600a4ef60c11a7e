"""A planted bug names functions of the product and their replacements. No line of the product's source is named.

`Patch("package.module:function", replacement)` says that `replacement(original)` takes the place of the function. The
name may also be that of a constant, of a class, or of something in a class: `"package.module:Class.method"`.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any, NamedTuple
from unittest import mock


class Patch(NamedTuple):
    """Replaces what `target` names by `replacement(original)`."""

    target: str
    replacement: Callable[[Any], Any]

    @property
    def module(self) -> str:
        return self.target.partition(":")[0]

    @property
    def name(self) -> str:
        return self.target.rpartition(":")[2].rpartition(".")[2]

    def holder(self) -> Any:
        """The module or the class that has the name. Raises `AttributeError` if there is no such name."""
        holder: Any = importlib.import_module(self.module)
        for part in self.target.partition(":")[2].split(".")[:-1]:
            holder = getattr(holder, part)
        if self.name not in vars(holder):
            raise AttributeError(f"a planted bug names {self.target}, which the product does not have")
        return holder

    def original(self) -> Any:
        """The current value; of a method, its plain function."""
        found = vars(self.holder())[self.name]
        if isinstance(found, property):
            return found.fget
        return found.__func__ if isinstance(found, staticmethod | classmethod) else found

    def replaced(self) -> Any:
        """The new value: the replacement, as the same kind of method as the original."""
        made = self.replacement(self.original())
        found = vars(self.holder())[self.name]
        return type(found)(made) if isinstance(found, property | staticmethod | classmethod) else made

    def plant(self) -> None:
        """Replace it for the rest of the process. Modules that import the name later get the replacement."""
        setattr(self.holder(), self.name, self.replaced())


@contextmanager
def planted_here(patches: Iterable[Patch]) -> Iterator[None]:
    """The product with these patches in this process, also where modules have imported a function by its name."""
    with ExitStack() as stack:
        for patch in patches:
            holder, original, made = patch.holder(), patch.original(), patch.replaced()
            stack.enter_context(mock.patch.object(holder, patch.name, made))
            if inspect.isfunction(original) and original.__module__ == patch.module and inspect.ismodule(holder):
                for module, name in _uses(original):
                    stack.enter_context(mock.patch.object(module, name, made))
        yield


def _uses(function: Any) -> list[tuple[ModuleType, str]]:
    return [
        (module, name)
        for module in list(sys.modules.values())
        if isinstance(module, ModuleType)
        for name, value in list(vars(module).items())
        if value is function
    ]


# Replacements that many bugs share.


def nothing(original: Any) -> Any:
    """A function that does nothing, and returns None."""
    return gives(None)(original)


def gives(value: Any) -> Callable[[Any], Any]:
    """A function that returns this value, whatever it is called with."""
    return lambda original: lambda *args, **named: value


def becomes(value: Any) -> Callable[[Any], Any]:
    """A constant that has this value."""
    return lambda original: value


def first_argument(original: Any) -> Any:
    """A function that returns its argument."""
    return lambda value: value
