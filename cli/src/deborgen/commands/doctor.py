"""deborgen doctor"""

from __future__ import annotations

from deborgen import output
from deborgen.cli import App, json_option
from deborgen.cli import command as verb

MARK = {True: "✓", False: "✗", None: "-"}


@verb(name="doctor")
@json_option
def command(app: App, as_json: bool) -> int:
    """Check, in order, all that must be right; say what to do where it is not.

    The exit code is 0 when a job could run now.
    """
    from deborgen import examination

    findings = []
    code = 0
    for finding in examination.examine(app):
        findings.append(finding)
        code = code or finding.exit_code
        if not as_json:
            output.write(f"{MARK[finding.well]} {output.one_line(finding.what)}\n")
            if finding.remedy:
                output.write(f"    {output.one_line(finding.remedy)}\n")
    if as_json:
        output.json("checks", [{"check": f.name, "ok": f.well, "what": f.what, "remedy": f.remedy} for f in findings])
    return code
