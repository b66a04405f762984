"""What is called wrong with a layer, by its rows alone, and what is not."""

import numpy as np
import pytest

from hookline.diagnosis.diagnose import findings_of, owners
from hookline.runs.growing import Series
from tests.support.pages import NAN
from tests.support.rows import row


def found(rows, modules=("", "fc", "far")):
    keys = dict.fromkeys((r["site"], r["kind"], r["mode"]) for r in rows)
    series = [Series(site, kind, 0, mode, 0) for site, kind, mode in keys]

    def columns(number):
        one = series[number]
        mine = [r for r in rows if (r["site"], r["kind"], r["mode"]) == (one.site, one.kind, one.mode)]
        names = [n for n in mine[0] if isinstance(mine[0][n], (int, float))]
        return np.asarray([r["step"] for r in mine]), {n: np.asarray([float(r[n]) for r in mine]) for n in names}

    sites = [r["site"] for r in rows]
    return {
        name: [f.what for f in some] for name, some in findings_of(series, columns, owners(modules, sites)).items()
    }


def steady(site="fc", kind="output", scale=1.0, steps=20, **more):
    return [row(site, step, kind, np.linspace(-1, 1, 40) * scale, **more) for step in range(steps)]


@pytest.mark.parametrize(
    ("rows", "what"),
    [
        (steady(), []),
        ([*steady(), row("fc", 20, values=(NAN, 1.0))], ["nan"]),
        ([*steady(), row("fc", 20, "grad_output", values=(np.inf, 1.0))], ["nan"]),
        ([*steady(), row("fc.weight", 20, "param", values=(NAN, 1.0))], ["nan"]),
        ([row("fc", step, values=np.linspace(-1, 1, 40) * 3**step) for step in range(10)], ["exploding"]),
        (steady(scale=1e5), ["exploding"]),
        ([row("fc", step, values=[0.0] * 99 + [1.0]) for step in range(6)], ["dead"]),
        ([row("fc", step, values=[0.0] * 9 + [1.0]) for step in range(6)], []),
        ([*steady(), *steady("far", "grad_output"), *steady("fc", "grad_output", 1e-6)], ["vanishing"]),
        ([*steady(), *steady("far", "grad_output"), *steady("fc", "grad_output", 1e-3)], []),
        ([*steady(), *steady("far", "param_grad"), *steady("fc.weight", "param_grad", 0.0)], ["vanishing"]),
        (
            [*steady("fc.weight", "param_grad"), *steady("fc.bias", "param_grad", 0.0)],
            [],
        ),
        (steady("fc.weight", "update", 1e-9, ratio=1e-9), ["still"]),
        (steady("fc.weight", "update", 1e-3, ratio=1e-3), []),
    ],
    ids=[
        *["healthy", "nan output", "inf gradient", "nan weight", "growing", "beyond fp16", "dead", "sparse"],
        *["vanishing", "small", "zero gradient", "bias before a norm", "still", "moving"],
    ],
)
def test_health_of_a_layer(rows, what):
    assert found(rows)["fc"] == what


def test_one_odd_batch_is_no_finding():
    rows = [row("fc", step, values=np.linspace(-1, 1, 40) * (1e6 if step == 18 else 1)) for step in range(20)]
    assert found(rows)["fc"] == []
