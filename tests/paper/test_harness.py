"""Every experiment keeps the contract: its record, its picture, its command, and what goes wrong."""

import json
import re
import subprocess
import sys
from dataclasses import asdict, fields
from pathlib import Path

import matplotlib
import numpy as np
import pytest

from obrs._files import hold
from obrs.errors import InputError, ObrsError, UnknownNameError
from obrs.rivals import SAMPLERS
from paper import check, harness
from paper.__main__ import main
from paper.harness import EXPERIMENTS, experiment, first_line
from paper.record import Record, load, numbers, plain
from paper.style import LOOKS, canvas, caption, restyle

RESULTS = Path(harness.__file__).parent / "results"
COMMAND = ["figure-pr", "--preset", "smoke", "--out"]

each_experiment = pytest.mark.parametrize("name", EXPERIMENTS)
# A language model is slow, and not everywhere.
each_smoke = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name == "language" else []) for name in EXPERIMENTS]
)


# --- Every experiment -------------------------------------------------------------------------------------------------


@each_experiment
def test_a_module_has_what_the_harness_asks_for(name):
    module = experiment(name)
    assert next(iter(module.PRESETS)) == "smoke"
    assert isinstance(module.PRESETS["default"], module.Config)
    assert module.PRESETS.keys() <= {"smoke", "demo", "default", "paper"}
    assert module.Config.__dataclass_params__.frozen
    assert module.__doc__.startswith(first_line(name))


@each_smoke
def test_a_smoke_run_is_plain_json_with_named_rows_a_table_and_a_picture(name, smoke, tmp_path):
    record, module = smoke(name), experiment(name)
    record.save(tmp_path / "record.json")
    text = (tmp_path / "record.json").read_text()
    content = json.loads(text)
    assert list(content) == ["experiment", "preset", "config", "rows", "versions", "seconds"]
    assert content["rows"] == record.rows
    assert content["config"].keys() == {field.name for field in fields(module.Config)}
    names = [row["row"] for row in record.rows]
    assert len(set(names)) == len(names) > 0
    assert {"python", "obrs", "numpy"} <= content["versions"].keys()
    assert '"/' not in text, "no path of this machine"
    assert max(map(len, module.table(record).splitlines())) <= 120
    assert module.figure(record).axes


@each_experiment
def test_what_is_committed_is_of_a_preset_and_is_drawn_again(name, committed_record):
    record, module = committed_record(name), experiment(name)
    assert record.experiment == name
    assert record.preset == "default"
    assert record.config == plain(asdict(module.PRESETS["default"]))
    assert max(map(len, module.table(record).splitlines())) <= 120
    with restyle():
        drawn = module.figure(record)
        drawn.draw_without_rendering()
    assert drawn.axes


WRONG = {
    "figure-1d": "budget=0.5 budget=9 points=0",
    "figure-frequency": "kinds=paper_raw5 pool=0 trained=maybe",
    "figure-landscape": "budgets=0.5 cells=0 reach=0",
    "figure-obrs-vs-drs": "budgets=0.5",
    "figure-optimal-g": "budget=nan rate=0",
    "figure-pretrained": "rates=1 ratios=feature",
    "figure-smooth": "budgets= separation=-1 thetas=0",
    "figure-training": "kinds=hing",
    "table-2": "budget=0.5 generations=0",
    "table-diffusion": "costs=0.5 early=18 rates=1",
    "table-finetune": "kinds=",
}


@pytest.mark.parametrize(("name", "word"), [(name, word) for name, words in WRONG.items() for word in words.split()])
def test_a_field_that_makes_no_sense_is_one_line_before_the_run(name, word):
    field, _, value = word.partition("=")
    with pytest.raises(ObrsError) as caught:
        harness.configure(name, "smoke", {field: value})
    assert "\n" not in str(caught.value)


def test_text_is_read_as_what_the_field_is():
    assert harness.configure("figure-smooth", "smoke", {"budgets": "1,2.5"}).budgets == (1.0, 2.5)
    assert harness.configure("figure-frequency", "smoke", {"trained": "no"}).trained is False


def test_only_what_has_the_papers_data_model_and_protocol_is_called_reproduced():
    assert {name for name, entry in EXPERIMENTS.items() if entry.source.endswith(", reproduced")} == {
        *("figure-1d", "figure-smooth", "figure-optimal-g", "table-2", "figure-pr")
    }
    assert EXPERIMENTS["budgets"].source == "beyond the paper"
    drawn = canvas()
    caption(drawn, "figure-training", "Three seeds.")
    assert drawn.get_supxlabel().startswith("Setting of Figure 6 of Verine et al. (2024), on ")


def test_every_sampler_has_a_look_and_methods_with_one_colour_differ_in_line_and_marker():
    assert set(SAMPLERS) <= set(LOOKS)
    assert len({(look.colour, look.line) for look in LOOKS.values()}) == len(LOOKS)
    assert len({(look.colour, look.marker) for look in LOOKS.values()}) == len(LOOKS)


# --- The command ------------------------------------------------------------------------------------------------------


def test_listing_imports_no_experiment_and_no_heavy_library():
    code = (
        "import sys; from paper.__main__ import main; main(['list']);"
        "heavy = ('torch', 'scipy', 'matplotlib', 'sklearn', 'paper.figure_pr', 'paper.toys');"
        "print([module for module in heavy if module in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=RESULTS.parents[1]
    )
    *listed, heavy = done.stdout.splitlines()
    assert heavy == "[]"
    for name, entry in EXPERIMENTS.items():
        at = next(at for at, line in enumerate(listed) if line.startswith(f"{name} "))
        assert entry.source in listed[at]
        assert listed[at].endswith(f"  {entry.time}")
        assert listed[at + 1].strip() == first_line(name)


def test_a_run_writes_its_record_table_and_picture_and_the_record_draws_the_same_again(capsys, tmp_path):
    out = tmp_path / "new" / "folder"
    assert main([*COMMAND, str(out), "--high", "3"]) == 0
    printed = capsys.readouterr().out
    assert "precision" in printed
    assert f"picture: {out / 'figure-pr.png'}" in printed
    assert sorted(path.name for path in out.iterdir()) == [f"figure-pr.{kind}" for kind in ("json", "md", "png")]
    record = load(out / "figure-pr.json")
    assert record.config["high"] == 3.0
    pixels = (out / "figure-pr.png").read_bytes()
    (out / "figure-pr.png").unlink()
    (out / "figure-pr.md").write_text("")
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "black"}):  # the user's own settings
        assert main(["redraw", "--out", str(out)]) == 0
    assert (out / "figure-pr.png").read_bytes() == pixels
    assert (out / "figure-pr.md").read_text() == harness.markdown(record)


def error_line(words, capsys):
    """Return the one line a command says when it refuses."""
    assert main(words) in (1, 2)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error: ")
    assert printed.err.count("\n") == 1
    return printed.err.removeprefix("error: ").strip()


@pytest.mark.parametrize(
    ("words", "start"),
    [
        ("figur-pr", "unknown experiment 'figur-pr'; did you mean 'figure-pr'? there are: figure-landscape, "),
        ("figure-pr --hihg 3", "unknown field of figure-pr 'hihg'; did you mean 'high'? there are: low, "),
        ("figure-pr --preset smok", "unknown preset of figure-pr 'smok'; did you mean 'smoke'? there are: smok"),
        ("figure-pr --points many", "points must be a whole number, got 'many'"),
        ("figure-pr --high -1", "high must be above 0, got -1.0"),
        ("figure-pr --high", "--high needs a value"),
        ("figure-pr high", "expected --FIELD VALUE, got 'high'"),
        ("figure-pr --high 3 --high=4", "--high is given twice"),
        ("--preset smoke", "the following arguments are required: name"),
        ("redraw --out .", ". has no record of an experiment"),
    ],
)
def test_mistakes_on_the_command_line_are_one_line(words, start, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert error_line(words.split(), capsys).startswith(start)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written_is_refused_before_the_run(capsys, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(experiment("figure-pr"), "run", lambda config, rows: pytest.fail("it ran"))
    line = error_line([*COMMAND, str(tmp_path / "file")], capsys)
    assert line == f"results go into a folder, {tmp_path / 'file'} is a file; choose another --out"
    assert error_line([*COMMAND, "/proc/nowhere"], capsys).startswith("/proc/nowhere: ")
    with hold(tmp_path / "figure-pr"):
        assert error_line([*COMMAND, str(tmp_path)], capsys).startswith("another run is writing")


@pytest.fixture
def partial(tmp_path, monkeypatch, capsys):
    """The file that a run of figure-pr leaves if Ctrl-C stops it after its first row."""
    add = Record.add

    def add_and_stop(self, row, values):
        add(self, row, values)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Record, "add", add_and_stop)
        assert main([*COMMAND, str(tmp_path)]) == 130
    assert capsys.readouterr().err == "interrupted; rows kept: 1, the same command goes on\n"
    (path,) = tmp_path.iterdir()
    assert path.name.endswith(".partial.json")
    return path


def test_an_interrupted_run_goes_on_where_it_was_and_ends_with_the_same_rows(partial, capsys, tmp_path, monkeypatch):
    kept, done, add = load(partial).rows, [], Record.add
    with monkeypatch.context() as patch:
        patch.setattr(Record, "add", lambda self, row, values: (done.append(row), add(self, row, values)))
        assert main([*COMMAND, str(tmp_path)]) == 0
    assert done == ["high precision"], "the row that was there is not made again"
    assert "going on with an interrupted run; rows kept: 1" in capsys.readouterr().err
    finished = load(tmp_path / "figure-pr.json")
    assert finished.rows[:1] == kept
    assert finished.rows == harness.reproduce("figure-pr", "smoke").rows
    assert not partial.exists()
    partial.write_text("{")
    assert error_line([*COMMAND, str(tmp_path)], capsys).startswith(f"{partial} is not the record")


def test_another_configuration_does_not_take_up_an_interrupted_run(partial, tmp_path):
    record = harness.reproduce("figure-pr", "smoke", {"high": 3.0}, out=tmp_path)
    assert [row["lam"][1] for row in record.rows] == [3.0, 3.0]
    assert partial.exists()


# --- Records ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", ["", "{}", "[1, 2]", "\x00\x01", '{"rows": [], "x": 1}'])
def test_a_file_that_is_no_record_is_refused(content, tmp_path):
    path = tmp_path / "some.json"
    path.write_text(content)
    with pytest.raises(InputError, match=re.escape(f"{path} is not the record of an experiment; `python -m paper`")):
        load(path)


def test_a_record_that_lacks_rows_or_is_of_no_known_experiment_is_refused():
    with pytest.raises(InputError, match="run it again"):
        harness.draw(Record("figure-pr", "smoke", {}, [{"row": "high recall"}]))
    with pytest.raises(InputError, match="no row 'b'"):
        Record("demo", "smoke", {}, [{"row": "a"}])["b"]
    with pytest.raises(UnknownNameError, match="unknown experiment 'figure-xy'"):
        harness.draw(Record("figure-xy", "smoke", {}))


def test_rows_have_names_of_their_own_and_what_json_cannot_say_is_null():
    record = Record("demo", "smoke", {})
    record.add("a", {"x": np.array([1.0, np.inf]), "y": np.float32(0.5), "z": (np.int64(1), None)})
    assert record["a"] == {"row": "a", "x": [1.0, None], "y": 0.5, "z": [1, None]}
    assert np.isnan(numbers(record["a"]["x"])[1])
    with pytest.raises(InputError, match="row 'a' twice"):
        record.add("a", {"x": 2.0})


def test_a_row_that_differs_is_found_wherever_it_differs(monkeypatch, capsys):
    rows = json.loads(check.FILE.read_text())["figure-pr/default"]
    other = json.loads(json.dumps(rows))
    other[1]["curve"]["recall"][3] += 1e-6
    assert 1e-7 < check.difference(rows, other) < 1e-5
    del other[1]["curve"]["recall"][3]
    assert check.main(["figure-pr", "--tolerance", "1e-6"]) == 0
    monkeypatch.setattr(check, "reproduce", lambda *run: Record("figure-pr", "default", {}, other))
    assert check.main(["figure-pr"]) == 1
    assert "inf" in capsys.readouterr().out
