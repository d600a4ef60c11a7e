"""Bugs in the dashboard: what its pages show, and who may send its forms."""

from __future__ import annotations

from typing import Any

from planted.bug import Planted
from planted.patch import Patch, nothing

WEB = "deborgen_coordinator.web"
SESSIONS = "deborgen_coordinator.http.sessions"
PAGES = "browser/test_pages.py::test_fault"
SIGN_IN = "contract/http/test_sign_in.py::test"


def take_text_for_html(original: Any) -> Any:
    from markupsafe import Markup

    return lambda value: Markup(value) if isinstance(value, str) else value


def show_lines_as_html(original: Any) -> Any:
    def contents() -> dict[str, bytes]:
        files = dict(original())
        plain, marked = b"return element.append(shown)", b"return element.insertAdjacentHTML('beforeend', shown)"
        assert plain in files["ansi.js"]
        return files | {"ansi.js": files["ansi.js"].replace(plain, marked)}

    return contents


def accept_a_session_anywhere(original: Any) -> Any:
    def session_of(ctx: Any, secret: str, host: str) -> Any:
        from deborgen_coordinator.operations import sign_ins

        row = sign_ins._known(ctx, sign_ins.digest_of(secret))
        return original(ctx, secret, row.host if row else host)

    return session_of


def let_everybody_frame(original: Any) -> Any:
    return {name: text.replace("frame-ancestors 'none'", "") for name, text in original.items()}


PLANTED: list[Planted] = [
    Planted(
        "a line of a log is taken for a part of the page",
        (Patch(f"{WEB}.assets:contents", show_lines_as_html),),
        (f"{PAGES}_37_a_log_cannot_control_the_page",),
        "rror",
    ),
    Planted(
        "names and reasons are taken for parts of the page",
        (Patch(f"{WEB}.words:finalize", take_text_for_html),),
        (f"{PAGES}_95_hostile_text_is_inert_on_every_page",),
        "rror",
    ),
    Planted(
        "a session is accepted under every name of the coordinator",
        (Patch("deborgen_coordinator.operations.sign_ins:session_of", accept_a_session_anywhere),),
        (f"{SIGN_IN}_fault_73_a_forged_host_and_framing_are_refused",),
    ),
    Planted(
        "other sites may frame the pages",
        (Patch(f"{WEB}.rendering:SAFE_HEADERS", let_everybody_frame),),
        (f"{SIGN_IN}_fault_73_a_forged_host_and_framing_are_refused",),
    ),
    Planted(
        "a form is accepted from every site, and without the word of the session",
        (Patch(f"{SESSIONS}:check_origin", nothing), Patch(f"{SESSIONS}:check_change", nothing)),
        (f"{SIGN_IN}_fault_73_a_change_needs_the_word_that_only_our_pages_know",),
    ),
    Planted(
        "a viewer may send every form",
        (Patch(f"{WEB}.pages:_check_role", nothing),),
        (f"{SIGN_IN}_fault_73_a_viewer_changes_nothing",),
    ),
]
