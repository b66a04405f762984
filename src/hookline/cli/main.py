"""The group of all commands: `hookline`, also `python -m hookline`."""

from __future__ import annotations

import importlib
import pkgutil
import sys

import click

from hookline import HooklineError, __version__, cli


class Commands(click.Group):
    """A group whose commands are the files beside this one."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(file.name for file in pkgutil.iter_modules(cli.__path__) if file.name != "main")

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        command: click.Command = importlib.import_module(f"{cli.__name__}.{cmd_name}").command
        return command


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="hookline")
def hookline() -> None:
    """See, keep and change what flows through a neural network."""


def main() -> None:
    """Runs the command line; an error of hookline's own is told without a traceback."""
    try:
        hookline()
    except HooklineError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(1)
