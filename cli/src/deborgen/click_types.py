"""Types of command-line arguments: durations as in the job file, `KEY=VALUE` pairs, axes of a sweep."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click


def duration(text: str) -> float:
    from deborgen_shared.jobfile.units import parse_duration

    try:
        return parse_duration(text)
    except ValueError as why:
        raise click.BadParameter(f"{text!r} is not a duration: {why}") from None


def pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise click.BadParameter(f"{text!r} is not KEY=VALUE")
    return key, value


def image(text: str) -> str:
    from deborgen_shared.jobfile.images import check_image

    if wrong := check_image(text):
        because, hint = wrong
        raise click.BadParameter(f"{text!r} is not the name of an image{because and f': {because}'}; {hint}")
    return text


def axes_option(help_text: str) -> Callable[[Any], Any]:
    """The option `-p NAME=VALUES`, which gives the command a dict of axes."""
    metavar = "NAME=VALUES"
    return click.option("-p", "--param", "axes", multiple=True, metavar=metavar, callback=_axes, help=help_text)


def _axes(ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]) -> dict[str, Any]:
    from deborgen_shared.jobfile.overriding import parse_axis

    axes: dict[str, Any] = {}
    for name, text in map(pair, texts):
        if name in axes:
            raise click.BadParameter(f"{name} is given twice: write all its values once, as in {name}=1,2")
        try:
            axes[name] = parse_axis(text)
        except ValueError as why:
            raise click.BadParameter(f"{name}: {why}") from None
    return axes
