"""Puts the results of attempts together, and writes them to the spool."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

from deborgen_shared.messages import Result
from deborgen_shared.states import Outcome
from deborgen_worker import steps
from deborgen_worker.crash import crash_point
from deborgen_worker.execution import Execution, result_of
from deborgen_worker.journal import SpoolFullError
from deborgen_worker.reasons import without_host_paths
from deborgen_worker.spool import ResultRecord, Spool

#: While the output of an attempt is being read, report it at most once in this many seconds.
ADVANCE_SECONDS = 10.0


class GivenUp(Exception):
    """The attempt already has a result, because its output took too long to read."""


class ResultRecorder:
    """Reports to `handle` that the output of an attempt is being read, and that its result is in the spool."""

    def __init__(
        self,
        spool: Spool,
        clock: Callable[[], float],
        say: Callable[[str], None],
        handle: Callable[[list[steps.AttemptEvent]], None],
    ) -> None:
        self._spool, self._clock, self._say, self._handle = spool, clock, say, handle
        self._lock = threading.Lock()

    def record(self, ends: list[tuple[steps.Collect, Execution]]) -> None:
        """Put the results together and write them. The first result of each attempt counts; a later one is dropped."""
        made = [(execution, self._result(execution, end)) for end, execution in ends]
        with self._lock:
            first = [(execution, result) for execution, result in made if not execution.has_result]
            for execution, _ in first:
                execution.has_result = True
        if first:
            self._write([result for _, result in first])
            self._handle([steps.Collected(execution.id) for execution, _ in first])

    def _result(self, execution: Execution, end: steps.Collect) -> ResultRecord:
        try:
            return result_of(execution, end, self._advance(execution))
        except GivenUp:
            return ResultRecord(end.name, Result(attempt=end.name, outcome=Outcome.ERROR.value))  # it is dropped
        except Exception as error:
            self._say(f"the output of {end.name} could not be collected: {type(error).__name__}: {error}")
            reason = f"its output could not be collected: {error}"
        failed = replace(end, outcome=Outcome.ERROR, reason=reason, exit=replace(end.exit, code=None), ran=False)
        try:
            return result_of(execution, failed)  # its log is kept all the same
        except Exception:
            plain = without_host_paths(reason, execution.launch)[:2000]
            result = Result(attempt=end.name, outcome=Outcome.ERROR.value, reason=plain)
            return ResultRecord(end.name, result, began=end.began)

    def _advance(self, execution: Execution) -> Callable[[bool], None]:
        """What is called while the output of this attempt is read: it says so, or raises `GivenUp`."""
        said_at = self._clock()

        def advance(read: bool) -> None:
            nonlocal said_at
            if execution.has_result:
                raise GivenUp
            if read and self._clock() - said_at > ADVANCE_SECONDS:
                said_at = self._clock()
                self._handle([steps.Advanced(execution.id)])

        return advance

    def _write(self, results: list[ResultRecord]) -> None:
        crash_point("after-collected")
        try:
            self._spool.ended(*results)
        except (SpoolFullError, OSError):
            # The disk is full, and the reserve is used up. All we can do is to send the results without writing them.
            for each in results:
                self._spool.entries[each.attempt].result = each.result
        except Exception as error:
            # A result that cannot be encoded must not hold up the others, nor end this thread.
            if len(results) > 1:
                for each in results:
                    self._write([each])
                return
            name = results[0].attempt
            self._say(f"the result of {name} cannot be written to the spool: {error!r}")
            reason = without_host_paths(f"its result cannot be written to the worker's spool: {error!r}")[:2000]
            self._write([ResultRecord(name, Result(attempt=name, outcome=Outcome.ERROR.value, reason=reason))])
