"""Counting keys in cells finds the rows that sorting finds, however keys lie, and looks at parts add up."""

import pickle
import subprocess
import sys

import numpy as np
import pytest

from obrs import Profile, _keys
from obrs._keys import Look, RatioCounts, Sample
from obrs.draws import priority_key
from obrs.errors import InputError

N = 6000


def make_pool(case, n, seed=0):
    """Return keys, ids, groups or None, costs or None, and what is needed of each group."""
    rng = np.random.default_rng(seed)
    id = rng.permutation(n)
    log_r = rng.normal(size=n)
    group = cost = None
    need = n // 4
    if case in ("shift up", "shift down"):
        log_r = log_r + (1e5 if case == "shift up" else -1e5)
    elif case == "wide":
        log_r = 100 * log_r
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
        group, need = (np.arange(n) == 5).astype(np.int64), [n // 2, 1]
    elif case in ("one", "all"):
        need = 1 if case == "one" else n
    return priority_key(log_r, id), id, group, cost, np.atleast_1d(need)


CASES = ["plain", "shift up", "shift down", "wide", "tied", "cost", "many groups", "a group of one", "one", "all"]


def find_cut(parts, need, most=None):
    """Look as often as it takes; return the cut, the places before it, and how many looks it took."""
    looks, look = 1, Look(most=most)
    place = np.cumsum([0, *(len(key) for key, *_ in parts)])
    for (key, id, *more), start in zip(parts, place, strict=False):
        look.add(key, id, np.arange(start, start + len(key)), *more)
    need = np.pad(need, (0, len(look.low) - len(need)))
    while look.held is None:
        look, need = look.narrow(need)
        looks += 1
        for (key, id, *more), start in zip(parts, place, strict=False):
            look.add(key, id, np.arange(start, start + len(key)), *more)
    return *look.cut(need), looks


def split(columns, size):
    n = len(columns[0])
    return [[c if c is None else c[i : i + size] for c in columns] for i in range(0, n, size)]


@pytest.mark.parametrize("held", [1 << 20, 2500])
@pytest.mark.parametrize("case", CASES)
def test_the_rows_before_the_cut_are_those_of_a_sort(monkeypatch, case, held):
    monkeypatch.setattr(_keys, "_HELD", held)
    *columns, need = make_pool(case, N)
    key, id, group, cost = columns
    codes, price = np.zeros(N, int) if group is None else group, np.ones(N, int) if cost is None else cost
    kept = np.zeros(N, bool)
    for g in range(len(need)):
        rows = np.flatnonzero(codes == g)
        rows = rows[np.lexsort((rows, id[rows], key[rows]))]
        kept[rows[np.cumsum(price[rows]) <= need[g]]] = True
    for most in (None, int(need.max())):
        cut, places, looks = find_cut(split(columns, 700), need, most)
        assert np.array_equal(cut.keeps(key, id, np.arange(N), group), kept)
        if len(places) == kept.sum():
            np.testing.assert_array_equal(places, np.flatnonzero(kept))
        assert looks == 1 or held < N
    if case == "all":
        assert cut.key == np.inf


def test_few_rows_of_many_are_found_in_one_look(monkeypatch):
    monkeypatch.setattr(_keys, "_HELD", 500)
    *columns, _ = make_pool("plain", N)
    assert find_cut(split(columns, 100), np.array([50]), most=50)[2] == 1


def test_rows_that_cannot_be_told_apart_are_an_error(monkeypatch):
    monkeypatch.setattr(_keys, "_HELD", 500)
    same = np.zeros(N)
    with pytest.raises(InputError, match="make their ids unique"):
        find_cut([(same, same.astype(int))], np.array([10]))


def test_a_sample_does_not_depend_on_the_order_of_rows(monkeypatch):
    monkeypatch.setattr(_keys, "_SAMPLED", 1000)
    ids, rng = np.arange(N) * 7, np.random.default_rng(0)
    samples = []
    for order in (np.arange(N), rng.permutation(N)):
        samples.append(Sample())
        for part in np.array_split(order, 9):
            samples[-1].add(ids[part], part.astype(float))
    one, two = samples
    assert 400 <= len(one.columns[1]) <= 1000
    assert not one.complete
    assert sorted(one.columns[1]) == sorted(two.columns[1])
    np.testing.assert_array_equal(one.columns[1] // 7, one.columns[2])


@pytest.mark.parametrize("scale", [0.1, 1, 30])
def test_counted_log_ratios_have_the_profile_of_all(scale):
    x = np.random.default_rng(0).normal(size=20_000) * scale + 1000
    x[::50] = -np.inf
    counts = RatioCounts()
    for part in np.array_split(x, 7):
        counts.add(part)
    exact, counted = Profile(x), Profile(counts.log_ratios(), counts.counts)
    assert counted.log_mean_ratio == pytest.approx(exact.log_mean_ratio, abs=1e-9)
    for budget in (1.5, 4, 64):
        for name in ("kl", "tv", "js"):
            assert counted.divergence(name, budget) == pytest.approx(exact.divergence(name, budget), abs=1e-5)


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_every_case_takes_less_than_400_mb():
    code = """
import numpy as np, test_keys as t
class Parts(list):
    def __iter__(self):  # made again in every look, never all in memory
        for i in range(20):
            key, id, group, cost, _ = t.make_pool(case, 150_000, seed=i)
            yield key, id + i * 150_000, group, cost
for case in t.CASES:
    need = 20 * t.make_pool(case, 150_000)[-1]
    cut, *_ = t.find_cut(Parts(), need)
print(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))
"""
    folder = __file__.rpartition("/")[0]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=folder, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) / 1024 < 400


# Looks at parts add up, in any order

ROWS = 200_000
RNG = np.random.default_rng(0)
IDS = RNG.permutation(ROWS)
KEY = priority_key(RNG.normal(size=ROWS) * 2, IDS)
GROUP = RNG.integers(0, 5, ROWS)


@pytest.mark.parametrize("backwards", [False, True])
def test_looks_at_a_thousand_shards_merge_to_the_threshold_of_the_whole(monkeypatch, backwards):
    monkeypatch.setattr(_keys, "_HELD", 1000)  # so that a second look is needed, as with more rows
    monkeypatch.setattr(_keys, "_BITS", 16)
    shards = np.array_split(np.arange(ROWS), 1000)[:: -1 if backwards else 1]
    need, sizes = np.array([ROWS // 4]), []

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
    assert cut.key[0] == np.sort(KEY)[ROWS // 4]
    assert max(sizes) < 10_000  # 200 rows, not 2**16 cells
    np.testing.assert_array_equal(cut.keeps(KEY, IDS, np.arange(ROWS)), np.sort(KEY)[ROWS // 4] > KEY)


def test_groups_merge_by_their_own_numbers():
    """Each worker numbers the groups as it meets them."""
    whole, names = Look(), []
    for rows in np.array_split(RNG.permutation(ROWS), 7):
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
    x = RNG.normal(size=ROWS)
    whole, parts, some = RatioCounts(), RatioCounts(), Sample()
    whole.add(x)
    for rows in np.array_split(np.arange(ROWS), 9):
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
