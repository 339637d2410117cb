"""What every acceptance rule promises."""

import json

import numpy as np
import pytest

from obrs.errors import InputError, InputTypeError
from obrs.groups import Grouped
from obrs.rules import DRS, RULES, Budgeted, Unbudgeted, from_json, to_json

LOG_RATIO = np.random.default_rng(0).normal(size=400) * 2
FITTED = {
    "budgeted": Budgeted.fit(LOG_RATIO, 2.6),
    "budgeted at 1": Budgeted.fit(LOG_RATIO, 1),
    "unbudgeted": Unbudgeted.fit(LOG_RATIO),
    "drs": DRS.fit(LOG_RATIO, 2.6),
    "drs at 1": DRS.fit(LOG_RATIO, 1),
    "drs without eps": DRS.fit(LOG_RATIO, 2.6, eps=0.0),
    "grouped": Grouped.fit(LOG_RATIO, 2.6, groups=np.arange(400) % 3),
    "grouped by shares": Grouped.fit(LOG_RATIO, 2.6, groups=np.arange(400) % 3, shares=[1, 2, 3]),
}


def test_every_rule_is_tested_here():
    assert {type(rule) for rule in FITTED.values()} == set(RULES.values())


@pytest.fixture(params=FITTED, ids=str)
def rule(request):
    return FITTED[request.param]


def batch_of(x):
    return np.arange(len(x)) % 3


def test_log_a_is_at_most_zero_and_follows_the_ratio(rule):
    x = np.sort(np.concatenate([LOG_RATIO, [-5000.0, 5000.0]]))
    labels = np.zeros(len(x), int)
    log_a = rule(x, labels)
    assert np.all(log_a <= 0)
    assert np.all(np.diff(log_a) >= 0)


def test_weight_is_the_ratio_over_the_acceptance(rule):
    x = np.linspace(-20, LOG_RATIO.max() + 3, 500)
    np.testing.assert_allclose(rule.log_weight(x, batch_of(x)), x - rule(x, batch_of(x)), atol=1e-9)


def test_backend_dtype_and_shape_are_kept(rule, xp):
    for dtype in (xp.float32, xp.float64):
        x = xp.asarray(np.linspace(-3, 3, 12).reshape(3, 4), dtype=dtype)
        labels = np.arange(12).reshape(3, 4) % 3
        for result in (rule(x, labels), rule.log_weight(x, labels)):
            assert type(result) is type(x)
            assert result.dtype == dtype
            assert tuple(result.shape) == (3, 4)
        expected = rule(np.linspace(-3, 3, 12).reshape(3, 4), labels)
        np.testing.assert_allclose(np.asarray(rule(x, labels)), expected, atol=1e-5 if dtype == xp.float32 else 1e-12)


def test_json_brings_the_rule_back(rule):
    text = to_json(rule)
    assert from_json(text) == rule
    assert "Infinity" not in text
    assert json.loads(text)["rule"] in RULES


def test_fitting_inside_jit_says_so():
    jax = pytest.importorskip("jax")
    for fit in (lambda x: Budgeted.fit(x, 2), Unbudgeted.fit, lambda x: DRS.fit(x, 2)):
        with pytest.raises(InputTypeError, match=r"must be known, not traced"):
            jax.jit(lambda x, fit=fit: fit(x) and x)(jax.numpy.zeros(3))


def test_a_budgeted_rule_of_version_0_2_loads_and_what_does_not_load_names_it():
    saved = '{"rule": "budgeted", "log_c": -1.5, "budget": 2.0, "rate": 0.5}'
    assert from_json(saved) == Budgeted(-1.5, 2.0, 0.5)
    with pytest.raises(InputError, match=r"got log_c, axis; if version 0\.2 wrote it, fit it again$"):
        from_json('{"rule": "budgeted", "log_c": -1.5, "axis": 1}')
