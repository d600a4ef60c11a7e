"""deborgen-coordinator: serve, migrate, token create, backup, restore, audit."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from deborgen_coordinator import logs, settings
from deborgen_shared.errors import Refusal
from deborgen_shared.states import Role

if TYPE_CHECKING:
    from deborgen_coordinator.operations.context import Context

#: The settings of the commands other than `serve`: where the data is, and how to log.
DATA_SETTINGS = ["data_dir", "database", "log_format", "log_level"]


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="deborgen-coordinator",
        description="The coordinator of a deborgen pool.",
        epilog="Every setting is also a variable DEBORGEN_… and a line in the TOML file that --config names. "
        "A flag overrides the variable, and the variable overrides the file.",
    )
    top.add_argument("--version", action="version", version=version("deborgen-coordinator"))
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    settings.TABLE.add_flags(commands.add_parser("serve", help="serve until stopped"))
    settings.TABLE.add_flags(commands.add_parser("migrate", help="migrate the database to this release"), DATA_SETTINGS)
    token = commands.add_parser("token", help="create tokens").add_subparsers(
        dest="verb", required=True, metavar="VERB"
    )
    create = token.add_parser("create", help="create a token and print only its secret")
    create.add_argument("--role", required=True, choices=[str(role) for role in Role])
    create.add_argument("--name", required=True, help="the token's owner: a person, or the worker that may use it")
    create.add_argument("--expires-in", metavar="DURATION", help="how long the token is valid, for example 30d")
    settings.TABLE.add_flags(create, DATA_SETTINGS)
    for verb, explanation in (("backup", "write all data to FILE"), ("restore", "restore all data from FILE")):
        command = commands.add_parser(verb, help=explanation)
        command.add_argument("file", type=Path, metavar="FILE")
        settings.TABLE.add_flags(command, DATA_SETTINGS)
    audit = commands.add_parser("audit", help="check that history, states, attempts, logs and blobs agree")
    audit.add_argument("--json", action="store_true", help="print the report as JSON")
    audit.add_argument("--quick", action="store_true", help="do not read the contents of blobs")
    settings.TABLE.add_flags(audit, DATA_SETTINGS)
    return top


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command. Wrong usage and wrong settings exit with 2, almost every other refusal with 1."""
    given = parser().parse_args(arguments)
    # Only the coordinator's own user may read its files: logs and artifacts belong to other people.
    os.umask(0o077)
    try:
        chosen = settings.TABLE.load(vars(given), os.environ, given.config)
    except settings.SettingsError as problem:
        _fail(str(problem), 2)
    from deborgen_coordinator.server import CoordinatorCannotStart
    from deborgen_coordinator.storage.database import DatabaseDamaged, DatabaseUnavailable

    try:
        COMMANDS[given.command](given, chosen)
    except Refusal as refusal:
        _fail("; ".join(filter(None, [refusal.message, refusal.hint])), 1)
    except DatabaseDamaged as problem:
        _fail(f"the database is damaged: {problem}; restore the data with: deborgen-coordinator restore FILE", 1)
    except (CoordinatorCannotStart, DatabaseUnavailable, ValueError) as problem:
        _fail(str(problem), 1)


def _serve(given: argparse.Namespace, chosen: settings.Settings) -> None:
    from deborgen_coordinator.server import serve

    serve(chosen)


@contextlib.contextmanager
def _open(chosen: settings.Settings, *, alone: bool = False) -> Iterator[Context]:
    """The data, for a short command; with `alone` no coordinator may use the data at the same time.

    Only warnings and errors are logged, unless the settings ask for another level than `info`.
    """
    from deborgen_coordinator.app import open_context
    from deborgen_coordinator.server import lock_data_dir

    logs.configure(chosen.log_format, "warning" if chosen.log_level == "info" else chosen.log_level)
    Path(chosen.data_dir).mkdir(parents=True, exist_ok=True, mode=0o700)
    with lock_data_dir(chosen) if alone else contextlib.nullcontext():
        context = open_context(chosen)
        try:
            yield context
        finally:
            context.store.close()


def _migrate(given: argparse.Namespace, chosen: settings.Settings) -> None:
    with _open(chosen, alone=True):
        pass  # opening the database migrates it
    print("The database is up to date.")


def _token(given: argparse.Namespace, chosen: settings.Settings) -> None:
    from deborgen_coordinator.http.decoding import convert
    from deborgen_coordinator.operations.context import COORDINATOR
    from deborgen_coordinator.operations.tokens import create
    from deborgen_shared.jobfile.units import parse_duration
    from deborgen_shared.messages import NewToken

    wanted = {"role": given.role, "name": given.name}
    if given.expires_in:
        wanted["expires_in_seconds"] = parse_duration(given.expires_in)
    body = convert(wanted, NewToken)
    with _open(chosen) as context:
        print(create(context, COORDINATOR, body).token)


def _backup(given: argparse.Namespace, chosen: settings.Settings) -> None:
    from deborgen_coordinator.operations.maintenance.backup import backup

    with _open(chosen) as context:
        backup(context, given.file)
    print(f"All data is in {given.file}.")


def _restore(given: argparse.Namespace, chosen: settings.Settings) -> None:
    from deborgen_coordinator.operations.maintenance.backup import restore

    with _open(chosen, alone=True) as context:
        restore(context, given.file)
    print(f"All data of {given.file} is restored.")


def _audit(given: argparse.Namespace, chosen: settings.Settings) -> None:
    """Print the audit's findings; exit with 1 if there are any."""
    from deborgen_coordinator.operations.maintenance.audit import run_audit

    if chosen.uses_sqlite and not Path(chosen.data_dir).is_dir():
        _fail(f"there is no data in {chosen.data_dir}", 2)
    with _open(chosen) as context:
        report = run_audit(context, quick=given.quick)
    if given.json:
        print(json.dumps(report.as_json(), indent=2))
    else:
        print("\n".join(report.lines()))
    if not report.clean:
        raise SystemExit(1)


def _fail(sentence: str, code: int) -> None:
    print(f"deborgen-coordinator: {logs.masked(sentence)}", file=sys.stderr)
    raise SystemExit(code)


COMMANDS = {
    "serve": _serve,
    "migrate": _migrate,
    "token": _token,
    "backup": _backup,
    "restore": _restore,
    "audit": _audit,
}


if __name__ == "__main__":
    main()
