"""A tab of a real browser on the dashboard. It notices everything that must never happen there.

with open_browser() as browser, Tab(browser, pool, "submitter") as tab:
    tab.go("/runs")
    tab.see("No run yet.")
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from playwright.sync_api import Browser, BrowserContext, Dialog, Page, expect, sync_playwright

from support.browser import Visitor
from support.pool import Pool

CHROMIUM = "/usr/bin/chromium"
#: A correct page may need this long on a busy machine.
PATIENCE_MS = 60_000
#: Text that must stay text, wherever somebody puts it.
HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>\"'&{{7*7}}\u202egnp.exe"
#: Reports what the page's own policy refuses.
REPORT = (
    "addEventListener('securitypolicyviolation',"
    " e => console.error('refused by the policy: ' + e.violatedDirective + ' ' + e.blockedURI))"
)

expect.set_options(timeout=PATIENCE_MS)


@contextmanager
def open_browser() -> Iterator[Browser]:
    """Debian's Chromium. The tests of a process share one."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM)
        try:
            yield browser
        finally:
            browser.close()


class Tab:
    """A tab of somebody who is signed in with a token of this role; with None, of somebody who is not.

    `options` are those of a browser's context."""

    def __init__(
        self, browser: Browser, pool: Pool, role: str | None = "submitter", name: str | None = None, **options: Any
    ) -> None:
        self.pool = pool
        self.url = pool.coordinator.url
        self.problems: list[str] = []
        self.context: BrowserContext = browser.new_context(reduced_motion="reduce", **options)
        self.context.add_init_script(REPORT)
        if role is not None:
            with Visitor(pool.coordinator) as visitor:
                visitor.sign_in(role, name)
                cookies = [{"name": name, "value": value, "url": self.url} for name, value in visitor.cookies.items()]
            self.context.add_cookies(cookies)  # type: ignore[arg-type]
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE_MS)
        self._watch(self.page)

    def _watch(self, page: Page) -> None:
        page.on("console", lambda said: self.problems.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("request", lambda request: None if request.url.startswith(self.url) else self._foreign(request.url))

    def _foreign(self, url: str) -> None:
        self.problems.append(f"a request to another host: {url}")

    def note_dialog(self, dialog: Dialog) -> None:
        self.problems.append(f"a dialog: {dialog.message}")
        dialog.dismiss()

    def __enter__(self) -> Tab:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.context.close()
        if error is None:
            assert self.problems == []

    def go(self, path: str) -> None:
        self.page.goto(self.url + path)

    def see(self, text: str) -> None:
        """Wait until the page shows this text."""
        expect(self.page.get_by_text(text).first).to_be_visible()

    def is_at(self, path: str) -> None:
        """Wait until the tab shows this page."""
        expect(self.page).to_have_url(re.compile(re.escape(self.url + path) + r"(?:[?#].*)?$"))

    def is_too_wide(self) -> bool:
        """Whether the page has to be scrolled sideways."""
        return bool(self.page.evaluate("document.documentElement.scrollWidth > innerWidth"))
