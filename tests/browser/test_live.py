"""Pages that stay current: a sweep that is watched to its end, a long log, cancel and retry, a broken connection."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Browser, expect

from support.coordinator import CoordinatorProcess
from support.pool import Pool
from support.tab import Tab

#: More lines than the page keeps, in pieces: while they come, the page must answer.
LINES = 100_000


def test_a_sweep_is_watched_to_its_end(browser: Browser, pool: Pool, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with Tab(browser, pool) as tab:
        tab.go("/runs")
        tab.page.evaluate("window.untouched = true")
        waits = f"until [ -e {gate} ]; do sleep 0.1; done"
        tmp_path.chmod(0o755)
        run = pool.submit(name="watched", run=waits, sweep={"grid": {"n": [1, 2, 3]}}, resources={"cpus": 1})
        row = tab.page.locator("[data-row]", has_text="watched")
        expect(row).to_contain_text("running")
        row.get_by_role("link", name=str(run)).click()
        tab.page.evaluate("window.untouched = true")
        expect(tab.page.locator("#sentence")).to_contain_text("0 of 3 jobs have ended, 2 are running, 1 waits.")
        gate.touch()
        expect(tab.page.locator("#sentence")).to_contain_text("3 jobs: 3 succeeded.")
        expect(tab.page.locator("#jobs .is-succeeded")).to_have_count(3)
        assert tab.page.evaluate("window.untouched"), "the page has changed in place, and was not loaded again"


def test_a_log_of_100_000_lines_keeps_the_page_responsive(browser: Browser, pool: Pool, tmp_path: Path) -> None:
    """Seen to fail when the page kept every line."""
    gate = tmp_path / "gate"
    tmp_path.chmod(0o755)
    half = LINES // 2
    run = pool.submit(
        run=f"seq {half} | sed 's/^/line /'; until [ -e {gate} ]; do sleep 0.1; done; seq {half + 1} {LINES}"
        " | sed 's/^/line /'; printf 'no line break'"
    )
    pool.until_named(run)
    with Tab(browser, pool) as tab:
        tab.go(f"/jobs/{run}.1")
        lines, more = tab.page.locator("#log .line"), tab.page.locator("#log-more")
        expect(lines.last).to_contain_text(f"line {half}")
        assert lines.count() <= 2000
        # The page answers while it follows.
        tab.page.get_by_text("The specification, with all defaults").click()
        expect(tab.page.locator("#spec pre")).to_be_visible()
        # Somebody who reads is left in peace.
        tab.page.locator("#log").evaluate("log => { log.scrollTop = 0 }")
        expect(tab.page.locator("#log-note")).not_to_contain_text("following")
        first = lines.first.inner_text()
        gate.touch()
        expect(more).to_contain_text(f"{half + 1:,} new lines")
        assert lines.first.inner_text() == first
        assert lines.count() <= 2000
        more.click()
        expect(lines.last).to_contain_text("no line break")
        assert lines.count() <= 2000
        expect(tab.page.locator("#log .end")).to_have_text("the end of the log")
        expect(tab.page.locator("#log-note")).to_contain_text(f"{LINES + 1:,} lines")
        tab.go(f"/jobs/{run}.1#L500")
        tab.page.reload()
        expect(tab.page.locator("#L500.marked")).to_be_in_viewport()
        expect(tab.page.locator("#L500")).to_contain_text("line 500")


def test_several_runs_are_canceled_and_one_is_retried(browser: Browser, pool: Pool) -> None:
    names = [f"doomed-{number}" for number in range(3)]
    runs = [pool.submit(name=name, run="sleep 600", requires={"gpu": "true"}) for name in names]
    with Tab(browser, pool, "admin") as tab:
        tab.go("/runs")
        cancel = tab.page.get_by_role("button", name="Cancel")
        expect(cancel).to_be_disabled()
        for run in runs[:2]:
            tab.page.get_by_label(f"Select run {run}").check()
        tab.page.once("dialog", lambda dialog: dialog.accept())
        cancel.click()
        tab.see("2 jobs were canceled")
        assert [pool.run(run)["state"] for run in runs] == ["canceled", "canceled", "queued"]
        tab.go(f"/runs/{runs[0]}")
        tab.page.get_by_role("button", name="Retry canceled").dblclick()
        tab.see(f"run {runs[0]}")
        newest = pool.admin.get("/v1/runs?limit=3").json()["items"]
        assert [run["id"] for run in newest if run["retry_of"] == runs[0]] == [max(runs) + 1], "it is retried once"
        pool.admin.post(f"/v1/runs/{max(runs) + 1}/cancel")
        pool.admin.post(f"/v1/runs/{runs[2]}/cancel")


def test_a_broken_connection_is_said_and_mended(browser: Browser, tmp_path: Path) -> None:
    with Pool(CoordinatorProcess(tmp_path)) as pool, Tab(browser, pool) as tab:
        tab.go("/runs")
        tab.see("No run yet.")
        pool.coordinator.kill()
        expect(tab.page.locator("#banner")).to_contain_text("The connection is broken. This page is")
        pool.coordinator.start()
        pool.submit(name="meanwhile", run="true")
        tab.see("meanwhile")
        expect(tab.page.locator("#banner")).to_be_hidden()
        tab.problems = [problem for problem in tab.problems if "net::ERR_" not in problem]


def test_a_session_that_ends_leads_to_the_sign_in(browser: Browser, pool: Pool) -> None:
    token = pool.admin.post("/v1/tokens", json={"role": "submitter", "name": "leaver"}).json()
    with Tab(browser, pool, None) as tab:
        tab.go("/sign-in")
        tab.page.get_by_label("Or paste your token").fill(token["token"])
        tab.page.get_by_role("button", name="Sign in").click()
        tab.go("/runs")
        pool.admin.delete(f"/v1/tokens/{token['id']}")
        tab.is_at("/sign-in")
        tab.problems = [problem for problem in tab.problems if "EventSource" not in problem]
