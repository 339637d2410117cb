"""Counting keys in cells finds the rows that sorting finds, however keys lie, and counts of parts add up."""

import pickle
import subprocess
import sys

import numpy as np
import pytest

from obrs import Profile, _keys
from obrs._keys import Counts, KeyCounts, Rows, Sample, count_ratios, mean_ratios
from obrs.draws import priority_key
from obrs.errors import InputError

N = 6000
CASES = ["plain", "shift up", "shift down", "wide", "tied", "cost", "many groups", "a group of one", "one", "all"]


def make_pool(case, n, seed=0):
    """Return rows, and what is needed of each group."""
    rng = np.random.default_rng(seed)
    id, log_r = rng.permutation(n), rng.normal(size=n)
    group, cost, need = np.zeros(n, int), np.ones(n, int), n // 4
    if case in ("shift up", "shift down"):
        log_r = log_r + (1e5 if case == "shift up" else -1e5)
    elif case == "wide":
        log_r = 100 * log_r
        log_r[::9] = -np.inf
    elif case == "tied":
        id //= 7  # rows of one id share their uniform
        log_r = np.round(log_r)
    elif case == "cost":
        cost, need = rng.integers(0, 50, n), 3 * n
    elif case == "many groups":
        group = rng.integers(0, min(10_000, n // 3), n)
        group[: group.max() + 1] = np.arange(group.max() + 1)
        need = np.bincount(group) // 2
    elif case == "a group of one":
        group, need = (np.arange(n) == 5).astype(int), [n // 2, 1]
    elif case in ("one", "all"):
        need = 1 if case == "one" else n
    return Rows(priority_key(log_r, id), id, np.arange(n), group, cost), np.atleast_1d(need)


def count(counts, parts):
    for rows in parts:
        counts.add(rows)
    return counts


def find_threshold(parts, need, most=None, count=count):
    """Return the threshold, rows and cost that are kept, places, and how many passes it took."""
    passes, counts = 1, count(KeyCounts(most=most), parts)
    while counts.held is None:
        counts, need = counts.narrow(need)
        passes, counts = passes + 1, count(counts, parts)
    return *counts.find_threshold(need), passes


def split(rows, size):
    return [rows.take(slice(i, i + size)) for i in range(0, len(rows.key), size)]


@pytest.mark.parametrize(("held", "cells"), [(1 << 20, 1 << 21), (2500, 1 << 21), (2500, 2000)])
@pytest.mark.parametrize("case", CASES)
def test_the_rows_below_the_threshold_are_those_of_a_sort(monkeypatch, case, held, cells):
    rows, need = make_pool(case, N)
    cells = max(cells, 4 * len(need)) if case == "many groups" else cells
    for name, value in (("_HELD", held), ("_CELLS", cells), ("_PENDING", 1000)):
        monkeypatch.setattr(_keys, name, value)
    kept = np.zeros(N, bool)
    for g in range(len(need)):
        own = rows.take((rows.group == g) & (rows.key < np.inf))
        own = own.take(np.lexsort((own.place, own.id, own.key)))
        kept[own.place[np.cumsum(own.cost) <= need[g]]] = True
    for most in (None, int(need[0]) if len(need) == 1 else None):
        threshold, total, places, passes = find_threshold(split(rows, 700), need, most)
        assert np.array_equal(threshold.keeps(rows), kept)
        assert total.tolist() == [kept.sum(), rows.cost[kept].sum()]
        if len(places) == kept.sum():
            np.testing.assert_array_equal(places, np.flatnonzero(kept))
        assert passes == 1 or held < N
    if case == "all":
        assert threshold.key == np.inf


def test_few_rows_of_many_are_found_in_one_pass(monkeypatch):
    monkeypatch.setattr(_keys, "_HELD", 500)
    assert find_threshold(split(make_pool("plain", N)[0], 100), np.array([50]), most=50)[3] == 1


def test_rows_that_cannot_be_told_apart_are_an_error(monkeypatch):
    same = Rows(np.zeros(N), *np.zeros((3, N), int), np.ones(N, int))
    with pytest.raises(InputError, match="tied for the last place"):
        find_threshold([same], np.array([2]))
    monkeypatch.setattr(_keys, "_HELD", 500)
    with pytest.raises(InputError, match="make their ids unique"):
        find_threshold([same], np.array([10]))


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_every_case_takes_less_than_400_mb():
    code = """
import test_keys as t
class Parts(list):
    def __iter__(self):  # made again in every pass, never all in memory
        for i in range(20):
            rows, _ = t.make_pool(case, 150_000, seed=i)
            yield rows._replace(id=rows.id + i * 150_000, place=rows.place + i * 150_000)
for case in t.CASES:
    t.find_threshold(Parts(), 20 * t.make_pool(case, 150_000)[1])
print(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))
"""
    folder = __file__.rpartition("/")[0]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=folder, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) / 1024 < 400


# Counts of parts add up, in any order

SIZE = 200_000
RNG = np.random.default_rng(0)
IDS, GROUP = RNG.permutation(SIZE), RNG.integers(0, 5, SIZE)
KEY = priority_key(RNG.normal(size=SIZE) * 2, IDS)
ROWS = Rows(KEY, IDS, np.arange(SIZE), np.zeros(SIZE, int), np.ones(SIZE, int))


@pytest.mark.parametrize("backwards", [False, True])
def test_a_thousand_shards_merge_to_the_threshold_of_the_whole(monkeypatch, backwards):
    monkeypatch.setattr(_keys, "_HELD", 1000)  # so that a second pass is needed, as with more rows
    shards, sizes = np.array_split(np.arange(SIZE), 1000)[:: -1 if backwards else 1], []

    def count_shards(total, _):
        total.held = total.held if total.low is not None else None
        empty = pickle.dumps(total)
        for shard in shards:
            part = pickle.loads(empty)
            part.add(ROWS.take(shard))
            sizes.append(len(data := pickle.dumps(part)))
            total.merge(pickle.loads(data), np.zeros(1, int))
        return total

    threshold, total, _, _ = find_threshold(None, np.array([SIZE // 4]), count=count_shards)
    assert (threshold.key[0], total[0]) == (np.sort(KEY)[SIZE // 4], SIZE // 4)
    assert max(sizes) < 15_000  # 200 rows, not 2**22 cells
    np.testing.assert_array_equal(threshold.keeps(ROWS), np.sort(KEY)[SIZE // 4] > KEY)


def test_groups_merge_by_their_own_numbers():
    """Each worker numbers the groups as it meets them."""
    whole, names, need = KeyCounts(), [], np.array([10, 2000, 0, 300, 30_000])
    for shard in np.array_split(RNG.permutation(SIZE), 7):
        own = RNG.permutation(5).tolist()  # the order in which this worker meets them
        part = count(KeyCounts(), [ROWS.take(shard)._replace(group=np.argsort(own)[GROUP[shard]])])
        names += [name for name in own if name not in names]
        whole.merge(pickle.loads(pickle.dumps(part)), np.array([names.index(name) for name in own]))
    threshold, _, places = whole.find_threshold(need)
    for number, name in enumerate(names):
        own = np.flatnonzero(name == GROUP)
        smallest = own[np.argsort(KEY[own])]
        assert threshold.key[number] == KEY[smallest[need[number]]]
        np.testing.assert_array_equal(np.sort(smallest[: need[number]]), places[GROUP[places] == name])


def test_a_sample_does_not_depend_on_the_order_of_rows_and_merges(monkeypatch):
    monkeypatch.setattr(_keys, "_SAMPLED", 1000)
    x, place = RNG.normal(size=SIZE), np.arange(SIZE)
    for order, own in ((np.arange(SIZE), None), (RNG.permutation(SIZE), None), (np.arange(SIZE), 300)):
        sample = Sample()
        for part in np.array_split(order, 9):
            some = Sample(own) if own else sample
            some.add(IDS[part], x[part], place[part])
            if own:
                sample.merge(some)
        id, value, places = sample.columns
        assert not sample.complete
        assert 100 < len(id) <= 1000
        np.testing.assert_array_equal(np.sort(id), np.sort(IDS[_keys._hash_ids(IDS) <= np.uint64(sample.threshold)]))
        np.testing.assert_array_equal((IDS[places], x[places]), (id, value))
    sample = Sample(100)
    sample.add(np.zeros(1000, np.int64), np.arange(1000.0), np.arange(1000))
    assert len(sample.columns[0]) == 100, "of one id there may be any number"


@pytest.mark.parametrize("scale", [0.1, 1, 30])
def test_counted_log_ratios_have_the_profile_of_all(scale):
    x = np.random.default_rng(0).normal(size=20_000) * scale + 1000
    x[::50] = -np.inf
    counts = Counts()
    for part in np.array_split(x, 7):
        count_ratios(one := Counts(), part)
        counts.merge(one)
    ratios, rows = mean_ratios(counts)
    exact, counted = Profile(x), Profile(np.append(ratios, -np.inf), np.append(rows, 400))
    assert counted.log_mean_ratio == pytest.approx(exact.log_mean_ratio, abs=1e-9)
    for budget in (1.5, 4, 64):
        for name in ("kl", "tv", "js"):
            assert counted.divergence(name, budget) == pytest.approx(exact.divergence(name, budget), abs=1e-5)
