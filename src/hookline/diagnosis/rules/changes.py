"""What was changed in the midst of a training and stayed so: modes, requires_grad, tied weights."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from hookline.diagnosis.finding import Finding
from hookline.diagnosis.registry import found, rule
from hookline.diagnosis.training import Training
from hookline.wiring import Change

STAYED = 3
"""For so many recorded steps it was trained further like that."""
OFTEN = 4
"""Who changes so often is changed on purpose: frozen and thawed in turn, as in a GAN."""
EVAL = ("eval", "False")
TRAIN_MATTERS = ("Dropout", "BatchNorm", "SyncBatchNorm", "InstanceNorm", "AlphaDropout", "FeatureAlphaDropout")


def _stayed(training: Training, what: str) -> dict[str, list[Change]]:
    """The changes of each site, where the last one came after the beginning and training went on for long."""
    found: dict[str, list[Change]] = {}
    for one in training.wiring.changes:
        if one.what == what:
            found.setdefault(one.site, []).append(one)
    first = int(training.steps[0]) if len(training.steps) else 0
    return {
        site: some
        for site, some in found.items()
        if some[-1].step > first and int((training.steps >= some[-1].step).sum()) >= STAYED and len(some) < OFTEN
    }


def _outermost(sites: Iterable[str]) -> list[str]:
    known = set(sites)
    return [
        site
        for site in sites
        if not any(site != other and (other == "" or site.startswith(f"{other}.")) for other in known)
    ]


def _updates_after(training: Training, step: int) -> bool:
    """Whether parameters were trained at recorded steps after this one."""
    seen = [one for one in training.curves("update", "param_grad") if int((one.steps >= step).sum()) >= STAYED]
    return bool(seen)


@rule(
    "requires_grad_changed",
    advice="Look for requires_grad_ and torch.no_grad in code that runs meanwhile (callbacks, evaluation).",
    wiring=True,
)
def requires_grad_changed(training: Training) -> Iterator[Finding]:
    """requires_grad of parameters was changed while the training ran, and stayed so.

    When: it changed after the first step, less than four times, and three recorded steps followed. Thawing is a
    note: many do so on purpose. Why it can be wrong: layers are frozen step by step on purpose.
    """
    changed = _stayed(training, "trainable")
    now = {site: some[-1] for site, some in changed.items()}
    for to in ("False", "True"):
        names = [site for site, one in now.items() if one.to == to]
        for site, some in training.together(names, among=training.wiring.params).items():
            step = min(now[name].step for name in some)
            yield found(
                site,
                step,
                f"requires_grad of {some[0] if len(some) == 1 else f'{len(some)} parameters'} became {to} at step "
                f"{step:,} and stayed so",
                severity="warning" if to == "False" else "note",
                confidence=0.7 if to == "False" else 0.5,
                params=some[:50],
            )


@rule(
    "mode_changed",
    advice="Call model.train() after every evaluation, at the start of each epoch.",
)
def mode_changed(training: Training) -> Iterator[Finding]:
    """The model, or a part of it, went to eval mode and stayed there while it was trained on.

    When: eval at step n and no way back in three recorded steps that update parameters. Why it can be wrong:
    parts are put to eval in the midst on purpose. Only those are told whose mode makes a difference: with
    dropout or batch norm.
    """
    changed = {
        site: some
        for site, some in _stayed(training, "mode").items()
        if some[-1].to in EVAL and _matters(training, site)
    }
    for site in _outermost(list(changed)):
        step = changed[site][-1].step
        if _updates_after(training, step):
            yield found(
                site,
                step,
                f"{site or 'the model'} went to eval mode at step {step:,} and is trained on in it: "
                "dropout is off and batch "
                "norm does not learn its statistics",
                confidence=0.9,
            )
    if _always_in_eval(training) and _matters(training, "") and _updates_after(training, 0):
        yield found(
            "",
            training.steps[0],
            "the model is trained in eval mode from the first step on: dropout is off and batch norm does not "
            "learn its statistics",
            confidence=0.8,
        )


def _always_in_eval(training: Training) -> bool:
    wiring = training.wiring
    root = wiring.modules.get("")
    toggles = any(one.what == "mode" for one in wiring.changes)
    return root is not None and not root.training and not toggles and any(one.steps for one in wiring.optimizers)


def _matters(training: Training, site: str) -> bool:
    """Whether any module that is called below a site behaves differently in training."""
    known = {**training.modules, **{name: one.type for name, one in training.wiring.modules.items()}}
    return any(
        kind.startswith(TRAIN_MATTERS)
        for name, kind in known.items()
        if site in ("", name) or name.startswith(f"{site}.")
    )


@rule(
    "not_tied",
    advice="Tie the weights again after copying, loading or resizing: head.weight = embedding.weight.",
)
def not_tied(training: Training) -> Iterator[Finding]:
    """Two parameters that were one are two now, or settings say that they are one and they are not.

    When: they shared memory and no longer do; or the model's config has tie_word_embeddings and head and
    embedding are two; or an embedding and a linear layer have the same numbers at the first record and are two.
    Why it can be wrong: they were parted on purpose.
    """
    wiring = training.wiring
    for one in wiring.changes:
        if one.what == "tied":
            why = (
                f"{one.site} shared its memory with another parameter and no longer does from step {one.step:,} on"
            )
            yield found(one.site, one.step, why, confidence=0.9, now=one.to)
    config = training.meta.get("config")
    if isinstance(config, dict) and config.get("tie_word_embeddings") is True:
        heads = [name for name in wiring.params if name.endswith(("lm_head.weight", "embed_out.weight"))]
        for head in heads:
            mine = wiring.params[head]
            embeddings = [
                name
                for name, other in wiring.params.items()
                if name != head
                and other.shape == mine.shape
                and "emb" in f"{name} {training.type_of(name)}".lower()
            ]
            if embeddings and not {*embeddings} & {*mine.shares_with}:
                why = f"tie_word_embeddings is set, and {head} and {embeddings[0]} are two tensors"
                yield found(head, 0, why, confidence=0.9, embedding=embeddings[0])
    yield from _copies(training)


def _copies(training: Training) -> Iterator[Finding]:
    """Embeddings and heads of one shape and the same numbers, which are two all the same."""
    params = training.wiring.params
    sides: dict[str, dict[tuple[float, ...], str]] = {"Embedding": {}, "Linear": {}}
    for one in training.curves("param"):
        kind = training.type_of(one.site)
        if kind in sides and one.site in params and len(params[one.site].shape) == 2 and one.stats["std"][0] > 0:
            # NaN, of statistics that these rows do not have, is equal to nothing.
            told = [float(values[0]) for values in one.stats.values() if not np.isnan(values[0])]
            sides[kind].setdefault((*params[one.site].shape, *told, int(one.steps[0])), one.site)
    for numbers in sides["Embedding"].keys() & sides["Linear"].keys():
        embedding, head = sides["Embedding"][numbers], sides["Linear"][numbers]
        if embedding not in params[head].shares_with:
            why = f"{head} and {embedding} have the same numbers at the start and are two tensors: they will part"
            yield found(head, numbers[-1], why, confidence=0.8, embedding=embedding, rows=[(head, "param")])
