"""Kinds of arguments: durations and sizes as the job file spells them, `KEY=VALUE` pairs."""

from __future__ import annotations

from typing import Any

import click


class _Duration(click.ParamType[float]):
    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        from deborgen_shared.jobfile.units import parse_duration

        if isinstance(value, float):
            return value
        try:
            return parse_duration(value)
        except ValueError as why:
            self.fail(f"{value!r} is not a duration: {why}", param, ctx)


class _Pair(click.ParamType[tuple[str, str]]):
    name = "pair"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        key, equals, text = str(value).partition("=")
        if not equals or not key:
            self.fail(f"{value!r} is not KEY=VALUE", param, ctx)
        return key, text


DURATION = _Duration()
PAIR = _Pair()


def parameters(pairs: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    """The axes of `-p NAME=VALUES`."""
    from deborgen_shared.jobfile.overriding import parse_axis

    return {name: parse_axis(text) for name, text in pairs}
