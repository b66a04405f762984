"""hookline doctor: what is installed, and which parts of hookline can therefore be used."""

from __future__ import annotations

import json
import platform
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import click

import hookline

FRAMEWORKS = {"torch": "models, hooks, statistics"}
OPTIONAL = {
    "numpy": "statistics",
    "safetensors": "saved recordings",
    "matplotlib": "plots",
    "pandas": "tables",
    "polars": "tables",
    "starlette": "the page",
    "uvicorn": "the page",
}
SINKS = {
    "tensorboard": "sinks.TensorBoard",
    "wandb": "sinks.Wandb",
    "mlflow": "sinks.MLflow",
    "trackio": "sinks.Trackio",
    "pyarrow": "sinks.Parquet, Arrow tables",
    "fsspec": "sinks.Parquet",
}
INSTALLED_AS = {"mlflow": ("mlflow", "mlflow-skinny")}
"""Packages that may be installed under another name."""


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
        no_wal = found["wal"]["why_not"]
        kept = (
            f"with a rollback journal, since WAL does not work: {no_wal}" if no_wal else "readable while written"
        )
        click.echo(f"runs in {found['wal']['folder']}: {kept}")
        for name, what in {**FRAMEWORKS, **OPTIONAL, **SINKS}.items():
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
        "wal": {"folder": str(Path.cwd()), "why_not": hookline.sinks.why_no_wal(Path.cwd())},
        "packages": {name: _version(name) for name in (*FRAMEWORKS, *OPTIONAL, *SINKS)},
    }


def _version(package: str) -> str | None:
    for name in INSTALLED_AS.get(package, (package,)):
        with suppress(PackageNotFoundError):
            return version(name)
    return None
