"""deborgen-coordinator: serve, migrate, check-config, token create, secrets rotate, backup, restore, blobs,
audit, rabbitmq."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from deborgen_coordinator import logs, settings
from deborgen_coordinator.bridges.rabbitmq import settings as bridge_settings
from deborgen_shared.errors import Refusal
from deborgen_shared.states import Role, StoreKind
from deborgen_shared.terminal import inert_lines

if TYPE_CHECKING:
    from deborgen_coordinator.operations.context import Context

#: The settings of the commands other than `serve`: where the data is, and how to log.
DATA_SETTINGS = ["data_dir", "database", "log_format", "log_level"]
#: The settings of the commands that read or write blobs.
BLOB_SETTINGS = [*DATA_SETTINGS, "artifact_store", "s3_endpoint", "s3_region", "s3_part_size"]


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
    check = commands.add_parser("check-config", help="say everything that is wrong with a file of settings")
    check.add_argument("file", metavar="FILE", help="a file for `serve --config`")
    token = commands.add_parser("token", help="create tokens").add_subparsers(
        dest="verb", required=True, metavar="VERB"
    )
    create = token.add_parser("create", help="create a token and print only its secret")
    create.add_argument("--role", required=True, choices=[str(role) for role in Role])
    create.add_argument("--name", required=True, help="the token's owner: a person, or the worker that may use it")
    create.add_argument("--expires-in", metavar="DURATION", help="how long the token is valid, for example 30d")
    settings.TABLE.add_flags(create, DATA_SETTINGS)
    rotate = commands.add_parser("secrets", help="manage the key of the secrets").add_subparsers(
        dest="verb", required=True, metavar="VERB"
    )
    settings.TABLE.add_flags(
        rotate.add_parser("rotate", help="encrypt all secrets with a new key"), [*DATA_SETTINGS, "secret_key_file"]
    )
    for verb, explanation in (("backup", "write all data to FILE"), ("restore", "restore all data from FILE")):
        command = commands.add_parser(verb, help=explanation)
        command.add_argument("file", type=Path, metavar="FILE")
        settings.TABLE.add_flags(command, BLOB_SETTINGS)
    blobs = commands.add_parser("blobs", help="move the blobs").add_subparsers(
        dest="verb", required=True, metavar="VERB"
    )
    mover = blobs.add_parser("move", help="move all blobs while the pool runs; can be stopped and run again")
    mover.add_argument("--to", required=True, metavar="PLACE", help="s3://BUCKET/PREFIX, or local: the data folder")
    settings.TABLE.add_flags(mover, BLOB_SETTINGS)
    audit = commands.add_parser("audit", help="check that history, states, attempts, logs and blobs agree")
    audit.add_argument("--json", action="store_true", help="print the report as JSON")
    audit.add_argument("--quick", action="store_true", help="do not read the contents of blobs")
    settings.TABLE.add_flags(audit, BLOB_SETTINGS)
    bridge_settings.TABLE.add_flags(
        commands.add_parser("rabbitmq", help="take jobs from RabbitMQ, and publish their statuses there")
    )
    return top


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command. Exit with 2 for wrong usage or settings, and with 1 for other refusals."""
    given = parser().parse_args(arguments)
    if given.command == "check-config":
        _check_config(given.file)
        return
    if given.command == "rabbitmq":
        _rabbitmq(given)
        return
    if given.command == "blobs" and given.to != StoreKind.LOCAL:
        given.artifact_store = given.to
    # Only the coordinator's own user may read its files: logs and artifacts belong to other people.
    os.umask(0o077)
    try:
        chosen = settings.TABLE.load(vars(given), os.environ, given.config)
    except settings.SettingsError as error:
        _fail(error.problems, 2)
    from deborgen_coordinator.blobs import StoreUnavailable
    from deborgen_coordinator.server import CoordinatorCannotStart
    from deborgen_coordinator.storage.database import DatabaseDamaged, DatabaseUnavailable
    from deborgen_coordinator.storage.schema import SchemaTooNew

    try:
        COMMANDS[given.command](given, chosen)
    except Refusal as refusal:
        _fail("; ".join(filter(None, [refusal.message, refusal.hint])), 1)
    except DatabaseDamaged as problem:
        _fail(f"the database is damaged: {problem}; restore the data with: deborgen-coordinator restore FILE", 1)
    except (CoordinatorCannotStart, DatabaseUnavailable, SchemaTooNew, StoreUnavailable, ValueError) as problem:
        _fail(str(problem), 1)
    except OSError as problem:
        _fail(f"{problem.filename}: {problem.strerror}" if problem.filename else str(problem), 1)


def _check_config(file: str) -> None:
    """Exit with 3 if `serve` would refuse the file on this machine, and name every problem."""
    from deborgen_coordinator.server import CoordinatorCannotStart, try_to_listen

    problems = settings.TABLE.check_file(file)
    if not problems:
        listen = settings.TABLE.load({}, {}, file).listen
        try:
            try_to_listen(listen, any_port=True)
        except CoordinatorCannotStart as problem:
            problems.append(str(problem))
    if problems:
        _fail(problems, 3)


def _rabbitmq(given: argparse.Namespace) -> None:
    try:
        chosen = bridge_settings.TABLE.load(vars(given), os.environ, given.config)
    except settings.SettingsError as error:
        _fail(error.problems, 2)
    if not chosen.token_file or not os.access(chosen.token_file, os.R_OK):
        _fail(f"the token file {chosen.token_file!r} cannot be read; name one with --token-file", 2)
    try:
        from deborgen_coordinator.bridges.rabbitmq.bridge import run_bridge
    except ModuleNotFoundError as missing:
        _fail(f"{missing.name} is not installed; run: pip install 'deborgen-coordinator[rabbitmq]'", 1)
    logs.configure(chosen.log_format, chosen.log_level)
    run_bridge(chosen)


def _serve(given: argparse.Namespace, chosen: settings.CoordinatorSettings) -> None:
    from deborgen_coordinator.server import serve

    serve(chosen)


def _require_current_schema(chosen: settings.CoordinatorSettings, *, data: bool = False) -> None:
    """Refuse a database that opening would migrate: a coordinator of an older release may be serving it.

    With `data`, also refuse a place where there is no data: opening would make an empty database there.
    """
    from deborgen_coordinator.storage.schema import latest
    from deborgen_coordinator.storage.store import stored_schema

    found = stored_schema(chosen.database, Path(chosen.data_dir))
    if data and not found:
        if chosen.uses_sqlite:
            _fail(f"there is no data in {chosen.data_dir}; choose the directory with --data-dir", 2)
        _fail("there is no data in this database; choose another one with --database", 2)
    if 0 < found < latest():
        _fail(
            f"the database has schema {found}, and this release uses schema {latest()}; stop the coordinator, then "
            "run: deborgen-coordinator migrate",
            1,
        )


@contextlib.contextmanager
def _open(chosen: settings.CoordinatorSettings, *, alone: bool = False, undo: bool = False) -> Iterator[Context]:
    """Open the data for a short command. With `alone`, refuse if a coordinator is using it.

    With `undo`, a command that fails leaves no new file in the data directory. The log level `info`, which is the
    default, counts as `warning` here.
    """
    from deborgen_coordinator.app import open_context
    from deborgen_coordinator.server import lock_data_dir

    logs.configure(chosen.log_format, "warning" if chosen.log_level == "info" else chosen.log_level)
    folder = Path(chosen.data_dir)
    before = set(folder.iterdir()) if folder.is_dir() else None
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (
        lock_data_dir(chosen) if alone else contextlib.nullcontext(),
        _without_new_files(folder, before) if undo else contextlib.nullcontext(),
    ):
        context = open_context(chosen)
        try:
            yield context
        finally:
            context.store.close()


@contextlib.contextmanager
def _without_new_files(folder: Path, before: set[Path] | None) -> Iterator[None]:
    """After a failure, remove all files that are not in `before`; if `before` is None, remove the folder too."""
    try:
        yield
    except BaseException:
        for path in set(folder.iterdir()) - (before or set()):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
        if before is None:
            folder.rmdir()
        raise


def _migrate(given: argparse.Namespace, chosen: settings.CoordinatorSettings) -> None:
    with _open(chosen, alone=True):
        pass  # opening the database migrates it
    print("The database is up to date.")


def _token(given: argparse.Namespace, chosen: settings.CoordinatorSettings) -> None:
    from deborgen_coordinator.http.decoding import convert
    from deborgen_coordinator.operations.context import COORDINATOR
    from deborgen_coordinator.operations.tokens import create
    from deborgen_shared.jobfile.units import parse_duration
    from deborgen_shared.messages import NewToken

    wanted = {"role": given.role, "name": given.name}
    if given.expires_in:
        wanted["expires_in_seconds"] = parse_duration(given.expires_in)
    body = convert(wanted, NewToken)
    _require_current_schema(chosen)
    with _open(chosen) as context:
        print(create(context, COORDINATOR, body).token)


def _secrets(given: argparse.Namespace, chosen: settings.CoordinatorSettings) -> None:
    from deborgen_coordinator.operations.context import COORDINATOR
    from deborgen_coordinator.operations.secrets import rotate

    _require_current_schema(chosen)
    with _open(chosen) as context:
        count = rotate(context, COORDINATOR)
    print(f"{count} secrets are encrypted with a new key. Save {chosen.secret_key_path} outside of this machine.")


def _backup(given: argparse.Namespace, chosen: settings.CoordinatorSettings) -> None:
    from deborgen_coordinator.operations.maintenance.backup import backup

    _require_current_schema(chosen, data=True)
    with _open(chosen) as context:
        backup(context, given.file)
    print(f"All data was written to {given.file}.")


def _restore(given: argparse.Namespace, chosen: settings.CoordinatorSettings) -> None:
    from deborgen_coordinator.operations.maintenance.restore import check, restore

    checked = check(given.file)  # before anything is created
    with _open(chosen, alone=True, undo=True) as context:
        restore(context, checked)
    print(f"All data was restored from {given.file}.")


def _blobs(given: argparse.Namespace, chosen: settings.CoordinatorSettings) -> None:
    """Move blobs; exit with 1 if some are damaged."""
    from deborgen_coordinator.operations.maintenance.move import MoveReport, move

    to = StoreKind.LOCAL if given.to == StoreKind.LOCAL else StoreKind.S3
    shown = sys.stderr.isatty()

    def say(report: MoveReport) -> None:
        if shown:
            print(f"\r{report.moved} blobs moved", end="", file=sys.stderr, flush=True)

    _require_current_schema(chosen, data=True)
    with _open(chosen) as context:
        try:
            report = move(context, to, say)
        except KeyboardInterrupt:
            _fail("stopped; run the same command again to go on", 130)
    for digest in report.damaged:
        print(f"blob {digest} is damaged or missing, and was not moved", file=sys.stderr)
    print(f"{report.moved} blobs were moved to {given.to}. {len(report.damaged)} are damaged.")
    if report.damaged:
        raise SystemExit(1)


def _audit(given: argparse.Namespace, chosen: settings.CoordinatorSettings) -> None:
    """Print the audit's findings; exit with 1 if there are any."""
    from deborgen_coordinator.operations.maintenance.audit import run_audit

    _require_current_schema(chosen, data=True)
    with _open(chosen) as context:
        report = run_audit(context, quick=given.quick)
    if given.json:
        print(json.dumps(report.as_json(), indent=2))
    else:
        print("\n".join(report.lines()))
    if not report.clean:
        raise SystemExit(1)


def _fail(problems: str | Sequence[str], code: int) -> NoReturn:
    for problem in [problems] if isinstance(problems, str) else problems:
        print(f"deborgen-coordinator: {inert_lines(logs.masked(problem))}", file=sys.stderr)
    raise SystemExit(code)


COMMANDS = {
    "serve": _serve,
    "migrate": _migrate,
    "token": _token,
    "secrets": _secrets,
    "backup": _backup,
    "restore": _restore,
    "audit": _audit,
    "blobs": _blobs,
}


if __name__ == "__main__":
    main()
