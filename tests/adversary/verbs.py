"""One case for each public verb: what must hold of any answer to any arguments."""

import json
import os
import re
import tempfile
import warnings
from unittest import mock

import numpy as np
import torch

import obrs
from obrs import files, metrics
from obrs.divergences import DIVERGENCES
from obrs.draws import priority_key
from obrs.language import NORMALISE, RATIOS
from obrs.profile import GOALS
from obrs.rules import RULES, from_json, to_json
from obrs.sampling.samples import Samples
from obrs.selection import DESIGNS, inclusion_probability

from .making import NO_ARRAYS, NO_BUDGETS, NO_COUNTS, NO_SHARES, close, finite, host


def any_nan(*arrays):
    return any(np.any(np.isnan(host(x))) for x in arrays)


def as_array(labels):
    return np.asarray(labels.tolist() if hasattr(labels, "tolist") else labels)


def per_group(make, labels, value):
    """One value of each label, as a dict or an array; one for all where the labels are none."""
    try:
        known = np.unique(as_array(labels))
    except (ValueError, TypeError):
        return value()
    numbers = [value() for _ in known]
    return dict(zip(known.tolist(), numbers, strict=True)) if make.chance(0.5) else np.array(numbers)


def shares_of(make, labels):
    wrong = ("equal", 0.5, {"a": 1}, {0: "x"}, [np.nan, 1], [])
    return make.arg(per_group(make, labels, lambda: make.one(0, 1, 1, 2.5, make.rng.random())), *wrong)


def slack(x):
    """How far a rate may be off: log-ratios that are large have few digits after the point."""
    x = host(x)
    return 16 * float(np.max(np.abs(x[np.isfinite(x)]), initial=1.0)) * 2.3e-16


def kept_rate(log_ratio, log_c):
    """The mean of min(c r, 1)."""
    x = host(log_ratio)
    with np.errstate(invalid="ignore", over="ignore"):
        return float(np.mean(np.where(x > -np.inf, np.exp(np.minimum(x + log_c, 0.0)), 0.0)))


# Constants, rules and draws


def solve_log_c(make):
    x = make.log_ratio(make.size())
    axis = make.arg(None, 0, 1, 7, "a", p=0.5)
    groups = make.one(None, np.unique(make.rng.integers(0, 3, len(x)), return_inverse=True)[1])
    weights, budget = make.arg(None, make.weights(len(x)), "w", p=0.5), make.budget()
    options = {"weights": weights, "axis": axis, "groups": groups, "check": make.chance(0.9)}
    log_c = make.answer(obrs.solve_log_c, x := make.array(x), budget, **options)
    if log_c is None:
        return
    assert not any_nan(log_c)
    if weights is None and axis is None and groups is not None and slack(x) < 1e-11:
        for g, c in enumerate(host(log_c)):
            assert close(kept_rate(host(x)[groups == g], c), 1 / budget, rtol=1e-4)


def rules(make):
    x, name, budget = make.log_ratio(make.size()), make.one(*sorted(RULES)), make.budget()
    labels, confidence = make.labels(len(x)), make.arg(None, make.confidence(), p=0.5)
    arguments = {"unbudgeted": [], "grouped": [budget, labels]}.get(name, [budget])
    options = {"confidence": confidence} if name in ("budgeted", "grouped") else {}
    if name == "grouped" and make.chance(0.5):
        options["shares"] = shares_of(make, labels)
    rule = make.answer(RULES[name].fit, x := make.array(x), *arguments, **options)
    make.answer(from_json, make.one("[1]", "{}", '{"rule": "drs"}', '{"rule": "grouped", "labels": [[1]], "log_c": 0}'))
    if rule is None:
        return
    assert from_json(to_json(rule)) == rule
    log_a = host(rule(x, labels))
    assert np.all(log_a <= 0)
    assert not any_nan(log_a, rule.log_weight(x, labels))
    if name == "grouped" and slack(x) < 1e-3 and confidence is None:
        kept = np.array([np.exp(log_a)[as_array(labels) == label].sum() for label in rule.labels])
        assert rule.shares is None or close(kept / kept.sum(), rule.shares, rtol=1e-6, atol=1e-9)
        assert close(len(log_a) / kept.sum(), rule.budget, rtol=1e-6)


def divergences(make):
    record, x = DIVERGENCES[make.one(*sorted(DIVERGENCES))], make.array(make.floats(make.size(10)))
    for function in (record.f, record.conjugate, record.critic, record.f_star_of_f_prime, record.log_ratio):
        found = make.answer(function, x)
        assert found is None or np.array_equal(np.isnan(host(found)), np.isnan(host(x)))
    make.answer(obrs.divergences.pr, make.one(0, 0.5, 4, np.inf, -1, np.nan, "x", None, [1.0]))


def draws(make):
    ids, seed, dim = make.array(make.integers(make.size(10))), make.seed(), make.arg(make.one(0, 1, 3), -1, 1.5, None)
    u, z = make.answer(obrs.uniforms, ids, seed=seed), make.answer(obrs.normals, ids, dim, seed=seed)
    assert u is None or np.all((host(u) >= 0) & (host(u) < 1))
    assert z is None or finite(z)
    make.answer(obrs.accept, make.array(-np.abs(make.floats(len(np.atleast_1d(host(u))) if u is not None else 3))), ids)


def choose(make):
    budget = make.arg(make.one(1, 2, 4), 2.5, 0, "x")
    rule = make.answer(obrs.rules.Choice.fit, make.array(make.log_ratio(make.size())), budget)
    if rule is not None:
        x = make.log_ratio(budget * make.size(10)).reshape(-1, budget)
        index = make.answer(obrs.choose, x := make.array(x), rule, seed=make.seed())
        assert index is None or np.all((host(index) >= -1) & (host(index) < budget))


# Selection


def check_probabilities(x, pi, total):
    """Whether these are min(c r, 1) of one constant, with this sum."""
    x, pi = host(x), host(pi)
    assert np.all((pi >= 0) & (pi <= 1))
    assert np.all(pi[x == -np.inf] == 0)
    assert close(pi.sum(), total, rtol=1e-5, atol=1e-5)
    free = (pi > 1e-290) & (pi < 1 - 1e-6)
    if free.sum() > 1 and slack(x[free]) < 1e-3:
        assert np.ptp(np.log(pi[free]) - x[free]) < 1e-3


def select(make):
    x, design = make.log_ratio(make.size(60)), make.arg(make.one(*DESIGNS), "no", 3, None)
    groups = None if make.chance(0.5) else make.labels(len(x))
    shares = None if groups is None or make.chance(0.6) else shares_of(make, groups)
    n = make.arg(make.count(1, len(x)), *NO_COUNTS)
    if groups is not None and shares is None and make.chance(0.5):
        n = per_group(make, groups, lambda: make.count(0, 2))
    options = {"seed": make.seed(), "design": design, "groups": groups, "shares": shares}
    if make.chance(0.2):
        options["sign"] = make.arg(np.where(make.rng.random(len(x)) < 0.4, -1, 1), np.zeros(len(x)), "s", [1])
    if make.chance(0.5):
        options["ids"] = make.ids(len(x))
    chosen = make.answer(obrs.select, x := make.array(x), n, **options)
    if chosen is None:
        return
    x, chosen = host(x), host(chosen).astype(int)
    assert np.all(np.diff(chosen) > 0)
    assert np.all(x[chosen] > -np.inf)
    pi = host(inclusion_probability(x, n, groups=groups, shares=shares))
    code = np.zeros(len(x), int) if groups is None else np.unique(as_array(groups), return_inverse=True)[1]
    sizes, negative = (
        np.bincount(code[chosen], minlength=code.max() + 1),
        host(options.get("sign", np.ones(len(x)))) < 0,
    )
    for g in range(code.max() + 1):
        total = np.round(pi[code == g].sum())
        check_probabilities(x[code == g], pi[code == g], total)
        assert sizes[g] == total
        due, number = pi[negative & (code == g)].sum(), np.count_nonzero((negative & (code == g))[chosen])
        assert np.floor(due - 1e-6) <= number <= np.ceil(due + 1e-6)
    assert design == "priority" or np.all(np.isin(np.flatnonzero(pi == 1), chosen))


def priority(make):
    """The n smallest keys, nested in n; with costs never above n, and short of it by less than one candidate."""
    x = make.log_ratio(make.size(60))
    ids, seed, n = make.ids(len(x)), make.seed(), make.count(1, len(x))
    chosen = make.answer(obrs.select, x := make.array(x), n, design="priority", ids=ids, seed=seed)
    if chosen is not None and ids is not None:
        key, chosen = priority_key(host(x), ids, seed=seed), host(chosen).astype(int)
        assert np.all(np.sort(key[chosen]) == np.sort(key)[:n])
        more = min(n + 1, int(np.sum(host(x) > -np.inf)))
        assert np.all(np.isin(chosen, host(obrs.select(host(x), more, design="priority", ids=ids, seed=seed))))
    rows = len(np.atleast_1d(host(x))) if chosen is not None else 3
    cost = make.arg(make.weights(rows), np.full(rows, np.nan), [1], "c", -np.ones(rows), np.zeros(rows))
    n = make.arg(make.one(1, 3, 100), *NO_COUNTS)
    chosen = make.answer(obrs.select, x, n, design="priority", cost=cost, seed=make.seed())
    if chosen is not None:
        cost, chosen = host(cost), host(chosen).astype(int)
        spent, dearest, rounding = cost[chosen].sum(), cost[host(x) > -np.inf].max(), 1e-9 * cost.sum()
        assert n - dearest * (1 + 1e-9) - rounding <= spent <= n + rounding


def unweight(make):
    n = make.size(60)
    w = make.arg(make.scores(n), make.log_ratio(n), np.zeros(n))
    wanted = make.arg(make.count(1, n), *NO_COUNTS)
    kept = make.answer(obrs.unweight, w := make.array(w), wanted, seed=make.seed(), design=make.one(*DESIGNS))
    if kept is not None:
        values, index, left = host(w), host(kept.index).astype(int), host(kept.weight)
        assert len(index) == wanted
        assert np.all(np.diff(index) > 0)
        assert np.all(np.sign(left) == np.sign(values[index]))
        assert 0 <= kept.truncated <= 1
        assert np.all(np.abs(left) >= kept.max_weight * (1 - 1e-6))


# Profiles and samples


def profile(make):
    n = make.size()
    x, weights = make.log_ratio(n), make.arg(None, make.weights(n), p=0.5)
    sign = make.arg(None, np.where(make.rng.random(n) < 0.3, -1.0, 1.0), np.zeros(n), [1], "s", p=0.4)
    found = make.answer(obrs.Profile, x := make.array(x), weights, sign=sign)
    if found is None:
        return
    assert -1 - 1e-9 <= found.net <= 1 + 1e-9
    budget, groups = make.budget(), make.arg(None, make.labels(n), p=0.4)
    shares = None if groups is None else make.one(None, shares_of(make, groups))
    options = {"n": make.arg(5, *NO_COUNTS), "recall": make.arg(0.9, *NO_SHARES), "groups": groups, "shares": shares}
    for row in make.answer(found.plan, [budget], **options) or ():
        assert not any(isinstance(value, float) and np.isnan(value) for value in row.values())
    for share in (make.answer(found.truncated, budget), make.answer(found.ess, budget)):
        assert share is None or 0 <= share <= 1 + 1e-9
    name = make.one(*sorted(DIVERGENCES))
    left = make.answer(found.divergence, name, budget)
    assert left is None or left >= 0
    make.answer(found.bound, name, budget)
    goal = make.arg(make.one(0.0, 1e-12, 1e-3, 0.05, 0.5, 0.9, 1.0, 3.0), *NO_SHARES, *NO_ARRAYS[:4])
    budget = make.answer(found.budget_for, **{make.one(*GOALS): goal}, recall=make.arg(0.9, *NO_SHARES))
    assert budget is None or 1 <= budget < np.inf


def kept_by_chance(make, n, start=0):
    """Samples as a run may leave them: any weights, any way to stop."""
    x, log_ratio, log_weight = (
        np.nan_to_num(host(make.floats(*shape)), posinf=1e6, neginf=-1e6).clip(-1e6, 1e6)
        for shape in ((n, 2), (n,), (n,))
    )
    proposed = n * make.count(1, 5) + make.count(0, 3)
    ids = start + np.sort(make.rng.choice(max(proposed, 1), n, replace=False))
    batch = make.arg(x, (x, np.arange(n)), {"x": x, "label": np.arange(n)}, p=0.3)
    fixed = make.one("", "proposals", "pool")
    return Samples(batch, ids, log_ratio, log_weight, proposed, proposed, next_id=start + proposed, fixed=fixed)


def samples(make):
    one = kept_by_chance(make, make.arg(make.size(20), 0))
    two = kept_by_chance(make, make.arg(make.size(20), 0), make.arg(one.next_id, 0, one.next_id - 1))
    assert 0 <= one.ess <= len(one) * (1 + 1e-9)
    both = make.answer(lambda: one + two)
    if both is not None:
        assert np.array_equal(both.ids, np.concatenate([one.ids, two.ids]))
        assert (both.proposed, both.next_id) == (one.proposed + two.proposed, max(one.next_id, two.next_id))
    if isinstance(one.x, np.ndarray) and one.fixed and len(one) and one.log_weight.max() < 300:
        g = make.arg(lambda x: x[:, 0], lambda x: 1.0, lambda x: np.zeros(len(x) + 1), lambda x: ["a"] * len(x))
        found = make.answer(one.mean, g, make.confidence(), unbiased=make.chance(0.5))
        assert found is None or found.low <= found.value <= found.high
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "kept.npz")
        one.save(path)
        assert np.array_equal(Samples.load(path).ids, one.ids)
        with open(path, "rb") as file:
            content = file.read()
        with open(path, "wb") as file:
            file.write(make.one(content[: make.count(0, len(content) - 1)], b"", b"text", b"PK\x03\x04"))
        assert make.answer(Samples.load, path) is None


def sample(make):
    spread, n = make.one(0.0, 0.5, 2.0), make.count(1, 40)
    labels = make.one(None, lambda x: (x[:, 0] > 0).astype(int), lambda x: np.zeros(len(x), int))
    options = {"seed": make.seed(), "start": make.arg(make.one(0, 7, 2**40), -1, 1.5, "s", 2**63), "progress": False}
    options |= {"batch_size": make.arg(make.one(None, 1, 7, 1000), 0, -1, 1.5, "b")}
    options |= {"max_proposed": make.arg(None, 1, 5, 0, "m", p=0.3), "budget": make.arg(make.one(1, 1.5, 3, 10.0), 0.5)}
    wrong = (lambda x: x, lambda x: np.full(len(x), np.nan), lambda x: np.full(len(x), -np.inf), lambda x: "a", None)
    log_ratio = make.arg(lambda x: spread * x[:, 0], *wrong)
    propose = make.arg(lambda ids: obrs.normals(ids, 2, seed=3), lambda ids: np.zeros((len(ids) + 1, 2)), None)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "groups with fewer than")  # it says so on purpose
        kept = make.answer(obrs.sample, propose, log_ratio, n, groups=labels, **options)
    if kept is not None:
        assert len(kept) == n
        assert np.all(kept.ids >= options["start"])
        assert kept.next_id >= kept.ids.max() + 1
        assert np.array_equal(kept.x, obrs.normals(kept.ids, 2, seed=3))
        assert finite(kept.log_ratio, kept.log_weight)


# Metrics


def rows(make, n, dim):
    """Features, in an extreme case of any size."""
    x = make.floats(n, dim)
    if make.chance(0.7):
        most = min(np.float64(make.one(1e5, 1e12, 1e60)), np.finfo(x.dtype).max)
        x = np.clip(x, -most, most).astype(x.dtype)
    return x[make.rng.integers(0, n, n)] if make.chance(0.2) else x  # copies


def distances(make):
    dim, n, m = make.one(1, 2, 3, 8), max(make.size(30), 4), max(make.size(30), 4)
    real, fake = rows(make, n, dim), rows(make, m, make.arg(dim, dim + 1))
    if make.chance(0.2) and np.longdouble not in (real.dtype, fake.dtype):
        real, fake = torch.from_numpy(real.copy()), torch.from_numpy(fake.copy())
    given = {"real": make.arg(real, *NO_ARRAYS), "fake": make.arg(fake, *NO_ARRAYS)}
    if make.chance(0.5):
        given["weights"] = make.arg(make.weights(m), -np.ones(m), np.full(m, np.nan), np.zeros(m), [1.0], "w")
    found, kernel = make.answer(metrics.frechet, **given), make.answer(metrics.kernel, **given)
    assert found is None or finite(found)
    assert kernel is None or finite(kernel.value, kernel.standard_error)
    curves = make.answer(metrics.kernel_curve, **given), make.answer(metrics.frechet_curve, **given)
    assert all(curve is None or finite(curve.value, curve.standard_error) for curve in curves)
    options = {"k": make.arg(make.one(1, 2, 5), *NO_COUNTS), "size": make.arg(None, 2, m, m + 1, 0, "s", p=0.4)}
    near = make.answer(metrics.neighbours, **given, **options, draws=make.arg(2, *NO_COUNTS), seed=make.seed())
    if near is not None:
        assert all(0 <= x <= 1 + 1e-12 for x in (near.precision, near.recall, near.coverage))
        assert 0 <= near.density < np.inf


def evaluate(make):
    make.wild &= make.chance(0.5)
    real, fake = rows(make, make.one(30, 60, 90), 2), rows(make, make.one(90, 200), 2)
    n = len(fake)
    log_ratio = make.arg(make.one(None, make.log_ratio(n)), make.log_ratio(n + 1), "x", lambda x: np.zeros(len(x) + 1))
    options = {"budgets": make.arg([1, 2.0], [0.5], "b", [], [1e300], [np.nan], 3), "k": make.arg(2, *NO_COUNTS)}
    options |= {"draws": make.arg(1, *NO_COUNTS), "size": make.arg(None, 5, 0, 10**9), "confidence": make.confidence()}
    options |= {"rules": make.arg(("obrs", "drs"), ("topk",), ("no",), ()), "seed": make.arg(0, -1, "s")}
    options |= {"groups": make.arg(None, make.labels(n), p=0.4), "progress": False}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "(?s).*", UserWarning, module="adversary")
        real = make.arg(real, *NO_ARRAYS)
        table = make.answer(obrs.evaluate, real=real, fake=fake, log_ratio=log_ratio, **options)
    for row in table.rows if table is not None else ():
        assert 0 < row.rate <= 1 + 1e-9
        for estimate in (*row.metrics.values(), *row.change.values()):
            assert finite(estimate.value)
            assert estimate.low <= estimate.value <= estimate.high


def extract(make):
    n, side, channels = make.count(1, 3), make.one(1, 2, 8, 16, 28), make.one(1, 3)
    shape = make.one((n, channels, side, side + 4), (n, side, side + 4, channels), (n, side, side))
    x = make.rng.integers(0, 256, shape).astype(np.uint8)
    if make.chance(0.5):
        x = (x / 127.5 - 1).astype(make.one("float32", "float64", "float16"))
        if make.extreme:
            with np.errstate(over="ignore"):
                x = np.where(make.rng.random(shape) < 0.1, x.dtype.type(make.one(1e30, np.nan, np.inf, 3.0)), x)
    with np.errstate(all="ignore"):
        wrong = (x[:0], x[0], x.astype(np.int64), x.astype(bool), *NO_ARRAYS, "/no/such/file.npy")
    pixels = make.arg(make.one(None, (0, 255), (0, 1)), (1, 0), (0, 0), "p", (0, np.nan), (1, 2, 3))
    features = make.arg("gradients", "no", None, 3, lambda x: x, lambda x: x[:0].flatten(1), lambda x: "a")
    with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, OBRS_DATA=folder):
        found = make.answer(metrics.extract, make.arg(x, *wrong), features, pixels=pixels, progress=False)
    assert found is None or (found.dtype == np.float32 and found.ndim == 2)
    assert found is None or x.dtype != np.uint8 or features != "gradients" or finite(found)


# Files, language and reports


def write(make, path, x, ids, labels):
    """Rows as text, in a wild case with a cell that is none."""
    names, columns = ["id", "log_ratio", "row", "label"], [ids, x, np.arange(len(x)), labels]
    table = [[str(cell) for cell in row] for row in zip(*columns, strict=True)]
    if make.wild and make.chance(0.2):
        table[make.count(0, len(table) - 1)][make.count(0, 1)] = make.one("", "text", "1e999", "[1.0]", '"')
    with open(path, "w", encoding="utf-8") as file:
        if path.endswith(".csv"):
            file.write("\n".join(",".join(row) for row in [names, *table]) + "\n")
        else:
            file.writelines(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in table)


def select_files(make):
    """Exactly the rows that `select` takes, in whatever files they lie; or an error and no folder."""
    n, ending = make.size(30), make.one(".csv", ".jsonl")
    x = np.clip(np.nan_to_num(host(make.log_ratio(n))), -1e6, 1e6)
    ids, labels = make.rng.permutation(n), np.array(["a", "b"])[make.rng.integers(0, 2, n)]
    budget, wanted = (make.budget(), None) if make.chance(0.4) else (None, make.arg(make.count(1, n), *NO_COUNTS))
    options = {"id": make.arg("id", "no", 3), "seed": make.seed(), "column": make.arg("log_ratio", "no", "label")}
    options |= {"group": make.one(None, None, "label"), "progress": False}
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(f"{folder}/scores")
        at = np.sort(make.rng.integers(0, n + 1, make.count(0, 3)))
        for i, part in enumerate(np.split(np.arange(n), at)):
            if len(part):
                write(make, f"{folder}/scores/part-{i}{ending}", x[part], ids[part], labels[part])
        if make.wild and make.chance(0.1):
            with open(f"{folder}/scores/part-9{ending}", "wb") as file:
                file.write(make.one(b"", b"\x00\xff", b"PAR1", b"a,b\n1\n"))
        where = make.arg(f"{folder}/scores", f"{folder}/none", [], f"{folder}/scores/*.no", 3, None)
        done = make.answer(files.select, where, wanted, budget=budget, out=f"{folder}/kept", **options)
        if done is None:
            assert not os.path.exists(f"{folder}/kept"), "a folder in spite of an error"
            return
        kept = []
        for path in sorted(os.scandir(done.out), key=lambda path: path.name):
            if path.name.endswith(ending):
                with open(path, encoding="utf-8") as file:
                    lines = file.read().splitlines()
                kept += [line.split(",")[0] for line in lines[1:]] if ending == ".csv" else map(read_id, lines)
        assert len(set(kept)) == len(kept) == done.kept
        if options["group"] is None and options["id"] == "id" and not make.wild:
            number = int(wanted) if budget is None else int(n / budget)
            chosen = host(obrs.select(x, number, design="priority", ids=ids, seed=options["seed"])).astype(int)
            assert sorted(map(int, kept)) == sorted(ids[chosen].tolist())


def read_id(line):
    return json.loads(line)["id"]


def tensor(make, x):
    """A tensor of any layout, or in a wild case something else."""
    if make.wild and make.chance(0.1):
        return make.one(None, x.double().numpy(), x[:0], x[0], x[..., None], x.long(), x.to_sparse(), "t", x[:, :-1])
    return make.one(x, x, x.T.contiguous().T, x.clone().requires_grad_(x.is_floating_point()))


def rollout(make):
    """Exactly as many as asked for, with weights r / pi over the sum of r."""
    shape = count, _ = make.size(12), make.one(1, 2, 5)
    dtype = make.one(torch.float32, torch.float64, torch.bfloat16, torch.float16)
    sampled = -torch.from_numpy(np.abs(make.rng.normal(size=shape)))
    train = sampled + torch.from_numpy(make.one(0.0, 0.1, 2.0) * make.rng.normal(size=shape))
    if make.extreme:
        odd = torch.from_numpy(make.rng.random(shape) < 0.1)
        train = torch.where(odd, make.one(-1e4, -np.inf, 50.0, np.nan if make.wild else -1.0), train)
    mask = torch.from_numpy(make.rng.random(shape) < make.one(0.5, 0.9, 1.0))
    level = make.arg(make.one("sequence", "sequence", "token", "group"), "no", None)
    keep = make.arg(make.one(0.5, 1.0, 0.1, 1, make.count(1, count)), 0, 0.0, -1, 1.5, np.nan, "k", None, True, 10**30)
    options = {"level": level, "groups": make.labels(count) if level == "group" else None, "seed": make.seed()}
    options |= {"ids": make.one(None, make.ids(count)), "normalise": make.arg(make.one(*NORMALISE), 3)}
    options |= {"ratio": make.arg(make.one(*RATIOS) if level != "token" else "product", "no")}
    given = tensor(make, train.to(dtype)), tensor(make, sampled.to(dtype)), tensor(make, make.one(mask, mask.float()))
    pick = make.answer(obrs.rollout, *given, keep=keep, **options)
    if pick is None:
        return
    index, kept = host(pick.index).astype(int), host(pick.mask).astype(bool)
    assert np.all(np.diff(index) > 0)
    assert not np.any(kept & ~host(mask).astype(bool))
    assert not any_nan(pick.weight, *pick.metrics.values())
    assert 0 <= float(pick.metrics["rate"]) <= 1
    if level == "token":
        assert np.array_equal(np.flatnonzero(kept), index)
    elif level == "sequence":
        assert len(index) == keep or isinstance(keep, float)


def tilt(make):
    """So many of every prompt, within the budget of KL, and better than the pool."""
    n = make.size(40)
    reward, groups = make.scores(n), make.arg(make.one(None, make.labels(n)), make.labels(n + 1))
    if reward.dtype.kind == "f" and make.chance(0.2):
        odd = make.one(-np.inf, np.nan if make.wild else 0.0)
        reward = np.where(make.rng.random(n) < 0.2, reward.dtype.type(odd), reward)
    keep = make.arg(make.one(1, 1, 2, make.count(1, n)), *NO_COUNTS)
    how = make.arg(
        make.one({"kl": make.one(0.0, 0.1, 0.5, 3.0, 1e300)}, {"beta": make.one(0.1, 1.0, 1e-300, 1e300)}),
        *({"kl": x} for x in (-1, np.nan, "k", np.inf)),
        *({"beta": x} for x in (0, -1, np.nan, "b", np.inf)),
        *({}, {"kl": 1, "beta": 1}),
    )
    pick = make.answer(obrs.tilt, reward := make.array(reward), groups=groups, keep=keep, **how, seed=make.seed())
    if pick is None:
        return
    values, index = host(reward), host(pick.index).astype(int)
    code = np.zeros(len(values), int) if groups is None else np.unique(np.asarray(groups), return_inverse=True)[1]
    assert np.all(np.bincount(code[index], minlength=code.max() + 1) == keep)
    assert np.all(values[index] > -np.inf)
    assert finite(pick.weight)
    assert not any_nan(*pick.metrics.values())
    if "kl" in how and values.min() > -np.inf and np.abs(values).max() < 1e30:
        assert float(pick.metrics["kl"]) <= how["kl"] * (1 + 1e-3) + 1e-6


def report(make):
    """A page whose numbers are numbers, or an error and no page."""
    n = make.size(60)
    x = make.log_ratio(n)
    source = make.arg(make.array(x), *NO_ARRAYS)
    texts = [make.one("<b>&", "", "é" * 500, "\x00\ud800" if make.wild else "x", "a\nb") for _ in range(n)]
    shown = make.one(None, texts, make.rng.normal(size=(n, 3)), np.zeros((n, 8, 8), np.uint8), np.zeros(n))
    options = {"samples": make.arg(shown, texts[:-1], "text", 3, [None] * n, np.full((n, 8, 8), np.nan))}
    options |= {"groups": make.arg(None, make.labels(n), make.labels(n + 1), p=0.4), "seed": make.seed()}
    options |= {"budget": make.arg(make.one(None, 4, 1, 2.5), *NO_BUDGETS), "n": make.arg(None, 10, *NO_COUNTS)}
    options |= {"real": make.arg(None, make.log_ratio(30), *NO_ARRAYS, p=0.3), "title": make.arg("</script>", None, 3)}
    with tempfile.TemporaryDirectory() as folder:
        out = make.arg(f"{folder}/page.html", f"{folder}/page.txt", folder, f"{folder}/no/page.html", 3, None)
        page = make.answer(obrs.report, source, out=out, **options)
        assert os.listdir(folder) == ([] if page is None else ["page.html"])
        text = "" if page is None else page.read_text(encoding="utf-8")
    if text:
        data = re.search(r'<script[^>]*type="application/json"[^>]*>(.*?)</script>', text, re.DOTALL).group(1)
        assert "NaN" not in data
        assert "Infinity" not in data
        json.loads(data)


CORE = (solve_log_c, rules, divergences, draws, choose, select, priority, unweight, profile)
OTHERS = (samples, sample, distances, evaluate, extract, select_files, rollout, tilt, report)
VERBS = {function.__name__: function for function in (*CORE, *OTHERS)}
SLOW = {"evaluate": 20, "extract": 5, "select_files": 10, "report": 10, "distances": 2, "samples": 2}
"""How many times as long as usual a case takes."""
