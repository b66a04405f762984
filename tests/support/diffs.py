"""Diffs made without a model, as the parts that compute them would make them: to test what shows a diff."""

import zlib

import numpy as np

from hookline.diffs.found import Cause, SiteDiff
from hookline.diffs.measures import measure
from hookline.diffs.result import Diff

FLOATS = ("float32", "float32")
PARTS = [
    "attn.q",
    "attn.k",
    "attn.v",
    "attn.out",
    "attn",
    "norm1",
    "mlp.up",
    "mlp.act",
    "mlp.down",
    "mlp",
    "norm2",
    "",
]
TYPES = {"attn": "Attention", "mlp": "MLP", "act": "GELU", "norm1": "LayerNorm", "norm2": "LayerNorm", "": "Block"}


def values(name, shape, error=0.0):
    """Two arrays that are apart by about so much of the largest number, the same ones for a name at any time."""
    random = np.random.default_rng(zlib.crc32(name.encode()))
    a = random.standard_normal(shape).astype(np.float32)
    b = a + np.float32(error) * random.standard_normal(shape).astype(np.float32) * np.abs(a).max()
    return a, b.astype(np.float32)


def place(site, error=0.0, tolerance=2e-6, shape=(2, 16, 64), **more):
    """A place whose numbers are those of its arrays."""
    a, b = values(site + more.get("kind", ""), shape, error)
    verdict = "equal" if not error else "within" if error <= tolerance else "different"
    facts = {
        "verdict": verdict,
        "error": error,
        "tolerance": tolerance,
        "other": site,
        "shape": shape,
        "dtypes": FLOATS,
    }
    return SiteDiff(site, **{**facts, "measure": measure(a, b, FLOATS, tolerance), **more})


def arrays_of(one):
    """What `Diff.values` gives for places that were made here."""
    return values(one.site + ("" if one.kind == "output" else one.kind), one.shape, one.error)


def transformer(layers=12, born="layers.5.mlp.act", grads=True, rename=str, shape=(2, 16, 64)):
    """A transformer whose activation in the sixth layer is another one, with 12 sites to a layer and 4 around."""
    names = [
        "embed",
        *(f"layers.{n}.{part}".rstrip(".") for n in range(layers) for part in PARTS),
        "norm",
        "head",
        "",
    ]
    sites, late = [], False
    for order, name in enumerate(names):
        late = late or name == born
        error = 0.0 if order < 4 else 3e-7 * (1 + order / 40) if not late else 2e-2 * 1.01**order
        more = (
            {"added": error, "added_tolerance": 2e-6, "born": True}
            if name == born
            else {"added": 1e-7, "born": False}
        )
        kind = TYPES.get(name.rpartition(".")[2] if not name[-1:].isdigit() else "", "Linear") if name else "Model"
        before = (names[order - 1],) if order else ()
        sites.append(place(name, error, shape=shape, order=order, type=kind, sources=before, **more))
    for order, name in enumerate(reversed(names) if grads else (), len(sites)):
        sites.append(place(name, 2e-2, shape=shape, kind="grad_output", order=order, born=False, added=0.0))
    sites = [place_renamed(one, rename) for one in sites]
    first = next(one for one in sites if one.site == born)
    sites[sites.index(first)] = first = with_facts(
        first, line="model.py:88", why="with A's inputs it gives another output"
    )
    cause = Cause("function", born, "A computes gelu, B its approximation by tanh.", {"a": "none", "b": "tanh"})
    runs = ["A", "B", "A again", "A with its values moved by one rounding", "B with A's values at every call"]
    return Diff("bert.py:Model", "port.py:Model", first, sites, [cause], forwards=runs, values=arrays_of)


def with_facts(one, **facts):
    return SiteDiff(**{**{name: getattr(one, name) for name in one.__dataclass_fields__}, **facts})


def place_renamed(one, rename):
    return with_facts(one, other=rename(one.site))


def unet(odd=False):
    """A U-Net: four-dimensional values, a part that only one side has on each side, one of another shape."""
    names = [
        "down.0.conv",
        "down.0",
        "down.1.conv",
        "down.1",
        "mid.conv",
        "mid",
        "up.1.conv",
        "up.1",
        "up.0.conv",
        "up.0",
        "",
    ]
    error = dict.fromkeys(names[:4], 0.0)
    sites = [
        place(name, error.get(name, 4e-3), shape=(2, 12, 8, 8), order=n, type="Conv2d")
        for n, name in enumerate(names)
    ]
    sites[4] = with_facts(sites[4], born=True, added=4e-3, added_tolerance=1e-6, sources=("down.1",))
    sites[-2] = with_facts(
        sites[-2],
        verdict="shape",
        error=float("inf"),
        why="its shape is (2, 12, 8, 8) in A and (2, 12, 9, 9) in B",
    )
    unmatched = [
        SiteDiff("mid.attn", verdict="missing", type="Attention", why="only A calls it"),
        SiteDiff("mid.gate", other="mid.gate", verdict="extra", type="Gate", why="only B calls it"),
        SiteDiff("down.1", other="down.1", verdict="calls", why="A calls it once, B 2 times"),
        SiteDiff(
            "down.0", other="down.0", verdict="dtype", dtypes=("float32", "float16"), why="it is float32 in A"
        ),
    ]

    def pictured(one):
        a, b = arrays_of(with_facts(one, error=4e-3 if one.verdict == "different" else 0.0))
        if one.verdict == "shape":
            return a, np.zeros((2, 12, 9, 9), np.float32)
        if odd and one.differs:
            b = b.copy()
            b[0, 3, 2, 1], b[1, 0, 0, 0], b[1, 5] = np.nan, np.inf, a[1, 5]
            a = a.copy()
            a[0, 0, 0, 0] = b[0, 0, 0, 0] = np.nan
        return a, b

    if odd:
        sites = [
            with_facts(one, error=float("nan"), measure=measure(*pictured(one), FLOATS, 1e-6))
            if one.verdict == "different"
            else one
            for one in sites
        ]
    return Diff("unet_a", "unet_b", sites[4], sites, unmatched=unmatched, values=pictured)


def two_runs(steps=40, sites=("fc1", "act", "fc2"), since=17):
    """Two runs that part at a step; nothing but statistics is known of them."""
    found = []
    for step in range(steps):
        for order, site in enumerate(sites):
            late = step > since or (step == since and order > 0)
            verdict = "different" if late else "equal"
            error = 1e-4 * (step - since + 1) if late else 0.0
            for kind in ("output", "grad_output"):
                found.append(
                    SiteDiff(
                        site, kind, step=step, order=order, verdict=verdict, error=error, metric="stat", other=site
                    )
                )
    first = next((one for one in found if one.differs), None)
    return Diff("runs/a", "runs/b", first, found)
