"""Files of tensors: they come back as they were, or the error says what they are not."""

from pathlib import Path

import pytest
import torch

from obrs.errors import InputError
from obrs.fitting.tensors import Checkpoint, fill_module, fingerprint, read_facts, read_tensors, under, write_tensors

pytest.importorskip("safetensors")


def test_tensors_of_any_layout_and_dtype_come_back(tmp_path):
    tensors = {
        "transposed": torch.arange(6.0).reshape(2, 3).T,
        "narrow": torch.ones(3, dtype=torch.bfloat16),
        "count": torch.tensor(7),
        "half of another": torch.arange(10)[::2],
    }
    facts = {"step": 3, "names": ["a", None], "nested": {"x": 0.5}}
    write_tensors(tmp_path / "x", tensors, facts)
    read, beside = read_tensors(tmp_path / "x", "a test")
    assert beside == facts == read_facts(tmp_path / "x", "a test")
    assert read.keys() == tensors.keys()
    for name, x in tensors.items():
        assert read[name].dtype == x.dtype
        assert torch.equal(read[name], x)


def test_tensors_that_share_memory_are_written(tmp_path):
    x = torch.ones(3)
    write_tensors(tmp_path / "x", {"a": x, "b": x}, {})
    assert set(read_tensors(tmp_path / "x", "a test")[0]) == {"a", "b"}


def test_a_folder_that_is_not_there_is_one_line(tmp_path):
    with pytest.raises(InputError, match="nowhere does not exist; make it first"):
        write_tensors(tmp_path / "nowhere" / "x", {}, {})


@pytest.mark.parametrize("content", [b"", b"something else", b"\x02\0\0\0\0\0\0\0{}"])
def test_a_file_of_another_kind_says_what_it_is_not(tmp_path, content):
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(InputError, match="x is not a map of the moon"):
        read_tensors(tmp_path / "x", "a map of the moon")


def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path):
    write_tensors(tmp_path / "x", {"a": torch.ones(1)}, {"step": 1})
    with pytest.raises(TypeError):
        write_tensors(tmp_path / "x", {"a": torch.ones(1)}, {"step": object()})
    assert read_facts(tmp_path / "x", "a test") == {"step": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_a_checkpoint_knows_which_fit_it_is_of(tmp_path):
    kept = Checkpoint(tmp_path / "fit", {"seed": 0, "steps": 5})
    assert kept.read() is None
    kept.write({"x": torch.ones(1)}, {"step": 2})
    assert kept.read()[1]["step"] == 2
    for identity, differ in [({"seed": 1, "steps": 6}, "seed, steps"), ({"seed": 0, "model": None}, "model")]:
        with pytest.raises(InputError, match=rf"is of another fit \({differ}\); delete it or give another path"):
            Checkpoint(tmp_path / "fit", identity).read()


def test_prefixes_end_at_the_slash():
    assert under({"a/x": 1, "ab/x": 2, "a/b/y": 3}, "a") == {"x": 1, "b/y": 3}


def test_fingerprints_tell_values_shapes_and_dtypes_apart():
    x = torch.arange(6.0)
    others = [x, x + 1e-6, x.reshape(2, 3), x.double(), x.flip(0)]
    assert len({fingerprint(y) for y in others}) == len(others)
    assert fingerprint(x) == fingerprint(x.clone()) != fingerprint(x, x)
    assert fingerprint(x.reshape(2, 3).T) == fingerprint(x.reshape(2, 3).T.contiguous())


def test_paths_may_be_text(tmp_path):
    write_tensors(Path(tmp_path, "x"), {}, {"a": 1})
    assert read_facts(str(tmp_path / "x"), "a test") == {"a": 1}


def test_weights_of_another_architecture_are_named_by_the_first_that_differs():
    wide, deep = torch.nn.Sequential(torch.nn.Linear(3, 4)), torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Tanh())
    line = (
        r"^run.st was made by another critic: 0.weight has shape \(4, 3\) there and shape \(2, 3\) here; use that run"
    )
    with pytest.raises(InputError, match=line):
        fill_module(deep, wide.state_dict(), "critic", "run.st")
    with pytest.raises(InputError, match=r"0\.bias has nothing there and shape"):
        fill_module(wide, {"0.weight": torch.zeros(4, 3)}, "critic", "run.st")
    with pytest.raises(InputError, match=r"1.weight has shape \(1,\) there and nothing here"):
        fill_module(wide, {**wide.state_dict(), "1.weight": torch.zeros(1)}, "critic", "run.st")
