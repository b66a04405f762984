"""MindSpore in its dynamic mode, in a folder of its own: where a compilation fails, it writes files."""

import mindspore as ms
import pytest


@pytest.fixture(autouse=True)
def dynamic_mode(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ms.set_context(mode=ms.PYNATIVE_MODE)
    yield
    ms.set_context(mode=ms.PYNATIVE_MODE)
