"""Every example runs unchanged, and so does every file that `deborgen init` writes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from support.person import Person

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture
def examples(anna: Person) -> Path:
    folder = anna.folder / "examples"
    if not folder.exists():
        shutil.copytree(EXAMPLES, folder)
    return folder


def test_every_example_has_a_test() -> None:
    known = {
        "hello.yml",
        "pi/pi.yml",
        "container/container.yml",
        "steps/steps.yml",
        "files/files.yml",
        "results/results.yml",
        "git/git.yml",
        "checkpoint/checkpoint.yml",
        "build/build.yml",
        "loop/loop.yml",
    }
    assert {path.relative_to(EXAMPLES).as_posix() for path in EXAMPLES.rglob("*.yml")} == known


def test_hello(anna: Person, examples: Path) -> None:
    run = anna.out("submit", str(examples / "hello.yml"), "--wait").strip()
    assert anna.out("logs", run).startswith("hello from ")
    assert anna.out("logs", run).endswith(f"this is job {run}.1\n")


def test_pi_sweep(anna: Person, examples: Path) -> None:
    run = anna.out("submit", str(examples / "pi/pi.yml"), "-p", "samples=1000,30000", "--wait").strip()
    rows = anna.rows("results", run)
    assert len(rows) == 20
    (best,) = anna.rows("results", run, "--best", "error:min")
    assert abs(float(best["pi"]) - 3.14159) < 0.1
    anna.out("artifacts", "pull", best["job"], "--into", "darts")
    assert (anna.folder / "darts/darts.svg").read_text().startswith("<svg")


def test_steps_with_a_swept_middle(anna: Person, examples: Path) -> None:
    run = anna.out("submit", str(examples / "steps/steps.yml"), "--wait").strip()
    assert anna.out("logs", f"{run}.8") == "1 1\n2 4\n3 9\n4 16\n5 25\n6 36\n"
    rows = anna.rows("results", run)
    assert [row["square"] for row in rows if row["step"] == "simulate"] == ["1", "4", "9", "16", "25", "36"]


def test_files_and_artifacts(anna: Person, examples: Path) -> None:
    (examples / "files/data/ignored.tmp").write_text("not uploaded")
    run = anna.out("submit", str(examples / "files/files.yml"), "--wait").strip()
    anna.out("artifacts", "pull", run, "--into", "counts")
    assert (anna.folder / "counts/counts.txt").read_text().split() == ["9", "data/fox.txt", "8", "data/jugs.txt"]
    assert (anna.folder / "counts/seen.log").read_text() == "data/fox.txt\ndata/jugs.txt\n"


def test_results(anna: Person, examples: Path) -> None:
    run = anna.out("submit", str(examples / "results/results.yml"), "--wait").strip()
    rows = anna.rows("results", run, "--sort", "-score")
    assert (rows[0]["x"], rows[0]["score"], rows[0]["kind"]) == ("3", "10", "parabola")
    assert len(rows) == 7


def test_checkpoint(anna: Person, examples: Path) -> None:
    run = anna.out("submit", str(examples / "checkpoint/checkpoint.yml"), "-p", "steps=3", "--wait").strip()
    (row,) = anna.rows("results", run)
    assert row["done"] == "3"


def test_loop(anna: Person, examples: Path) -> None:
    file = str(examples / "loop/loop.yml")
    assert "at most 81 with all rounds of its loops" in anna.out("check", file)
    run = anna.out("submit", file, "--wait").strip()
    rows = {row["rate"]: row for row in anna.rows("results", run) if row["step"] == "refine"}
    assert {rate: (row["round"], row["verified"]) for rate, row in rows.items()} == {
        "0.02": ("6", "true"),
        "0.05": ("3", "true"),
    }
    assert all(1.9 < float(row["slope"]) < 2.1 for row in rows.values())
    assert anna.out("logs", f"{run}.3").count("slope") == 2
    assert "Its check is job" in anna.out("why", rows["0.05"]["job"])
    shown = anna.out("show", run)
    assert "round=3 phase=verify" in shown
    assert "not verified" in shown


@pytest.mark.parametrize("kind", ["hello", "sweep", "steps", "checkpoint", "loop"])
def test_every_starter_runs_unchanged(anna: Person, kind: str) -> None:
    path = anna.out("init", kind, f"starter-{kind}.yml").strip()
    run = anna.out("submit", path, "--wait").strip()
    assert {row["state"] for row in anna.rows("results", run)} == {"succeeded"}
