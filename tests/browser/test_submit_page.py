"""Submitting from the browser: the same problems as the command, the plan, files, and exactly one run."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, expect

from support.pool import Pool
from support.tab import HOSTILE, Tab

WRONG = """\
name: two mistakes
rnu: echo hello
resources: {cpus: many}
"""
WITH_FILES = """\
run: cat data/a.txt single.txt; true ${{ n }}
files: [data, single.txt]
sweep: {grid: {n: {from: 1, to: 9}}}
"""


def write(tab: Tab, text: str) -> None:
    tab.page.get_by_label("The job file").fill(text)


def press(tab: Tab, name: str) -> None:
    tab.page.locator("#submit").get_by_role("button", name=name, exact=True).click()


def test_the_problems_are_those_of_the_command(browser: Browser, pool: Pool) -> None:
    person = pool.person("ada")
    person.write("job.yml", WRONG)
    refused = person.err("submit", "job.yml", code=3)
    with Tab(browser, pool) as tab:
        tab.go("/submit")
        write(tab, WRONG)
        press(tab, "Submit")
        report = tab.page.locator("pre.problem")
        expect(report).to_contain_text("nothing was submitted")
        shown = [line.strip() for line in report.inner_text().splitlines() if line.strip()]
        assert shown[0].startswith("job.yml:2:1:")
        assert [line for line in shown if line not in refused] == [], refused


def test_the_plan_is_shown_before_anything_is_sent_and_files_are_uploaded(
    browser: Browser, pool: Pool, tmp_path: Path
) -> None:
    folder = tmp_path / "project" / "data"
    folder.mkdir(parents=True)
    (folder / "a.txt").write_text("from the folder\n")
    (folder / "b.txt").write_text("another\n")
    single = tmp_path / "single.txt"
    single.write_text("alone\n")
    with Tab(browser, pool) as tab:
        before = pool.admin.get("/v1/runs").json()["items"]
        tab.go("/submit")
        write(tab, WITH_FILES)
        press(tab, "Check")
        tab.see("no file was chosen for 'data'")
        tab.page.get_by_label("or a folder").set_input_files(folder.parent)
        tab.page.get_by_label("Files", exact=True).set_input_files(single)
        expect(tab.page.locator("#chosen-words")).to_contain_text("3 files are chosen")
        press(tab, "Check")
        tab.see("job is valid: 9 jobs. Nothing is submitted yet.")
        tab.see("… 4 more …")
        tab.see("Files: 3")
        assert pool.admin.get("/v1/runs").json()["items"] == before
        press(tab, "Submit")
        tab.page.wait_for_url("**/runs/*")
        run = int(tab.page.url.rpartition("/")[2])
        pool.done(run)
        assert pool.log(f"{run}.1") == b"from the folder\nalone\n"


def test_without_javascript_a_job_file_is_checked_and_submitted(browser: Browser, pool: Pool) -> None:
    with Tab(browser, pool, java_script_enabled=False) as tab:
        tab.go("/submit")
        tab.page.locator("#text").fill("run: echo plain")
        press(tab, "Check")
        tab.see("is valid: 1 job.")
        expect(tab.page.locator("#text")).to_have_value("run: echo plain")
        press(tab, "Submit")
        tab.page.wait_for_url("**/runs/*")


def test_a_viewer_cannot_submit_and_other_sites_cannot_either(browser: Browser, pool: Pool) -> None:
    with Tab(browser, pool, "viewer") as tab:
        assert tab.page.request.get(f"{tab.url}/submit").status == 403
    with Tab(browser, pool) as tab:
        form: dict[str, str | float | bool] = {"text": "run: echo forged", "do": "submit"}
        answer = tab.page.request.post(f"{tab.url}/submit", form=form, headers={"Origin": tab.url}, max_redirects=0)
        assert answer.status == 403


def test_both_ways_of_hashing_agree(browser: Browser, pool: Pool) -> None:
    with Tab(browser, pool) as tab:
        tab.go("/submit")
        path = tab.page.locator("script[src*=submit]").get_attribute("src")
        assert path is not None
        for size in (0, 1, 55, 56, 64, 4 << 20, (4 << 20) + 61):
            data = bytes(at * 7 % 251 for at in range(min(size, 5000))) * (size // 5000 + 1)
            found: Any = tab.page.evaluate(
                """async ([module, text, size]) => {
                    const { digestOf, plainDigestOf } = await import(module);
                    const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
                    const all = new Uint8Array(size);
                    for (let at = 0; at < size; at++) all[at] = bytes[at % bytes.length];
                    return [await digestOf(new Blob([all])), await plainDigestOf(new Blob([all]))];
                }""",
                [path.replace("submit.js", "sha256.js"), base64.b64encode(data[:5000]).decode(), size],
            )
            whole = (data[:5000] * (size // 5000 + 1))[:size]
            assert found == [hashlib.sha256(whole).hexdigest()] * 2


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_page_is_accessible_and_fits_a_phone(browser: Browser, pool: Pool, theme: str) -> None:
    with Tab(browser, pool, color_scheme=theme, viewport={"width": 1280, "height": 900}) as tab:
        tab.page.on("dialog", tab.note_dialog)
        for text in (
            "run: echo hello",
            f"run: 'echo {HOSTILE.replace(chr(39), '')}'",
            "rnu: <script>alert(1)</script>",
        ):
            tab.page.set_viewport_size({"width": 1280, "height": 900})
            tab.go("/submit")
            write(tab, text)
            press(tab, "Check")
            tab.page.wait_for_selector("#outcome h2")
            found = Axe().run(tab.page).response["violations"]
            assert [each["id"] for each in found if each["impact"] in ("serious", "critical")] == []
            assert tab.page.locator("main script, main img").count() == 0
            tab.page.set_viewport_size({"width": 320, "height": 640})
            assert not tab.is_too_wide(), text
