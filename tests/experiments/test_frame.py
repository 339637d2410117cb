"""Every experiment keeps the contract: its record, its picture, its command, and what goes wrong."""

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from obrs import experiments
from obrs.cli import main
from obrs.errors import InputError, Interrupted, UnknownNameError
from obrs.experiments import EXPERIMENTS, Record, Rows, runner
from obrs.looks import LOOKS

pytest.importorskip("matplotlib")

ROOT = Path(__file__).parents[2]

each_experiment = pytest.mark.parametrize("name", EXPERIMENTS)
# What needs more than the extra of all experiments runs with the slow tests, where its libraries are there.
each_smoke = pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[] if e.extra == "experiments" else pytest.mark.slow) for n, e in EXPERIMENTS.items()],
)


def strings_of(value):
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from strings_of(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from strings_of(inner)
    elif isinstance(value, str):
        yield value


@each_experiment
def test_every_experiment_has_what_the_frame_asks_for(name):
    module = EXPERIMENTS[name].load()
    assert list(module.PRESETS)[:3] in (["smoke", "default", "paper"], ["smoke", "cpu", "paper"])
    assert all(type(preset) is module.Config for preset in module.PRESETS.values())
    assert module.Config.__dataclass_params__.frozen
    assert module.PRESETS[runner.committed(name)] == module.Config()
    assert EXPERIMENTS[name].preset in module.PRESETS
    assert module.PAPER
    assert module.__doc__
    assert module.Config.__doc__


@each_smoke
def test_smoke_record_is_plain_json_with_named_rows(name, smoke, tmp_path):
    record = smoke(name)
    record.save(tmp_path / "record.json")
    content = json.loads((tmp_path / "record.json").read_text())
    assert list(content) == ["experiment", "preset", "config", "rows", "versions", "seconds"]
    assert content == dataclasses.asdict(record)
    assert content["config"].keys() == {f.name for f in dataclasses.fields(EXPERIMENTS[name].load().Config)}
    names = [row["row"] for row in content["rows"]]
    assert names
    assert len(set(names)) == len(names)
    assert {"python", "obrs", "numpy"} <= content["versions"].keys()
    assert not [text for text in strings_of(content) if "/" in text and Path(text).is_absolute()]


@each_smoke
def test_the_text_after_a_run_fits_a_terminal(name, smoke):
    text = experiments.render(smoke(name))
    assert text.strip()
    assert max(map(len, text.splitlines())) <= 120


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_committed_results_are_of_the_default_preset(name):
    record = experiments.load(ROOT / "results" / f"{name}.json")
    preset = runner.committed(name)
    default = EXPERIMENTS[name].load().PRESETS[preset]
    assert (record.experiment, record.preset) == (name, preset)
    assert record.config == experiments.record.plain(dataclasses.asdict(default))
    assert experiments.render(record)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_committed_json_is_drawn_again(name):
    assert experiments.draw(experiments.load(ROOT / "results" / f"{name}.json"))[:4] == b"\x89PNG"


def test_the_same_record_gives_the_same_pixels_whatever_the_users_own_settings(smoke):
    import matplotlib

    plain = experiments.draw(smoke("figure-pr"))
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "black"}):
        assert experiments.draw(smoke("figure-pr")) == plain


def test_methods_with_one_colour_differ_in_line_and_marker():
    looks = [(look.colour, look.line) for look in LOOKS.values()]
    assert len(set(looks)) == len(looks)
    assert len({(look.colour, look.marker) for look in LOOKS.values()}) == len(looks)


def test_listing_loads_no_experiment_and_no_heavy_library():
    code = (
        "import sys; from obrs.cli import main; main(['reproduce', 'list']);"
        "heavy = ('torch', 'scipy', 'matplotlib', 'obrs.experiments.figure_pr');"
        "print([m for m in heavy if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_list_names_every_experiment_with_its_label_time_and_results(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", "list"]) == 0
    listed = capsys.readouterr().out
    for entry in EXPERIMENTS.values():
        line = next(line for line in listed.splitlines() if line.startswith(f"{entry.name} "))
        assert entry.label in line
        assert line.endswith(f"  {entry.time}")
        assert entry.preset in line.split()
        assert entry.shows in listed
        committed = (ROOT / "results" / f"{entry.name}.json").is_file()
        assert (f"  results/{entry.name}.json " if committed else "  none ") in line


def test_command_writes_both_files_and_the_record_draws_the_same_again(capsys, tmp_path):
    out = tmp_path / "new" / "folder"
    assert main(["reproduce", "figure-pr", "--preset", "smoke", "--high", "3", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "precision" in printed
    assert str(out / "figure-pr.png") in printed
    assert sorted(path.name for path in out.iterdir()) == ["figure-pr.json", "figure-pr.png"]
    record = experiments.load(out / "figure-pr.json")
    assert record.config["high"] == 3.0
    assert experiments.draw(record) == (out / "figure-pr.png").read_bytes()


def refused(arguments, capsys):
    """Return the one line a command says when it refuses."""
    assert main(arguments) in (1, 2)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error: ")
    assert printed.err.count("\n") == 1
    return printed.err.removeprefix("error: ").strip()


def test_unknown_names_are_answered_with_the_nearest_one(capsys):
    said = refused(["reproduce", "figur-pr"], capsys)
    assert said.startswith("unknown experiment 'figur-pr'; did you mean 'figure-pr'?")
    assert "there are: figure-landscape, figure-1d, " in refused(["reproduce", "xyz"], capsys)
    said = refused(["reproduce", "figure-pr", "--hihg", "3"], capsys)
    assert said == "unknown field of figure-pr 'hihg'; did you mean 'high'? there are: low, high, points"
    said = refused(["reproduce", "figure-pr", "--preset", "smok"], capsys)
    assert said == "unknown preset of figure-pr 'smok'; did you mean 'smoke'? there are: smoke, default, paper"


def test_wrong_values_are_refused_in_one_line(capsys):
    assert refused(["reproduce", "figure-pr", "--points", "many"], capsys) == (
        "points must be a whole number, got 'many'"
    )
    assert refused(["reproduce", "figure-pr", "--high", "0.1"], capsys).startswith("the slopes must be above 0")
    assert refused(["reproduce", "figure-pr", "--high"], capsys) == "--high needs a value"
    assert refused(["reproduce", "figure-pr", "high"], capsys) == "expected --FIELD VALUE, got 'high'"
    assert refused(["reproduce", "figure-pr", "--seed", "3"], capsys) == (
        "figure-pr draws nothing at random and has no seed; leave it out"
    )


def test_a_folder_that_cannot_be_written_is_refused_before_the_run(capsys, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    module = EXPERIMENTS["figure-pr"].load()
    monkeypatch.setattr(module, "run", lambda config, rows: pytest.fail("it ran"))
    said = refused(["reproduce", "figure-pr", "--out", str(tmp_path / "file")], capsys)
    assert said == f"results go into a folder, {tmp_path / 'file'} is a file; choose another --out"
    said = refused(["reproduce", "figure-pr", "--out", str(tmp_path / "file" / "below")], capsys)
    assert said.endswith("not a directory")
    said = refused(["reproduce", "figure-pr", "--out", "/proc/nowhere"], capsys)
    assert said.startswith("/proc/nowhere: ")


@pytest.mark.parametrize("content", ["", "{}", "[1, 2]", '{"experiment": 1}', "\x00\x01", '{"rows": [], "x": 1}'])
def test_a_file_that_is_no_record_is_refused(content, tmp_path):
    path = tmp_path / "some.json"
    path.write_text(content)
    with pytest.raises(InputError, match=re.escape(f"{path} is not the record of an experiment; `obrs reproduce`")):
        experiments.load(path)


def test_a_record_that_lacks_rows_or_is_of_no_known_experiment_is_refused():
    with pytest.raises(InputError, match="run it again"):
        experiments.draw(Record("figure-pr", "smoke", {}, [{"row": "high recall"}]))
    with pytest.raises(UnknownNameError, match="unknown experiment 'figure-xy'"):
        experiments.draw(Record("figure-xy", "smoke", {}, []))


def interrupting(module, after):
    """The experiment's run, stopped by Ctrl-C after so many rows."""
    run = module.run

    class Stopping:
        def __init__(self, rows):
            self._rows = rows

        def __getattr__(self, name):
            return getattr(self._rows, name)

        def add(self, row, values):
            self._rows.add(row, values)
            if len(self._rows) == after:
                raise KeyboardInterrupt

    return lambda config, rows: run(config, Stopping(rows))


def test_an_interrupted_run_goes_on_where_it_was_and_ends_the_same(capsys, tmp_path, monkeypatch):
    module = EXPERIMENTS["figure-pr"].load()
    command = ["reproduce", "figure-pr", "--preset", "smoke", "--out", str(tmp_path)]
    with monkeypatch.context() as patch:
        patch.setattr(module, "run", interrupting(module, after=1))
        assert main(command) == 130
    said = capsys.readouterr().err
    assert said == "interrupted: 1 row is kept, the same command goes on from there\n"
    (partial,) = tmp_path.iterdir()
    assert partial.name.endswith(".partial.json")
    kept = experiments.load(partial).rows

    made = []
    with monkeypatch.context() as patch:
        patch.setattr(Rows, "add", lambda self, row, values, add=Rows.add: (made.append(row), add(self, row, values)))
        assert main(command) == 0
    assert made == ["high precision"], "the row that was there is not made again"
    assert "going on from 1 row" in capsys.readouterr().err
    finished = experiments.load(tmp_path / "figure-pr.json")
    assert finished.rows[:1] == kept
    assert finished.rows == experiments.reproduce("figure-pr", "smoke").rows
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".json", ".png"]


def test_another_configuration_does_not_take_up_an_interrupted_run(tmp_path, monkeypatch):
    module = EXPERIMENTS["figure-pr"].load()
    with monkeypatch.context() as patch:
        patch.setattr(module, "run", interrupting(module, after=1))
        with pytest.raises(Interrupted, match="1 row is kept") as caught:
            experiments.reproduce_files("figure-pr", "smoke", out=tmp_path)
    assert len(caught.value.partial.rows) == 1
    path, _ = experiments.reproduce_files("figure-pr", "smoke", {"high": 3.0}, out=tmp_path)
    assert [row["lam"][1] for row in experiments.load(path).rows] == [3.0, 3.0]
    assert len(list(tmp_path.glob("*.partial.json"))) == 1


def test_a_damaged_partial_record_is_named(capsys, tmp_path, monkeypatch):
    module = EXPERIMENTS["figure-pr"].load()
    with monkeypatch.context() as patch:
        patch.setattr(module, "run", interrupting(module, after=1))
        main(["reproduce", "figure-pr", "--preset", "smoke", "--out", str(tmp_path)])
    capsys.readouterr()
    (partial,) = tmp_path.iterdir()
    partial.write_text("{")
    said = refused(["reproduce", "figure-pr", "--preset", "smoke", "--out", str(tmp_path)], capsys)
    assert said.startswith(f"{partial} is not the record")


def test_rows_refuse_a_name_that_was_used(tmp_path):
    rows = Rows(Record("demo", "smoke", {}, []))
    rows.add("a", {"x": 1.0})
    with pytest.raises(InputError, match="row 'a' twice"):
        rows.add("a", {"x": 2.0})


def test_text_is_read_as_what_the_field_is():
    read = runner._read
    assert read("3", int, "n") == 3
    assert read("1,2.5", tuple[float, ...], "budgets") == (1.0, 2.5)
    assert read("none", int | None, "n") is None
    assert read("4", int | None, "n") == 4
    assert read("no", bool, "flag") is False
    with pytest.raises(InputError, match="flag must be yes or no, got 'maybe'"):
        read("maybe", bool, "flag")


def test_values_that_json_cannot_say_become_null_and_come_back_as_nan():
    rows = Rows(Record("demo", "smoke", {}, []))
    rows.add("a", {"x": np.array([1.0, np.inf]), "y": np.float32(0.5), "z": (np.int64(1), None)})
    assert rows["a"] == {"row": "a", "x": [1.0, None], "y": 0.5, "z": [1, None]}
    assert np.isnan(experiments.numbers(rows["a"]["x"])[1])


def test_asking_for_an_unknown_row_or_experiment_is_an_error_of_ours():
    with pytest.raises(InputError, match="no row 'b'"):
        Record("demo", "smoke", {}, [{"row": "a"}])["b"]
    with pytest.raises(UnknownNameError, match="did you mean 'figure-pr'"):
        experiments.configure("figure_pr")


def test_every_experiment_is_described_in_the_documentation():
    pages = "".join(path.read_text() for path in sorted((ROOT / "docs").rglob("*.md")))
    missing = [name for name in EXPERIMENTS if f"`obrs reproduce {name}" not in pages]
    assert not missing


@pytest.mark.slow
@pytest.mark.parametrize("name", ["table-2", "figure-25-samples", "figure-time", "figure-obrs-vs-drs", "flows"])
def test_default_presets_give_the_committed_rows_again(name):
    """Networks are trained in these, and end elsewhere on another processor: only what is measured is the same."""
    committed = experiments.load(ROOT / "results" / f"{name}.json")
    again = experiments.reproduce(name, "default", progress=False)
    assert [list(strings_of(row)) for row in again.rows] == [list(strings_of(row)) for row in committed.rows]


def test_the_page_names_the_committed_preset_of_every_experiment():
    page = (ROOT / "docs" / "reproduce" / "index.md").read_text()
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.count(" | ") == 3]
    said = {name: row[2] for row in rows for name in re.findall("`([^`]+)`", row[0])}
    assert said == {name: f"`{entry.preset}`" for name, entry in EXPERIMENTS.items()}
