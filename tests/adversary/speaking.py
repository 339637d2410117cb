"""Rooms of rollouts, tilts and reports."""

import json
import os
import re
import tempfile

import numpy as np
import torch

import obrs
from obrs.language import NORMALISE, RATIOS
from obrs.sampling.samples import Samples

from .choosing import check_probabilities
from .making import NO_ARRAYS, NO_BUDGETS, NO_COUNTS, close, finite, host

TYPES = (torch.float32, torch.float32, torch.float64, torch.bfloat16, torch.float16)


def tensor(make, x, p=0.1):
    """A tensor of any layout, or in a wild case something else."""
    wrong = (
        None,
        x.double().numpy(),
        x[:0],
        x[0],
        x[..., None],
        x.long(),
        x.to_sparse() if x.ndim else x,
        "t",
        x[:, :-1],
    )
    if make.wild and make.chance(p):
        return make.one(*wrong)
    if make.chance(0.2):
        return x.T.contiguous().T
    if make.chance(0.1):
        return x.clone().requires_grad_(x.is_floating_point())
    return x


def batch(make):
    """Log-probs under two laws, and a mask; elsewhere anything."""
    rows, length = make.size(12), make.one(1, 2, 5)
    dtype = make.one(*TYPES)
    sampled = -torch.from_numpy(np.abs(make.rng.normal(size=(rows, length))))
    train = sampled + torch.from_numpy(make.one(0.0, 0.1, 2.0) * make.rng.normal(size=(rows, length)))
    if make.extreme:
        odd = make.one(-1e4, -np.inf, 50.0, -1e30)
        train = torch.where(torch.from_numpy(make.rng.random((rows, length)) < 0.1), odd, train)
    if make.wild and make.chance(0.1):
        sampled = torch.where(
            torch.from_numpy(make.rng.random((rows, length)) < 0.1), make.one(np.nan, -np.inf, np.inf), sampled
        )
    mask = torch.from_numpy(make.rng.random((rows, length)) < make.one(0.5, 0.9, 1.0))
    if make.chance(0.3):
        train = torch.where(mask, train, np.nan)
    mask = make.one(mask, mask.float(), mask.long())
    return train.to(dtype), sampled.to(dtype), mask


def rollouts(make):
    """Exactly as many as asked for, with weights r / pi over the sum of r."""
    train, sampled, mask = batch(make)
    rows = len(mask)
    level = make.arg(make.one("sequence", "sequence", "token", "group"), "no", None)
    groups = make.labels(rows) if level == "group" else make.arg(None, np.zeros(rows, int))
    ratio, normalise = (
        make.arg(make.one(*RATIOS) if level != "token" else "product", "no"),
        make.arg(make.one(*NORMALISE), 3),
    )
    keep = make.arg(make.one(0.5, 1.0, 0.1, 1, make.count(1, rows)), 0, 0.0, -1, 1.5, np.nan, "k", None, True, 10**30)
    options = {"level": level, "groups": groups, "ids": make.one(None, make.ids(rows)), "seed": make.seed()}
    args = tensor(make, train), tensor(make, sampled), tensor(make, mask)
    pick = make.answer(obrs.rollout, *args, keep=keep, **options, ratio=ratio, normalise=normalise)
    if pick is None:
        return
    index, some = host(pick.index).astype(int), host(mask).astype(bool)
    narrow = torch.promote_types(train.dtype, torch.float32)
    log_r = np.where(some, host(train.to(narrow) - sampled.to(narrow)), 0.0 if level != "token" else -np.inf)
    length = some.sum(1)
    if level == "token":
        x = log_r.reshape(-1)
    else:
        x = np.where(length > 0, log_r.sum(1) / (np.maximum(length, 1) if ratio == "geometric" else 1), -np.inf)
    assert np.all(np.diff(index) > 0)
    assert np.all(x[index] > -np.inf)
    kept = np.zeros(len(x), bool)
    kept[index] = True
    expected = kept.reshape(some.shape) if level == "token" else some & kept[:, None]
    assert np.array_equal(host(pick.mask).astype(bool), expected)
    assert not np.any(np.isnan(host(pick.weight)))
    assert all(not np.isnan(host(value)).any() for value in pick.metrics.values())
    assert 0 <= float(pick.metrics["rate"]) <= 1
    if level == "sequence":
        n = len(index)
        part = min(max(1, round(keep * np.count_nonzero(length))), np.count_nonzero(x > -np.inf))
        assert n == (keep if isinstance(keep, int) else part)
        pi = host(obrs.inclusion_probability(x, n))
        if normalise == "batch" and x.max() < 300:
            with np.errstate(under="ignore"):
                r = np.exp(x - x.max())
                by_hand = r[index] / pi[index] / r.sum()
            assert close(host(pick.weight), by_hand, rtol=2e-3, atol=1e-7)
        assert np.all(np.isin(np.flatnonzero(pi == 1), index))


def tilts(make):
    """So many of every prompt, within the budget of KL, and better than the pool."""
    n = make.size(40)
    reward = make.scores(n)
    if make.chance(0.2) and reward.dtype.kind == "f":
        reward = np.where(make.rng.random(n) < 0.2, reward.dtype.type(-np.inf), reward)
    if make.wild and make.chance(0.1):
        reward = np.where(make.rng.random(n) < 0.2, make.one(np.nan, np.inf), reward)
    groups = make.arg(make.one(None, make.labels(n)), make.labels(n + 1))
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
    assert np.array_equal(np.flatnonzero(host(pick.mask)), index)
    assert finite(pick.weight)
    assert not any(np.isnan(host(value)).any() for value in pick.metrics.values())
    large = np.abs(values[values > -np.inf]).max() > 1e30
    if "kl" in how and not large and values.min() > -np.inf:
        assert float(pick.metrics["kl"]) <= how["kl"] * (1 + 1e-3) + 1e-6
        scale = 1e-3 * np.abs(values).max() + 1e-9
        assert (
            float(pick.metrics["pool"]) - scale <= float(pick.metrics["reward"]) <= float(pick.metrics["best"]) + scale
        )
    if "beta" in how and 0.05 < how["beta"] < 2 and not large:
        for g in range(code.max() + 1):
            x = values[code == g] / how["beta"]
            if np.ptp(x[x > -np.inf]) < 100:
                check_probabilities(x, host(obrs.inclusion_probability(x, keep)), keep)


def pages(make):
    """A page whose numbers are numbers, or an error and no page."""
    n = make.size(60)
    x = make.log_ratio(n)
    source = make.array(x)
    kind = make.one("scores", "scores", "profile", "samples")
    if kind == "profile":
        source = make.answer(obrs.Profile, x)
    elif kind == "samples":
        weight = np.maximum(host(x), 0.0)
        ids = np.arange(n)
        source = Samples(
            np.zeros((n, 2)), ids, host(x), make.arg(weight, np.full(n, np.nan)), 3 * n, 3 * n, next_id=3 * n
        )
    texts = [make.one("<b>&", "", "é" * 500, "\x00\ud800" if make.wild else "x", "a\nb") for _ in range(n)]
    shown = make.one(None, texts, make.rng.normal(size=(n, 3)), np.zeros((n, 8, 8), np.uint8), np.zeros(n))
    shown = make.arg(shown, texts[:-1], "text", 3, [None] * n, np.full((n, 8, 8), np.nan))
    options = {"samples": shown, "groups": make.arg(None, make.labels(n), make.labels(n + 1), p=0.4)}
    options |= {
        "budget": make.arg(make.one(None, 4, 1, 2.5), *NO_BUDGETS),
        "n": make.arg(make.one(None, 10), *NO_COUNTS),
    }
    options |= {"real": make.arg(None, make.log_ratio(30), *NO_ARRAYS, p=0.3), "seed": make.seed()}
    options |= {
        "findings": make.arg(None, ["<script>", "b"], "text", 3, [None]),
        "title": make.arg("</script>", None, 3),
    }
    options["seconds_per_proposal"] = make.arg(make.one(None, 0.1), 0, -1, np.nan, "s", np.inf)
    with tempfile.TemporaryDirectory() as folder:
        out = make.arg(f"{folder}/page.html", f"{folder}/page.txt", folder, f"{folder}/no/page.html", 3, None)
        page = make.answer(obrs.report, make.arg(source, *NO_ARRAYS), out=out, **options)
        if page is None:
            assert not os.listdir(folder), "something is left of a page that was refused"
            return
        assert os.listdir(folder) == ["page.html"]
        text = page.read_text(encoding="utf-8")
    data = re.search(r'<script[^>]*type="application/json"[^>]*>(.*?)</script>', text, re.DOTALL).group(1)
    assert "NaN" not in data

    def refuse(constant):
        raise AssertionError(f"{constant} in the data of a page")

    content = json.loads(data, parse_constant=refuse)
    assert content["budgets"] == sorted(content["budgets"])


ROLLOUTS = [rollouts]
TILTS = [tilts]
REPORTS = [pages]
