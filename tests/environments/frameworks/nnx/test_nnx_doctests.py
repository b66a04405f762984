"""The examples in the docstrings of the NNX backend, which the main suite can't import."""

import doctest
import importlib
import pkgutil

import pytest

import hookline.backends.nnx as home

MODULES = [f"{home.__name__}.{found.name}" for found in pkgutil.iter_modules(home.__path__)]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings(name):
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.failed == 0


def test_there_are_examples():
    finder = doctest.DocTestFinder()
    examples = [test for name in MODULES for test in finder.find(importlib.import_module(name)) if test.examples]
    assert len(examples) >= 2
