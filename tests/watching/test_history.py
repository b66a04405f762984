"""History: the rows of the latest steps, of which the older ones are compressed."""

import pytest

from hookline.rows import Rows
from hookline.watching import history
from hookline.watching.history import History
from tests.support.rows import row, same_rows


def rows_of(step):
    return Rows.of([row(f"fc{site}", step, values=[step, site, 0.5]) for site in range(5)])


@pytest.mark.parametrize("plain", [0, 700, 1 << 20])
@pytest.mark.parametrize("most", [1, 4, 100])
def test_the_last_steps_come_back_whether_compressed_or_not(monkeypatch, plain, most):
    monkeypatch.setattr(history, "PLAIN_BYTES", plain)
    kept = History(most)
    for step in range(12):
        kept.add(rows_of(step))
    expected = [one for step in range(12)[-most:] for one in rows_of(step)]
    assert same_rows([one for rows in kept for one in rows], expected)


def test_what_is_older_takes_less_memory(monkeypatch):
    def filled():
        kept = History(100)
        for step in range(100):
            kept.add(rows_of(step))
        return kept.nbytes

    plain = filled()
    monkeypatch.setattr(history, "PLAIN_BYTES", 0)
    assert filled() < plain / 2
