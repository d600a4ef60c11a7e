"""The results table: its columns, sorting, and its best row."""

from __future__ import annotations

import builtins
import csv
import io
from typing import Any

import pytest

from deborgen.errors import DeborgenError, WrongUsage
from deborgen.results import Results
from deborgen_shared.messages import ResultRow


def row(index: int, params: dict[str, Any], result: dict[str, Any] | None, **more: Any) -> ResultRow:
    fields = {"step": None, "state": "succeeded", "seconds": 0.5, "worker": "box", **more}
    return ResultRow(job=f"1.{index}", params=params, result=result, **fields)


TABLE = Results.of(
    [
        row(1, {"dt": 0.1}, {"error": 3.0, "note": "a,b"}),
        row(2, {"dt": 0.01}, {"error": 1.0, "ok": True}),
        row(3, {"dt": 0.001}, None, state="failed", seconds=None, worker=None),
    ]
)


def test_parameters_and_results_are_between_the_fixed_columns() -> None:
    assert TABLE.columns == ["job", "state", "dt", "error", "note", "ok", "seconds", "worker"]
    assert TABLE[2] == {
        "job": "1.3", "state": "failed", "dt": 0.001, "error": None, "note": None, "ok": None, "seconds": None,
        "worker": None,
    }  # fmt: skip


def test_there_is_a_column_for_steps_if_a_job_has_one() -> None:
    assert Results.of([row(1, {}, {}, step="prepare")]).columns == ["job", "step", "state", "seconds", "worker"]


def test_a_duplicate_column_name_gets_a_prefix() -> None:
    table = Results.of([row(1, {"x": 1, "state": "gas"}, {"x": 2, "seconds": 9})])
    assert table[0]["x"] == 1
    assert table[0]["result.x"] == 2
    assert table[0]["param.state"] == "gas"
    assert table[0]["state"] == "succeeded"
    assert table[0]["result.seconds"] == 9


def test_rows_are_sorted_by_number_with_missing_values_last() -> None:
    assert [line["job"] for line in TABLE.sorted_by("error")] == ["1.2", "1.1", "1.3"]
    assert [line["job"] for line in TABLE.sorted_by("error", reverse=True)] == ["1.1", "1.2", "1.3"]


def test_rows_and_columns_are_chosen() -> None:
    assert [line["job"] for line in TABLE.where("dt", "1e-2")] == ["1.2"]
    assert [line["job"] for line in TABLE.where("ok", "true")] == ["1.2"]
    assert [line["job"] for line in TABLE.where("note", "")] == ["1.2", "1.3"]
    assert TABLE.first(1).only(["dt", "job"]) == [{"dt": 0.1, "job": "1.1"}]
    with pytest.raises(WrongUsage, match="no column 'dtt'"):
        TABLE.where("dtt", "1")


def test_nan_and_infinities_are_numbers_in_python_and_empty_cells_in_csv() -> None:
    rows = [row(n, {}, {"loss": value}) for n, value in enumerate(["NaN", "Infinity", 0.5], 1)]
    table = Results.of(rows)
    assert [repr(line["loss"]) for line in table] == ["nan", "inf", "0.5"]
    assert [line["loss"] for line in csv.DictReader(io.StringIO(table.to_csv()))] == ["", "", "0.5"]
    assert [line["job"] for line in table.sorted_by("loss")] == ["1.3", "1.2", "1.1"]
    assert table.best("loss")["job"] == "1.3"  # type: ignore[index]


def test_the_best_row_is_chosen_among_rows_with_a_number() -> None:
    assert TABLE.best("error")["job"] == "1.2"  # type: ignore[index]
    assert TABLE.best("error", "max")["job"] == "1.1"  # type: ignore[index]
    assert TABLE.best("note") is None
    assert Results.of([row(1, {}, {"e": float("nan")})]).best("e") is None


def test_an_unknown_column_is_refused_with_a_suggestion() -> None:
    with pytest.raises(WrongUsage) as refusal:
        TABLE.sorted_by("eror")
    assert refusal.value.hint == "did you mean 'error'?"


def test_csv_can_be_read_back() -> None:
    lines = list(csv.DictReader(io.StringIO(TABLE.to_csv())))
    assert lines[0]["note"] == "a,b"
    assert lines[1]["ok"] == "true"
    assert lines[2]["error"] == ""


def test_a_data_frame_has_the_same_columns_and_rows_with_numbers_as_numbers() -> None:
    frame = TABLE.to_pandas()
    assert list(frame.columns) == TABLE.columns
    assert frame["job"].tolist() == ["1.1", "1.2", "1.3"]
    assert frame.dtypes["dt"] == frame.dtypes["error"] == frame.dtypes["seconds"] == "float64"
    assert frame["error"].isna().tolist() == [False, False, True], "a job without a result has a hole, not a zero"
    assert frame.loc[frame["error"].idxmin(), "job"] == "1.2"
    assert frame.groupby("state")["error"].mean()["succeeded"] == 2.0
    assert frame["note"].iloc[0] == "a,b"
    assert frame["ok"].iloc[1] is True


def test_whole_numbers_stay_whole_in_a_data_frame() -> None:
    frame = Results.of([row(1, {"seed": 7}, {"n": 2**53 + 1}), row(2, {"seed": 8}, {"n": 3})]).to_pandas()
    assert frame.dtypes["seed"] == frame.dtypes["n"] == "int64"
    assert frame["n"].tolist() == [2**53 + 1, 3]


def test_a_run_without_jobs_in_the_table_is_an_empty_data_frame() -> None:
    frame = Results.of([]).to_pandas()
    assert list(frame.columns) == ["job", "state", "seconds", "worker"]
    assert len(frame) == 0


def test_without_pandas_to_pandas_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "pandas":
            raise ImportError
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(DeborgenError, match="needs pandas"):
        TABLE.to_pandas()
