from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deborgen_shared.jobfile.keys import NOT_YET
from deborgen_shared.jobfile.model import File, JobResources, JobSpec, RetryPolicy
from deborgen_shared.jobfile.problems import JobFileInvalid
from deborgen_shared.jobfile.reading import load, parse, parse_document

DIGEST = "a" * 64


def problems(data: Any, **more: Any) -> list[tuple[str, str]]:
    with pytest.raises(JobFileInvalid) as refused:
        parse(data, **({"wire": True} | more))
    return [(problem.path_text, problem.message) for problem in refused.value.problems]


def test_one_line_is_a_complete_job_with_the_defaults_of_the_docs() -> None:
    jobfile = parse({"run": "echo hello"}, wire=True, default_name="hello")
    (step,) = jobfile.steps
    assert (jobfile.name, jobfile.labels, jobfile.priority, jobfile.count) == ("hello", {}, 0, 1)
    assert (step.id, step.needs, step.sweep, step.count, step.path) == (None, [], None, 1, ())
    assert list(step.params()) == [{}]
    spec = step.spec
    assert spec == JobSpec(name="hello", run="echo hello")
    assert spec.resources == JobResources(cpus=1.0, memory=2**30, gpus=0, disk=2**31)
    assert (spec.timeout, spec.max_attempts, spec.retry) == (3600.0, 1, RetryPolicy(program=False, backoff=10.0))
    assert (spec.network, spec.image, spec.priority, spec.result) == ("none", None, 0, None)


def test_a_spec_survives_the_round_trip_to_the_worker() -> None:
    data = {
        "run": ["a", "b"],
        "image": "busybox",
        "files": [{"path": "a", "sha256": DIGEST, "size": 3}],
        "artifacts": [{"path": "x", "when": "always"}],
        "checkpoint": {"path": "s"},
        "workspace": {"git": "https://example.org/a.git"},
    }
    spec = parse(data, wire=True).steps[0].spec
    assert msgspec.json.decode(msgspec.json.encode(spec), type=JobSpec) == spec
    assert msgspec.json.decode(b'{"run":"x","of_a_newer_version":1}', type=JobSpec).run == "x"


def test_files_on_the_wire_are_blobs() -> None:
    files = [{"path": "sim.py", "sha256": DIGEST, "size": 3, "mode": 0o755}, {"path": "b", "sha256": DIGEST, "size": 0}]
    (step,) = parse({"run": "x", "files": files}, wire=True).steps
    assert step.spec.files == [
        File(path="sim.py", sha256=DIGEST, size=3, mode=0o755),
        File(path="b", sha256=DIGEST, size=0, mode=0o644),
    ]
    assert step.local_files == []


def test_files_by_hand_are_paths_still_to_be_uploaded() -> None:
    (step,) = parse({"run": "x", "files": ["./sim.py", "data/"]}, wire=False).steps
    assert step.local_files == ["sim.py", "data"]
    assert step.spec.files == []


@pytest.mark.parametrize(
    ("file", "where"),
    [
        ("sim.py", "files[0]"),
        ({}, "files[0].path"),
        ({"path": "a", "size": 1}, "files[0].sha256"),
        ({"path": "a", "sha256": "A" * 64, "size": 1}, "files[0].sha256"),
        ({"path": "a", "sha256": DIGEST}, "files[0].size"),
        ({"path": "a", "sha256": DIGEST, "size": -1}, "files[0].size"),
        ({"path": "a", "sha256": DIGEST, "size": True}, "files[0].size"),
        ({"path": "a", "sha256": DIGEST, "size": 2**60}, "files[0].size"),
        ({"path": "a", "sha256": DIGEST, "size": 1, "mode": 0o4755}, "files[0].mode"),
        ({"path": "a", "sha256": DIGEST, "size": 1, "mode": "0644"}, "files[0].mode"),
        ({"path": "../a", "sha256": DIGEST, "size": 1}, "files[0].path"),
        ({"path": "a/", "sha256": DIGEST, "size": 1}, "files[0].path"),
        ({"path": "${{ a }}", "sha256": DIGEST, "size": 1}, "files[0].path"),
        ({"path": "a", "sha256": DIGEST, "size": 1, "owner": "root"}, "files[0].owner"),
    ],
)
def test_a_wrong_file_on_the_wire_is_reported(file: Any, where: str) -> None:
    assert where in [path for path, _ in problems({"run": "x", "files": [file]})]


def test_files_that_are_the_same_on_some_machines_are_refused() -> None:
    files = [{"path": path, "sha256": DIGEST, "size": 1} for path in ("a", "A", "b", "b/c")]
    found = problems({"run": "x", "files": files})
    assert [path for path, _ in found] == ["files[1]", "files[3]"]


def test_all_problems_are_found_at_once() -> None:
    found = problems({"run": "", "timeout": 5, "env": {"A B": [1]}, "steps": [], "nonsense": 1, "network": "lan"})
    assert sorted(path for path, _ in found) == [
        "env.A B",
        "env.A B",
        "network",
        "nonsense",
        "run",
        "steps",
        "steps",
        "timeout",
    ]


def test_the_keys_of_the_file_are_the_defaults_of_its_steps() -> None:
    jobfile = parse(
        {
            "name": "n",
            "priority": 3,
            "labels": {"a": "b"},
            "image": "busybox",
            "timeout": "5m",
            "env": {"A": 1, "B": 2},
            "requires": {"os": "linux"},
            "resources": {"memory": "2GiB"},
            "retry": {"backoff": "1s"},
            "artifacts": ["a"],
            "steps": [
                {"id": "one", "run": "x"},
                {
                    "id": "two",
                    "run": "y",
                    "image": "alpine",
                    "env": {"B": 3},
                    "requires": {"gpu": "*"},
                    "resources": {"cpus": 4},
                    "retry": {"program": True},
                    "artifacts": ["b"],
                    "priority": 9,
                },
            ],
        },
        wire=True,
    )
    one, two = (step.spec for step in jobfile.steps)
    assert jobfile.priority == 3
    assert (one.image, one.timeout, one.env, one.priority) == ("busybox", 300.0, {"A": "1", "B": "2"}, 3)
    assert (two.image, two.timeout, two.env, two.priority) == ("alpine", 300.0, {"A": "1", "B": "3"}, 9)
    assert two.requires == {"os": "linux", "gpu": "*"}
    assert two.resources == JobResources(cpus=4.0, memory=2**31)
    assert two.retry == RetryPolicy(program=True, backoff=1.0)
    assert [artifact.path for artifact in two.artifacts] == ["b"]
    assert [step.path for step in jobfile.steps] == [("steps", 0), ("steps", 1)]


def test_a_step_needs_the_one_above_unless_it_says_otherwise() -> None:
    steps = [
        {"id": "a", "run": "x"},
        {"id": "b", "run": "x"},
        {"id": "c", "run": "x", "needs": []},
        {"id": "d", "run": "x", "needs": ["a", "b"]},
    ]
    assert [step.needs for step in parse({"steps": steps}, wire=True).steps] == [[], ["a"], [], ["a", "b"]]


def test_a_circle_is_found_anywhere() -> None:
    steps = [{"id": f"s{i}", "run": "x", "needs": [f"s{i + 1}"]} for i in range(999)]
    parse({"steps": [*steps, {"id": "s999", "run": "x", "needs": []}]}, wire=True)
    ((path, message),) = problems({"steps": [*steps, {"id": "s999", "run": "x", "needs": ["s997"]}]})
    assert path == "steps[997].needs"
    assert message == "the steps need each other in a circle: s997 → s998 → s999 → s997"


def test_the_limit_on_jobs_applies_to_all_steps_together() -> None:
    steps = [{"id": f"s{i}", "run": "x", "sweep": {"grid": {"n": {"from": 1, "to": 10}}}} for i in range(3)]
    assert parse({"steps": steps}, wire=True, max_jobs=30).count == 30
    assert problems({"steps": steps}, max_jobs=29) == [("steps", "the steps make 30 jobs, but the limit is 29")]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("name", "x" * 201),
        ("run", "x" * (100 * 1024 + 1)),
        ("run", "é" * (60 * 1024)),
        ("run", ["x"] * 1001),
        ("run", ["x" * 60_000] * 2),
        ("image", "x" * 501),
        ("files", [{}] * 10_001),
        ("env", {f"A{i}": "" for i in range(1001)}),
        ("env", {"A" * 129: ""}),
        ("env", {"A": "x" * (32 * 1024 + 1)}),
        ("secrets", [f"A{i}" for i in range(101)]),
        ("requires", {f"a{i}": "" for i in range(65)}),
        ("labels", {f"a{i}": "" for i in range(65)}),
        ("labels", {"a" * 64: ""}),
        ("labels", {"a": "x" * 201}),
        ("artifacts", ["a"] * 101),
        ("steps", [{"id": f"s{i}", "run": "x"} for i in range(1001)]),
        ("timeout", "366d"),
        ("timeout", "0s"),
        ("max_attempts", 101),
        ("priority", -1001),
        ("workspace", {"git": "https://" + "x" * 2000}),
        ("workspace", {"git": "https://x/y", "ref": "x" * 251}),
    ],
)
def test_everything_has_a_limit_and_the_message_names_it(key: str, value: Any) -> None:
    data = {"steps": value} if key == "steps" else {"run": "x", key: value}
    with pytest.raises(JobFileInvalid) as refused:
        parse(data, wire=True)
    problem = refused.value.problems[0]
    assert any(character.isdigit() for character in problem.message + problem.hint)


@pytest.mark.parametrize("text", ["a\0b", "a\ud800b"])
@pytest.mark.parametrize("place", ["name", "run", "env", "labels", "argument", "parameter", "image", "result"])
def test_text_that_cannot_be_stored_is_refused(place: str, text: str) -> None:
    data: dict[str, Any] = {"run": "x"}
    if place in ("name", "run", "image", "result"):
        data[place] = text
    elif place in ("env", "labels"):
        data[place] = {"A": text}
    elif place == "argument":
        data["run"] = [text]
    else:
        data["sweep"] = {"grid": {"a": [text]}}
    assert problems(data)


def test_hostile_text_is_stored_unchanged() -> None:
    text = "'; DROP TABLE jobs; --<script>alert(1)</script>$(reboot)\r\n\x1b[31m"
    (step,) = parse({"name": text, "run": text, "env": {"A": text}, "labels": {"a": text}}, wire=True).steps
    assert (step.spec.name, step.spec.run, step.spec.env, step.spec.labels) == (text, text, {"A": text}, {"a": text})


def test_hostile_text_is_harmless_in_a_message() -> None:
    ((_, message),) = problems({"run": "x", "\x1b]0;owned\x07": 1})
    assert message.isprintable()


def test_the_name_of_a_run_shows_where_its_jobs_differ() -> None:
    jobfile = parse({"name": "pi ${{ n }}", "run": "x", "sweep": {"grid": {"n": [1, 2]}}}, wire=True)
    assert jobfile.name == "pi *"
    assert jobfile.steps[0].spec.name == "pi ${{ n }}"
    assert parse({"run": "x"}, wire=True, default_name="y" * 300).name == "y" * 200


def test_jobs_that_fit_the_same_workers_have_the_same_key() -> None:
    def key(**keys: Any) -> str:
        return parse({"run": "x", **keys}, wire=True).steps[0].spec.needs_key()

    assert key() == key(name="other", env={"A": "1"}, timeout="5s", resources={"cpus": 1})
    assert key() == (
        '{"network":"none","requires":{},'
        '"resources":{"cpus":1.0,"disk":2147483648,"gpus":0,"memory":1073741824},"runner":"process"}'
    )
    assert key(requires={"a": "1", "b": "2"}) == key(requires={"b": "2", "a": "1"})
    others = [key(image="busybox"), key(network="internet"), key(requires={"a": "1"}), key(resources={"gpus": 1})]
    assert len({key(), *others}) == 5


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("https://user:word@example.org/x", "a user or a password"), ("https://example.org", "no repository"),
        ("ssh://-oProxyCommand=x/y", "no valid host"), ("file://host/x", "three slashes"),
        ("https://" + "a:" * 900 + "/x", "no valid port"),
    ],
)  # fmt: skip
def test_the_url_of_a_repository_is_one_that_a_machine_can_contact(url: str, words: str) -> None:
    [(path, message)] = problems({"run": "x", "workspace": {"git": url}})
    assert path == "workspace.git"
    assert words in message


def test_facts_about_the_commit_are_known_with_a_repository() -> None:
    job = {"run": "echo ${{ git.short_sha }}", "workspace": {"git": "https://example.org/a"}}
    assert parse(job, wire=True).steps[0].spec.repository == ("https://example.org/a", "main")
    [(_, message)] = problems({"run": "echo ${{ git.sha }}"})
    assert "known only in a job that has a repository" in message


def test_a_job_needs_an_owner_who_offers_its_repository_and_its_key() -> None:
    def spec(**workspace: Any) -> JobSpec:
        return parse({"run": "x", "secrets": ["A"], "workspace": workspace}, wire=True).steps[0].spec

    plain, keyed = spec(git="https://example.org/a"), spec(git="https://example.org/a", key="K")
    assert plain.offers == {"git.https": "true"}
    assert spec(git="git@example.org:a").offers == {"git.ssh": "true"}
    assert spec(shared="data").offers == {"shared.data": "read"}
    assert keyed.all_secrets == ["A", "K"]
    assert len({each.needs_key() for each in (plain, keyed, spec(shared="data"))}) == 3


def test_a_shared_folder_that_is_only_read_takes_no_files() -> None:
    job = {"run": "x", "workspace": {"shared": "data"}}
    keys = {"files": [], "artifacts": ["out/*"], "result": "r.json"}
    assert [path for path, _ in problems({**job, **keys})] == ["artifacts", "result"]
    assert parse({**keys, "run": "x", "workspace": {"shared": "data", "write": True}}, wire=True)
    kept = {**job, "checkpoint": {"path": "a"}, "workspace": {"shared": "data", "write": True}}
    assert [path for path, _ in problems(kept)] == ["checkpoint"]
    steps = {"artifacts": ["out/*"], "steps": [{"id": "a", **job}, {"id": "b", **job}]}
    assert [path for path, _ in problems(steps)] == ["artifacts"]


@pytest.fixture
def unsupported(monkeypatch: pytest.MonkeyPatch) -> str:
    """A key that this version reads and checks, and cannot execute."""
    monkeypatch.setitem(NOT_YET, "checkpoint", "is not supported by this version yet")
    return "checkpoint"


def test_unsupported_keys_are_checked_and_reported(unsupported: str) -> None:
    job = {"run": "x", unsupported: {"path": "state"}}
    (problem,) = parse(job, wire=True).not_yet
    assert problem.path == (unsupported,)
    assert "by this version yet" in problem.message
    (problem,) = parse({"steps": [{"id": "a", **job}]}, wire=True).not_yet
    assert problem.path == ("steps", 0, unsupported)


def test_unsupported_keys_are_reported_with_their_position(unsupported: str) -> None:
    document = load(f"run: x\n{unsupported}: {{path: a}}\n", "job.yml")
    (problem,) = parse_document(document).not_yet
    shown = problem.render(document.source, document.lines).splitlines()
    assert shown[0] == "job.yml:2:1: 'checkpoint' is not supported by this version yet"
    assert shown[2] == "   | ^^^^^^^^^^"


def test_supported_keys_are_not_reported() -> None:
    assert parse({"run": "x", "image": "busybox", "artifacts": ["a"]}, wire=True).not_yet == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
KEYS = (
    "name run image files workspace env secrets resources requires network timeout watchdog max_attempts retry "
    "priority artifacts result checkpoint labels sweep steps build"
).split()
INNER = (
    "git ref shared path every when sha256 size mode cpus memory grid cases exclude from to count scale step id needs "
    "run"
).split()
NESTED = st.recursive(
    JSON,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(INNER), inner, max_size=4),
    max_leaves=10,
)


@given(JSON | st.dictionaries(st.sampled_from(KEYS), NESTED, max_size=6), st.booleans())
def test_any_data_is_a_job_file_or_a_refusal_and_never_another_error(data: Any, wire: bool) -> None:
    try:
        parse(data, wire=wire)
    except JobFileInvalid as refused:
        found = refused.render()
    else:
        found = "accepted"
    assert found


def test_data_from_python_may_have_strange_keys_and_numbers() -> None:
    strange = {None: 1, 5: 2, (1, 2): 3, True: 4}
    huge = 10**5000
    for data in (
        strange,
        {"run": "x", "env": strange, "labels": strange, "resources": strange, "sweep": strange},
        {"run": [huge], "name": huge, "priority": huge, "timeout": huge, "resources": {"memory": huge, "cpus": huge}},
        {"run": "x", "env": {"A": huge}, "sweep": {"grid": {"a": [huge], "b": {"from": huge, "to": 1, "step": huge}}}},
        {"run": "x", "sweep": {"grid": strange, "cases": [strange], "exclude": [strange]}, "steps": [strange]},
    ):
        assert problems(data)
        assert problems(data, wire=False)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "data",
    [
        {
            "env": {f"A{i}": "${{ job.id }}" * 500 for i in range(1000)},
            "steps": [{"id": f"s{i}", "run": "x"} for i in range(1000)],
        },
        {"run": "x", "timeout": " " * 10**6 + "x"},
        {"run": "x", "artifacts": ["${{ a }}/" * 70 + "x"] * 100, "sweep": {"grid": {"a": {"from": 1, "to": 100_000}}}},
        {
            "run": "x",
            "files": [{"path": f"{i}/" + "a/" * 400 + "x", "sha256": DIGEST, "size": 1} for i in range(10_000)],
        },
        {
            "steps": [
                {"id": f"s{i}", "run": "x", "sweep": {"grid": {"a": {"from": 1, "to": 99_000}}, "exclude": [{"a": 1}]}}
                for i in range(1000)
            ]
        },
        {"run": "x" + "${{ " * 10**5},
        {"x" * 10**6 + str(i): 1 for i in range(20)},
        {"run": "x", "sweep": {"grid": {"a": "1" * 10**5 + ".." + "2" * 10**5}}},
    ],
    ids=["lookups", "blanks", "values", "paths", "excludes", "openings", "long-keys", "long-range"],
)
def test_hostile_data_costs_little(data: Any) -> None:
    try:
        parse(data, wire=True)
    except JobFileInvalid as refused:
        told = refused.render()
    else:
        told = ""
    assert len(told) < 100_000


def test_a_secret_may_not_also_be_a_variable_at_any_level() -> None:
    both = [("steps[0].secrets[0]", "'KEY' is in both 'env' and 'secrets'")]
    steps = [{"id": "a", "run": "x", "env": {"A": 1}, "secrets": ["KEY"]}, {"id": "b", "run": "x"}]
    assert problems({"env": {"KEY": 1}, "steps": steps}) == both
    assert problems(
        {"secrets": ["KEY"], "env": {"KEY": 1}, "steps": [{"id": "a", "run": "x"}, {"id": "b", "run": "x"}]}
    ) == [("secrets[0]", "'KEY' is in both 'env' and 'secrets'")]


@pytest.mark.timeout(10)
def test_many_unknown_names_among_many_known_ones_cost_little() -> None:
    """Took 7.7 s when each unknown name was compared with every known name, no matter how many and how long."""
    ids = [f"{i:04}" + "abcdefghij" * 5 + "x" * 9 for i in range(990)]
    steps = [{"id": name, "run": "x", "needs": [name[::-1]]} for name in ids]
    assert len(problems({"steps": steps})) == 100
