"""Counting keys in cells finds the rows that sorting finds, however keys lie, and counts of parts add up."""

import pickle
import subprocess
import sys

import numpy as np
import pytest

from obrs import _keys
from obrs._keys import KeyCounts, Rows, Sample, find_threshold
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
    key = priority_key(log_r, id)
    return Rows(np.floor(key * 20) / 20 if case == "tied" else key, id, group, cost), np.atleast_1d(need)


def find(parts, need):
    """Return the threshold, rows and cost that are kept, and the number of passes."""
    passes, counts = [], KeyCounts(len(need))

    def scan(function):
        passes.append(function)
        return map(function, parts)

    for part in scan(counts.count):
        counts.merge(part)
    return *find_threshold(counts, need, scan), len(passes)


def split(rows, size):
    return [rows.take(slice(i, i + size)) for i in range(0, len(rows.key), size)]


@pytest.mark.parametrize("collected", [1 << 20, 500])
@pytest.mark.parametrize("case", CASES)
def test_the_rows_below_the_threshold_are_those_of_a_sort(monkeypatch, case, collected):
    rows, need = make_pool(case, N)
    monkeypatch.setattr(_keys, "_COLLECTED", max(collected, 2 * len(need)))
    monkeypatch.setattr(_keys, "_PENDING", 1000)
    kept = np.zeros(N, bool)
    for g in range(len(need)):
        own = np.flatnonzero((rows.group == g) & (rows.key < np.inf))
        own = own[np.lexsort((rows.id[own], rows.key[own]))]
        kept[own[np.cumsum(rows.cost[own]) <= need[g]]] = True
    threshold, total, passes = find(split(rows, 700), need)
    assert np.array_equal(threshold.keeps(rows), kept)
    assert total.tolist() == [kept.sum(), rows.cost[kept].sum()]
    assert passes == 2 if collected > N else passes <= 4
    if case == "all":
        assert threshold.key == np.inf


def test_rows_that_cannot_be_told_apart_are_an_error(monkeypatch):
    same = Rows(np.zeros(N), *np.zeros((2, N), int), np.ones(N, int))
    with pytest.raises(InputError, match="tied for the last place"):
        find([same], np.array([2]))
    monkeypatch.setattr(_keys, "_COLLECTED", 500)
    with pytest.raises(InputError, match="make their ids unique"):
        find([same], np.array([10]))
    with pytest.raises(InputError, match="at most 524,288 groups"):
        KeyCounts(600_000)


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_every_case_takes_less_than_400_mb():
    code = """
import test_keys as t
class Parts(list):
    def __iter__(self):  # made again in every pass, never all in memory
        for i in range(20):
            rows, _ = t.make_pool(case, 150_000, seed=i)
            yield rows._replace(id=rows.id + i * 150_000)
for case in t.CASES:
    t.find(Parts(), 20 * t.make_pool(case, 150_000)[1])
print(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))
"""
    folder = __file__.rpartition("/")[0]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=folder, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) / 1024 < 400


@pytest.mark.parametrize("backwards", [False, True])
def test_a_thousand_shards_merge_to_the_threshold_of_the_whole(monkeypatch, backwards):
    monkeypatch.setattr(_keys, "_COLLECTED", 10)  # so that a second count is needed, as with more rows
    size, rng, sizes = 200_000, np.random.default_rng(0), []
    ids = rng.permutation(size)
    rows = Rows(priority_key(rng.normal(size=size) * 2, ids), ids, np.zeros(size, int), np.ones(size, int))
    shards = np.array_split(np.arange(size), 1000)[:: -1 if backwards else 1]

    def scan(function):
        for shard in shards:
            sizes.append(len(data := pickle.dumps(function(rows.take(shard)))))
            yield pickle.loads(data)

    counts = KeyCounts(1)
    for part in scan(KeyCounts(1).count):
        counts.merge(part)
    threshold, total = find_threshold(counts, np.array([size // 4]), scan)
    last = np.sort(rows.key)[size // 4]
    assert (threshold.key[0], total[0], len(sizes)) == (last, size // 4, 3000)
    assert max(sizes) < 15_000  # 200 rows, not 2**22 cells
    np.testing.assert_array_equal(threshold.keeps(rows), last > rows.key)


def test_a_sample_does_not_depend_on_the_order_of_rows_and_merges(monkeypatch):
    monkeypatch.setattr(_keys, "_SAMPLED", 1000)
    rng = np.random.default_rng(0)
    ids, x = rng.permutation(50_000), rng.normal(size=50_000)
    for order, merged in ((np.arange(50_000), False), (rng.permutation(50_000), False), (np.arange(50_000), True)):
        sample = Sample()
        for part in np.array_split(order, 9):
            some = Sample() if merged else sample
            some.add(ids[part], x[part])
            if merged:
                sent = pickle.loads(pickle.dumps(some))
                assert len(sent.columns[0]) <= 1000 >> 4
                sample.add(*sent.columns, limit=sent.limit)
        id, value = sample.columns
        assert 30 < len(id) <= 1000
        np.testing.assert_array_equal(np.sort(id), np.sort(ids[_keys._hash_ids(ids) <= np.uint64(sample.limit)]))
        np.testing.assert_array_equal(x[np.argsort(ids)[id]], value)
    sample = Sample()
    sample.add(np.zeros(9000, np.int64), np.arange(9000.0))
    assert len(sample.columns[0]) == 1000, "of one id there may be any number"
