"""The page of a sweep's results: charts, choosers, the best row and the table, in a real browser."""

from __future__ import annotations

import csv
import re
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Locator, expect

from support.pool import Pool
from support.tab import HOSTILE, Tab

WRITE = """printf '{"loss": %s.5, "score": %s}' ${{ x }} ${{ y }} > "$DEBORGEN_RESULT" """


@pytest.fixture(scope="module")
def swept(pool: Pool) -> dict[str, int]:
    """A sweep of three axes, one whose words are hostile, and one with more cells than have links."""
    grid = {"x": [1, 2, 3], "y": [10, 20], "seed": [1, 2]}
    large = {"x": {"from": 1, "to": 21}, "y": {"from": 1, "to": 20}}
    hostile = {"x": [1, 2], "y": [1], "word": [HOSTILE, "b"]}
    runs = {
        "SWEEP": pool.submit(run=WRITE, env={"SEED": "${{ seed }}"}, sweep={"grid": grid}),
        "HOSTILE": pool.submit(run=WRITE, env={"WORD": "${{ word }}"}, sweep={"grid": hostile}),
        "LARGE": pool.submit(run=WRITE, sweep={"grid": large}),
    }
    for run in runs.values():
        pool.done(run)
    return runs


def chooser(tab: Tab, name: str) -> Locator:
    return tab.page.locator(f"#choose [name='{name}']")


def serious_findings(tab: Tab) -> list[Any]:
    found = Axe().run(tab.page).response["violations"]
    return [(each["id"], each["nodes"][0]["html"]) for each in found if each["impact"] in ("serious", "critical")]


def test_the_choosers_choose_what_the_chart_shows(browser: Browser, pool: Pool, swept: dict[str, int]) -> None:
    with Tab(browser, pool, viewport={"width": 1280, "height": 900}) as tab:
        run = swept["SWEEP"]
        tab.go(f"/runs/{run}")
        tab.page.get_by_role("link", name="results", exact=True).click()
        tab.is_at(f"/runs/{run}/results")
        expect(tab.page.locator(".lead")).to_contain_text(f"Best: loss 1.5 by job {run}.1, with x 1, y 10, seed 1.")
        expect(tab.page.locator("figure .cells a")).to_have_count(6)
        chooser(tab, "value").select_option("score")
        tab.is_at(f"/runs/{run}/results")
        expect(tab.page.locator("figure h2")).to_have_text("score by x and y")
        chooser(tab, "at.seed").select_option("2")
        expect(tab.page.locator("figure")).to_contain_text("where seed 2")
        expect(tab.page.locator("figure .cells a").first).to_have_attribute("href", f"/jobs/{run}.2")
        chooser(tab, "kind").select_option("line")
        expect(tab.page.locator("figure h2")).to_have_text("score against x")
        chooser(tab, "kind").select_option("points")
        chooser(tab, "x").select_option("loss")
        expect(tab.page.locator("figure h2")).to_have_text("score against loss")
        expect(tab.page.locator("figure circle.point")).to_have_count(12 + 1)  # and the sample in the legend


def test_a_cell_leads_to_its_job(browser: Browser, pool: Pool, swept: dict[str, int]) -> None:
    with Tab(browser, pool, viewport={"width": 1280, "height": 900}) as tab:
        tab.go(f"/runs/{swept['SWEEP']}/results")
        tab.page.locator("figure .cells a").nth(1).click()
        tab.is_at(f"/jobs/{swept['SWEEP']}.3")
        # A large map has no links: its cells are found by where they are.
        tab.go(f"/runs/{swept['LARGE']}/results?x=x&y=y")
        assert tab.page.locator("figure .cells a").count() == 0
        x, y = tab.page.evaluate(
            """() => {
                const cells = document.querySelector("figure .cells");
                cells.ownerSVGElement.scrollIntoView();
                const { wide, tall } = cells.dataset;
                const at = new DOMPoint(2.5 * wide, 4.5 * tall).matrixTransform(cells.getScreenCTM());
                return [at.x, at.y];
            }"""
        )
        tab.page.mouse.click(x, y)
        tab.is_at(f"/jobs/{swept['LARGE']}.{2 * 20 + 4 + 1}")


def test_the_table_is_sorted_by_a_click_and_the_files_have_all_numbers(
    browser: Browser, pool: Pool, swept: dict[str, int]
) -> None:
    with Tab(browser, pool, viewport={"width": 1280, "height": 900}) as tab:
        run = swept["SWEEP"]
        tab.go(f"/runs/{run}/results?best=largest")
        tab.page.get_by_role("columnheader", name="loss").get_by_role("link").click()
        rows = tab.page.get_by_label("Jobs with their results").locator("tbody tr")
        expect(rows.first.get_by_role("link")).to_have_text(f"{run}.9")
        expect(tab.page.locator("th[aria-sort=descending]")).to_have_text("loss")
        tab.page.get_by_text("The same as a table").click()
        expect(tab.page.locator("figure table tbody tr")).to_have_count(6)
        with tab.page.expect_download() as download:
            tab.page.get_by_role("link", name="CSV", exact=True).click()
        read = list(csv.reader(download.value.path().read_text().splitlines()))
        assert read[0] == ["job", "x", "y", "loss"]
        assert len(read) == 7
        with tab.page.expect_download() as download:
            tab.page.get_by_role("link", name="SVG", exact=True).click()
        assert download.value.suggested_filename == f"run-{run}-map.svg"
        assert "<style>" in download.value.path().read_text()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_results_are_accessible_inert_and_fit_a_phone(
    browser: Browser, pool: Pool, swept: dict[str, int], theme: str
) -> None:
    wide = {"width": 1280, "height": 900}
    with Tab(browser, pool, color_scheme=theme, viewport=wide) as tab:
        tab.page.on("dialog", tab.note_dialog)
        for name, query in (
            ("SWEEP", ""), ("SWEEP", "?kind=line"), ("SWEEP", "?kind=points"), ("LARGE", ""),
            ("HOSTILE", "?x=word&y=x"), ("HOSTILE", "?kind=points&x=word"), ("HOSTILE", "?kind=line&x=word"),
        ):  # fmt: skip
            tab.page.set_viewport_size(wide)  # type: ignore[arg-type]
            tab.go(f"/runs/{swept[name]}/results{query}")
            expect(tab.page.locator("figure")).to_have_count(1)
            assert serious_findings(tab) == [], (name, query)
            assert tab.page.locator("main script, main img").count() == 0
            tab.page.set_viewport_size({"width": 320, "height": 640})
            assert not tab.is_too_wide(), (name, query)


def test_addresses_that_make_no_sense_are_answered_with_what_there_is(
    browser: Browser, pool: Pool, swept: dict[str, int]
) -> None:
    with Tab(browser, pool, java_script_enabled=False) as tab:
        run = swept["SWEEP"]
        tab.go(
            f"/runs/{run}/results?x=nothing&y=x&value=%22&kind=pie&at.seed=999999&at.x=-1&sort=no&first=99999999999999"
        )
        expect(tab.page.locator("figure h2")).to_have_text(re.compile("loss by"))
        assert tab.page.request.get(f"{tab.url}/runs/{run}/results/cell?x=x&y=y&column=77&row=x").status == 404
        assert tab.page.request.get(f"{tab.url}/runs/99999/results").status == 404
