"""One case for each public verb: what must hold of any answer to any arguments."""

import inspect
import json
import os
import re
import warnings
from copy import deepcopy
from functools import partial, wraps
from types import SimpleNamespace
from unittest import mock

import numpy as np
import torch

import obrs
from obrs import critics, files, metrics, rivals, training, tuning
from obrs.divergences import DIVERGENCES
from obrs.draws import priority_key
from obrs.language import NORMALISE, RATIOS
from obrs.models.classifier import fit_classifier
from obrs.models.conv import ConvCritic
from obrs.models.mlp import mlp, mlp_critic, mlp_generator
from obrs.profile import GOALS
from obrs.ratios.calibration import Affine, Isotonic, fit_calibration
from obrs.ratios.refit import FineTune, Head, Network, classifier_features, critic_features, load_ratio, probe_features
from obrs.rules import RULES, from_json, to_json
from obrs.sampling.samples import Samples
from obrs.selection import DESIGNS, inclusion_probability

from .making import NO_ARRAYS, NO_FUNCTIONS, NO_PATHS, NO_SHARES, WRONG, close, finite, host


def any_nan(*arrays):
    return any(np.any(np.isnan(host(x))) for x in arrays)


def as_array(labels):
    return np.asarray(labels.tolist() if hasattr(labels, "tolist") else labels)


def group_values(make, labels, value):
    """One value of each label, as a dict or an array; one for all where the labels are none."""
    try:
        known = dict.fromkeys(np.unique(as_array(labels)).tolist())
    except (ValueError, TypeError):
        return value()
    numbers = {label: value() for label in known}
    return numbers if make.chance(0.5) else np.array([*numbers.values()])


def shares_of(make, labels):
    return group_values(make, labels, lambda: make.one(0, 1, 1, 2.5, make.rng.random()))


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
    axis = make.one(None, None, 0)
    groups = make.one(None, np.unique(make.rng.integers(0, 3, len(x)), return_inverse=True)[1])
    weights, budget = make.one(None, None, make.weights(len(x))), make.budget()
    options = {"weights": weights, "axis": axis, "groups": groups, "check": make.chance(0.9)}
    log_c = make.answer(obrs.solve_log_c, x := make.array(x), budget, **options)
    if log_c is None:
        return
    assert not any_nan(log_c)
    if options["check"] and weights is None and axis is None and groups is not None and slack(x) < 1e-11:
        for g, c in enumerate(host(log_c)):
            assert close(kept_rate(host(x)[groups == g], c), 1 / budget, rtol=1e-4)


def rules(make):
    x, name, budget = make.log_ratio(make.size()), make.one(*sorted(RULES)), make.budget()
    labels, confidence = make.labels(len(x)), make.one(None, 0.5, 0.95)
    arguments = {"unbudgeted": [], "grouped": [budget, labels]}.get(name, [budget])
    options = {"confidence": confidence} if name in ("budgeted", "grouped") else {}
    if name == "grouped" and make.chance(0.5):
        options["shares"] = shares_of(make, labels)
    rule = make.answer(RULES[name].fit, x := make.array(x), *arguments, **options)
    if rule is None:
        return
    assert make.answer(from_json, to_json(rule)) in (rule, None)
    log_a = host(rule(x, labels))
    assert np.all(log_a <= 0)
    assert not any_nan(log_a, rule.log_weight(x, labels))
    if name == "grouped" and slack(x) < 1e-3 and confidence is None:
        kept = np.array([np.exp(log_a)[as_array(labels) == label].sum() for label in rule.labels])
        rounding = 1e-6 + 2e-7 * np.max(-log_a[log_a > -np.inf], initial=0)  # that of float32
        assert rule.shares is None or close(kept / kept.sum(), rule.shares, rtol=rounding, atol=1e-9)
        assert close(len(log_a) / kept.sum(), rule.budget, rtol=rounding)


def divergences(make):
    record, x = DIVERGENCES[make.one(*sorted(DIVERGENCES))], make.array(make.floats(make.size(10)))
    for function in (record.f, record.conjugate, record.critic, record.f_star_of_f_prime, record.log_ratio):
        value = make.answer(function, x)
        assert value is None or np.array_equal(np.isnan(host(value)), np.isnan(host(x)))
    make.answer(obrs.divergences.pr, make.one(0.5, 4))


def draws(make):
    ids, seed, dim = make.array(make.integers(make.size(10))), make.seed(), make.one(0, 1, 3)
    wrong = {"dim": (-1, 1.5, "x", True), "dtype": ("no", 3), "like": (3, "x", [1])}
    u, z = (make.answer(verb, ids, dim, seed=seed, wrong=wrong) for verb in (obrs.uniforms, obrs.normals))
    assert u is None or np.all((host(u) >= 0) & (host(u) < 1))
    assert z is None or finite(z)
    make.answer(obrs.accept, make.array(-np.abs(make.floats(3 if u is None else max(len(u), 1)))), ids, seed=seed)


def choose(make):
    budget = make.one(1, 2, 4)
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
    x, design = make.log_ratio(make.size(60)), make.one(*DESIGNS)
    groups = None if make.chance(0.5) else make.labels(len(x))
    shares = None if groups is None or make.chance(0.6) else shares_of(make, groups)
    n = make.count(1, len(x))
    if groups is not None and shares is None and make.chance(0.5):
        n = group_values(make, groups, lambda: make.count(0, 2))
    options = {"seed": make.seed(), "design": design, "groups": groups, "shares": shares}
    if make.chance(0.2):
        options["sign"] = np.where(make.rng.random(len(x)) < 0.4, -1, 1)
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
    sizes = np.bincount(code[chosen], minlength=code.max() + 1)
    negative = host(options.get("sign", np.ones(len(x)))) < 0
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
    cost, n = make.weights(rows), make.one(1, 3, 100)
    wrong = {"cost": (np.full(rows, np.nan), np.ones(rows + 1), "c", -np.ones(rows), np.zeros(rows))}
    chosen = make.answer(obrs.select, x, n, design="priority", cost=cost, seed=make.seed(), wrong=wrong)
    if chosen is not None:
        cost, chosen = host(cost), host(chosen).astype(int)
        spent, dearest, rounding = cost[chosen].sum(), cost[host(x) > -np.inf].max(), 1e-9 * cost.sum()
        assert n - dearest * (1 + 1e-9) - rounding <= spent <= n + rounding


def unweight(make):
    n = make.size(60)
    w, size = make.one(make.scores(n), make.log_ratio(n)), make.count(1, n)
    kept = make.answer(obrs.unweight, w := make.array(w), size, seed=make.seed(), design=make.one(*DESIGNS))
    if kept is not None:
        values, index, left = host(w), host(kept.index).astype(int), host(kept.weight)
        assert len(index) == size
        assert np.all(np.diff(index) > 0)
        assert np.all(np.sign(left) == np.sign(values[index]))
        assert 0 <= kept.truncated <= 1
        assert np.all(np.abs(left) >= kept.max_weight * (1 - 1e-6))


# Profiles and samples


def profile(make):
    n = make.size()
    x, weights = make.log_ratio(n), make.one(None, None, make.weights(n))
    sign = make.one(None, None, np.where(make.rng.random(n) < 0.3, -1.0, 1.0))
    result = make.answer(obrs.Profile, x := make.array(x), weights, sign=sign)
    if result is None:
        return
    assert -1 - 1e-9 <= result.net <= 1 + 1e-9
    budget, groups = make.budget(), make.one(None, None, make.labels(n))
    shares = None if groups is None else make.one(None, shares_of(make, groups))
    options = {"n": make.one(None, 5), "recall": make.one(0.5, 0.9), "groups": groups, "shares": shares}
    wrong = {"shares": (0.5, [1.0]), "recall": NO_SHARES} if groups is None else {}
    for row in make.answer(result.plan, [budget], wrong=wrong, **options) or ():
        assert not any(isinstance(value, float) and np.isnan(value) for value in row.values())
    for share in (make.answer(verb, budget) for verb in (result.truncation, result.ess, result.rate)):
        assert share is None or 0 <= share <= 1 + 1e-9
    name, points = make.one(*sorted(DIVERGENCES)), make.one(2, 9)
    left = make.answer(result.divergence, name, budget)
    assert left is None or left >= 0
    make.answer(result.bound, name, budget)
    make.answer(result.divergence, name, make.one(1, 2, 4), cap=True, wrong={"cap": ()})
    for curve in (make.answer(result.curve, budget, points), make.answer(result.frontier, budget, points)):
        assert curve is None or not any_nan(*curve)
    goal = make.one(0.0, 1e-12, 1e-3, 0.05, 0.5, 0.9, 1.0, 3.0)
    goal = {make.one(*GOALS): goal}
    wrong = dict.fromkeys(GOALS, NO_SHARES[2:]) | {"recall": NO_SHARES if "precision" in goal else ()}
    budget = make.answer(result.budget_for, **goal, recall=0.9, wrong=wrong)
    assert budget is None or 1 <= budget < np.inf


def formulas(make):
    """A profile and a rule beside the formulas of the paper, summed as they stand."""
    x, budget = make.rng.normal(scale=make.one(0.1, 1.0, 3.0), size=make.count(1, 60)), make.one(1, 1.3, 2, 4, 10.0)
    weights = make.one(None, make.rng.random(len(x)) + 0.01)
    q = np.full(len(x), 1 / len(x)) if weights is None else weights / weights.sum()
    profile, r = obrs.Profile(x, weights), np.exp(x) / (q @ np.exp(x))
    lam = make.one(0.0, 0.3, 1.0, 20.0)
    a = np.exp(host(obrs.Budgeted(profile.log_c(budget))(x)))
    kept, p = q * a / (q @ a), q * r
    expected = {
        profile.alpha: q @ np.minimum(lam * r, 1.0),
        profile.beta: 1.0 if lam == 0 else q @ np.minimum(lam * r, 1.0) / lam,
        profile.rate: max(1 / budget, 1 / r.max()),
        profile.ess: 1 / (p @ (p / kept)),
        partial(profile.divergence, "kl"): p @ np.log(p / kept),
        partial(profile.divergence, "rkl"): kept @ np.log(kept / p),
        partial(profile.divergence, "tv"): np.abs(p - kept).sum() / 2,
        partial(profile.divergence, "chi2"): p @ (p / kept) - 1,
    }
    for verb, value in expected.items():
        answer = make.answer(verb, lam if verb in (profile.alpha, profile.beta) else budget)
        assert answer is None or close(answer, value, rtol=1e-7, atol=1e-9)
    order = make.rng.permutation(len(x))
    again = make.answer(obrs.solve_log_c, x[order], budget, weights=None if weights is None else weights[order])
    assert again is None or budget == 1 or close(again, profile.log_c(budget), rtol=1e-9, atol=1e-9)
    assert close(q @ a, max(1 / budget, 1 / r.max()))


def scores(make):
    """Log-ratios of any scores, by their formulas."""
    x, n = make.rng.normal(scale=2.0, size=make.size()), make.count(1, 9)
    logits, labels = make.rng.normal(size=(n, 3)), make.rng.integers(0, 3, n)
    names = ("logit", "p", "t", "logits", "log_p", "log_q", "reward", "scores")
    arrays = dict.fromkeys(names, (*NO_ARRAYS[:4], ["a"], [[1], [1, 2]]))
    cases = [
        (critics.from_logit, {"logit": x, "n_real": 3, "n_fake": 5.0}, x - np.log(3 / 5)),
        (critics.from_probability, {"p": 1 / (1 + np.exp(-x))}, x),
        (critics.from_critic, {"t": -np.log1p(np.exp(-x)), "divergence": "gan"}, x),
        (critics.from_class_logits, {"logits": logits, "labels": labels}, logits[np.arange(n), labels]),
        (critics.from_log_likelihoods, {"log_p": x, "log_q": 1 - x}, 2 * x - 1),
        (critics.from_reward, {"reward": x, "beta": 0.5}, 2 * x),
        (critics.to_log_ratio, {"scores": x, "kind": make.one("logit", "log_ratio")}, x),
    ]
    verb, given, expected = make.one(*cases)
    result = make.answer(verb, **{name: make.guise(v) if v is x else v for name, v in given.items()}, wrong=arrays)
    assert result is None or close(result, expected, rtol=1e-6, atol=1e-6)
    doubt = make.answer(critics.check_scores, x, "logit", wrong=arrays)
    assert doubt is None or isinstance(doubt, str)
    wrapped = make.answer(critics.wrap_critic, lambda x: x[:, :1], "logit")
    assert wrapped is None or close(wrapped(x[:, None]), x)
    make.answer(critics.at_time, lambda x, t: x[:, 0] / t, 0.5, wrong={"t": ("x", None, [1], True)})


def stages(make):
    x, y = make.rng.normal(size=(2, make.size()))
    budgets = [make.one(1, 1.5, 3), make.one(1, 2.0)]
    wrong = {"log_ratios": (3, [], [x], "x", None), "budgets": (3, [], [1], None, [0.5, 2], "x")}
    rule = make.answer(obrs.rules.Stages.fit, [x, y], budgets, wrong=wrong)
    if rule is not None:
        log_a = host(rule([x, y]))
        assert np.all(log_a <= 0)
        assert np.exp(log_a).mean() >= 1 / (budgets[0] * budgets[1]) - 1e-9


def random_samples(make, n, start=0):
    """Samples as a run may leave them: any weights, any way to stop."""
    x, log_ratio, log_weight = (
        np.nan_to_num(host(make.floats(*shape)), posinf=1e6, neginf=-1e6).clip(-1e6, 1e6)
        for shape in ((n, 2), (n,), (n,))
    )
    proposed = n * make.count(1, 5) + make.count(0, 3)
    ids = start + np.sort(make.rng.choice(max(proposed, 1), n, replace=False))
    batch = make.one(x, x, (x, np.arange(n)), {"x": x, "label": np.arange(n)})
    fixed = make.one("", "proposals", "pool")
    return Samples(batch, ids, log_ratio, log_weight, proposed, proposed, next_id=start + proposed, fixed=fixed)


def samples(make):
    one = random_samples(make, make.one(make.size(20), 0))
    two = random_samples(make, make.one(make.size(20), 0), make.one(one.next_id, max(one.next_id - 1, 0)))
    assert 0 <= one.ess <= len(one) * (1 + 1e-9)
    both = make.answer(lambda: one + two)
    if both is not None:
        assert np.array_equal(both.ids, np.concatenate([one.ids, two.ids]))
        assert (both.proposed, both.next_id) == (one.proposed + two.proposed, max(one.next_id, two.next_id))
    if isinstance(one.x, np.ndarray) and one.fixed and len(one) and one.log_weight.max() < 300:
        wrong = {"g": (lambda x: np.zeros(len(x) + 1), lambda x: ["a"] * len(x), 3, None)}
        mean = make.answer(one.mean, first_column, 0.9, unbiased=make.chance(0.5), wrong=wrong)
        assert mean is None or mean.low <= mean.value <= mean.high
    path = os.path.join(make.folder, "kept.npz")
    one.save(path)
    assert np.array_equal(Samples.load(path).ids, one.ids)
    with open(path, "rb") as file:
        content = file.read()
    with open(path, "wb") as file:
        file.write(make.one(content[: make.count(0, len(content) - 1)], b"", b"text", b"PK\x03\x04"))
    assert make.answer(Samples.load, path) is None


def propose(ids):
    return obrs.normals(ids, 2, seed=3)


def first_column(x):
    return x[:, 0]


def side(x):
    return (x[:, 0] > 0).astype(int)


NO_PROPOSALS = (*NO_FUNCTIONS, None, lambda ids: None, lambda ids: 3.0, lambda ids: np.zeros((len(ids) + 1, 2)))
NO_RATIOS = (*NO_FUNCTIONS, None, lambda x: x, lambda x: x[:-1, 0], lambda x: "a", lambda x: x[:, 0] * 1j)
NO_RATIOS += (lambda x: np.full(len(x), np.nan), lambda x: np.full(len(x), -np.inf))


def sample(make):
    """As many as were asked for, the same in batches of any size."""
    n, budget, seed = make.count(1, 40), make.one(1, 1.5, 3), make.seed()
    start, rule = make.one(0, 7, 2**40), obrs.Budgeted.fit(make.rng.normal(size=50), budget)
    ways = [{"n": n, "budget": budget}, {"n": n, "rule": rule}, {"n": n, "pool": 2 * n}]
    ways += [{"proposed": 3 * n, "rule": rule}, {"n": n, "budget": 3, "cap": True}]
    ways += [{"n": n, "budget": budget, "pilot": 50}]
    ways += [{"n": n, "budget": budget, "groups": side}, {"n": n, "budget": 4, "groups": side, "shares": {0: 1, 1: 1}}]
    way = make.one(*ways)
    options = {"seed": seed, "start": 0 if "cap" in way else start, "progress": False} | way
    wrong = {"propose": NO_PROPOSALS, "log_ratio": NO_RATIOS[: -1 if "proposed" in way else None]}  # r = 0 keeps none
    wrong |= {"groups": (3, "x", np.zeros(3), lambda x: None, lambda x: x, lambda x: x[:1, 0])}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "groups with fewer than")  # it says so on purpose
        kept = make.answer(obrs.sample, propose, first_column, batch_size=make.one(1, 7, 1000), wrong=wrong, **options)
        again = None if kept is None else obrs.sample(propose, first_column, batch_size=100, **options)
    if kept is not None:
        assert len(kept) == n or "proposed" in way
        assert np.array_equal(kept.ids, again.ids)
        assert np.array_equal(kept.log_weight, again.log_weight)
        assert np.all(kept.ids >= options["start"])
        assert np.array_equal(kept.x, propose(kept.ids))
        assert finite(kept.log_ratio, kept.log_weight)


def stream(make):
    """Two workers make what one makes."""
    rule, most, size = obrs.Budgeted(make.one(0.0, -1.0)), make.count(1, 90), make.one(1, 7, 50)

    def stream(**options):
        return list(obrs.stream(**options))

    options = {"rule": rule, "batch_size": size, "seed": 1, "start": 0, "stop": most}
    stream.__signature__ = inspect.signature(obrs.stream)
    shards = (0, 1), (0, 2), (1, 2)
    parts = [make.answer(stream, propose=propose, log_ratio=first_column, shard=shard, **options) for shard in shards]
    if None not in parts:
        one, *two = [np.concatenate([part.ids for part in each] or [[]]) for each in parts]
        assert np.array_equal(one, np.sort(np.concatenate(two)))
    proposal = make.answer(obrs.proposal, lambda n: np.zeros(n))
    assert proposal is None or len(proposal(np.arange(5))) == 5
    few = make.count(1, 9)
    batches = obrs.stream(propose, first_column, rule, batch_size=size)
    kept = make.answer(obrs.collect, batches, few, wrong={"batches": (3, None, [3])})
    assert kept is None or len(kept) == few


def model(make):
    """Rival samplers keep as many as were asked for."""
    like, n = make.one(None, torch.empty(0)), make.count(1, 20)
    given = {"generate": lambda z: 1.5 * z[:, 0], "log_ratio": lambda x: -0.2 * x * x, "dim": 1, "like": like}
    wrong = {"real": (), "dim": (-1, 1.5, "x", True), "labels": ("x", -1, 0, [], [-1, 2], [np.nan], True)}
    about = make.answer(rivals.Model, **given, real=make.rng.normal(size=300), labels=None, wrong=wrong)
    if about is None:
        return
    kinds = [(kind, {"budget": 2}) for kind in (rivals.OBRS, rivals.PoolOBRS, rivals.SIR, rivals.TopK)]
    kinds += [(rivals.MHGAN, {"steps": 3, "start": "real"})]
    kinds += [(rivals.DiscriminatorRejection, {"budget": 2, "burn_in": 10})]
    if like is not None:
        kinds += [(rivals.DOT, {"steps": 2, "lr": 0.01}), (rivals.DDLS, {"step": 0.01, "steps": 2})]
        kinds += [(rivals.DGflow, {"f": "kl", "step": 0.1, "steps": 2, "noise": 0.01})]
    kind, options = make.one(*kinds)

    def draw(model, n, seed, **options):
        return kind(**options)(model, n, seed=seed, progress=False)

    draw.__qualname__ = kind.__name__
    options |= {"batch_size": 64, "wrong": {"lr": (0, -1.0, "x", np.nan)}}
    kept = make.answer(draw, model=about, n=n, seed=1, **options)
    assert kept is None or len(kept) == n
    if make.chance(0.1):
        options = {"samplers": ["obrs", "topk"], "repeats": 1, "seed": 1}
        make.answer(rivals.compare, about, 2, n=20, metrics={"sd": lambda x: float(np.std(host(x)))}, **options)


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
    given = {"real": rows(make, n, dim), "fake": rows(make, m, dim)}
    if make.chance(0.2) and not any(x.dtype == np.longdouble for x in given.values()):
        given = {name: torch.from_numpy(x.copy()) for name, x in given.items()}
    if make.chance(0.5):
        given["weights"] = make.weights(m)
    no_arrays = dict.fromkeys(("real", "fake"), (*NO_ARRAYS, np.zeros((0, dim)), np.zeros((9, dim + 1)), np.ones(dim)))
    wrong = {"weights": (-np.ones(m), np.full(m, np.nan), np.zeros(m), [1.0], "w"), **no_arrays}
    verbs = metrics.frechet, metrics.kernel, metrics.kernel_curve, metrics.frechet_curve
    value, *rest = [make.answer(verb, **given, wrong=wrong) for verb in verbs]
    assert value is None or finite(value)
    assert all(each is None or finite(each.value, each.standard_error) for each in rest)
    options = {"k": make.one(1, 2, 5), "size": make.one(None, 2, m), "draws": 2, "seed": make.seed()}
    near = make.answer(metrics.neighbours, **given, **options, wrong=wrong)
    if near is not None:
        assert all(0 <= x <= 1 + 1e-12 for x in (near.precision, near.recall, near.coverage))
        assert 0 <= near.density < np.inf
    hashes = make.answer(metrics.row_hashes, given["real"], wrong={"x": ("x", None, 3, True, object(), [[1], [1, 2]])})
    assert hashes is None or len(hashes) == n


def metric_formulas(make):
    """Distances beside their definitions, of whole numbers, which have ties, and of any."""
    dim, n, m, k = make.one(1, 2, 3), make.count(6, 25), make.count(6, 25), make.one(1, 2, 3)
    real, fake = make.rng.normal(size=(n, dim)), make.rng.normal(size=(m, dim)) + make.one(0.0, 1.0)
    result = make.answer(metrics.frechet, real=real, fake=fake)
    a, b = (np.atleast_2d(np.cov(x.T)) for x in (real, fake))
    root = np.sqrt(np.maximum(np.linalg.eigvals(a @ b).real, 0)).sum()
    value = np.sum((real.mean(0) - fake.mean(0)) ** 2) + np.trace(a) + np.trace(b) - 2 * root
    assert result is None or close(result, value, rtol=1e-5, atol=1e-6)
    result = make.answer(metrics.kernel, real=real, fake=fake)
    xx, yy, xy = ((x @ y.T / dim + 1) ** 3 for x, y in ((real, real), (fake, fake), (real, fake)))
    value = sum((z.sum() - np.trace(z)) / len(z) / (len(z) - 1) for z in (xx, yy)) - 2 * xy.mean()
    assert result is None or close(result.value, value, rtol=1e-6, atol=1e-9)
    near = make.answer(metrics.neighbours, real=real, fake=fake, k=k)
    radius = np.sort(np.linalg.norm(real[:, None] - real, axis=-1), axis=1)[:, k]
    inside = np.linalg.norm(real[:, None] - fake, axis=-1) <= radius[:, None]
    assert near is None or close(near.precision, inside.any(0).mean(), rtol=1e-9)
    assert near is None or close(near.density, inside.sum() / k / m, rtol=1e-9)


def evaluate(make):
    real, fake = rows(make, make.one(30, 60, 90), 2), rows(make, make.one(90, 200), 2)
    n = len(fake)
    log_ratio, groups = make.one(None, make.log_ratio(n), first_column), make.one(None, None, make.labels(n))
    options = {"budgets": make.one([1, 2.0], (1.5,)), "k": 2, "draws": 1, "size": None, "seed": 0}
    options |= {"rules": make.one(("obrs", "drs"), ("topk",)), "groups": groups, "progress": False}
    options["confidence"] = make.one(0.5, 0.9)
    wrong = {"log_ratio": (make.log_ratio(n + 1), "x", lambda x: np.zeros(len(x) + 1))}
    wrong |= dict.fromkeys(("real", "fake"), NO_ARRAYS)
    wrong |= {"budgets": (), "rules": ()} if log_ratio is None else {}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "(?s).*", UserWarning, module="adversary")
        table = make.answer(obrs.evaluate, real=real, fake=fake, log_ratio=log_ratio, wrong=wrong, **options)
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
        wrong = (x[:0], x[0, 0], x.astype(np.int64), x.astype(bool), *NO_ARRAYS, "/no/such/file.npy")
    features = (*WRONG["features"], None, lambda x: x[:0].flatten(1), lambda x: "a", lambda x: None)
    options = {"features": make.one("gradients", lambda x: x.flatten(1)), "pixels": make.one(None, (0, 255), (0, 1))}
    with mock.patch.dict(os.environ, OBRS_DATA=make.folder):
        wrong = {"images": wrong, "features": features}
        values = make.answer(metrics.extract, x, progress=False, wrong=wrong, **options)
    assert values is None or (values.dtype == np.float32 and values.ndim == 2)
    assert values is None or x.dtype != np.uint8 or finite(values)


# Ratios and training


def points(make, n, shift=0.0):
    return (make.rng.normal(size=(n, 2)) + shift).astype("float32")


def diagnose(make):
    n, m = make.count(100, 200), make.count(100, 200)
    labels = make.one(None, (np.arange(n) % 2, np.arange(m) % 2))
    wrong = {"labels": (3, "x", (1, 2), ([1], [2]), (np.arange(n),), True, np.arange(n))}
    wrong |= dict.fromkeys(("real", "fake"), (*NO_ARRAYS, None, [1.0] * 20, np.full(200, np.nan)))
    real, fake, options = make.floats(n) + 0.5, make.floats(m) - 0.5, {"kind": None, "seed": make.seed()}
    wrong["kind"] = ("no", 3, True)
    diagnosis = make.answer(obrs.diagnose, real, fake, make.one(1, 2, 8.0), labels, wrong=wrong, **options)
    if diagnosis is not None:
        assert diagnosis.verdict.split()[0] in ("fit", "calibrated", "repairable", "unfit", "untestable")
        assert np.isfinite(diagnosis.evidence.auc.value)
        json.loads(diagnosis.to_json())


def calibration(make):
    n, m = make.count(100, 150), make.count(100, 150)
    real, fake = make.rng.normal(size=n) + 0.5, make.rng.normal(size=m) - 0.5
    wrong = dict.fromkeys(("real", "fake"), (*NO_ARRAYS[:6], None, np.full(200, np.nan)))
    for verb, options in ((Affine.fit, {}), (Isotonic.fit, {}), (fit_calibration, {"seed": 1})):
        result = make.answer(verb, real, fake, wrong=wrong, **options)
        if result is not None:
            values = host(result(np.sort(fake)))
            assert not any_nan(values)
            assert np.all(np.diff(values) >= -1e-12)
    pool = make.answer(obrs.ratios.combine, [(first_column, 1.0), (first_column, -0.5)])
    assert pool is None or close(pool(fake[:, None]), fake / 2)


def refit(make):
    real, fake = points(make, 200), points(make, 220, 0.5)
    method = make.one(Network(width=4, layers=1, waves=0), Network(width=4), FineTune(torch.nn.Linear(2, 1)))
    given = {"real": real, "propose": make.one(fake, lambda ids: fake[np.asarray(ids) % len(fake)]), "method": method}
    if make.chance(0.3):
        label = make.rng.integers(0, 2, 220)
        given |= {"real": (real, label[:200]), "propose": (fake, label), "method": Network(width=4, layers=1, waves=0)}
    elif make.chance(0.3):
        given |= {"features": make.one(lambda x: x[:, :1], lambda x: x), "propose": fake, "method": Head()}
    given |= {"fits": make.one(1, 2), "steps": 2, "batch_size": 16, "held_out": 0.4, "seed": make.count(0, 9)}
    none, short = (None, "x", 3, [], {}, True, object()), (real, np.zeros(199, int))
    wrong = {"real": (*none, real[:20], real[:, :1], real * np.nan, short)}
    wrong["propose"] = (*none, fake[:20], fake[:, :1], fake * np.inf, lambda ids: fake[:1])
    wrong["propose"] += (lambda ids: None, lambda ids: fake[: len(ids)] * np.nan)
    others = (FineTune(torch.nn.Linear(*size)) for size in ((5, 1), (2, 3)))
    wrong["method"] = (*WRONG["method"], Network(lr=-1.0), *others)
    wrong["features"] = (3, True, [], {}, "no", lambda x: None, lambda x: x[:1], lambda x: "a", lambda x: x * np.nan)
    ratio = quietly(make, obrs.refit, **given, columns=None, progress=False, wrong=wrong)
    if ratio is not None and not isinstance(given["real"], tuple):
        assert finite(ratio(real))
        again = quietly(make, obrs.refit, **given, progress=False, wrong=dict.fromkeys(WRONG, ()))
        assert np.array_equal(ratio(real), again(real))
        path = f"{make.folder}/ratio.safetensors"
        ratio.save(path)
        if ratio.encoder is None and not isinstance(method, FineTune):
            read = make.answer(load_ratio, path)
            assert read is None or np.array_equal(read(real), ratio(real))


def quietly(make, function, *arguments, **options):
    """Call it without the warnings that it gives on purpose."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return make.answer(function, *arguments, **options)


def look(make):
    """Features of images and critics."""
    x, y = make.rng.uniform(-1, 1, (40, 1, 8, 8)).astype("float32"), np.arange(40) % 2
    images = (None, "x", 3, [], x[:0], x * np.nan, x[0], np.full(x.shape, "a"))
    wrong = {"labels": (None, "x", 3, [], {}, True, y[:-1], y / 2, y.astype(str), y[:, None], [None] * 40, y - 1)}
    wrong |= {"images": images, "real": images, "critic": (*NO_FUNCTIONS, None)}
    wrong["features"] = (3, True, [], {}, None, lambda x: x[:1], lambda x: "a", lambda x: None)
    critic = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 1))
    verb, given = make.one(
        (classifier_features, {"images": x, "labels": y, "epochs": 1, "seed": 1}),
        (probe_features, {"images": x, "labels": y, "features": lambda x: x.flatten(1), "penalty": 0.1}),
        (critic_features, {"critic": critic, "layer": make.one(None, "1")}),
        (fit_classifier, {"real": x, "labels": y, "epochs": 1, "seed": 1, "progress": False}),
    )
    make.answer(verb, **given, wrong=wrong)


def apart(network):
    """Build a network, whose initial weights are drawn as torch draws them, from a copy of its random numbers."""

    @wraps(network)
    def build(*arguments, **options):
        with torch.random.fork_rng():
            return network(*arguments, **options)

    return build


def networks(make):
    wrong = {"dim": (0, -1, 1.5, np.nan, "3", True), "size": (0, 3, -1, 1.5, "x", True)}
    wrong["classes"] = (0, -1, 1.5, "3", True)
    small = {"width": make.count(1, 4), "layers": make.one(1, 2), "activation": "tanh"}
    x, waves, heads = torch.zeros(3, 2), make.one(0, 2), make.one(1, 2)
    critic = make.answer(apart(mlp_critic), dim=2, heads=heads, waves=waves, wrong=wrong, **small)
    assert critic is None or critic(x).shape == ((3,) if heads == 1 else (3, 2))
    generator = make.answer(apart(mlp_generator), latent=2, dim=5, output="tanh", wrong=wrong, **small)
    assert generator is None or generator(x).shape == (3, 5)
    make.answer(apart(mlp), [2, 3, 1], activation="relu")
    make.answer(apart(ConvCritic), size=16, channels=1, width=4, heads=1, classes=make.one(None, 3), wrong=wrong)
    pipe = make.answer(obrs.adapters.from_pipeline, pictures, batch_size=4, seed=1)
    assert pipe is None or len(pipe(np.arange(3))) == 3


def pictures(generator, batch_size, output_type):
    return SimpleNamespace(images=np.zeros((batch_size, 8, 8, 3)))


def pair():
    return torch.nn.Linear(2, 2), torch.nn.Sequential(torch.nn.Linear(2, 1), torch.nn.Flatten(0))


def train(make):
    """One stage of tiny networks; the same seed ends with the same weights."""
    generator, critic = pair()
    options = {"loss": make.one("exact", "paper_raw"), "budget": make.one(1, 2, 4.0), "steps": 2, "batch_size": 8}
    options |= {"critic_steps": 1, "warm_up": make.one(0, 1), "lr": make.one(1e-3, (0, 1e-3)), "betas": (0.5, 0.9)}
    options |= {"ema": make.one(0.9, 0, False), "r1": make.one(0.0, 0.1), "seed": make.count(0, 9)}
    options |= {"gradient_penalty": make.one(0.0, 1.0), "latent": make.one(None, 2), "keep": 2}
    options |= {"constant_every": make.one(1, 2), "log_every": 1, "save_every": 1, "precision": "no", "progress": False}
    options |= {"start_from": None, "out": make.one(None, f"{make.folder}/run"), "data": points(make, 40)}
    linear, counts = torch.nn.Linear, (0, *WRONG["warm_up"])
    wrong = {"keep": counts, "critic": (*NO_FUNCTIONS, None, linear(5, 1), linear(2, 3))}
    wrong |= {"generator": (*NO_FUNCTIONS, None, linear(2, 5)), "title": (), "out": (*NO_PATHS, [])}
    wrong["precision"] = ("NO", "", 3, True, b"no", {})
    wrong["data"] = (*WRONG["data"], np.zeros((40, 3), "float32"), (np.zeros((40, 2)), np.zeros(39)))
    run = make.answer(obrs.train, deepcopy(generator), deepcopy(critic), wrong=wrong, **options)
    if run is not None:
        again = obrs.train(generator, critic, **options | {"out": None})
        pairs = zip(run.generator.parameters(), again.generator.parameters(), strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)
        kept = make.answer(run.sample, 5, 2)
        assert kept is None or finite(kept.x)


def steps(make):
    generator, critic = pair()
    real, fake, z = (torch.from_numpy(points(make, 8)) for _ in range(3))
    no_batch = (None, 3, "x", torch.zeros(8, 3), torch.zeros(0, 2), torch.tensor(1.0))
    wrong = {"parts": (0, 3, *WRONG["warm_up"]), "real": no_batch, "fake": no_batch, "z": (*no_batch[:3], no_batch[4])}
    wrong |= {"optimiser": (None, 3, "x"), "loss": (None, "no", 3, True, [], ()), "name": WRONG["f"]}
    adam = [torch.optim.Adam(each.parameters()) for each in (critic, generator)]
    options = {"loss": make.one("gan", "kl"), "r1": 0.1, "gradient_penalty": 0.0, "parts": make.one(1, 2)}
    losses = make.answer(training.critic_step, critic, adam[0], real, fake, wrong=wrong, **options)
    assert losses is None or finite(*losses.values())
    options = {"loss": make.one("exact", "paper_raw"), "budget": make.one(1, 2.0), "parts": make.one(1, 2)}
    step = make.answer(training.generator_step, generator, critic, adam[1], z, wrong=wrong, **options)
    assert step is None or finite(step.loss)
    make.answer(training.critic_loss, make.one("gan", "kl", "hinge"), wrong=wrong)
    make.answer(training.generator_loss, make.one("exact", "hinge"), wrong=wrong)


class Critic(torch.nn.Linear):
    def forward(self, x, label=0):
        return super().forward(x.flatten(1).float())[:, 0] + label


def short_refit(*samples, **options):
    return obrs.refit(*samples, **{"steps": 20, "batch_size": 64, "held_out": 0.4, **options})


def tune(make):
    """1 in K is kept, of samples and of a model, or all where nothing is confirmed; another budget needs no fits."""
    n, shift, dim, scale = make.count(560, 640), make.one(0.0, 0.3), make.one(2, 2, 3, 64), make.one(0.0, 1.0, 1e6)
    form = make.one(lambda x, y: x, lambda x, y: x, lambda x, y: (x, y), lambda x, y: {"x": x, "y": y})
    columns, plain = ("x", "y") if isinstance(form(0, 0), dict) else None, form(0, 1) == 0

    def shape(x, label):
        x = np.clip(x / 3, -1, 1).astype("float32")
        return form(x.reshape(-1, 1, 8, 8) if dim == 64 else x, label)

    def model(ids):
        return shape(obrs.normals(ids, dim, seed=3) - shift, np.asarray(ids) % 3)

    def own(batch):
        x = batch if plain else batch["x" if columns else 0]
        return scale * np.asarray(x).reshape(len(x), -1)[:, 0]

    real, few, label = shape(make.rng.normal(size=(n, dim)), np.arange(n) % 3), model(np.arange(50)), np.arange(n)
    judge = "gradients" if dim == 64 and plain else make.one(None, None, lambda x: x.flatten(1)[:, :2])
    extra = make.one({}, {"mine": own, "half": lambda batch: np.where(own(batch) < 0, -np.inf, own(batch))})
    options = {"budget": make.budget(), "columns": columns, "critic": make.one(None, None, Critic(dim, 1)), "pool": n}
    options |= {"judge": judge, "extra": extra, "pretrained": (), "seed": make.count(0, 9), "progress": False}
    wrong = {"pool": (10, *WRONG["steps"]), "critic": (*NO_FUNCTIONS, Critic(5, 1), torch.nn.Linear(dim, 2), mlp)}
    bad = lambda x: None, lambda x: "a", lambda x: own(x)[1:], lambda x: own(x) + np.nan, lambda x: 3.0
    wrong["extra"] = (*WRONG["extra"], {3: own}, *({"a": f} for f in bad))
    wrong["real"] = None, "x", 3, [], {}, True, few, np.zeros((n, 5)), shape(np.full((n, dim), np.nan), label % 3)
    wrong["propose"] = *NO_PROPOSALS, *wrong["real"], lambda ids: model(ids[1:])
    wrong["propose"] += () if plain else (shape(np.zeros((n, dim)), label), propose)
    given = make.one(model, model(np.arange(n)))
    with mock.patch.object(tuning, "_FEWEST", 60), mock.patch.object(tuning, "refit", short_refit):
        result = quietly(make, obrs.tune, real, given, keep_recall=make.chance(0.5), wrong=wrong, **options)
    wrong = {"critic": NO_FUNCTIONS, "extra": WRONG["extra"], "propose": ()}
    for tuned in filter(None, (result, result and make.answer(result.search.tune, make.budget()))):
        changes, change = [change for _, change in tuned.rows], tuned.change
        assert finite(*changes)
        assert changes == sorted(changes)
        assert tuned.plain != tuned.confirmed
        assert tuned.plain or change.value + 2 * change.standard_error < 0
        tuned.save(make.folder)
        again = make.answer(tuning.load, make.folder, given, critic=options["critic"], extra=extra, wrong=wrong)
        assert again is None or again.lines == tuned.lines
        if given is not model:
            number = n if tuned.plain else min(int(n / tuned.budget), np.sum(tuned.score > -np.inf))
            assert len(tuned.score) == n
            assert len(tuned.kept) == number or "per class" in str(tuned.recipe)
            assert np.all(np.diff(tuned.kept) > 0)
        elif (kept := make.answer(tuned.sample, 20, seed=1, max_proposed=2000)) is not None:
            assert kept.proposed == 20 or not tuned.plain
            assert len(kept) == 20
            assert kept.ids.min() >= tuned.start
            assert again is None or np.array_equal(again.sample(20, seed=1).ids, kept.ids)


# Files, language and reports


def write(make, path, x, ids, labels):
    """Rows as text, in a wild case with a cell that is no number."""
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
    n, ending, folder = make.size(30), make.one(".csv", ".jsonl"), make.folder
    x = np.clip(np.nan_to_num(host(make.log_ratio(n))), -1e6, 1e6)
    ids, labels = make.rng.permutation(n), np.array(["a", "b"])[make.rng.integers(0, 2, n)]
    budget, count = (make.budget(), None) if make.chance(0.4) else (None, make.count(1, n))
    reading = {"id": "id", "column": "log_ratio", "kind": make.one(None, "log_ratio")}
    options = {**reading, "seed": make.seed(), "group": make.one(None, None, "label"), "progress": False}
    os.mkdir(f"{folder}/scores")
    at = np.sort(make.rng.integers(0, n + 1, make.count(0, 3)))
    for i, part in enumerate(np.split(np.arange(n), at)):
        if len(part):
            write(make, f"{folder}/scores/part-{i}{ending}", x[part], ids[part], labels[part])
    if make.wild and make.chance(0.1):
        with open(f"{folder}/scores/part-9{ending}", "wb") as file:
            file.write(make.one(b"", b"\x00\xff", b"PAR1", b"a,b\n1\n"))
    where = f"{folder}/scores"
    wrong = {"where": (*WRONG["where"], f"{folder}/*.no"), "kind": ("no", "", 3, True, {}, [])}
    wrong |= {"out": (*NO_PATHS, where), "column": ("no", 3, True, "label"), "budget": (), "n": ()}
    wrong |= {"n": WRONG["n"]} if budget is None else {"budget": [k for k in WRONG["budget"] if k is not None]}
    read = quietly(make, files.read, where, **reading, wrong=wrong)
    assert read is None or make.wild or close(read, x, rtol=1e-12)
    budgets = make.one([1.0], [1.5, 2])
    plan = quietly(make, files.plan, where, budgets, n=None, **reading, progress=False, wrong=wrong)
    assert plan is None or [row["budget"] for row in plan] == budgets
    done = quietly(make, files.select, where, count, budget=budget, out=f"{folder}/kept", **options, wrong=wrong)
    if done is None:
        assert not os.path.exists(f"{folder}/kept"), "a folder in spite of an error"
        return
    condition = make.answer(obrs.sql.condition, make.one(done, done.manifest, f"{folder}/kept"))
    assert condition is None or "log_ratio" in condition
    kept = []
    for path in sorted(os.scandir(done.out), key=lambda path: path.name):
        if path.name.endswith(ending):
            with open(path, encoding="utf-8") as file:
                lines = file.read().splitlines()
            csv = ending == ".csv"
            kept += [line.split(",")[0] if csv else json.loads(line)["id"] for line in lines[csv:]]
    assert len(set(kept)) == len(kept) == done.kept
    if options["group"] is None and not make.wild:
        number = int(count) if budget is None else int(n / budget)
        chosen = host(obrs.select(x, number, design="priority", ids=ids, seed=options["seed"])).astype(int)
        assert sorted(map(int, kept)) == sorted(ids[chosen].tolist())


def images(make):
    """A folder of images with scores is a pool of proposals."""
    scores = {f"{i}.png": float(x) for i, x in enumerate(make.rng.normal(size=make.count(1, 4)))}
    for name in scores:
        with open(f"{make.folder}/{name}", "wb") as file:
            file.write(b"not looked at")
    others = ({**scores, "0.png": x} for x in ("x", None, np.nan, 2j))
    wrong = {"scores": (3, None, {}, {"no.png": 1.0}, [1, 2, 3], True, *others), "kind": ("no", "", 3, True, {})}
    folder = make.answer(obrs.adapters.from_folder, make.folder, scores, kind=make.one(None, "logit"), wrong=wrong)
    assert folder is None or close(folder.log_ratio(np.arange(len(scores))), [*scores.values()])


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
    level, keep = make.one("sequence", "sequence", "token", "group"), make.one(0.5, 1.0, 0.1, 1, make.count(1, count))
    options = {"level": level, "groups": make.labels(count) if level == "group" else None, "seed": make.seed()}
    options |= {"ids": make.one(None, make.ids(count)), "normalise": make.one(*NORMALISE)}
    options |= {"ratio": make.one(*RATIOS) if level != "token" else "product"}
    if level == "sequence" and make.chance(0.3):
        options["size"] = make.weights(count)
    wrong = {"size": (3, "x", -np.ones(count), np.full(count, np.nan), np.ones(count + 1), True, {})}
    wrong["groups"] = (3, "x", True, np.zeros(count + 1), [None] * count) if level == "group" else ()
    given = tensor(make, train.to(dtype)), tensor(make, sampled.to(dtype)), tensor(make, make.one(mask, mask.float()))
    pick = make.answer(obrs.rollout, *given, keep=keep, wrong=wrong, **options)
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
        assert len(index) == keep or isinstance(keep, float) or "size" in options


def tilt(make):
    """So many of every prompt, within the budget of KL, and better than the pool."""
    n = make.size(40)
    reward, groups = make.scores(n), make.one(None, make.labels(n))
    if reward.dtype.kind == "f" and make.chance(0.2):
        odd = make.one(-np.inf, np.nan if make.wild else 0.0)
        reward = np.where(make.rng.random(n) < 0.2, reward.dtype.type(odd), reward)
    keep, wrong = make.one(1, 1, 2, make.count(1, n)), {"keep": WRONG["n"], "groups": (*WRONG["groups"], [0] * (n + 1))}
    how = make.one({"kl": make.one(0.0, 0.1, 0.5, 3.0, 1e300)}, {"beta": make.one(0.1, 1.0, 1e-300, 1e300)})
    options = {"groups": groups, "keep": keep, "seed": make.seed(), **how}
    pick = make.answer(obrs.tilt, reward := make.array(reward), wrong=wrong, **options)
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
    texts = [make.one("<b>&", "", "é" * 500, "\x00\ud800" if make.wild else "x", "a\nb") for _ in range(n)]
    shown = make.one(None, texts, make.rng.normal(size=(n, 3)), np.zeros((n, 8, 8), np.uint8), np.zeros(n))
    options = {"samples": shown, "groups": make.one(None, make.labels(n)), "seed": make.seed(), "n": make.one(None, 10)}
    options |= {"budget": make.one(None, 4, 1, 2.5), "real": make.one(None, make.floats(120)), "compare": None}
    options |= {"title": make.one("</script>", None), "out": f"{make.folder}/page.html"}
    wrong = {"out": (*NO_PATHS, f"{make.folder}/page.txt", make.folder, f"{make.folder}/no/page.html")}
    wrong |= {"real": (*NO_ARRAYS[1:], [1.0], np.full(120, np.nan)), "groups": (3, "x", True, [0] * (n + 1))}
    wrong["source"] = (*WRONG["weights"], None, "file.csv", np.full(n, np.nan))
    wrong |= {"budget": [k for k in WRONG["budget"] if k is not None]}
    wrong |= {"compare": ()} if n == 1 else {}  # a number is a good log-ratio
    page = make.answer(obrs.report, make.array(x), wrong=wrong, **options)
    assert os.listdir(make.folder) == ([] if page is None else ["page.html"])
    text = "" if page is None else page.read_text(encoding="utf-8")
    if text:
        data = re.search(r'<script[^>]*type="application/json"[^>]*>(.*?)</script>', text, re.DOTALL).group(1)
        assert "NaN" not in data
        assert "Infinity" not in data
        json.loads(data)


CORE = (solve_log_c, rules, stages, divergences, draws, choose, select, priority, unweight, profile, formulas, scores)
KEPT = (samples, sample, stream, model, distances, metric_formulas, evaluate, extract)
FITTED = (diagnose, calibration, refit, look, networks, train, steps, tune)
VERBS = {each.__name__: each for each in (*CORE, *KEPT, *FITTED, select_files, images, rollout, tilt, report)}
SLOW = {"evaluate": 2, "extract": 4, "select_files": 4, "report": 3, "distances": 2, "samples": 2, "sample": 3}
SLOW |= {"diagnose": 2, "calibration": 4, "refit": 3, "look": 3, "train": 3, "networks": 3, "steps": 2, "tune": 3}
"""How many times as many cases others have."""
