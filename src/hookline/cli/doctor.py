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

OPTIONAL = {
    "numpy": "statistics",
    "safetensors": "saved recordings",
    "matplotlib": "plots",
    "pandas": "tables",
    "polars": "tables",
    "starlette": "the page, with uvicorn",
    "uvicorn": "the page, with starlette",
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
        kept = f"kept with a rollback journal, since WAL does not work ({no_wal})" if no_wal else "kept with WAL"
        click.echo(f"runs in this folder: {kept}")
        _tell_frameworks(found["frameworks"])
        _tell_packages(found["packages"])
    if not any(framework["version"] for framework in found["frameworks"].values()):
        raise SystemExit(1)


def _tell_frameworks(frameworks: dict[str, Any]) -> None:
    """Of those that are there, what they can't do and what to do instead; the others are named."""
    for name, framework in frameworks.items():
        if framework["version"] is None:
            continue
        _tell(framework["package"], framework["version"], f"models of {name}: {framework['models']}")
        if not framework["tested"]:
            click.echo(f"    hookline was tested with {framework['package']} {framework['tested_versions']}")
        for feature, first in framework["too_old_for"].items():
            click.echo(f"    no {feature}: it needs {framework['package']} {first} or newer")
        for no in framework["no"]:
            click.echo(f"    no {no['feature']}: {no['why']}. Instead: {no['instead']}.")
    missing = [framework["package"] for framework in frameworks.values() if framework["version"] is None]
    if len(missing) == len(frameworks):
        click.echo(f"--  no framework is installed. hookline works with {', '.join(missing)}: pip install torch")
    elif missing:
        click.echo(f"--  other frameworks, not installed: {', '.join(missing)}")


def _tell_packages(packages: dict[str, str | None]) -> None:
    uses = {**OPTIONAL, **SINKS}
    for name, what in uses.items():
        if packages[name]:
            _tell(name, packages[name], what)
    if missing := [f"{name} ({what})" for name, what in uses.items() if not packages[name]]:
        click.echo(f"--  optional, not installed: {', '.join(missing)}")


def _tell(package: str, installed: str | None, what: str) -> None:
    click.echo(f"ok  {package:<12} {installed:<14} {what}")


def findings() -> dict[str, Any]:
    """What there is, by name; a package that is not installed has None for its version.

    Of a framework, what its backend declares is told as well; no framework is imported for it.
    """
    known = {name: declared for name, declared in hookline.capabilities().items() if declared.models}
    packages = [*(framework.package for framework in known.values()), *OPTIONAL, *SINKS]
    return {
        "hookline": hookline.__version__,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "kernel": hookline.lines.kernel_in_use(),
        "kernel_why": hookline.lines.why_not_native(),
        "wal": {"folder": str(Path.cwd()), "why_not": hookline.sinks.why_no_wal(Path.cwd())},
        "frameworks": {name: _framework(declared) for name, declared in known.items()},
        "packages": {name: _version(name) for name in packages},
    }


def _framework(declared: Any) -> dict[str, Any]:
    installed = _version(declared.package)
    features = {feature: declared.can(feature) for feature in declared.answers}
    return {
        "package": declared.package,
        "version": installed,
        "tested": installed is not None and declared.covers(installed),
        "tested_versions": f"from {declared.tested[0]}, below {declared.tested[1]}",
        "too_old_for": {
            feature: first
            for feature, first in declared.since.items()
            if installed is not None and declared.is_too_old(feature, installed)
        },
        "models": declared.models,
        "features": features,
        "no": [
            {"feature": feature, "why": no.why, "instead": no.instead}
            for feature, no in declared.answers.items()
            if no is not None
        ],
    }


def _version(package: str) -> str | None:
    for name in INSTALLED_AS.get(package, (package,)):
        with suppress(PackageNotFoundError):
            return version(name)
    return None
