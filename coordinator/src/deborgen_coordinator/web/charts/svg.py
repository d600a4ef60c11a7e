"""The few pieces of SVG that charts are made of. Text is made inert and escaped here, and nowhere else."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from html import escape
from importlib.resources import files
from typing import Any

from deborgen_shared.terminal import inert

NAMESPACE = "http://www.w3.org/2000/svg"
#: The width of every chart in its own units. The page scales it.
WIDTH = 720.0


class Svg(str):
    """Text that is SVG already. Everything else is escaped before it becomes a part of a picture."""

    __slots__ = ()

    def __html__(self) -> str:
        """Tells a template that this text is markup."""
        return self


@dataclass(frozen=True)
class Legend:
    """One line of a legend: the class of the sample, and what it means in words."""

    sample: str
    words: str


@dataclass(frozen=True)
class Numbers:
    """The numbers of a chart. Links are by row: the address of its first cell."""

    columns: list[str]
    rows: list[list[Any]]
    links: list[str | None] = field(default_factory=list)
    #: How many rows there are in all, if the table holds only a part.
    total: int | None = None


@dataclass(frozen=True)
class Chart:
    """A picture, and everything that tells the same in words. `name` is its id on the page."""

    name: str
    title: str
    unit: str
    svg: Svg
    legend: list[Legend]
    table: Numbers

    @property
    def file(self) -> str:
        """The picture as a file of its own, with its styles."""
        head, _, body = self.svg.partition(">")
        return f'<?xml version="1.0" encoding="UTF-8"?>\n{head}><style>{styles()}</style>{body}\n'


def text_of(value: object) -> str:
    """A person's text on one line, as it may stand in SVG."""
    return escape(inert(str(value)))


def shorten(value: object, most: int) -> str:
    """A text that is cut after this many characters."""
    text = inert(str(value))
    return text if len(text) <= most else text[: most - 1] + "…"


def number(value: float) -> str:
    """A coordinate: one digit after the point is finer than a pixel."""
    text = f"{value:.1f}"
    return text.removesuffix(".0") if text != "-0.0" else "0"


def tag(name: str, *children: object, **attributes: Any) -> Svg:
    """An element. `class_` is the attribute `class`, and other underscores stand for hyphens; None leaves an attribute
    out."""
    parts = []
    for key, value in attributes.items():
        if value is None:
            continue
        text = number(value) if isinstance(value, float) else text_of(value)
        parts.append(f' {key.rstrip("_").replace("_", "-")}="{text}"')
    inside = "".join(child if isinstance(child, Svg) else text_of(child) for child in children)
    return Svg(f"<{name}{''.join(parts)}>{inside}</{name}>" if inside else f"<{name}{''.join(parts)}/>")


def group(children: Iterable[Svg], **attributes: Any) -> Svg:
    return tag("g", *children, **attributes)


def label(x: float, y: float, text: object, *, kind: str = "", anchor: str | None = None) -> Svg:
    """A text in a picture. `anchor` is start, middle or end."""
    return tag("text", str(text), x=x, y=y, class_=kind or None, text_anchor=anchor)


def picture(children: Iterable[Svg], *, title: str, summary: str, height: float, width: float = WIDTH) -> Svg:
    """A whole picture. Readers of the screen hear its title and its summary."""
    return tag(
        "svg", tag("title", title), tag("desc", summary), *children,
        xmlns=NAMESPACE, viewBox=f"0 0 {number(width)} {number(height)}", class_="chart", role="group",
        aria_label=f"{title}. {summary}",
    )  # fmt: skip


def hatching(name: str) -> Svg:
    """A pattern of diagonal lines; `url(#name)` fills with it."""
    line = tag("path", d="M0 5L5 0", class_="hatch-line")
    return tag(
        "defs",
        tag("pattern", line, id=name, width=5.0, height=5.0, patternUnits="userSpaceOnUse"),
    )


def sample(legend: Legend) -> Svg:
    """A small picture of what a line of a legend is about."""
    if legend.sample.endswith("-line"):
        drawn = tag("path", d="M0 6H18", class_=legend.sample)
    elif legend.sample == "hatched":
        drawn = tag("path", d="M0 12L6 0M6 12L12 0M12 12L18 0", class_="hatch-line")
        drawn = group([tag("rect", width=18, height=12, class_="hatched"), drawn])
    elif legend.sample == "point":
        drawn = tag("circle", cx=9, cy=6, r=4, class_="point")
    else:
        drawn = tag("rect", width=18, height=12, class_=legend.sample or "none")
    return tag("svg", drawn, viewBox="0 0 18 12", width=18, height=12, class_="chart sample", aria_hidden="true")


@lru_cache(1)
def styles() -> str:
    """The style sheet of all charts, which pages link and files include."""
    return (files("deborgen_coordinator.web") / "static" / "charts.css").read_text()
