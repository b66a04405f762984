"""hookline doctor: what is installed, and which parts of hookline can therefore be used."""

from __future__ import annotations

import json
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import click

import hookline

FRAMEWORKS = {"torch": "models, hooks, statistics"}
OPTIONAL = {
    "numpy": "statistics",
    "safetensors": "saved recordings",
    "matplotlib": "plots",
    "pandas": "tables",
}


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
def command(as_json: bool) -> None:
    """Tell what hookline finds on this machine. Exit code 1 if no framework is installed."""
    found = findings()
    if as_json:
        click.echo(json.dumps(found, indent=2))
    else:
        click.echo(f"hookline {found['hookline']}, Python {found['python']}, {found['platform']}")
        why = f" ({found['kernel_why']})" if found["kernel_why"] else ""
        click.echo(f"statistics kernel: {found['kernel']}{why}")
        for name, what in {**FRAMEWORKS, **OPTIONAL}.items():
            installed = found["packages"][name]
            state = installed or f"not installed: pip install {name}"
            click.echo(f"{'ok ' if installed else '-- '} {name:<12} {state:<36} {what}")
    if not any(found["packages"][name] for name in FRAMEWORKS):
        raise SystemExit(1)


def findings() -> dict[str, Any]:
    """What there is, by name; a package that is not installed has None for its version."""
    return {
        "hookline": hookline.__version__,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "kernel": hookline.lines.kernel_in_use(),
        "kernel_why": hookline.lines.why_not_native(),
        "packages": {name: _version(name) for name in (*FRAMEWORKS, *OPTIONAL)},
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
