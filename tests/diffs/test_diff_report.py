"""How a diff is shown: the figure, and the report as a file. What a browser makes of it: environments/browser."""

import base64
import gzip
import json
import math
import re

import matplotlib as mpl
import numpy as np
import pytest

mpl.use("Agg")
import matplotlib.pyplot as plt

import hookline
from hookline.diffs import listing, pictures
from hookline.diffs.found import Cause, Measure, SiteDiff
from hookline.diffs.result import Diff
from tests.support.diffs import place, transformer, two_runs, unet, values, with_facts
from tests.support.pages import NASTY

NAN, INF = float("nan"), float("inf")


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def embedded(path):
    """What a report was given to show."""
    text = path.read_text()
    (data,) = re.findall(r'<script type="text/plain" id="data">([\w+/=]*)</script>', text)
    return json.loads(gzip.decompress(base64.b64decode(data)), parse_constant=lambda word: pytest.fail(word))


def cells(found):
    """The cells of a map."""
    return np.frombuffer(base64.b64decode(found["cells"]), np.uint8).reshape(-1, found["across"])


# The figure


def test_the_figure_has_both_directions_the_tolerance_and_the_first_place():
    diff = transformer()
    ax = diff.plot()
    labels = {text.get_text() for text in ax.get_legend().get_texts()}
    assert {"forward: error", "forward: equal", "forward: tolerance", "backward: error"} <= labels
    assert "forward: born there" in labels
    assert ax.get_yscale() == "log" and len(ax.collections) == 2
    assert [text.get_text() for text in ax.texts] == ["first: layers.5.mlp.act"]
    assert len(ax.get_xticklabels()) <= 41 and not plt.isinteractive()
    line = next(line for line in ax.lines if line.get_linestyle() == ":")
    assert line.get_xdata()[0] == next(n for n, one in enumerate(diff.sites) if one.site == "layers.5.mlp.act")


def test_the_figure_is_drawn_into_an_axes_that_is_given():
    figure, given = plt.subplots()
    assert transformer(2, "layers.1.attn").plot(given) is given and plt.get_fignums() == [figure.number]
    figure.canvas.draw()


def test_the_figure_of_runs_has_steps_and_the_worst_of_each():
    ax = two_runs().plot()
    assert ax.get_xlabel() == "step"
    (curve,) = [line for line in ax.lines if line.get_label() == "forward: error"]
    assert list(curve.get_xdata()) == list(range(17, 40))
    assert curve.get_ydata()[-1] == pytest.approx(1e-4 * 23)


def test_what_is_no_number_has_its_place_in_the_figure():
    bad = [place("a"), with_facts(place("b", 1e-3), error=NAN), with_facts(place("c", 1e-3), error=INF)]
    ax = Diff("a", "b", bad[1], bad).plot()
    (crosses,) = [line for line in ax.lines if line.get_marker() == "x"]
    assert list(crosses.get_xdata()) == [1, 2] and np.isfinite(crosses.get_ydata()).all()
    ax.figure.canvas.draw()
    equal = Diff("a", "b", sites=[with_facts(place("a"), tolerance=0.0)]).plot()
    equal.figure.canvas.draw()


def test_without_a_common_place_there_is_no_figure():
    with pytest.raises(hookline.InvalidArgument, match="nothing to plot"):
        Diff("a", "b", unmatched=[SiteDiff("x", verdict="missing")]).plot()


def test_what_goes_into_a_module_is_not_drawn_twice():
    places = [place("a", kind="input"), place("a"), place("b", 1e-3, kind="input"), place("b", 1e-3)]
    assert listing.charted(places, None) == [1, 3]
    assert listing.charted(places, places[2]) == [1, 2, 3]
    assert listing.charted(places[::2], None) == [0, 1]


# The report


def test_a_report_is_one_file_that_asks_for_nothing(tmp_path):
    path = transformer().report(tmp_path / "diff.html")
    text = path.read_text()
    assert path == tmp_path / "diff.html"
    assert "default-src 'none'" in text and "<title>bert.py:Model against port.py:Model · hookline</title>" in text
    bare = re.sub(r"http://www\.w3\.org/2000/svg", "", text)
    assert not re.findall(r"https?://|(?:src|href)=\"/|@import|url\(|^import |\bfetch\(", bare, re.MULTILINE)
    assert text.count("<script") == 2 and text.count("<style>") == 1


def test_a_report_has_the_verdict_and_every_place(tmp_path):
    diff = transformer()
    data = embedded(diff.report(str(tmp_path / "diff.html")))
    assert data["sentence"] == diff.to_json()["sentence"] and data["verdict"] == "different"
    assert len(data["places"]) == len(diff.sites) == data["every"] == 296
    first = data["places"][data["first"]]
    assert (
        first["site"] == "layers.5.mlp.act"
        and first["line"] == "model.py:88"
        and first["sources"] == ["layers.5.mlp.up"]
    )
    assert data["causes"][0]["sentence"].startswith("A computes gelu") and data["forwards"] == diff.forwards


def test_pictures_are_those_of_the_places_that_somebody_looks_at_first(tmp_path):
    diff = transformer()
    data = embedded(diff.report(tmp_path / "diff.html"))
    assert len(data["pictures"]) == 60
    shown = [data["places"][int(at)] for at in data["pictures"]]
    assert shown[0]["site"] == "layers.5.mlp.act" and shown[1]["site"] == "layers.5.mlp.up"
    assert [one["verdict"] for one in shown[1:5]] == ["within"] * 4
    kinds = [one["kind"] for one in shown]
    assert kinds.count("grad_output") > 10 and kinds.count("output") > 30


def test_where_nothing_differs_the_closest_have_pictures(tmp_path):
    sites = [place(f"fc{n}", 1e-8 * n) for n in range(30)]
    data = embedded(
        Diff("a", "b", sites=sites, values=lambda one: values(one.site, one.shape, one.error)).report(
            tmp_path / "d.html"
        )
    )
    assert data["verdict"] == "same" and data["first"] is None
    assert sorted(map(int, data["pictures"])) == list(range(18, 30))


def test_more_is_told_of_the_first_place_than_of_the_same_one_in_the_list():
    """A birth within the tolerance of the whole run is the first place nevertheless."""
    sites = [place("a", 1e-7, order=0), place("b", 2e-7, order=1), place("c", 3e-7, order=2)]
    first = with_facts(sites[1], verdict="different", why="its own code differs", line="x.py:3", born=True)
    places = listing.together(Diff("a", "b", first, sites))
    assert [one.site for one in places] == ["a", "b", "c"] and places[1] is first
    elsewhere = SiteDiff("block", verdict="different", error=1.0, order=1)
    places = listing.together(Diff("a", "b", elsewhere, sites))
    assert [one.site for one in places] == ["a", "b", "block", "c"]


def test_what_is_unmatched_is_there_once(tmp_path):
    diff = unet()
    diff.sites.append(diff.unmatched[0])
    data = embedded(diff.report(tmp_path / "diff.html"))
    verdicts = [one["verdict"] for one in data["places"]]
    assert [verdicts.count(word) for word in ("missing", "extra", "calls", "dtype", "shape")] == [1] * 5
    assert data["places"][data["first"]]["site"] == "mid.conv"
    at = next(n for n, one in enumerate(data["places"]) if one["verdict"] == "shape")
    assert str(at) in data["pictures"] and "difference" not in data["pictures"][str(at)]


@pytest.mark.parametrize(
    "diff",
    [
        Diff("a", "b"),
        Diff("a", "b", SiteDiff("x", verdict="missing"), unmatched=[SiteDiff("x", verdict="missing")]),
        Diff("a", "b", SiteDiff("x", verdict="different", error=NAN, tolerance=INF, added=None, born=None)),
        Diff("", "", sites=[SiteDiff("", error=INF, verdict="shape", measure=Measure(max_rel=INF, cosine=NAN))]),
        Diff(
            "a",
            "b",
            causes=[Cause("c", "", "s", {"x": NAN, "y": {"z": [INF, {1}]}, "w": np.float32(2), "n": None})],
        ),
    ],
    ids=["nothing", "only unmatched", "NaN", "the model itself", "evidence of any kind"],
)
def test_a_report_of_little_or_of_odd_numbers_is_written(diff, tmp_path):
    data = embedded(diff.report(tmp_path / "diff.html"))
    assert isinstance(data["sentence"], str) and data["pictures"] == {}


@pytest.mark.parametrize(
    "name",
    [NASTY, '"><b onclick=x>', "\u2028 \x00 ∂ñ漢 \\", "x." * 150 + "y"],
    ids=["script", "quotes", "unicode", "long"],
)
def test_names_are_never_part_of_the_document(name, tmp_path):
    hit = place(name, 1e-2, other=name, why=name, line=name, type=name, part=f"[{name!r}]", sources=(name,))
    diff = Diff(
        name,
        name,
        hit,
        [hit],
        [Cause("c", name, name, {name: name})],
        [SiteDiff(name, verdict="missing", why=name)],
    )
    diff.notes.append(name)
    text = diff.report(tmp_path / "diff.html").read_text()
    assert text.count("<script") == 2 and text.count("</script>") == 2 and 'onerror="' not in text
    assert embedded(tmp_path / "diff.html")["places"][0]["site"] == name


def test_a_thousand_sites_are_small(tmp_path):
    diff = transformer(83, "layers.9.attn", grads=False, shape=(4, 128, 96))
    assert len(diff.sites) == 1000
    assert diff.report(tmp_path / "diff.html").stat().st_size < 1.5e6


def test_of_long_runs_the_worst_of_each_step_is_kept(tmp_path):
    diff = two_runs(steps=900, since=500)
    data = embedded(diff.report(tmp_path / "diff.html"))
    assert data["every"] == 5400 and len(data["places"]) == 4000
    assert {one["step"] for one in data["places"]} == set(range(900))
    assert data["places"][data["first"]]["step"] == 500
    assert (tmp_path / "diff.html").stat().st_size < 1.5e6


def test_a_report_is_an_html_file(tmp_path):
    with pytest.raises(hookline.InvalidArgument, match=r"'diff.pdf'.*\.html"):
        unet().report(tmp_path / "diff.pdf")
    with pytest.raises(hookline.RunError, match="can't be written"):
        unet().report(tmp_path / "nowhere" / "diff.html")


# Pictures


def test_one_wrong_number_of_a_million_is_seen():
    a = np.random.default_rng(0).standard_normal((1000, 1000)).astype(np.float32)
    b = a.copy()
    b[777, 31] += 1e-3
    found = pictures.difference(a, b, 128)
    image = cells(found)
    assert image.shape == (128, 128) and found["rows"] == found["columns"] == 1000
    ((row,), (column,)) = np.nonzero(image)
    assert (row, column) == (99, 4) and image[row, column] == pictures.HIGHEST  # the cells of 773-780 and 31-38
    assert found["high"] == pytest.approx(1e-3, rel=1e-2)


def test_cells_tell_nan_and_inf_on_one_side_from_those_on_both():
    a, b = np.zeros((2, 6), np.float32), np.zeros((2, 6), np.float32)
    a[0] = [NAN, NAN, INF, INF, INF, 1.0]
    b[0] = [NAN, 0.0, INF, -INF, 0.0, 1.5]
    found = pictures.difference(a, b, 64)
    odd, inf, nan = pictures.SAME_BAD, pictures.ONE_INF, pictures.ONE_NAN
    assert cells(found).tolist() == [[odd, nan, odd, inf, inf, pictures.HIGHEST], [0] * 6]
    assert (found["one_nan"], found["one_inf"], found["same_bad"], found["odd"]) == (1, 2, 2, 1)
    value = pictures.value_map(a, 1.0, 64)
    assert cells(value)[0].tolist() == [255, 255, 254, 254, 254, 120] and cells(value)[1].tolist() == [60] * 6


def test_the_largest_difference_is_a_step_of_a_logarithm():
    a = np.zeros((1, 4))
    found = pictures.difference(a, np.asarray([[1.0, 1e-3, 1e-9, 0.0]]), 64)
    middle = (pictures.LOWEST + pictures.HIGHEST) / 2
    assert cells(found)[0].tolist() == [
        pictures.HIGHEST,
        pytest.approx(middle, abs=0.5),
        pictures.LOWEST,
        pictures.SAME,
    ]


@pytest.mark.parametrize(
    ("shape", "laid"),
    [
        ((), (1, 1)),
        ((5,), (1, 5)),
        ((1009,), (1, 1009)),
        ((3, 0, 2), (0, 1)),
        ((1, 1, 4096), (64, 64)),
        ((50257, 2), (278, 361)),
    ],
)
def test_tensors_of_any_shape_are_laid_out(shape, laid):
    rows, columns = pictures.sheet(shape)
    assert rows * columns == math.prod(shape)
    if math.prod(shape) and shape != (50257, 2):
        assert (rows, columns) == laid


@pytest.mark.parametrize("dtype", ["float16", "float64", "int64", "bool", "complex64"])
def test_values_of_any_dtype_have_pictures(dtype):
    a = np.asarray([[0, 1, 1], [1, 0, 1]]).astype(dtype)
    b = np.asarray([[0, 1, 0], [1, 0, 1]]).astype(dtype)
    one = SiteDiff("x", verdict="different", measure=Measure(max_abs=1.0, index=(0, 2), count=6))
    found = pictures.picture(one, (a, b), 64)
    json.dumps(found, allow_nan=False)
    assert found["difference"]["high"] == 1.0 and (cells(found["difference"]) > 0).sum() == 1
    assert found["numbers"][0]["max"] == 1.0 and len(found["largest"]) == 2
    assert sum(found["histograms"]["counts"][0]) == (12 if dtype == "complex64" else 6)


def test_values_without_finite_numbers_or_without_any_have_what_there_is():
    one = SiteDiff("x", verdict="different")
    found = pictures.picture(one, (np.full(4, NAN), np.full(4, INF)), 64)
    assert (
        found["histograms"] is None and found["numbers"][0]["mean"] is None and found["difference"]["one_nan"] == 4
    )
    empty = pictures.picture(one, (np.zeros((0, 3)), np.zeros((0, 3))), 64)
    assert "difference" not in empty and empty["numbers"][0]["count"] == 0
    json.dumps([found, empty], allow_nan=False)


def test_histograms_are_over_the_same_bins_and_have_all_values():
    a = np.random.default_rng(0).standard_normal(1000)
    b = a + 3
    b[0] = 1e6
    found = pictures.histograms(a, b)
    assert [sum(counts) for counts in found["counts"]] == [1000, 1000] and found["beyond"] == [False, True]
    assert found["low"] > -5 and found["high"] < 10, "one far number does not squeeze the others"
    flat = pictures.histograms(np.ones(5), np.ones(5))
    assert flat["low"] < 1 < flat["high"] and sum(flat["counts"][0]) == 5


def test_where_nothing_is_tolerated_the_largest_error_is_the_worst_and_nan_is_worse():
    bits = [SiteDiff("a", verdict="different", error=error, metric="bits") for error in (1e-6, 0.5, 1e-3)]
    assert listing.worst(bits).error == 0.5
    assert math.isnan(listing.worst([*bits, with_facts(bits[0], error=NAN), bits[1]]).error)


def test_a_report_of_many_steps_has_no_more_places_than_it_may():
    """Each of them is the worst of its step."""
    places = [with_facts(place(f"s{at}", 1e-2 if at % 2 else 0.0), step=at) for at in range(50)]
    kept = listing.kept(places, places[1], 20)
    assert len(kept) == 20 and places[1] in kept and all(one.differs for one in kept)
