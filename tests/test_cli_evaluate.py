"""`obrs evaluate`: from files to a table, a JSON and a picture, and one line for every mistake."""

import numpy as np
import pytest

from obrs.cli import main
from obrs.metrics.table import load_table


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(0)
    real, fake = rng.standard_normal((100, 3)), 1.4 * rng.standard_normal((300, 3))
    np.savez(tmp_path / "real.npz", real)
    np.savez(tmp_path / "fake.npz", features=fake, labels=np.arange(300) % 2)
    np.save(tmp_path / "scores.npy", -0.5 * (fake**2).sum(1) * (1 - 1.4**-2))
    (tmp_path / "real.csv").write_text("x,y\n1,2\n")
    return tmp_path


def run(files, *options):
    paths = [f"--real={files / 'real.npz'}", f"--fake={files / 'fake.npz'}", "-o", str(files / "out")]
    return main(["evaluate", *paths, *(text.replace("HERE", str(files)) for text in options)])


def test_a_table_and_two_files(files, capsys):
    assert run(files, "--log-ratio=HERE/scores.npy", "--budgets=1,2", "--groups=HERE/fake.npz", "--k=3") == 0
    out = capsys.readouterr().out
    assert out.startswith("300 fakes against 100 real samples, 3 features\n")
    assert f"wrote {files / 'out'}/evaluate.json and evaluate.png" in out
    table = load_table(files / "out")
    assert [(row.rule, row.budget) for row in table.rows] == [("model", 1), ("obrs", 2), ("drs", 2)]
    assert table.grouped
    assert table.k == 3
    assert (files / "out" / "evaluate.png").exists()


def test_a_warning_is_a_line(files, capsys):
    assert run(files, "--log-ratio=HERE/scores.npy", "--budgets=2", "--fitted-on=HERE/real.npz") == 0
    assert "warning: 100 of 100 real samples were also used to fit the ratio" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--budgets=1;2"], "--budgets must be numbers with commas between them, got '1;2'"),
        (["--pixels=1"], "--pixels must be two numbers"),
        (["--features=gradientz"], "unknown features 'gradientz'; did you mean 'gradients'?"),
        (["--features=gradients"], "must have shape (n, channels, height, width)"),
        (["--real=HERE/real.csv"], "real.csv: .csv is not read here; give .npy, .npz or a folder of images"),
        (["--out=HERE/real.csv"], "results go into a folder, "),
        (["--log-ratio=HERE/none.npy"], "none.npy does not exist"),
        (["--log-ratio=HERE/real.npz"], "log_ratio must have shape (300,), one per fake, got (100, 3)"),
    ],
)
def test_a_mistake_is_a_line(files, capsys, options, says):
    assert run(files, *options) == 2
    found = capsys.readouterr()
    assert found.out == ""
    assert found.err.startswith("error: ")
    assert says in found.err
    assert found.err.count("\n") == 1
