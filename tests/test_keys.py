"""Looks at parts of the rows add up, in any order, to a look at all of them."""

import pickle

import numpy as np
import pytest

from obrs import _keys
from obrs._keys import Look, RatioCounts, Sample, order_keys
from obrs.draws import priority_key
from obrs.errors import InputError

RNG = np.random.default_rng(0)
N = 200_000
IDS = RNG.permutation(N)
KEY = priority_key(RNG.normal(size=N) * 2, IDS)
GROUP = RNG.integers(0, 5, N)


def test_the_order_of_keys_is_that_of_the_integers():
    key = np.array([-np.inf, -1e300, -2.0, -1e-300, -0.0, 0.0, 1e-300, 3.0, np.inf])
    order = order_keys(key)
    np.testing.assert_array_equal(np.argsort(order, kind="stable"), np.arange(len(key)))
    assert order[4] == order[5]


@pytest.mark.parametrize("backwards", [False, True])
def test_looks_at_a_thousand_shards_merge_to_the_threshold_of_the_whole(monkeypatch, backwards):
    monkeypatch.setattr(_keys, "_HELD", 1000)  # so that a second look is needed, as with more rows
    monkeypatch.setattr(_keys, "_BITS", 16)
    shards = np.array_split(np.arange(N), 1000)[:: -1 if backwards else 1]
    need, sizes = np.array([N // 4]), []

    def look_at_shards(empty):
        total = pickle.loads(empty)
        for rows in shards:
            part = pickle.loads(empty)
            part.add(KEY[rows], IDS[rows], rows)
            sizes.append(len(data := pickle.dumps(part)))
            total.merge(pickle.loads(data))
        return total

    first = Look()
    first.held = None
    look = look_at_shards(pickle.dumps(first))
    while look.held is None:
        narrower, need = look.narrow(need)
        look = look_at_shards(pickle.dumps(narrower))
    cut, _ = look.cut(need)
    assert cut.key[0] == np.sort(KEY)[N // 4]
    assert max(sizes) < 10_000  # 200 rows, not 2**16 cells
    np.testing.assert_array_equal(cut.keeps(KEY, IDS, np.arange(N)), np.sort(KEY)[N // 4] > KEY)


def test_groups_merge_by_their_own_numbers():
    """Each worker numbers the groups as it meets them."""
    whole, names = Look(), []
    for rows in np.array_split(RNG.permutation(N), 7):
        own = list(dict.fromkeys(RNG.permutation(5).tolist()))  # the order in which this worker meets them
        part = Look()
        part.add(KEY[rows], IDS[rows], rows, np.argsort(own)[GROUP[rows]])
        names += [name for name in own if name not in names]
        whole.merge(pickle.loads(pickle.dumps(part)), [names.index(name) for name in own])
    need = np.zeros(len(whole.low), np.int64)
    need[:5] = [10, 2000, 0, 300, 30_000]
    cut, places = whole.cut(need)
    for number, name in enumerate(names):
        own = np.flatnonzero(name == GROUP)
        smallest = own[np.argsort(KEY[own])]
        assert cut.key[number] == KEY[smallest[need[number]]]
        np.testing.assert_array_equal(np.sort(smallest[: need[number]]), places[GROUP[places] == name])


def test_rows_that_nothing_tells_apart_are_refused_at_the_cut():
    look = Look()
    look.add(np.zeros(4), np.full(4, 7), np.zeros(4, np.int64))
    with pytest.raises(InputError, match="tied for the last place"):
        look.cut(np.array([2]))


def test_samples_and_ratios_merge_to_those_of_all_rows():
    x = RNG.normal(size=N)
    whole, parts, some = RatioCounts(), RatioCounts(), Sample()
    whole.add(x)
    for rows in np.array_split(np.arange(N), 9):
        ratios, sample = RatioCounts(), Sample(1000)
        ratios.add(x[rows])
        sample.add(IDS[rows], x[rows])
        parts.merge(ratios)
        some.merge(sample)
    np.testing.assert_array_equal(parts.counts, whole.counts)
    np.testing.assert_allclose(parts.log_ratios(), whole.log_ratios(), rtol=1e-12)
    alone = Sample()
    alone.threshold = some.threshold
    alone.add(IDS, x)
    np.testing.assert_array_equal(np.sort(alone.columns[1]), np.sort(some.columns[1]))
    assert 4000 < len(some.columns[1]) <= 9000
    assert not some.complete


def test_a_sample_of_one_id_ends():
    sample = Sample(100)
    sample.add(np.zeros(1000, np.int64), np.arange(1000.0))
    assert len(sample.columns[0]) == 1000
