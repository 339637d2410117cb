"""Files from strangers: nothing in them is run, nothing is written elsewhere, and what is wrong is one line."""

import gzip
import io
import os
import resource
import subprocess
import sys
import zipfile

import numpy as np
import pytest

import obrs
from obrs.errors import InputError
from obrs.rules import from_json

pytest.importorskip("pyarrow")


class Payload:
    """A pickle of it makes a file."""

    def __reduce__(self):
        return os.mkdir, ("run",)


def refuse(act):
    with pytest.raises(InputError) as caught:
        act()
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    inside = tmp_path / "a" / "b"
    inside.mkdir(parents=True)
    monkeypatch.chdir(inside)
    return tmp_path


def npy(shape, data=b"\0" * 80):
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": shape})
    return file.getvalue() + data


@pytest.mark.parametrize("name", ["pool.npy", "pool.npz"])
def test_a_pickle_in_arrays_is_not_run(folder, name):
    save = np.save if name == "pool.npy" else lambda path, x: np.savez(path, log_ratio=x)
    save(name, np.array([Payload()], dtype=object))
    assert "allow_pickle" in refuse(lambda: obrs.files.read(name, kind="logit"))
    refuse(lambda: obrs.Samples.load(name))
    assert not os.path.exists("run")


def test_headers_that_promise_terabytes_are_one_line():
    with open("pool.npy", "wb") as file:
        file.write(npy((10**12,)))
    with zipfile.ZipFile("pool.npz", "w") as file:
        file.writestr("log_ratio.npy", npy((10**12,)))
    for name in ("pool.npy", "pool.npz"):
        assert "Unable to allocate" in refuse(lambda name=name: obrs.files.read(name, kind="logit"))


def test_names_in_an_archive_lead_nowhere(folder):
    with zipfile.ZipFile("pool.npz", "w") as file:
        for name in ("../../outside.npy", "/tmp/outside.npy", "log_ratio.npy"):
            file.writestr(name, npy((10,)))
    assert len(obrs.files.read("pool.npz", column="log_ratio")) == 10
    assert [path.name for path in folder.rglob("*") if path.is_file()] == ["pool.npz"]


DEEP = "[" * 100_000


def test_brackets_without_end_are_one_line(tmp_path):
    rows = {"first": DEEP, "second": f'{{"log_ratio": 1}}\n{{"log_ratio": {DEEP}'}
    for name, text in rows.items():
        with open(f"{name}.jsonl", "w") as file:
            file.write(text)
        assert f"{name}.jsonl" in refuse(lambda name=name: obrs.files.read(f"{name}.jsonl"))
    refuse(lambda: from_json(DEEP))
    os.mkdir("kept")
    for name in ("kept.manifest.json", "kept/pool.csv", "pool.csv"):
        with open(name, "w") as file:
            file.write(DEEP if "json" in name else "id,log_ratio\n1,0\n2,1\n")
    refuse(lambda: obrs.files.select(["pool.csv"], 1, id="id", out="kept/", progress=False))


@pytest.mark.parametrize("name", ["bomb.csv.gz", "bomb.jsonl.gz"])
def test_a_packed_line_of_a_gigabyte_does_not_fill_the_memory(name):
    with gzip.open(name, "wb", 1) as file:
        file.write(b"log_ratio\n" if "csv" in name else b'{"log_ratio": 1}\n')
        for _ in range(1 << 8):
            file.write(b"1" * (1 << 22))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refuse(lambda: obrs.files.read(name))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000  # kilobytes


@pytest.mark.skipif(sys.platform != "linux", reason="needs a limit of memory")
def test_an_array_that_unpacks_beyond_the_memory_is_one_line():
    with (
        zipfile.ZipFile("bomb.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("log_ratio.npy", "w", force_zip64=True) as file,
    ):
        file.write(npy((1 << 27,), b""))
        for _ in range(1 << 8):
            file.write(bytes(1 << 22))
    code = """
import resource, obrs.files
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
try:
    obrs.files.plan("bomb.npz")
except obrs.files.InputError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Unable to allocate" in done.stdout
