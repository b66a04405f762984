"""Some of the programs of bench/diagnosis, as a user runs them: the right place and the right cause come first."""

import pytest

from bench.diagnosis.labels import read_labels
from bench.diagnosis.launch import run_plain, run_watched
from bench.diagnosis.score import scored

SECONDS = 300
BROKEN = ["blob_images", "denoise_ae", "glyph_cnn", "house_prices", "spiral_mlp"]
HEALTHY = ["lora_shift", "pocket_gpt", "rings_relu"]


@pytest.mark.parametrize("label", read_labels(["tuning"], BROKEN), ids=lambda one: one.name)
def test_what_is_wrong_is_said_first(label):
    score = scored(label, run_watched(label.path, SECONDS).findings)
    assert (score.site, score.cause, score.onset) == (True, True, True), score.told


@pytest.mark.parametrize("label", read_labels(["tuning"], HEALTHY), ids=lambda one: one.name)
def test_of_a_healthy_training_nothing_is_said_and_nothing_changes(label):
    plain, watched = run_plain(label.path, SECONDS), run_watched(label.path, SECONDS)
    assert scored(label, watched.findings).told == []
    assert (plain.code, plain.stdout, plain.weights) == (watched.code, watched.stdout, watched.weights)
