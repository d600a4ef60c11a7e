"""Charts of what the operations know, for pages, and as files: SVG and CSV."""

from __future__ import annotations

from dataclasses import replace

from deborgen_coordinator.operations import timelines
from deborgen_coordinator.operations.timelines import Load, Timeline
from deborgen_coordinator.web.charts import downloads, lanes, load
from deborgen_coordinator.web.charts.svg import Chart, Numbers
from deborgen_coordinator.web.pages import PageRequest, page
from deborgen_coordinator.web.rendering import HtmlAnswer
from deborgen_shared import contract, headers

HOUR = 3600.0
#: A page shows at most this many rows of a chart's table; the CSV has all.
MOST_ROWS = 100
#: The windows of a machine's timeline, in hours.
WINDOWS = (2, 24)
SVG = "image/svg+xml"


def timeline_chart(found: Timeline, name: str, title: str) -> Chart:
    machines = [
        lanes.Lane(
            each.machine,
            [
                lanes.Bar(
                    attempt=ran.attempt, run=ran.run, start=ran.claimed_at, end=ran.finished_at, began=ran.began_at,
                    failed=ran.failed, words=ran.words, person=ran.person, image=ran.image,
                    cpu_seconds=ran.cpu_seconds, peak_memory=ran.peak_memory,
                )
                for ran in each.attempts
            ],
            each.away,
            each.busy,
        )
        for each in found.machines
    ]  # fmt: skip
    window = (found.begin, found.end)
    return lanes.lanes(name, title, machines, window, stretch=found.stretch, bars=found.in_full)


def load_chart(found: Load) -> Chart:
    return load.load(
        "load",
        [load.DepthPoint(each.at, each.queued, each.running) for each in found.depths],
        [load.Ended(each.begin, each.succeeded, each.other) for each in found.ended],
        (found.begin, found.end),
        stretch=found.stretch,
    )


def on_page(chart: Chart) -> Chart:
    """The chart with as many rows of its table as a page shows."""
    table = chart.table
    short = Numbers(table.columns, table.rows[:MOST_ROWS], table.links[:MOST_ROWS], total=len(table.rows))
    return replace(chart, table=short)


def pool_charts(request: PageRequest) -> list[Chart]:
    """The charts of the first page: the timeline of the last two hours, and the queue with the throughput."""
    return [on_page(_pool_timeline(request)), on_page(load_chart(timelines.load(request.ctx)))]


def _pool_timeline(request: PageRequest) -> Chart:
    found = timelines.pool_timeline(request.ctx)
    more = f" ({found.more} more machines are not shown)" if found.more else ""
    return timeline_chart(found, "timeline", f"The last two hours{more}")


def machine_chart(request: PageRequest) -> Chart:
    """What ran on a machine in the last hours: as many as `hours` behind the question mark says."""
    name, hours = str(request.names["name"]), window_of(request)
    found = timelines.machine_timeline(request.ctx, name, hours * HOUR)
    return timeline_chart(found, "machine", f"What ran on {name} in the last {hours} hours")


def window_of(request: PageRequest) -> int:
    """The window that the address asks for, in hours."""
    wanted = request.query.get("hours", "")
    return int(wanted) if wanted in map(str, WINDOWS) else WINDOWS[0]


def as_svg(chart: Chart) -> HtmlAnswer:
    return _file(chart.file, f"{chart.name}.svg", SVG)


def as_csv(chart: Chart) -> HtmlAnswer:
    return table_as_csv(chart.table, chart.name)


def table_as_csv(table: Numbers, name: str) -> HtmlAnswer:
    return _file("".join(downloads.csv(table)), f"{name}.csv", f"{contract.CSV}; charset=utf-8")


def _file(text: str, name: str, kind: str) -> HtmlAnswer:
    sent = {headers.CONTENT_TYPE: kind, headers.CONTENT_DISPOSITION: f'attachment; filename="{name}"'}
    return HtmlAnswer(200, text.encode(), sent)


@page("/charts/timeline.svg")
def timeline_svg(request: PageRequest) -> HtmlAnswer:
    return as_svg(_pool_timeline(request))


@page("/charts/timeline.csv")
def timeline_csv(request: PageRequest) -> HtmlAnswer:
    return as_csv(_pool_timeline(request))


@page("/charts/load.svg")
def load_svg(request: PageRequest) -> HtmlAnswer:
    return as_svg(load_chart(timelines.load(request.ctx)))


@page("/charts/load.csv")
def load_csv(request: PageRequest) -> HtmlAnswer:
    return as_csv(load_chart(timelines.load(request.ctx)))


@page("/workers/{name}/timeline.svg")
def machine_svg(request: PageRequest) -> HtmlAnswer:
    return as_svg(machine_chart(request))


@page("/workers/{name}/timeline.csv")
def machine_csv(request: PageRequest) -> HtmlAnswer:
    return as_csv(machine_chart(request))
