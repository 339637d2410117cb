"""Runs that are killed, or that the machine stops, lose nothing and end as if nobody had stopped them.

`python tests/killing.py --kills 60` kills as many as one likes.
"""

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from obrs import files
from obrs._files import hold
from obrs.errors import InputError
from obrs.scores import ParquetSource

pa = pytest.importorskip("pyarrow")
from pyarrow import csv, parquet  # noqa: E402

ROWS = 40_000


def kill(kind, kills, rows=100_000):
    script, numbers = Path(__file__).with_name("killing.py"), ["--kills", str(kills), "--rows", str(rows)]
    command = [sys.executable, str(script), "--kind", kind, *numbers, "--seed", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["kills"] == kills


def test_a_folder_that_was_killed_is_one_that_was_not():
    kill("folder", 4)


@pytest.mark.slow
def test_a_folder_of_five_million_rows_that_was_killed_thirty_times_is_one_that_was_not():
    kill("folder", 30, 5_000_000)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "library"), [("ray", "ray"), ("train", "torch")])
def test_what_was_killed_ends_as_what_was_not(kind, library):
    pytest.importorskip(library)
    kill(kind, 5)


@pytest.fixture
def pool(tmp_path):
    rng = np.random.default_rng(0)
    (tmp_path / "scores").mkdir()
    for part, ids in enumerate(np.array_split(np.arange(ROWS), 4)):
        columns = {"id": ids, "log_ratio": rng.normal(size=len(ids)), "label": np.array(["a", "b"])[ids % 2]}
        parquet.write_table(pa.table({**columns, "x": rng.random(len(ids))}), tmp_path / "scores" / f"{part}.parquet")
    return tmp_path / "scores"


def select(pool, out, **options):
    return files.select(pool, ROWS // 2, id="id", out=out, progress=False, **options)


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def disk(tmp_path):
    """A file system of 300 kB, which holds some of the files that are written, but not all."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("only root may mount a small file system")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_disk_that_was_full_and_is_enlarged_ends_as_one_that_was_not(pool, disk, tmp_path):
    (disk / "other").write_bytes(bytes(250_000))
    with pytest.raises(OSError, match="the same command goes on"):
        select(pool, disk / "kept")
    assert os.listdir(disk) == ["other"], "no manifest without rows"
    (disk / "other").unlink()
    with pytest.raises(OSError, match="the same command goes on") as caught:
        select(pool, disk / "kept")
    assert caught.value.errno == errno.ENOSPC
    assert "\n" not in str(caught.value)
    assert sorted(os.listdir(disk)) == [".kept.obrs", "kept.manifest.json"]
    subprocess.run(["mount", "-o", "remount,size=8m", str(disk)], check=True)
    select(pool, disk / "kept")
    select(pool, tmp_path / "kept")
    assert content(disk / "kept") == content(tmp_path / "kept")
    assert sorted(os.listdir(disk)) == ["kept", "kept.manifest.json"]


def test_a_disk_that_is_read_only_is_one_line(pool, disk):
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    with pytest.raises(OSError) as caught:
        select(pool, disk / "kept")
    assert "\n" not in str(caught.value)
    assert os.listdir(disk) == []


def test_a_folder_that_another_run_is_writing_is_refused(pool, tmp_path):
    with hold(tmp_path / "kept") as work, pytest.raises(InputError, match="another run is writing"):
        select(pool, tmp_path / "kept")
    assert not work.exists()
    assert len(select(pool, tmp_path / "kept")) == ROWS // 2


def test_a_file_that_changes_after_the_passes_is_named_and_nothing_is_lost(pool, tmp_path, monkeypatch):
    write = ParquetSource.write

    def write_later(source, *rest):
        if source.name == "2.parquet":
            os.utime(source.path, ns=(1, 1))
        write(source, *rest)

    monkeypatch.setattr(ParquetSource, "write", write_later)
    with pytest.raises(InputError, match=r"2\.parquet has changed since it was counted"):
        select(pool, tmp_path / "kept")
    assert not (tmp_path / "kept").exists()
    monkeypatch.undo()
    with pytest.raises(InputError, match=r"another run: 2\.parquet is not what it was; .* delete"):
        select(pool, tmp_path / "kept")
    shutil.rmtree(tmp_path / ".kept.obrs")
    assert len(select(pool, tmp_path / "kept")) == ROWS // 2


@pytest.mark.parametrize("name", ["3.parquet", "3.csv"])
def test_a_file_that_is_emptied_between_two_passes_is_named(pool, tmp_path, monkeypatch, name):
    csv.write_csv(parquet.read_table(pool / "3.parquet"), tmp_path / "3.csv")
    path, divide = pool / name if "parquet" in name else tmp_path / name, files.divide
    monkeypatch.setattr(files, "divide", lambda *rest, **sizes: (path.write_text(""), divide(*rest, **sizes))[1])
    with pytest.raises(InputError, match=rf"{name} (cannot be read|has changed)"):
        files.select(path, 4000, id="id", out=f"{tmp_path}/kept/", progress=False)
    assert sorted(os.listdir(tmp_path)) == ["3.csv", "scores"]


def test_a_group_that_comes_between_two_passes_is_named(pool, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "HELD", 100)
    divide = files.divide

    def change(*rest, **sizes):
        table = parquet.read_table(pool / "3.parquet")
        labels = pa.array(["new"] * len(table))
        parquet.write_table(table.set_column(2, "label", labels), pool / "3.parquet")
        return divide(*rest, **sizes)

    monkeypatch.setattr(files, "divide", change)
    with pytest.raises(InputError, match="has a group that it had not before"):
        files.select(pool, 1000, id="id", group="label", out=tmp_path / "kept", progress=False)
    assert os.listdir(tmp_path) == ["scores"]
