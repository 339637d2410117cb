"""Files are written whole, or not at all, by one run at a time."""

import os
import subprocess
import sys

import pytest

from obrs._files import _lock, hold, rewrite
from obrs.errors import InputError


def test_what_goes_wrong_leaves_the_old_file_and_nothing_beside_it(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError), rewrite(path) as file:
        file.write(b"new" + bytes(1 // 0))
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_links_and_permissions_stay(tmp_path):
    real, link = tmp_path / "real.txt", tmp_path / "link.txt"
    real.write_text("old")
    real.chmod(0o640)
    link.symlink_to(real)
    with rewrite(link) as file:
        file.write(b"new")
    assert link.is_symlink()
    assert (real.read_text(), real.stat().st_mode & 0o777) == ("new", 0o640)


def test_what_a_run_was_writing_when_it_was_killed_is_deleted_by_the_next_one(tmp_path):
    code = "import os, sys; from obrs._files import rewrite\nwith rewrite(sys.argv[1]): os.kill(os.getpid(), 9)"
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path / "a.txt")], check=False).returncode == -9
    with rewrite(tmp_path / "b.txt") as file:
        assert len(os.listdir(tmp_path)) == 2, "it may be another run's"
        for half in tmp_path.iterdir():
            os.utime(half, (0, 0))
        with rewrite(tmp_path / "c.txt"):
            assert len(os.listdir(tmp_path)) == 2
        file.write(b"not deleted: it is locked")
    assert sorted(os.listdir(tmp_path)) == ["b.txt", "c.txt"]


def test_one_run_at_a_time_holds_a_path(tmp_path):
    for _ in range(2):
        with hold(tmp_path / "a"), pytest.raises(InputError, match="another run is writing"), hold(tmp_path / "a"):
            pytest.fail("two hold it")
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(not hasattr(os, "O_PATH"), reason="opens a folder as only Linux does")
def test_where_nothing_can_be_locked_nothing_is_refused(tmp_path):
    handle = os.open(tmp_path, os.O_PATH)  # the system refuses to lock it, as NFS does with folders: EBADF
    assert not _lock(handle)
    os.close(handle)
