"""Samples on disk: what comes back is what was saved, in the library it was of."""

import errno
import json
import subprocess
import sys
from collections import namedtuple
from dataclasses import asdict, replace
from enum import Enum

import numpy as np
import pytest

import obrs
from obrs import Budgeted, Grouped, normals
from obrs.errors import InputError, MissingLibraryError
from obrs.sampling.averages import Run
from obrs.sampling.samples import Samples

Pair = namedtuple("Pair", "image label")


def propose(ids):
    return normals(ids, 1, seed=1)[:, 0]


def kept_of(wrap=lambda x: x, first=lambda batch: batch, **options):
    return obrs.sample(lambda ids: wrap(propose(ids)), lambda batch: first(batch) - 0.5, 20, budget=2, **options)


KEPT = kept_of()


def again(kept, folder, **options):
    kept.save(folder / "kept.npz")
    return Samples.load(folder / "kept.npz", **options)


@pytest.mark.parametrize(
    "keys", [("x", "y"), (0, 1), (("a", 1), ("b", 2)), (True, "x"), (None, 2.5), (np.int64(3), "ü")]
)
def test_keys_come_back(tmp_path, keys):
    kept = kept_of(lambda x: {keys[0]: x, keys[1]: x > 0}, lambda batch: batch[keys[0]])
    x = again(kept, tmp_path).x
    assert list(x) == list(keys)
    assert [type(key) for key in x] == [int if isinstance(key, np.int64) else type(key) for key in keys]
    np.testing.assert_array_equal(x[keys[0]], kept.x[keys[0]])
    assert x[keys[1]].dtype == bool


def test_tuples_come_back_with_their_names(tmp_path):
    kept = kept_of(lambda x: Pair(x, x > 0), lambda batch: batch.image)
    assert isinstance(kept.x, Pair)
    x = again(kept, tmp_path).x
    assert type(x).__name__ == "Pair"
    np.testing.assert_array_equal(x.image, kept.x.image)
    x = again(kept_of(lambda x: (x, x > 0), lambda batch: batch[0]), tmp_path).x
    assert type(x) is tuple


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int64", "uint8", "bool"])
def test_tensors_come_back_as_tensors(tmp_path, dtype):
    torch = pytest.importorskip("torch")
    x = {"x": (torch.arange(40.0).reshape(20, 2) * 0.37).to(getattr(torch, dtype)), "host": np.arange(20)}
    found = again(replace(KEPT, x=x), tmp_path).x
    assert found["x"].dtype == x["x"].dtype
    assert torch.equal(found["x"], x["x"])
    assert isinstance(found["host"], np.ndarray)
    plain = again(replace(KEPT, x=x), tmp_path, to="numpy").x
    assert isinstance(plain["x"], np.ndarray)
    on_meta = again(replace(KEPT, x=x), tmp_path, to="meta").x
    assert on_meta["x"].device.type == "meta"


def test_jax_arrays_come_back_as_jax_arrays(tmp_path):
    jax = pytest.importorskip("jax")
    for dtype in ("float32", "bfloat16", "int32"):
        x = jax.numpy.arange(20).astype(dtype)
        found = again(replace(KEPT, x=x), tmp_path).x
        assert isinstance(found, jax.Array)
        assert found.dtype == x.dtype
        assert bool((found == x).all())


def test_text_comes_back(tmp_path):
    kept = replace(KEPT, x=np.array(["cat", "dög"] * 10))
    np.testing.assert_array_equal(again(kept, tmp_path).x, kept.x)


def test_how_it_stopped_and_the_rule_come_back(tmp_path):
    assert again(KEPT, tmp_path).runs == (Run("pool", 20, 40),)
    fitted = obrs.sample(propose, lambda x: x - 0.5, 3000, budget=2)
    found = again(fitted, tmp_path)
    assert (found.runs, found.rule) == (fitted.runs, fitted.rule)
    assert found.mean(lambda x: x, "unbiased", 0.9) == fitted.mean(lambda x: x, "unbiased", 0.9)
    grouped = obrs.sample(lambda ids: (propose(ids), ids % 2), lambda b: b[0], 3000, budget=2, groups=lambda b: b[1])
    found = again(grouped, tmp_path)
    assert found.rule == grouped.rule
    assert isinstance(found.rule, Grouped)
    own = replace(KEPT, rule=lambda log_ratio, batch=None: log_ratio)
    assert again(own, tmp_path).rule is None


def test_files_of_earlier_versions_are_read(tmp_path):
    facts = {"kind": "dict", "keys": ["x"], "proposed": 8, "executed": 9, "seconds": 0.5, "next_id": 8}
    facts |= {"calls": asdict(KEPT.calls), "executed_calls": asdict(KEPT.calls)}
    arrays = {"x0": np.arange(2.0), "ids": np.arange(2), "log_ratio": np.zeros(2), "log_weight": np.zeros(2)}
    np.savez(tmp_path / "old.npz", facts=np.array(json.dumps(facts)), **arrays)
    old = Samples.load(tmp_path / "old.npz")
    assert (old.x["x"].tolist(), old.proposed, old.runs, old.rule) == ([0.0, 1.0], 8, (), None)
    assert old.mean(lambda x: x["x"]) == 0.5
    with pytest.raises(InputError, match="must know how the run stopped, and these samples do not say"):
        old.mean(lambda x: x["x"], "unbiased")


def test_many_arrays_keep_their_order(tmp_path):
    kept = replace(KEPT, x=tuple(np.full(20, i) for i in range(12)))
    assert [int(part[0]) for part in again(kept, tmp_path).x] == list(range(12))


class Colour(Enum):
    RED = 1


@pytest.mark.parametrize("name", ["kept.pt", "kept.parquet", "kept.csv", "kept", "kept.npz.gz"])
def test_other_extensions_are_refused(tmp_path, name):
    with pytest.raises(InputError, match=r"writes \.npz files, got .*name it kept.*\.npz"):
        KEPT.save(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_saved_or_read_is_said_in_one_line(tmp_path):
    with pytest.raises(InputError, match=r"text, a number or a tuple of them to be saved, got <Colour.RED: 1>"):
        replace(KEPT, x={Colour.RED: KEPT.x}).save(tmp_path / "a.npz")
    with pytest.raises(InputError, match="Python objects cannot be saved"):
        replace(KEPT, x=np.array([None] * 20)).save(tmp_path / "a.npz")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "text.npz").write_text("not a zip")
    np.save(tmp_path / "one.npy", np.arange(3))
    for name in ("text.npz", "one.npy"):
        with pytest.raises(InputError, match=f"{name} was not written by Samples.save"):
            Samples.load(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        Samples.load(tmp_path / "nowhere.npz")


@pytest.mark.parametrize(
    "change",
    [
        "not JSON",
        "[]",
        {"proposed": None},
        {"kind": None},
        {"calls": {"cooks": 3}},
        {"runs": 3},
        {"leaves": [["tensorflow", "float32"]]},
        {"leaves": []},
        {"kind": "dict", "literals": ["("]},
    ],
)
def test_a_file_whose_facts_were_changed_is_refused(tmp_path, change):
    KEPT.save(tmp_path / "kept.npz")
    with np.load(tmp_path / "kept.npz") as found:
        arrays = dict(found)
    if isinstance(change, dict):
        facts = json.loads(str(arrays["facts"])) | change
        change = json.dumps({key: value for key, value in facts.items() if value is not None})
    np.savez(tmp_path / "kept.npz", **arrays | {"facts": np.array(change)})
    with pytest.raises(InputError, match=r"kept.npz was not written by Samples.save"):
        Samples.load(tmp_path / "kept.npz")


@pytest.mark.parametrize("error", [MemoryError("no room"), OSError(errno.EIO, "the disk is gone")])
def test_a_machine_that_fails_is_not_called_a_broken_file(tmp_path, monkeypatch, error):
    def fail(*arguments, **options):
        raise error

    KEPT.save(tmp_path / "kept.npz")
    monkeypatch.setattr(np, "load", fail)
    with pytest.raises(type(error), match=str(error.args[-1])):
        Samples.load(tmp_path / "kept.npz")


def test_a_zip_that_points_before_its_beginning_is_refused(tmp_path):
    path = tmp_path / "kept.npz"
    KEPT.save(path)
    content = bytearray(path.read_bytes())
    at = content.rindex(b"PK\5\6") + 16  # where the list of files begins
    content[at : at + 4] = (len(content)).to_bytes(4, "little")
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"kept.npz was not written by Samples.save"):
        Samples.load(path)


def without(library, code):
    block = f"""
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == {library!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
"""
    return subprocess.run([sys.executable, "-c", block + code], capture_output=True, text=True, check=True).stdout


def test_samples_of_a_library_that_is_missing_say_so(tmp_path):
    torch = pytest.importorskip("torch")
    replace(KEPT, x=torch.zeros(20)).save(tmp_path / "kept.npz")
    path = str(tmp_path / "kept.npz")
    code = f"""
import obrs
print(type(obrs.Samples.load({path!r}, to="numpy").x).__name__)
try:
    obrs.Samples.load({path!r})
except obrs.errors.MissingLibraryError as error:
    print(error)
"""
    said = "these samples are of torch, which is missing; install it, or load with to='numpy'"
    assert without("torch", code).splitlines() == ["ndarray", said]


def test_train_without_torch_says_what_refit_says():
    code = """
import obrs
for call in (lambda: obrs.train, lambda: obrs.refit([0.0], lambda ids: ids)):
    try:
        call()
    except obrs.errors.MissingLibraryError as error:
        print(error)
"""
    assert without("torch", code).splitlines() == [
        "train needs torch: pip install 'obrs[torch]'",
        "refit needs torch: pip install 'obrs[torch]'",
    ]
    assert issubclass(MissingLibraryError, ImportError)


def test_budgeted_rules_compare_by_value():
    """Joined runs keep a rule that is equal, not only the same object."""
    one, other = (replace(kept_of(start=s), rule=Budgeted(-1.0)) for s in (0, 100))
    assert (one + other).rule == Budgeted(-1.0)
    assert (one + replace(other, rule=Budgeted(-2.0))).rule is None
