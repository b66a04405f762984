"""Trainings made without a model, as rules see them."""

import numpy as np

from hookline.diagnosis.training import Training
from hookline.runs.growing import Series
from hookline.wiring import Look, Loss, Module, Optimizer, Parameter, Wiring
from tests.support.rows import row

MODULES = [("", "Net"), ("a", "Linear"), ("act", "ReLU"), ("b", "Linear")]


def steady(site="a", kind="output", scale=1.0, steps=20, **more):
    """Rows of a series that stays as it is."""
    return [row(site, step, kind, np.linspace(-1, 1, 40) * scale, **more) for step in range(steps)]


def scalar(name, values, first=0):
    """Rows of a number of the training."""
    return [
        {
            **row(name, first + step, "scalar", [float(value)]),
            "mean": float(value),
        }
        for step, value in enumerate(values)
    ]


def training(rows=(), wiring=None, modules=MODULES, meta=None):
    """The Training that has these rows."""
    rows = list(rows)
    keys = dict.fromkeys((r["site"], r["kind"], r["mode"]) for r in rows)
    series = [Series(site, kind, 0, mode, 0) for site, kind, mode in keys]

    def columns(number):
        one = series[number]
        mine = [r for r in rows if (r["site"], r["kind"], r["mode"]) == (one.site, one.kind, one.mode)]
        names = [n for n in mine[0] if isinstance(mine[0][n], (int, float))]
        return np.asarray([r["step"] for r in mine]), {n: np.asarray([float(r[n]) for r in mine]) for n in names}

    return Training(series, columns, modules, wiring, meta)


def wired(**changes):
    """The wiring of a healthy training of MODULES over 20 steps; `changes` are those of single parts:
    `a_weight={"groups": []}` of a parameter, `a={"calls": 0}` of a module, `looks=[...]` of all."""
    params = {
        name: Parameter(
            name.partition(".")[0],
            [4, 4],
            "float32",
            groups=["0/0"],
            steps=20,
            grads=20,
            first_grad=0,
            in_loss=True,
        )
        for name in ("a.weight", "a.bias", "b.weight", "b.bias")
    }
    modules = {name: Module(kind, 20, first_call=0, last_call=19, in_loss=True) for name, kind in MODULES}
    wiring = Wiring(
        params=params,
        modules=modules,
        optimizers=[Optimizer("SGD", [{"lr": 0.1, "params": 4.0}], steps=20)],
        losses=[Loss("train.py:12", calls=20)],
        looks=[
            Look(0, on_params=True, on_input=True, divided=False, operators=["NllLoss", "LogSoftmax", "Addmm"])
        ],
    )
    for name, change in changes.items():
        part = params.get(name.replace("_", ".")) or modules.get(name) or (modules[""] if name == "root" else None)
        if part is None:
            setattr(wiring, name, change)
        else:
            for field, value in change.items():
                setattr(part, field, value)
    for one in params.values():
        one.first_grad, one.last_grad = (0, 19) if one.grads else (None, None)
    return wiring
