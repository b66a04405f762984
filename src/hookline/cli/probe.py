"""hookline probe: which properties a model lacks, from the command line."""

from __future__ import annotations

import json

import click

from hookline.cli._target import model_and_inputs

FAILED = 3
"""The exit code where a finding is as bad as --fail-on says."""
WORST = ("error", "warning", "note")


@click.command("probe")
@click.argument("target", metavar="PKG.MOD:FACTORY")
@click.option("--only", multiple=True, metavar="PROBE", help="One probe; can be repeated.")
@click.option("--causal/--not-causal", default=None, help="Whether outputs must not depend on later inputs.")
@click.option("--batch-dim", type=click.IntRange(0), help="The dimension of the samples, if not the first.")
@click.option("--json", "as_json", is_flag=True, help="Findings, probes made and probes skipped as JSON.")
@click.option("--fail-on", type=click.Choice(WORST), help="Exit with code 3 if a finding is that bad or worse.")
def command(
    target: str,
    only: tuple[str, ...],
    causal: bool | None,
    batch_dim: int | None,
    as_json: bool,
    fail_on: str | None,
) -> None:
    """Look for properties that a model lacks, by running it a few times.

    PKG.MOD:FACTORY is a function that gives (model, inputs) when it is called without arguments; inputs are a
    tensor, a tuple of arguments, a dict of keywords, or shapes. Modules in the current folder are found.

    \b
    hookline probe mymodels:tiny_gpt --causal
    hookline probe mymodels:resnet --only batch --only gradient --fail-on error
    """
    import hookline

    model, inputs = model_and_inputs(target)
    try:
        found = hookline.probe(
            model,
            inputs,
            only=only or None,
            causal=causal,
            batch_dim=batch_dim,
            fresh=lambda: model_and_inputs(target)[0],
        )
    except hookline.InvalidArgument as error:
        raise click.UsageError(str(error)) from error
    click.echo(json.dumps(found.to_json(), indent=1) if as_json else found)
    if fail_on and any(WORST.index(one.severity) <= WORST.index(fail_on) for one in found):
        raise click.exceptions.Exit(FAILED)
