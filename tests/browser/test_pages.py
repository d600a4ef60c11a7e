"""Every page in a real browser: on a laptop and on a phone, light and dark, with a keyboard, and without JavaScript."""

from __future__ import annotations

import io
import tarfile
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, expect

from support.browser import Visitor
from support.pool import Pool
from support.tab import HOSTILE, Tab
from support.waiting import wait_until

#: A job whose name, labels, output, result and artifacts are hostile.
JOB = {
    "name": HOSTILE,
    "labels": {"project": HOSTILE},
    "artifacts": ["out/**"],
    "run": """
mkdir -p "out/<b>x"
printf '<script>document.title="owned"</script><h1>a page</h1>' > "out/page.html"
printf x > "out/<b>x/<img src=x onerror=alert(3)>.txt"
printf '\\033[31mred\\033[0m <b>bold</b>\\n10%%\\r50%%\\r100%%\\n\\033]0;title\\007<script>alert(4)</script>\\n'
printf '{"<img src=x onerror=alert(5)>": "<script>alert(6)</script>", "loss": 0.25}' > "$DEBORGEN_RESULT"
echo '<script>alert(7)</script>' >&2
""",
}
#: A page that names what each address leads to. RUN, STEPS and FAILED are numbers of runs.
PAGES = (
    "/", "/runs", "/runs?state=failed", "/runs/RUN", "/runs/STEPS", "/jobs/RUN.1", "/jobs/FAILED.1", "/jobs/WAITING.1",
    "/workers", "/workers/box", "/workers/box?hours=24", "/events", "/events?run=RUN", "/me", "/find?q=", "/ledger",
)  # fmt: skip


@pytest.fixture(scope="module")
def shown(pool: Pool) -> dict[str, int]:
    """Runs that fill the pages: one that is hostile, one with steps, one that failed, one that waits."""
    steps = [{"id": "first", "run": "true"}, {"id": "second", "run": "true", "needs": ["first"]}]
    runs = {
        "RUN": pool.submit(**JOB),
        "STEPS": pool.submit(steps=steps),
        "FAILED": pool.submit(run="echo 'the loss is nan' >&2; exit 3"),
        "WAITING": pool.submit(run="true", requires={"gpu": "true"}),
    }
    for name in ("RUN", "STEPS", "FAILED"):
        pool.done(runs[name])
    return runs


def address(page: str, shown: dict[str, int]) -> str:
    for name, number in shown.items():
        page = page.replace(name, str(number))
    return page


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_page_is_accessible_and_fits_a_laptop_and_a_phone(
    browser: Browser, pool: Pool, shown: dict[str, int], theme: str
) -> None:
    wide = {"width": 1280, "height": 900}
    with Tab(browser, pool, "admin", color_scheme=theme, viewport=wide) as tab:
        for page in PAGES:
            tab.page.set_viewport_size(wide)  # type: ignore[arg-type]
            tab.go(address(page, shown))
            expect(tab.page.locator("main h1")).to_have_count(1)
            assert serious_findings(tab) == [], page
            # 640 pixels are what a laptop has left at a zoom of 200 %.
            for width in (1280, 640, 320):
                tab.page.set_viewport_size({"width": width, "height": 800})
                assert not tab.is_too_wide(), f"{page} at {width} pixels"


def test_the_pages_for_signing_in_and_about_problems_are_accessible(browser: Browser, pool: Pool) -> None:
    with Tab(browser, pool, None, viewport={"width": 320, "height": 640}) as tab:
        for page in ("/sign-in", "/sign-in?code=something"):
            tab.go(page)
            assert serious_findings(tab) == [], page
            assert not tab.is_too_wide(), page
        tab.page.goto(tab.url + "/nothing")
        assert serious_findings(tab) == []
        assert [problem for problem in tab.problems if "404" not in problem] == []
        tab.problems.clear()


def serious_findings(tab: Tab) -> list[Any]:
    found = Axe().run(tab.page).response["violations"]
    return [(each["id"], each["nodes"][0]["html"]) for each in found if each["impact"] in ("serious", "critical")]


def test_fault_95_hostile_text_is_inert_on_every_page(browser: Browser, pool: Pool, shown: dict[str, int]) -> None:
    """Seen to fail when names and reasons are taken for parts of the page."""
    with Tab(browser, pool, "admin") as tab:
        # A dialog that nobody expects is dismissed, and noted.
        tab.page.on("dialog", tab.note_dialog)
        for page in PAGES:
            tab.go(address(page, shown))
            assert "owned" not in tab.page.title()
            assert tab.page.locator("main script, main img[onerror], main b").count() == 0, page
        tab.go(f"/runs/{shown['RUN']}")
        # The character that turns the direction of text round is spelled.
        tab.see("\\u202egnp.exe")
        tab.see("<script>alert(6)</script>")


def test_fault_37_a_log_cannot_control_the_page(browser: Browser, pool: Pool, shown: dict[str, int]) -> None:
    """Seen to fail when a line of a log is taken for a part of the page."""
    with Tab(browser, pool) as tab:
        tab.go(f"/jobs/{shown['RUN']}.1")
        log = tab.page.locator("#log")
        expect(log).to_contain_text("the end of the log")
        lines = log.locator(".line > span").all_text_contents()
        assert lines[:3] == ["red <b>bold</b>", "100%", "<script>alert(4)</script>"]
        expect(log.locator(".a31")).to_have_text("red")
        assert "owned" not in tab.page.title()


def test_an_artifact_that_is_a_page_is_shown_as_text(browser: Browser, pool: Pool, shown: dict[str, int]) -> None:
    with Tab(browser, pool) as tab:
        tab.go(f"/jobs/{shown['RUN']}.1")
        tab.page.get_by_text("Preview of out/page.html").click()
        frame = tab.page.frame_locator("iframe[title='Preview of out/page.html']")
        expect(frame.locator("body")).to_contain_text("<h1>a page</h1>")
        with tab.page.expect_download() as download:
            tab.page.get_by_role("link", name="out/page.html", exact=True).click()
        assert download.value.suggested_filename == "page.html"


def test_all_artifacts_of_a_run_are_one_archive(pool: Pool, shown: dict[str, int]) -> None:
    run = shown["RUN"]
    with Visitor(pool.coordinator) as visitor:
        visitor.sign_in("viewer")
        answer = visitor.get(f"/runs/{run}/artifacts.tar")
        assert answer.headers["Content-Disposition"] == f'attachment; filename="run-{run}.tar"'
        with tarfile.open(fileobj=io.BytesIO(answer.content)) as archive:
            assert f"{run}.1/out/page.html" in archive.getnames()
            member = archive.extractfile(f"{run}.1/out/page.html")
            assert member is not None
            assert member.read().endswith(b"<h1>a page</h1>")
        raw = visitor.get(f"/jobs/{run}.1/log.txt")
        assert raw.headers["Content-Type"] == "text/plain; charset=utf-8"
        assert "sandbox" in raw.headers["Content-Security-Policy"]
        assert raw.content == pool.log(run)


def test_the_keys(browser: Browser, pool: Pool, shown: dict[str, int]) -> None:
    with Tab(browser, pool) as tab:
        tab.go("/")
        tab.page.keyboard.press("g")
        tab.page.keyboard.press("r")
        tab.is_at("/runs")
        for key, row in (("j", 0), ("j", 1), ("k", 0)):
            tab.page.keyboard.press(key)
            expect(tab.page.locator("[data-row]").nth(row)).to_have_class("at")
        tab.page.keyboard.press("Enter")
        tab.is_at(f"/runs/{max(shown.values())}")
        tab.page.keyboard.press("?")
        expect(tab.page.get_by_role("dialog")).to_be_visible()
        tab.page.keyboard.press("Escape")
        tab.page.keyboard.press("/")
        expect(tab.page.get_by_label("Find a run, a job or a machine")).to_be_focused()
        tab.page.keyboard.type(f"{shown['FAILED']}.1")
        tab.page.keyboard.press("Enter")
        tab.is_at(f"/jobs/{shown['FAILED']}.1")
        tab.page.keyboard.press("g")
        tab.page.keyboard.press("w")
        tab.is_at("/workers")


def test_every_page_is_complete_without_javascript(browser: Browser, pool: Pool, shown: dict[str, int]) -> None:
    with Tab(browser, pool, "admin", java_script_enabled=False) as tab:
        tab.go(f"/jobs/{shown['FAILED']}.1")
        tab.see("the loss is nan")
        tab.see("the end of the log")
        tab.go(f"/jobs/{shown['WAITING']}.1")
        tab.see("Why it waits")
        tab.page.get_by_role("button", name="Cancel").click()
        wait_until(lambda: pool.run(shown["WAITING"])["state"] == "canceled", what="the job to be canceled")
        tab.see("1 job was canceled")


def test_deborgen_open_prints_a_link_that_signs_in(browser: Browser, pool: Pool, shown: dict[str, int]) -> None:
    link = pool.person("ada").out("open", "--no-browser", str(shown["RUN"])).strip()
    assert link.startswith(pool.coordinator.url)
    with Tab(browser, pool, None) as tab:
        tab.page.goto(link)
        tab.page.get_by_role("button", name="Sign in").click()
        tab.is_at(f"/runs/{shown['RUN']}")
        tab.page.get_by_role("link", name="ada").click()
        tab.page.get_by_role("button", name="Sign out").click()
        tab.is_at("/sign-in")
        tab.go("/runs")
        tab.is_at("/sign-in")
