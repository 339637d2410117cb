"""Counting keys in cells finds the rows that sorting finds, however keys lie, and counts of parts add up."""

import pickle
import subprocess
import sys

import numpy as np
import pytest

from obrs import _keys
from obrs._keys import BottomK, Cells, Rows, add_up, find_threshold, tally
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


NONE = Rows(*np.zeros((4, 0), int))


def find(parts, need, held=NONE):
    """Return the first row that is not kept, how many are kept and their cost, and the number of passes."""
    passes, cells = [], Cells(np.zeros(len(need), np.uint64))

    def scan(function):
        passes.append(function)
        return map(function, parts)

    key, id, total = find_threshold(cells, tally(scan(cells.locate)), need, held, scan)
    return key, id, total, len(passes)


def smallest(parts, most):
    few = BottomK(most, parts[0][0].dtype.type(10**9))
    for part in parts:
        few.add(part)
    return few.columns()


def split(rows, size):
    return [rows.take(slice(i, i + size)) for i in range(0, len(rows.key), size)]


@pytest.mark.parametrize("collected", [1 << 20, 500])
@pytest.mark.parametrize("case", CASES)
def test_the_rows_below_the_threshold_are_those_of_a_sort(monkeypatch, case, collected):
    rows, need = make_pool(case, N)
    monkeypatch.setattr(_keys, "COLLECTED", max(collected, 2 * len(need)))
    kept = np.zeros(N, bool)
    for g in range(len(need)):
        members = np.flatnonzero((rows.group == g) & (rows.key < np.inf))
        members = members[np.lexsort((rows.id[members], rows.key[members]))]
        kept[members[np.cumsum(rows.cost[members]) <= need[g]]] = True
    key, id, total, passes = find(split(rows, 700), need)
    assert np.array_equal(rows.precede(key, id), kept)
    assert total.tolist() == [kept.sum(), rows.cost[kept].sum()]
    assert passes <= (2 if collected > N else 4)
    for most in (N, N // 8):  # of rows that the first pass holds
        same, _, again, fewer = find(split(rows, 700), need, Rows(*smallest(split(rows, 900), most)))
        assert (np.array_equal(same, key), np.array_equal(again, total)) == (True, True)
        assert fewer == 1 if most == N else fewer <= passes
    if case == "all":
        assert key == np.inf


def test_rows_that_cannot_be_told_apart_are_an_error(monkeypatch):
    same = Rows(np.zeros(N), *np.zeros((2, N), int), np.ones(N, int))
    with pytest.raises(InputError, match="tied for the last place"):
        find([same], np.array([2]))
    monkeypatch.setattr(_keys, "COLLECTED", 500)
    with pytest.raises(InputError, match="make their ids unique"):
        find([same], np.array([10]))


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
    monkeypatch.setattr(_keys, "COLLECTED", 10)  # so that a second count is needed, as with more rows
    size, rng, sizes = 200_000, np.random.default_rng(0), []
    ids, log_r = rng.permutation(size), rng.normal(size=size) * 2
    rows = Rows(priority_key(log_r, ids), ids, np.zeros(size, int), np.ones(size, int))
    shards = np.array_split(np.arange(size), 1000)[:: -1 if backwards else 1]

    def scan(function):
        for shard in shards:
            sizes.append(len(data := pickle.dumps(function(rows.take(shard)))))
            yield pickle.loads(data)

    cells = Cells(np.zeros(1, np.uint64))
    counts = tally(scan(lambda part: add_up(cells.locate(part))))
    key, id, total = find_threshold(cells, counts, np.array([size // 4]), NONE, scan)
    last = np.sort(rows.key)[size // 4]
    assert (key[0], total[0], len(sizes)) == (last, size // 4, 3000)
    assert max(sizes) < 15_000  # 200 rows, not 2**22 cells
    np.testing.assert_array_equal(rows.precede(key, id), last > rows.key)


def test_the_smallest_do_not_depend_on_parts_or_their_order():
    rng = np.random.default_rng(0)
    ids, x = rng.permutation(50_000), rng.normal(size=50_000)
    expected = np.sort(np.argsort(x)[:1000])
    for order in (np.arange(50_000), rng.permutation(50_000), np.argsort(x)):
        parts = ((x[part], ids[part]) for part in np.array_split(order, 50))
        value, id = smallest([*parts], 1000)
        np.testing.assert_array_equal(np.sort(id), np.sort(ids[expected]))
        np.testing.assert_array_equal(x[np.argsort(ids)[id]], value)
    (tied,) = smallest([(np.zeros(900),)] * 10, 10)
    assert len(tied) == 9000, "rows of one id come together"
