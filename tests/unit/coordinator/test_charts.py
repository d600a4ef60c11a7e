"""Charts are pure functions: the values are in the picture, hostile text is inert in it, and its size is bounded."""

from __future__ import annotations

import csv as csv_of_python
import re
from typing import Any
from xml.etree import ElementTree

import pytest

from deborgen_coordinator.web.charts import downloads, heatmap, lanes, load, points, scales
from deborgen_coordinator.web.charts.svg import NAMESPACE, Chart, Numbers, Svg, sample, tag

NOW = 1_763_577_000.0
HOSTILE = "</text><script>alert(1)</script>\"'&\x00\x1b[2J\u202e"
WINDOW = (NOW - 7200, NOW)


def parsed(chart: Chart) -> ElementTree.Element:
    """The picture as a file. It must be XML that is complete in itself."""
    return ElementTree.fromstring(chart.file.encode())


def all_of(chart: Chart, name: str, **attributes: str) -> list[ElementTree.Element]:
    found = parsed(chart).iter(f"{{{NAMESPACE}}}{name}")
    return [each for each in found if all(attributes[key] == each.get(key.rstrip("_")) for key in attributes)]


def bar(attempt: str = "42.7/1", start: float = NOW - 3600, **fields: Any) -> lanes.Bar:
    given = {"end": start + 600, "began": start + 60, "failed": False, "words": "by ada", **fields}
    return lanes.Bar(attempt, int(attempt.partition(".")[0]), start, **given)


def timeline(*machines: lanes.Lane, bars: bool = True) -> Chart:
    return lanes.lanes("timeline", "What ran", machines, WINDOW, stretch=300.0, bars=bars)


def a_map(columns: int, rows: int, value: Any = lambda x, y: float(x + y)) -> Chart:
    cells = {(x, y): heatmap.Cell(f"42.{x * rows + y + 1}", value(x, y)) for x in range(columns) for y in range(rows)}
    axes = heatmap.Axis("lr", list(range(columns))), heatmap.Axis("seed", list(range(rows)))
    return heatmap.heatmap(*axes, "loss", cells)


ALL: dict[str, Any] = {
    "bars": lambda text: timeline(lanes.Lane(text, [bar(words=text, person=text, image=text)])),
    "shares": lambda text: timeline(lanes.Lane(text, busy={NOW - 600: 0.5}), bars=False),
    "load": lambda text: load.load(
        "load", [load.DepthPoint(NOW, 1, 2)], [load.Ended(NOW - 300, 1, 2)], WINDOW, stretch=300
    ),
    "map": lambda text: heatmap.heatmap(
        heatmap.Axis(text, [text, 1]), heatmap.Axis(text, [text]), text, {(0, 0): heatmap.Cell("42.1", 1.0)}, scope=text
    ),
    "points": lambda text: points.scatter(text, text, [points.Point("42.1", text, 1.0)], line=True, scope=text),
}  # fmt: skip


@pytest.mark.parametrize("name", ALL)
def test_hostile_text_is_inert_in_every_chart(name: str) -> None:
    chart = ALL[name](HOSTILE)
    root = parsed(chart)
    assert {each.tag.removeprefix(f"{{{NAMESPACE}}}") for each in root.iter()} <= {
        "svg", "style", "title", "desc", "defs", "pattern", "g", "path", "rect", "circle", "text", "a",
    }  # fmt: skip
    assert "<script" not in chart.svg
    assert not {"\x00", "\x1b", "\u202e"} & set(chart.svg)
    assert not re.search(r'\s(style|on\w+)="', chart.svg), "the policy of pages forbids both"


@pytest.mark.parametrize("name", ALL)
def test_every_chart_has_a_title_units_a_legend_in_words_and_a_table(name: str) -> None:
    chart = ALL[name]("x")
    assert chart.title
    assert chart.unit
    assert all(line.words for line in chart.legend)
    assert chart.legend
    assert len(chart.table.columns) == len(chart.table.rows[0])
    assert f'aria-label="{chart.title}' in chart.svg
    for line in chart.legend:
        ElementTree.fromstring(sample(line))


def test_a_bar_is_as_long_as_its_attempt_and_hatched_while_it_prepared() -> None:
    chart = timeline(lanes.Lane("pc1", [bar(start=NOW - 7200, end=NOW - 3600, began=NOW - 5400)]))
    [box] = all_of(chart, "rect", class_="attempt run2")
    [hatched] = all_of(chart, "rect", fill="url(#hatch-timeline)")
    assert float(str(hatched.get("width"))) * 2 == pytest.approx(float(str(box.get("width"))), abs=0.3)
    assert all_of(chart, "rect", class_="failed-edge") == []


def test_a_failed_attempt_has_a_red_edge_and_a_machine_that_was_away_is_grey() -> None:
    machine = lanes.Lane("pc1", [bar(failed=True)], away=[(NOW - 1800, NOW - 900), (NOW - 99999, NOW - 88888)])
    chart = timeline(machine)
    assert len(all_of(chart, "rect", class_="failed-edge")) == 1
    assert len(all_of(chart, "rect", class_="away")) == 1


def test_attempts_that_ran_together_have_rows_of_their_own() -> None:
    together = [bar(f"42.{n}/1") for n in range(1, 4)]
    chart = timeline(lanes.Lane("pc1", [*together, bar("42.9/1", start=NOW - 600, end=None)]))
    heights = {box.get("y") for box in all_of(chart, "rect", class_="attempt run2")}
    assert len(heights) == 3
    assert all_of(chart, "rect", class_="share") == []


def test_a_machine_that_held_very_many_attempts_at_once_has_busy_shares() -> None:
    for count, bars in ((lanes.MOST_LEVELS, True), (lanes.MOST_LEVELS + 1, False)):
        held = [bar(f"42.{n}/1") for n in range(1, count + 1)]
        chart = timeline(lanes.Lane("pc1", held, busy={NOW - 600: 0.5}))
        assert bool(all_of(chart, "rect", class_="share")) is not bars
        assert len(all_of(chart, "rect", class_="attempt run2")) == count * bars
        height = float(str(parsed(chart).get("viewBox")).split()[3])
        assert height < 160


def test_without_bars_a_lane_shows_its_busy_shares() -> None:
    chart = timeline(lanes.Lane("pc1", busy={NOW - 600: 0.5, NOW - 300: 1.0}), bars=False)
    half, whole = (float(str(box.get("height"))) for box in all_of(chart, "rect", class_="share"))
    assert whole == 2 * half
    assert [row[2] for row in chart.table.rows] == [0.5, 1.0]


def test_the_queue_and_the_throughput_have_their_values_in_the_table() -> None:
    depths = [load.DepthPoint(NOW - 700, 9, 1), load.DepthPoint(NOW - 350, 5, 2), load.DepthPoint(NOW, 0, 0)]
    ended = [load.Ended(NOW - 600, 4, 0), load.Ended(NOW - 300, 3, 1)]
    chart = load.load("load", depths, ended, WINDOW, stretch=300)
    assert [row[1:] for row in chart.table.rows] == [[9, 1, 4, 0], [5, 2, 3, 1]]
    assert "8 attempts ended" in chart.svg


def test_a_small_map_links_each_cell_to_its_job() -> None:
    chart = a_map(3, 2)
    assert [link.get("href") for link in all_of(chart, "a")] == [f"/jobs/42.{n}" for n in range(1, 7)]
    shades = [box.get("class") for box in all_of(chart, "rect")]
    assert shades[0] == "q0"
    assert shades[-1] == "q9"
    assert [line.words for line in chart.legend][:1] == ["lowest: 0"]


def test_cells_without_a_value_look_different() -> None:
    chart = a_map(2, 1, lambda x, y: None if x else float("nan"))
    assert [box.get("class") for box in all_of(chart, "rect")] == ["none", "none"]
    assert "no values yet" in chart.svg


def test_five_thousand_cells_are_a_few_paths() -> None:
    chart = a_map(100, 50, lambda x, y: float((x * 7919 + y * 104729) % 997))
    assert len(chart.svg) < 80_000
    drawn = sum(int(length) for path in all_of(chart, "path") for length in re.findall(r"h(\d+)", str(path.get("d"))))
    assert drawn == 5000
    assert len(chart.table.rows) == 5000


def test_words_have_places_of_their_own_on_the_axis_of_a_scatter_plot() -> None:
    chart = points.scatter("model", "loss", [points.Point(f"42.{n}", word, 1.0) for n, word in enumerate("abab", 1)])
    assert len({dot.get("cx") for dot in all_of(chart, "circle")}) == 2


def test_many_points_are_one_path_and_the_rest_is_left_out() -> None:
    chart = points.scatter("x", "y", [points.Point(f"42.{n}", n, float(n)) for n in range(1, 9000)])
    assert len(chart.table.rows) == points.MOST_POINTS
    assert len(chart.svg) < 30_000
    assert all_of(chart, "circle") == []


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0, 10, [0, 2, 4, 6, 8, 10]), (0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1]), (3, 3, [3]), (-1, 1, [-1, -0.5, 0, 0.5, 1])],
)
def test_ticks_are_round_numbers(low: float, high: float, expected: list[float]) -> None:
    assert scales.ticks(low, high) == expected


def test_ticks_of_time_are_round_moments() -> None:
    found = scales.time_ticks(*WINDOW)
    assert 4 <= len(found) <= 9
    assert all(moment % 900 == 0 for moment in found)


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.5, "0.5 s"), (300, "5 min"), (200, "3 min 20 s"), (7500, "2 h 5 min"), (59.6, "60 s")]
)
def test_a_duration_in_words(seconds: float, words: str) -> None:
    assert scales.duration(seconds) == words


def test_the_csv_has_all_rows_even_if_two_columns_share_a_name() -> None:
    table = Numbers(["job", "x", "x"], [["42.1", 1, 0.1 + 0.2], ["42.2", "a,b", None]])
    read = list(csv_of_python.reader("".join(downloads.csv(table)).splitlines()))
    assert read == [["job", "x", "x"], ["42.1", "1", "0.30000000000000004"], ["42.2", "a,b", ""]]


def test_only_what_is_svg_already_is_not_escaped() -> None:
    assert tag("g", "<b>", tag("path", d='"')) == '<g>&lt;b&gt;<path d="&quot;"/></g>'
    assert isinstance(tag("g"), Svg)
