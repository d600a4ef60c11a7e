"""The metrics for Prometheus."""

from __future__ import annotations

from deborgen_coordinator.operations.metrics import CoordinatorMetrics
from support.documents import ROOT


def test_every_metric_is_in_the_documents() -> None:
    """Under the name that Prometheus gives it. Seen to fail when a counter is added only to the code."""
    pages = "".join((ROOT / "docs" / page).read_text("utf-8") for page in ("operations.md", "http-api.md"))
    metrics = list(CoordinatorMetrics().registry.collect())
    names = {metric.name + ("_total" if metric.type == "counter" else "") for metric in metrics}
    assert "deborgen_job_retries_total" in names
    assert sorted(name for name in names if f"`{name}" not in pages) == []


def test_every_metric_says_what_it_is_in_a_sentence() -> None:
    assert [
        metric.name for metric in CoordinatorMetrics().registry.collect() if not metric.documentation.endswith(".")
    ] == []
