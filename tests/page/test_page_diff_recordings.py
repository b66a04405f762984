"""Recordings of two runs on the live page: which are offered, and their values as pictures."""

import pytest
import torch

import hookline
from hookline.page.comparing import in_step
from tests.support.pages import Client
from tests.support.parting import recorded, until_found


def test_recordings_of_both_are_offered_by_step_and_their_values_shown(tmp_path):
    recorded(tmp_path / "a", steps=(1, 2, 3))
    recorded(tmp_path / "b", 1.25)
    with hookline.serve(tmp_path) as server:
        client = Client(server.url)
        _, answer = until_found(client, "a", "b")
        assert answer["recordings"] == [{"kept": [0, 0], "step": 2}, {"kept": [2, 1], "step": 4}]
        _, answer = until_found(client, "a", "b", kept=[2, 1])
        data = answer["data"]
        assert data["a"] == "a, recording 2 at step 4" and data["b"] == "b, recording 1 at step 4"
        first = data["places"][data["first"]]
        picture = data["pictures"][str(data["first"])]
        assert (first["site"], first["verdict"]) == ("2", "different") and answer["recordings"]
        assert picture["shapes"] == [[3, 2], [3, 2]] and picture["difference"]["high"] > 0
        assert len(picture["values"]) == 2 and len(picture["histograms"]["counts"]) == 2
        _, answer = until_found(client, "a", "b", kept=[2, 7])
        assert answer["error"] == "the run 'b' has no recording 7: it has 2 recordings, from 0 to 1."


def test_runs_of_recordings_alone_can_be_compared_by_these(tmp_path):
    for name in ("a", "b"):
        with torch.no_grad(), hookline.record(torch.nn.Linear(2, 2), to=tmp_path / name) as _:
            pass
    with hookline.serve(tmp_path) as server:
        _, answer = until_found(Client(server.url), "a", "b")
        assert answer["state"] == "failed" and "has no rows" in answer["error"]
        assert answer["recordings"] == [{"kept": [0, 0], "step": None}]


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ([1, 1, 2], [1, 2, 2], [([0, 0], 1), ([2, 1], 2)]),
        ([None, None], [None], [([0, 0], None)]),
        ([1], [2, 3], [([0, 0], None)]),
        ([], [1], []),
    ],
    ids=str,
)
def test_recordings_are_paired_by_step_else_by_number(a, b, expected):
    class Kept(list):
        @property
        def steps(self):
            return list(self)

    assert [(one["kept"], one["step"]) for one in in_step(Kept(a), Kept(b))] == expected
