"""Progress of long work: a bar on a terminal and in a notebook, lines in a pipe."""

import sys
from types import SimpleNamespace

import pytest

import obrs
from obrs import _progress


@pytest.fixture
def display(monkeypatch):
    """What a notebook was asked to show: the text of each line, which display it is in, and whether it is an update."""
    lines = []

    def publish(data, *, transient, update):
        lines.append((data["text/plain"], transient["display_id"], update))

    shell = SimpleNamespace(kernel=object(), display_pub=SimpleNamespace(publish=publish))
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setattr(_progress, "_PAUSE", 0.0, raising=False)
    return lines


def test_a_notebook_shows_one_line_that_moves(display, tmp_path):
    obrs.sample(lambda ids: obrs.normals(ids, 1, seed=0), lambda x: x[:, 0], 2000, budget=4, batch_size=500)
    lines, displays, updates = zip(*display, strict=True)
    assert len(set(displays)) == 1
    assert updates[0] is False
    assert all(updates[1:])
    assert lines[-1].startswith("sampling ━━━━━━━━━━━━━━━━ 2000/2000  ")
    kept = [int(line.split("/")[0].split()[-1]) for line in lines]
    assert kept == sorted(kept)
    assert len(set(kept)) > 5
    for name in "ab":
        (tmp_path / f"{name}.csv").write_text("log_ratio\n0.5\n1.5\n")
    obrs.files.plan(tmp_path, [1])
    assert display[-1][0].startswith("reading ━━━━━━━━━━━━━━━━ 2/2  ")


def test_a_pipe_gets_a_line_every_ten_seconds(monkeypatch, capsys):
    clock = [0.0]
    monkeypatch.setattr(_progress, "monotonic", lambda: clock[0])
    with _progress.bar("looking", 100) as update:
        for clock[0] in range(0, 60, 4):
            update(clock[0], "rows")
    assert capsys.readouterr().err.splitlines() == [f"looking {t}/100  rows" for t in (12, 24, 36, 48)]
    with _progress.bar("looking", 100, wanted=False) as update:
        update(99)
    assert capsys.readouterr().err == ""


def test_a_terminal_shows_one_line_that_is_cut_and_goes(monkeypatch, capsys):
    monkeypatch.setattr(_progress, "_PAUSE", 0.0)
    monkeypatch.setenv("COLUMNS", "40")
    with _progress.bar("looking", 100, wanted=True) as update:
        update(50, "a note that is too long")
    assert capsys.readouterr().err == "\rlooking ━━━━━━━━──────── 50/100  0 s le\r" + f"\r{'':39}\r"
