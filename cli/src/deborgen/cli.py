"""The command `deborgen`. Each verb has a file in `commands/`, which is loaded only when the verb is used."""

from __future__ import annotations

import functools
import importlib
import io
import os
import sys
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from deborgen.client import Client

#: Every command, in the order in which a newcomer needs them. `--help` reads this table and imports nothing else.
SECTIONS: dict[str, dict[str, str]] = {
    "Start": {
        "up": "Start a coordinator and a worker on this machine.",
        "down": "Stop what `deborgen up` started.",
        "login": "Log in to a coordinator, and use it from now on.",
        "doctor": "Check your setup step by step, and say how to fix what is wrong.",
        "init": "Write a first job file.",
    },
    "Submit": {
        "check": "Check a job file and show what it would run.",
        "submit": "Submit a job file as a new run.",
        "run": "Run one command as a job.",
        "schema": "Print the JSON Schema of the job file, for editors.",
    },
    "Look": {
        "open": "Open the dashboard: print a link that signs a browser in once.",
        "list": "List runs, newest first.",
        "show": "Show one run, or one job with its attempts.",
        "watch": "Watch a run live until it ends.",
        "wait": "Wait until runs or jobs have ended (for scripts).",
        "logs": "Print the output of jobs.",
        "why": "Explain why a job is waiting, or why it ended as it did.",
        "results": "Print the results table of a run.",
        "artifacts": "List and fetch the files that jobs made.",
        "workers": "Show the machines of the pool; pause, resume or drain them.",
        "images": "List the images that the pool has built, and remove them.",
        "events": "Print the history: who did what, and when.",
        "ledger": "Show who gave and who used how many core, GPU and memory hours.",
    },
    "Act": {
        "cancel": "Cancel runs or jobs.",
        "retry": "Run jobs of a run again, as a new run.",
        "secret": "Set, list and remove secrets, which jobs get as environment variables.",
        "token": "Create, list and revoke tokens.",
        "completion": "Print the completion script for a shell.",
    },
}

#: Words that people type for a command, from habit.
ALIASES = {"ls": "list", "status": "list", "ps": "list"}

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class App:
    """What all commands share: the client. It is created, and finds its coordinator, when it is first used."""

    def __init__(self, url: str | None = None) -> None:
        self.url = url

    @cached_property
    def client(self) -> Client:
        from deborgen import output
        from deborgen.client import Client

        client = Client(self.url)
        client.connection.on_trouble = output.trouble
        return client


class OutputClosed(Exception):
    """The reader of our output has closed the pipe."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A sentence that suggests the most similar command; empty if none is similar."""
    from difflib import get_close_matches

    near = get_close_matches(name, known, n=1)
    return f" Did you mean '{near[0]}'?" if near else ""


class LazyGroup(click.Group):
    """A group that knows its commands by name, and imports the module of a command when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for section in SECTIONS.values() for name in section]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in self.list_commands(ctx):
            return None
        module = importlib.import_module(f"deborgen.commands.{name}")
        found = module.command
        assert isinstance(found, click.Command)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0] = ALIASES.get(args[0], args[0])
        if name == "help":
            args = [*args[1:2], "--help"]
            if len(args) == 1:
                click.echo(ctx.get_help())
                ctx.exit()
            return self.resolve_command(ctx, args)
        if not name.startswith("-") and name not in self.list_commands(ctx):
            ctx.fail(f"there is no command '{name}'.{did_you_mean(name, self.list_commands(ctx))}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # click would exit with 1, which means an unexpected error
            raise OutputClosed from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(len(name) for name in self.list_commands(ctx))
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), text) for name, text in commands.items()])


def url_option(help_text: str) -> Callable[[Any], Any]:
    return click.option("--url", metavar="URL", help=help_text)


@click.group(cls=LazyGroup, context_settings=CONTEXT, no_args_is_help=True)
@url_option("Address of the coordinator. [default: DEBORGEN_URL, `deborgen login`, or a running `deborgen up`]")
@click.version_option(package_name="deborgen", message="deborgen %(version)s")
@click.pass_context
def cli(ctx: click.Context, url: str | None) -> None:
    """Send jobs to your friends' machines, and get the results back.

    \b
    First steps:
      deborgen up -d                   # start a coordinator and a worker on this machine
      deborgen init sweep              # write sweep.yml
      deborgen submit sweep.yml -w     # run it, and watch it live
      deborgen results last            # print the results table

    A run is named by its number (42); `last` is your newest run. A job is named by run and index (42.7). Most commands
    use `last` if you name neither.
    """
    ctx.obj = App(url)


def verb(make: Callable[..., Any] = click.command, **attributes: Any) -> Callable[[Callable[..., Any]], click.Command]:
    """Decorator for a command that talks to a coordinator: adds `--url`, and passes the `App` as the first argument."""

    def decorate(function: Callable[..., Any]) -> click.Command:
        @functools.wraps(function)
        def call(*args: Any, url: str | None, **kwargs: Any) -> Any:
            return function(the_app(url), *args, **kwargs)

        made: click.Command = make(context_settings=CONTEXT, **attributes)(
            url_option("Address of the coordinator.")(call)
        )
        return made

    return decorate


def the_app(url: str | None) -> App:
    """The `App` of this invocation, with the address that was given to the command itself, if any."""
    app = click.get_current_context().find_object(App) or App()
    app.url = url or app.url
    return app


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for scripts (versioned).")


def main(args: list[str] | None = None) -> None:
    """The entry point. An expected failure prints a sentence and sets an exit code; it never shows a traceback."""
    sys.exit(_main(args))


def _main(args: list[str] | None) -> int:
    from deborgen import output
    from deborgen.errors import DeborgenError

    try:
        outcome = cli.main(args, prog_name="deborgen", standalone_mode=False)
        return outcome if isinstance(outcome, int) else 0
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.ClickException as wrong:
        with io.StringIO() as text:
            wrong.show(text)
            output.say(text.getvalue().rstrip())
        return wrong.exit_code
    except DeborgenError as failure:
        _report(failure)
        return failure.exit_code
    except (KeyboardInterrupt, click.Abort):
        output.say("\ninterrupted")
        return 130
    except (OutputClosed, BrokenPipeError):
        # Without this, Python would complain about the same pipe again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Exception as bug:
        if os.environ.get("DEBORGEN_DEBUG"):
            raise
        if isinstance(bug, OSError) and bug.strerror:  # a full disk or an unreadable file is not a bug
            output.say(f"error: {bug.filename}: {bug.strerror}" if bug.filename else f"error: {bug.strerror}")
            return 1
        output.say(f"error: unexpected {type(bug).__name__}: {bug}")
        output.say("This is a bug in deborgen. DEBORGEN_DEBUG=1 shows where it happened.")
        return 1


def _report(failure: Any) -> None:
    from deborgen import output
    from deborgen.errors import InvalidJob

    if isinstance(failure, InvalidJob) and failure.details.get("report"):
        output.say(failure.details["report"])
        return
    # An interrupt is not an error: the person asked for it.
    output.say(failure.message if failure.exit_code == 130 else f"error: {failure.message}")
    if failure.hint:
        output.hint(f"  {failure.hint}")
