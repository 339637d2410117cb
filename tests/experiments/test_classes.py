"""The figure on classes: its splits, and what its committed record says."""

from pathlib import Path

import numpy as np
import pytest

from obrs import experiments
from obrs.errors import InputError
from obrs.experiments.figure_classes import _PARTS, RULES, Config, _split

pytest.importorskip("sklearn")
RECORD = Path(__file__).parents[2] / "results" / "figure-classes.json"


def test_every_image_has_one_use():
    parts = _split(1)
    assert {name: len(y) for name, (_, y) in parts.items()} == _PARTS
    assert sum(_PARTS.values()) == 1797
    rows = np.concatenate([x.reshape(len(x), -1) for x, _ in parts.values()])
    again = np.concatenate([x.reshape(len(x), -1) for x, _ in _split(2).values()])
    assert sorted(map(tuple, rows)) == sorted(map(tuple, again))
    assert not np.array_equal(rows, again)


def test_the_committed_record_keeps_what_each_rule_promises():
    record = experiments.load(RECORD)
    rate, pilot = 1 / record.config["budget"], record.config["pilot"]
    for row in record.rows:
        proposed = np.asarray(row["proposed"])
        kept = {rule: np.asarray(row["kept"][rule]) / proposed for rule in RULES}
        error = 5 * (rate * (1 - rate) * (1 / pilot + 1 / proposed.min())) ** 0.5
        assert abs(kept["class"] - rate).max() < error
        assert abs(kept["shares"] - rate * 10 * np.asarray(row["shares"])).max() < error
        assert all(abs(kept[rule].mean() - rate) < error for rule in ("one", "class", "shares"))
        assert np.ptp(kept["one"]) > 3 * error  # classes drift with one constant
        assert np.ptp(kept["one"]) > 2 * np.ptp(kept["shares"])


def test_nothing_to_draw_is_refused():
    with pytest.raises(InputError, match="needs at least one seed"):
        Config(seeds=())
