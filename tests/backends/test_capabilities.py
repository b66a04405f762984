"""Declarations of frameworks: recognition, versions, the table in the docs, and what is raised."""

import subprocess
import sys

import numpy as np
import pytest

import hookline
from hookline import lines
from hookline.backends import _check_version, named, of_tensor, resolve
from hookline.backends.capabilities import FEATURES, Framework, No, answers
from hookline.backends.capabilities.table import markdown
from hookline.lines.kernel import using
from tests.support.paths import ROOT

DOCS = ROOT / "docs" / "frameworks.md"
START, END = "<!-- capabilities -->\n", "<!-- end -->"


def test_the_table_in_the_docs_is_what_the_backends_declare():
    text = DOCS.read_text()
    shown = text[text.index(START) + len(START) : text.index(END)]
    assert shown == markdown(hookline.capabilities().values()), "run: python -m tests.backends.test_capabilities"


def test_every_no_has_a_reason_and_a_way_out():
    for framework in hookline.capabilities().values():
        for feature, answer in framework.answers.items():
            if answer is not None:
                assert answer.why and answer.instead, (framework.name, feature)
                assert not answer.why.endswith(".") and not answer.instead.endswith("."), (framework.name, feature)


def test_a_declaration_must_answer_for_every_feature():
    with pytest.raises(ValueError, match="must answer for every feature"):
        Framework("x", "x", ("x",), "x", "x", ("1", "2"), {"record": None})
    with pytest.raises(ValueError, match="no feature is called 'recrod'"):
        answers(recrod=No("a", "b"))


def test_need_raises_what_was_declared():
    declared = Framework("x", "x", ("x",), "x", "x", ("1", "2"), answers(stop=No("it can't", "wait")))
    declared.need("record")
    with pytest.raises(
        hookline.Unsupported, match=r"record\(stop=True\) is not supported on x: it can't. Instead: wait"
    ):
        declared.need("stop")


@pytest.mark.parametrize(
    ("version", "covered"),
    [
        ("2.9.9", False),
        ("2.10", True),
        ("2.10.0", True),
        ("2.10.1rc1", True),
        ("2.10.0+cpu", True),
        ("2.11.0", False),
    ],
)
def test_versions_are_compared_as_numbers(version, covered):
    assert Framework("x", "x", ("x",), "x", "x", ("2.10", "2.11"), answers()).covers(version) is covered


def test_an_untested_version_is_warned_of_once():
    code = (
        "import warnings, torch, hookline\n"
        "torch.__version__ = '9.9.0'\n"
        "with warnings.catch_warnings(record=True) as caught:\n"
        "    warnings.simplefilter('always')\n"
        "    for _ in range(3): hookline.installed(torch.nn.ReLU())\n"
        "(one,) = [w for w in caught if w.category is hookline.UntestedVersion]\n"
        "print(one.message)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "torch 9.9.0 is not among the versions" in done.stdout


def test_the_version_in_use_is_a_tested_one():
    _check_version(hookline.capabilities()["torch"])  # warnings are errors here


def test_a_model_of_no_framework_is_refused_with_those_there_are():
    with pytest.raises(
        hookline.InvalidArgument, match=r"expected a model, got a builtins.dict.*a torch.nn.Module"
    ):
        resolve({})
    with pytest.raises(hookline.InvalidArgument, match=r"got a numpy.ndarray"):
        hookline.record(np.ones(3))
    with pytest.raises(hookline.InvalidArgument, match="no backend is called 'tensorflow'"):
        named("tensorflow")


def test_recognising_a_foreign_object_imports_no_framework():
    code = (
        "import sys, hookline\n"
        "class Fake: __module__ = 'torchlike.nn'\n"
        "try: hookline.record(Fake())\n"
        "except hookline.InvalidArgument: pass\n"
        "assert not {'torch', 'mindspore', 'mxnet', 'jax'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


ARRAYS = {
    "plain": np.arange(-6, 6, dtype=np.float32).reshape(3, 4),
    "turned": np.arange(12, dtype=np.float64).reshape(3, 4).T,
    "half": np.array([0.05, -0.05, 65504.0, 0.0], np.float16),
    "bad": np.array([np.nan, np.inf, -np.inf, 1.0, -2.0], np.float32),
    "whole": np.array([[1, 0], [3, 4]]),
    "truth": np.array([True, False]),
    "complex": np.array([3 + 4j, 0j]),
    "none": np.zeros((0, 3), np.float32),
    "tiny": np.array([1e-310, 5e-324, 1e100, -1e100]),
    "one": np.float32([[7]]).reshape(()),
}


@pytest.mark.parametrize("way", ["avx2", "baseline", "torch"])
@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_of_numpy_are_reduced_with_and_without_the_kernel(name, way):
    array = ARRAYS[name]
    wanted = lines.Stats.of(np.abs(array) if array.dtype.kind == "c" else array)
    with using(way):
        (found,) = lines.collect([lines.reduce(array)])
    assert of_tensor(array).name == "numpy"
    for one in ("count", "min", "max", "zeros", "near_zero", "nan", "inf"):
        assert getattr(found, one) == getattr(wanted, one), one
    assert found.mean == pytest.approx(wanted.mean, rel=1e-12)
    assert (found.hist == wanted.hist).all()


@pytest.mark.parametrize("way", ["avx2", "torch"])
def test_channels_of_arrays_are_reduced(way):
    with using(way):
        (channels,) = lines.collect_channels([lines.reduce_channels(ARRAYS["turned"], dim=1)])
    assert [stats.mean for stats in channels] == ARRAYS["turned"].mean(0).tolist()


def test_every_feature_has_words_for_the_table():
    assert all(words and not words.endswith(".") for words in FEATURES.values())


if __name__ == "__main__":
    text = DOCS.read_text()
    head, rest = text.split(START)
    DOCS.write_text(head + START + markdown(hookline.capabilities().values()) + END + rest.split(END)[1])
