"""What 0.2 kept and computed is kept and computed still: golden.json against the cases that made it."""

import json
from pathlib import Path

import numpy as np
import pytest
from golden_cases import CASES, NEAR, NEEDS

GOLDEN = json.loads((Path(__file__).parent / "golden.json").read_text())


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    """Sums of torch depend on how many there are."""
    try:
        import torch
    except ImportError:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def differences(recorded, now):
    """Return in words which fields of an entry are not what was recorded."""
    if recorded.keys() != now.keys():
        return [f"fields {sorted(now)} instead of {sorted(recorded)}"]
    wrong = {field: _difference(*recorded[field], *now[field]) for field in recorded}
    return [f"{field}: {words}" for field, words in wrong.items() if words]


def _difference(kind, then, kind_now, now):
    if kind != kind_now or not NEAR[kind]:
        return "" if (kind, then) == (kind_now, now) else f"{now!r:.200} instead of {then!r:.200}"
    then, now = np.asarray(then, float), np.asarray(now, float)
    if then.shape != now.shape:
        return f"shape {now.shape} instead of {then.shape}"
    with np.errstate(invalid="ignore"):
        error = np.where(then == now, 0.0, np.abs(now - then))
        error = error if kind == "nats" else error / np.maximum(np.abs(then), 0.1)
    if np.all(error <= NEAR[kind]):  # a NaN is not
        return ""
    at = np.unravel_index(np.argmax(np.nan_to_num(error, nan=np.inf)), error.shape)
    return f"{float(now[at])!r} instead of {float(then[at])!r} at {tuple(map(int, at))}, {kind} to {NEAR[kind]:g}"


def test_every_case_is_recorded_and_none_that_is_gone():
    assert list(GOLDEN) == list(CASES)


@pytest.mark.parametrize("name", CASES)
def test_golden(name):
    if NEEDS[name]:
        pytest.importorskip(NEEDS[name])
    assert differences(GOLDEN[name], CASES[name]()) == []


@pytest.mark.parametrize(
    ("kind", "then", "now"),
    [
        ("ids", [1, 2], [1, 3]),
        ("ids", {"count": 2, "sha256": "a"}, {"count": 2, "sha256": "b"}),
        ("exact", "fit", "unfit"),
        ("value", [1.0, 3.0], [1.0, 3.0 + 4e-12]),
        ("value", [1.0, 3.0], [1.0]),
        ("value", 0.5, float("nan")),
        ("value", 0.5, float("inf")),
        ("group", 300.0, 300.0 + 4e-8),
        ("moved", [[0.5]], [[0.5 + 2e-6]]),
        ("nats", 0.4, 0.42),
    ],
)
def test_a_changed_field_is_seen(kind, then, now):
    assert differences({"x": [kind, then]}, {"x": (kind, then)}) == []
    assert differences({"x": [kind, then]}, {"x": (kind, now)}) != []
