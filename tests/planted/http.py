"""Bugs in how the coordinator reads requests: bodies, JSON, paths, roles."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from planted.bug import STRICT, Planted
from planted.patch import Patch, becomes, first_argument

HTTP = "deborgen_coordinator.http"
PATHS = "deborgen_shared.jobfile.paths"


def treat_two_dots_as_a_name(original: Any) -> Any:
    return lambda path: original("/".join("up" if part == ".." else part for part in path.split("/")))


def let_the_last_key_count(original: Any) -> Any:
    return json.JSONDecoder(
        parse_constant=original.parse_constant, parse_int=original.parse_int, parse_float=original.parse_float
    )


def raise_an_internal_error(original: Any) -> Any:
    return lambda problems: ValueError(str(problems))


def take_any_length(original: Any) -> Any:
    return lambda environ, limit, **more: original(environ, 1 << 60, **more)


def need_no_length(original: Any) -> Any:
    def length_of(environ: dict[str, Any], limit: int, *, required: bool = True) -> Any:
        without = {name: value for name, value in environ.items() if name != "HTTP_TRANSFER_ENCODING"}
        return original(without, limit, required=False)

    return length_of


def take_half_a_body(original: Any) -> Any:
    return lambda environ, length: environ["wsgi.input"].read(length)


def answer_with_an_internal_error(original: Any) -> Any:
    return lambda self, req, client, addr, exc: original(self, req, client, addr, RuntimeError(str(exc)))


def let_any_page_read(original: Any) -> Any:
    def render(reply: Any) -> Any:
        answer = original(reply)
        answer.headers["Access-Control-Allow-Origin"] = "*"
        return answer

    return render


def open_to_every_role(original: Any) -> Any:
    from deborgen_shared.states import Role

    def view(entry: Any, *more: Any) -> Any:
        return original(dataclasses.replace(entry, roles=frozenset(Role)) if entry.roles else entry, *more)

    return view


PLANTED: list[Planted] = [
    Planted(
        "'..' is a name like any other",
        (Patch(f"{PATHS}:check_path", treat_two_dots_as_a_name),),
        (
            f"{STRICT}_64_a_file_path_that_leaves_its_folder_is_422",
            "unit/worker/test_workspace.py::test_fault_64_a_path_that_leads_out_of_the_workspace_is_refused",
        ),
    ),
    Planted(
        "names are compared byte by byte",
        (Patch(f"{PATHS}:fold", first_argument),),
        (f"{STRICT}_64_file_paths_that_are_equal_on_some_machines_are_422",),
        "201",
    ),
    Planted(
        "the last of two equal keys counts",
        (Patch("deborgen_shared.strict_json:_DECODER", let_the_last_key_count),),
        (
            "contract/http/test_decoding.py::test_fault_62_malformed_deep_huge_and_duplicate_key_json_is_400",
            f"{STRICT}_62_malformed_json_is_400_and_submits_nothing",
        ),
    ),
    Planted(
        "nesting has no limit",
        (Patch("deborgen_shared.strict_json:MAX_DEPTH", becomes(1 << 60)),),
        ("contract/http/test_decoding.py::test_fault_62_malformed_deep_huge_and_duplicate_key_json_is_400",),
        "DID NOT RAISE",
    ),
    Planted(
        "an invalid job file is an internal error of the coordinator",
        (Patch("deborgen_coordinator.operations.runs.submit:refusal", raise_an_internal_error),),
        (f"{STRICT}_62_json_that_is_not_a_job_file_is_422_with_all_problems",),
        "500",
    ),
    Planted(
        "a body may have any length",
        (Patch(f"{HTTP}.bodies:length_of", take_any_length),),
        (
            f"{STRICT}_63_a_body_over_the_limit_is_413_before_it_is_read",
            f"{STRICT}_63_a_body_that_is_sent_in_full_and_too_large_is_413",
        ),
        "HTTP/1.1 (?!413)|timed out",
    ),
    Planted(
        "a body needs no Content-Length",
        (Patch(f"{HTTP}.bodies:length_of", need_no_length),),
        (f"{STRICT}_63_no_content_length_is_411", f"{STRICT}_63_a_chunked_body_is_411"),
        "HTTP/1.1 400",
    ),
    Planted(
        "half a body counts as the whole body",
        (Patch(f"{HTTP}.bodies:read", take_half_a_body),),
        (f"{STRICT}_63_a_body_shorter_than_its_length_is_400",),
        "HTTP/1.1 201",
    ),
    Planted(
        "an invalid HTTP request is an internal error of the coordinator",
        (Patch("deborgen_coordinator.request_threads:PatientWorker.handle_error", answer_with_an_internal_error),),
        (
            f"{STRICT}_63_a_content_length_that_is_not_a_number_is_refused",
            f"{STRICT}_73_ambiguous_framing_and_bad_http_is_400_in_the_usual_shape",
        ),
        "HTTP/1.1 500",
    ),
    Planted(
        "pages of any origin may read the answers",
        (Patch(f"{HTTP}.answers:render", let_any_page_read),),
        (f"{STRICT}_73_a_forged_host_or_origin_changes_no_answer",),
        "Access-Control-Allow-Origin",
    ),
    Planted(
        "any role may do anything",
        (Patch(f"{HTTP}.routes:_view", open_to_every_role),),
        ("contract/http/test_roles.py::test_fault_72_a_token_of_the_wrong_role_is_403_and_no_token_is_401",),
    ),
]
