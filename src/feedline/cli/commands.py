"""Which commands there are. A new one is a file beside this one with a function `command`, and a row in `COMMANDS`.

A command's module is imported only when it is asked for (or listed by `--help`), so that `feedline info` does not wait
for what `feedline demo` needs.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from feedline.cli.main import INTERRUPTED

__all__ = ["COMMANDS", "invoke"]

#: The name of each command and the module with its function `command`, in the order in which `--help` lists them.
COMMANDS = {
    "convert": "feedline.cli.convert",
    "bench": "feedline.cli.bench",
    "demo": "feedline.cli.demo",
    "info": "feedline.cli.info",
    "preview": "feedline.cli.preview",
    "verify": "feedline.cli.verify",
}

# typer re-exports no base class of its usage errors; this one has been above all of them in every version.
_UsageError: type[Exception] = next(
    cls for cls in typer.BadParameter.__mro__ if cls.__name__ == "ClickException"
)

_SETTINGS = {"help_option_names": ["-h", "--help"]}
_DEBUG_HELP = "Show the traceback of an error. May stand before or after the command."


class _Commands(TyperGroup):
    """The group of all commands, each imported when it is needed."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        single = typer.Typer(add_completion=False, context_settings=_SETTINGS)
        single.command(name=cmd_name, epilog=f"--debug: {_DEBUG_HELP}")(
            importlib.import_module(COMMANDS[cmd_name]).command
        )
        return typer.main.get_command(single)


app = typer.Typer(cls=_Commands, add_completion=False, context_settings=_SETTINGS)


def _show_version(wanted: bool) -> None:
    if wanted:
        try:
            number = version("feedline")
        except PackageNotFoundError:  # run from its source, without being installed
            number = "(not installed)"
        typer.echo(f"feedline {number}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _feedline(
    ctx: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help=_DEBUG_HELP)] = False,
) -> None:
    """Feed training loops: look into row files, check them, and see what the library does."""
    if ctx.invoked_subcommand is None:
        # With rich, the help is printed while it is made, and what is returned is empty.
        with redirect_stdout(sys.stderr):
            print(ctx.get_help())
        raise typer.Exit(2)


def invoke(arguments: Sequence[str]) -> int:
    """Run the command that `arguments` name and return the exit code; errors of the command itself pass through."""
    try:
        code = app(args=list(arguments), prog_name="feedline", standalone_mode=False)
    except _UsageError as error:
        context: Any = getattr(error, "ctx", None)
        where = context.command_path if context is not None else "feedline"
        message = " ".join(error.format_message().split())  # type: ignore[attr-defined]
        typer.echo(f"feedline: {message.rstrip('.')}; see '{where} --help'", err=True)
        return 2
    except typer.Abort:  # how older versions of typer tell of Ctrl-C
        raise KeyboardInterrupt from None
    if code == INTERRUPTED:  # how newer ones do
        raise KeyboardInterrupt
    return code if isinstance(code, int) else 0
