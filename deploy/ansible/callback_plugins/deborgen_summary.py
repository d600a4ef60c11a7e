"""Print the report after everything else, so that a table and a login are the last lines of a run."""

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: deborgen_summary
type: aggregate
short_description: Print deborgen's report at the end
description: [Keeps what the action deborgen_report returns, and prints it after the recap.]
requirements: []
"""


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "deborgen_summary"

    def __init__(self):
        super().__init__()
        self._lines = []

    def v2_runner_on_ok(self, result):
        self._keep(result)

    def v2_runner_on_failed(self, result, ignore_errors=False):
        self._keep(result)

    def _keep(self, result):
        found = result.result if hasattr(result, "result") else result._result
        self._lines = found.get("deborgen_summary", self._lines)

    def v2_playbook_on_stats(self, stats):
        for line in self._lines:
            self._display.display(line)
