"""The group of all commands: `hookline`, also `python -m hookline`."""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys

import click

from hookline import HooklineError, __version__, cli

ENDED_BY_CTRL_C = 130
"""What shells say of a program that Ctrl-C ended."""


class Commands(click.Group):
    """A group whose commands are the files beside this one."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(
            file.name
            for file in pkgutil.iter_modules(cli.__path__)
            if file.name != "main" and not file.name.startswith("_")
        )

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
    """Runs the command line; what is no mistake of hookline's is told without a traceback.

    What a command returns is called outside of that: a script of the user's, whose errors are its own.
    """
    script = None
    try:
        script = hookline(standalone_mode=False)
        sys.stdout and sys.stdout.flush()
    except click.exceptions.Exit as ended:
        sys.exit(ended.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        sys.exit(ENDED_BY_CTRL_C)
    except HooklineError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(1)
    except BrokenPipeError:  # `| head` has seen enough
        _nobody_listens()
    except OSError as error:
        _nobody_listens()
        click.echo(f"Error: {error}", err=True)
        sys.exit(1)

    if callable(script):
        script()


def _nobody_listens() -> None:
    """What is left of the output goes nowhere: Python would try to write it once more when it ends."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
