"""The page without a browser: what is in it, how large it is, and that no text can break out of its place."""

import base64
import importlib.util
import json
import re
import shlex
import sys
from html.parser import HTMLParser
from pathlib import Path
from unittest.mock import ANY

import numpy as np
import pytest

import obrs
from obrs.cli.app import main
from obrs.errors import InputError, InputTypeError, MissingLibraryError
from obrs.html.page import script_json, show
from obrs.html.report import ROUND, Source, slider

Image = pytest.importorskip("PIL.Image")

ROOT = Path(__file__).parents[2]
HARD = ["</script><b>", "</SCRIPT >", "<!--<script>", "\"'&", "a\u2028b", "\ud800", "\x00", "🙂" * 50]


class Outline(HTMLParser):
    """The tags of a page, the text of each script, and every address."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.scripts, self.addresses, self.open = [], [], [], []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag not in ("meta", "link", "input", "img", "br"):
            self.open.append(tag)
        self.addresses += [value for key, value in attrs if key in ("src", "href")]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts.append(data)


def page_of(source, tmp_path, **options):
    return obrs.report(source, out=tmp_path / "report.html", **options).read_text()


def data_of(page):
    return json.loads(Outline(page).scripts[0])


def last_budget(data):
    """Return the number of the last budget that keeps each row."""
    return np.frombuffer(base64.b64decode(data["rows"]["last"]), np.uint8)


@pytest.fixture(scope="module")
def scores():
    return np.random.default_rng(0).normal(size=2000)


@pytest.fixture(scope="module")
def plain(scores, tmp_path_factory):
    """The page of log-ratios alone."""
    return page_of(scores, tmp_path_factory.mktemp("page"), title="<b>&\"'")


def test_page_is_one_well_formed_file_without_an_address_and_texts_are_escaped(scores, tmp_path, plain):
    labels = [str(i % 8) for i in range(2000)]
    page = page_of(scores, tmp_path, samples=HARD * 250, groups=labels, compare=scores[::-1])
    outline = Outline(page)
    assert outline.open == []
    assert outline.addresses == ["data:,"]
    assert outline.tags.count("script") == 2
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", page)
    assert "default-src 'none'" in page
    items = data_of(page)["samples"]["item"]
    assert {item.rstrip("…") for item in items} == {text.replace("\ud800", "?") for text in HARD}
    text = script_json([*HARD, {"</script>": 1}])
    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text)[0] == HARD[0]
    assert "<title>&lt;b&gt;&amp;&quot;&#x27;</title>" in plain


def test_worst_page_without_images_stays_below_150_kb(tmp_path):
    rng = np.random.default_rng(0)
    long = ["語" * 400 for _ in range(20_000)]
    labels = [f"{'長い' * 40}{i % 500}" for i in range(20_000)]
    values = rng.standard_t(3, size=20_000) * 2.5  # M is beyond the slider: as many budgets as there may be
    options = {"groups": labels, "title": long[0], "compare": values[::-1], "real": values[:3000] + 1, "n": 10**6}
    for texts in (long, ["<" * 5000] * 20_000, [f"<{i}>" for i in range(20_000)]):
        page = page_of(values, tmp_path, samples=texts, **options)
        data = data_of(page)
        assert len(page.encode()) <= 150_000
        assert len(last_budget(data)) == 20_000
        is_cut = len(texts[0].encode()) > 1000
        assert is_cut == any(text.endswith("…") for text in data["samples"]["item"])
        assert ("and whole in what is kept below" in data["note"]) == is_cut
        assert len(data["samples"]["item"]) >= 24
    assert data_of(page_of(np.tile(values, 9), tmp_path))["rows"] is False, "too many for a list"


def test_numbers_of_the_page_are_those_of_the_profile(plain, scores, tmp_path):
    data, profile = data_of(plain), obrs.Profile(scores)
    assert data_of(page_of(profile, tmp_path)) == data | {"code": ANY}
    for i in range(0, len(data["budgets"]), 10):
        budget = data["budgets"][i]
        for key in ("kl", "rkl", "tv", "js", "chi2"):
            assert data[key][i] == pytest.approx(profile.divergence(key, budget), rel=1e-5)
        assert data["rate"][i] == pytest.approx(profile.rate(budget), rel=1e-5)
        assert data["ess"][i] == pytest.approx(profile.ess(budget), rel=1e-5)
    plan = profile.plan(data["budgets"])
    assert data["chi2_marks"] == "".join("~" if "chi2" in row["unreliable"].split() else "." for row in plan)
    share, mean = (np.asarray(data["histogram"][key]) for key in ("share", "mean"))
    assert share.sum() == pytest.approx(1, abs=1e-3)
    for i in range(1, len(data["budgets"]), 20):
        kept = share * np.exp(np.minimum(mean + data["log_c"][i], 0))
        assert kept.sum() == pytest.approx(data["rate"][i], rel=0.02)


def test_rows_of_the_page_are_kept_as_by_the_library(scores, tmp_path):
    other = scores + np.random.default_rng(1).normal(size=2000)
    data = data_of(page_of(scores, tmp_path, samples=[str(i) for i in range(2000)], seed=5, compare=other))
    shown, last = np.asarray(data["samples"]["id"]), last_budget(data)
    np.testing.assert_array_equal(data["samples"]["last"], last[shown])
    np.testing.assert_allclose(data["samples"]["x"], scores[shown], rtol=1e-5)
    for i in [data["budgets"].index(k) for k in (1.5, 4, 10)]:
        budget = data["budgets"][i]
        kept, also = (obrs.accept(obrs.Budgeted.fit(x, budget)(x), np.arange(2000), seed=5) for x in (scores, other))
        np.testing.assert_array_equal(last >= i, kept)
        assert data["compare"]["same"][i] == pytest.approx((kept & also).sum() / kept.sum(), rel=5e-3)


@pytest.mark.parametrize("sd", [0.1, 1, 3])
def test_slider_has_round_budgets_exactly_and_even_steps(sd):
    profile = obrs.Profile(np.random.default_rng(0).normal(size=1000) * sd)
    budgets = slider(Source(profile), budget=2.6)
    assert budgets == sorted(set(budgets))
    assert {k for k in ROUND if k <= budgets[-1]} | {2.6} <= set(budgets)
    assert len(budgets) <= 160
    assert budgets[-1] > min(profile.max_budget, 255)
    assert np.diff(np.log(budgets)).max() < 0.1
    poor = obrs.Profile(np.where(np.arange(900) % 3 == 0, np.linspace(-1, 1, 900), -np.inf))
    assert slider(Source(poor))[0] == 1
    assert slider(Source(poor))[1] >= 3, "what cannot be met is not on the slider"


def test_group_rates_are_means_of_acceptance_and_a_group_without_hope_has_none(scores, tmp_path):
    values = np.where(np.arange(2000) % 4 == 0, -np.inf, scores)
    data = data_of(page_of(values, tmp_path, groups=np.arange(2000) % 4))
    i = data["budgets"].index(4)
    a = np.exp(obrs.Budgeted.fit(values, 4)(values))
    means = [a[g::4].mean() for g in range(4)]
    assert data["groups"]["labels"] == ["0", "1", "2", "3"]
    assert [rates[i] for rates in data["groups"]["rates"]] == pytest.approx(means, rel=5e-3)
    assert set(data["groups"]["rates"][0]) == {0}
    groups = data_of(page_of(scores, tmp_path, groups=np.minimum(np.arange(2000), 99)))["groups"]
    assert (len(groups["labels"]), groups["labels"][0], groups["more"]) == (16, "99", 84)


def test_every_marked_finding_says_what_to_do_and_the_diagnosis_comes_first(scores, tmp_path):
    real = np.random.default_rng(1).normal(size=2000) + 1
    findings = data_of(page_of(3 * scores - 1.5, tmp_path, real=3 * real, budget=2))["findings"]
    assert findings[0][0] == "!"
    assert "repairable at K = 2" in findings[0][1]
    assert findings[0][2].startswith("obrs.ratios.calibration.")
    assert len(findings) > 3
    assert all(todo for mark, _, todo in findings if mark in ("!", "~"))


def test_findings_are_right_for_rewards_and_for_scores_without_a_scale(tmp_path):
    rewards = np.random.default_rng(0).normal(3, 1, 600)
    (tmp_path / "scores.csv").write_text("score\n" + "".join(f"{x}\n" for x in rewards))
    says = {}
    for kind in (["--kind", "reward", "--beta", "1"], ["--kind", "log_ratio"]):
        assert main(["report", str(tmp_path / "scores.csv"), *kind, "-o", str(tmp_path / "report.html")]) == 0
        data = data_of((tmp_path / "report.html").read_text())
        assert data["reward"] == (kind[1] == "reward")
        says[kind[1]] = " ".join(text for _, text, _ in data["findings"])
    assert "E[r] is" in says["log_ratio"]
    assert "tilted by exp(reward / beta)" in says["reward"]
    assert "E[r]" not in says["reward"]
    assert "calibrated" not in says["reward"]
    rates = data_of(page_of(obrs.Profile(rewards, calibrated=False), tmp_path))
    assert "kl" not in rates
    assert "not how close to the target" in rates["findings"][0][1]


def test_thumbnails_stay_within_their_limit_and_arrays_of_any_layout_are_images(tmp_path):
    rng = np.random.default_rng(0)
    for i in range(100):
        Image.fromarray(rng.integers(0, 256, (300, 200, 3), dtype=np.uint8)).save(tmp_path / f"{i}.png")
    kind, uris, limit = show([f"{i}.png" for i in range(100)], range(96), 100, tmp_path)
    assert (kind, len(uris), limit) == ("image", 96, "images have at most 192 pixels a side")
    assert sum(map(len, uris)) <= 2_000_000
    for dtype in ("float32", "uint8"):
        for shape in ((2, 8, 8), (2, 1, 8, 8), (2, 3, 8, 8), (2, 8, 8, 3)):
            assert show(np.ones(shape, dtype=dtype), [0, 1], 2)[0] == "image"
        assert show(np.ones((2, 9), dtype=dtype), [1], 2) == ("text", ["1, 1, 1, 1, 1, 1, …"], "")


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"samples": ["a"]}, InputError, "one item for each of 2000 log-ratios, got 1"),
        ({"samples": "a"}, InputTypeError, "one item for each log-ratio, got str"),
        ({"samples": ["missing.png"] * 2000}, InputError, "there is no image"),
        ({"groups": [1, 2]}, InputError, "groups must have the shape"),
        ({"compare": [1.0, 2.0]}, InputError, "compare must be one log-ratio for each of 2000, got 2"),
        ({"budget": 0.5}, ValueError, "did you mean budget=2"),
        ({"n": 0}, ValueError, "n must be"),
        ({"source": "scores.csv"}, InputTypeError, r"got a path; try `obrs report scores\.csv`"),
        ({"out": "a.pdf"}, InputError, r"written as \.html"),
        ({"out": "no/a.html"}, OSError, "No such file or directory"),
        ({"out": "folder.html"}, OSError, "Is a directory"),
    ],
)
def test_wrong_input_is_one_clear_line(scores, tmp_path, options, error, match):
    (tmp_path / "folder.html").mkdir()
    with pytest.raises(error, match=match) as caught:
        obrs.report(**{"source": scores} | options | {"out": tmp_path / options.get("out", "report.html")})
    assert "\n" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["folder.html"]


def test_images_without_pillow_say_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(MissingLibraryError, match=r"pip install 'obrs\[cli\]'"):
        show(np.zeros((2, 8, 8), dtype=np.uint8), [0], 2)


# The command


@pytest.fixture
def folder(tmp_path, monkeypatch, scores):
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    rows = [f"{x:.6f},{-x:.6f},r{i},{i % 7},text {i},{i}.png,{'ab'[i % 2]}" for i, x in enumerate(scores[:300])]
    Path("data/scores.csv").write_text("log_ratio,other,name,tokens,text,path,label\n" + "\n".join(rows))
    Path("real.csv").write_text("log_ratio\n" + "\n".join(f"{x + 1:.6f}" for x in scores[:300]))
    for i in range(300):
        Image.new("L", (8, 8), i % 256).save(f"data/{i}.png")
    return Path("data/scores.csv")


def run(*arguments):
    return main(["report", *map(str, arguments)])


def test_command_writes_the_page_with_all_its_parts(folder, capsys):
    options = ["--show", "text", "--group", "label", "--real", "real.csv", "--budget", "3"]
    assert run(folder, *options, "--compare", "other", "-o", "page.html") == 0
    assert capsys.readouterr().out.startswith("page.html: 300 scores, ")
    page = Path("page.html").read_text()
    data = data_of(page)
    assert "scores.csv, column &#x27;log_ratio&#x27; read as log_ratio" in page
    assert data["budgets"][data["start"]] == 3
    assert (data["kind"], data["apart"]) == ("text", True)
    plan = obrs.Profile(obrs.files.read(folder)).plan(data["budgets"], groups=np.arange(300) % 2)
    assert data["kl"] == pytest.approx([row["kl"] for row in plan], rel=1e-5), "one constant per group"
    assert "groups" not in data, "each group keeps 1 in K"
    assert data["compare"]["name"] == "other"
    assert "at K = 3, by 300 real and 300 fake scores" in data["findings"][0][1]
    assert data["code"][0]["parts"][0].startswith("obrs select data/scores.csv --column log_ratio --kind log_ratio ")
    assert run("data", "--column", "log_ratio", "--show", "path", "-o", "page.html") == 0
    assert data_of(Path("page.html").read_text())["kind"] == "image", "a folder may stand for its only file"


@pytest.mark.parametrize("options", [[], ["--group", "label", "--seed", "3"], ["--id", "name"], ["--cost", "tokens"]])
def test_the_command_of_a_page_keeps_the_rows_that_the_page_lists(folder, capsys, options):
    assert run(folder, *options, "-o", "page.html") == 0
    data = data_of(Path("page.html").read_text())
    last, ids = last_budget(data), data["rows"]["ids"] or [str(i) for i in range(300)]
    for i in range(1, len(data["budgets"]), 15):
        program, *arguments = shlex.split(str(data["budgets"][i]).join(data["code"][0]["parts"]))
        assert (program, main(arguments)) == ("obrs", 0), capsys.readouterr().err
        kept = [line.split(",")[2] for line in Path("kept.csv").read_text().splitlines()[1:]]
        listed = [id for id, end in zip(ids, last, strict=True) if end >= i]
        assert kept == (listed if "--id" in options else [f"r{i}" for i in listed])
    for block in data["code"][1:]:  # none with groups
        namespace = {}
        exec("2.5".join(block["parts"]), namespace)
        assert len(namespace["kept"]) == 120


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["data/scores.csv", "--show", "txt"], "data/scores.csv has no column 'txt'; it has log_ratio"),
        (["images"], "images has no files of scores"),
        (["two"], "two has 2 files of scores"),
        (["data/scores.csv", "-o", "page.pdf"], "a page is written as .html, got page.pdf"),
        (["data/scores.csv", "--show", "path", "--seed", "1"], "data/7.png cannot be read as an image"),
        (["data/scores.csv", "--group", "label", "--cost", "tokens"], "leave out --cost"),
        (["data/scores.csv", "--group", "label", "--kind", "reward", "--kl", "1"], "the --beta that --kl comes to"),
        (["data/scores.csv", "--group", "tokens", "--budget", "64"], "it must be at most 43"),
        (["data/scores.csv", "--budget", "301"], "it must be at most 300"),
    ],
)
def test_command_says_in_one_line_what_is_wrong(folder, capsys, arguments, words):
    Path("images").mkdir()
    Path("two").mkdir()
    for name in ("a", "b"):
        Path(f"two/{name}.csv").write_text("log_ratio\n0\n")
    for i in range(7, 300, 10):  # so that one of those that are shown is among them
        Path(f"data/{i}.png").write_text("no image")
    target = [] if "-o" in arguments else ["-o", "page.html"]
    assert run(*arguments, *target) == 2
    error = capsys.readouterr().err.strip()
    assert error.startswith("error: ")
    assert "\n" not in error
    assert re.sub(r"\d+\.png", "7.png", error).count(words) == 1
    assert not Path("page.html").exists()


def test_a_page_by_groups_allows_ratios_of_0_and_ends_where_a_row_is_kept(folder):
    rows = [f"{'-inf' if i % 8 == 0 else 9 * (i < 3)},{'ab'[i % 2]},{'' if i % 9 else i}" for i in range(32)]
    folder.write_text("log_ratio,label,other\n" + "\n".join(rows))
    assert run(folder, "--group", "label", "-o", "page.html") == 0
    data = data_of(Path("page.html").read_text())
    assert (data["budgets"][0], data["budgets"][-1]) == (1, 16)
    assert max(last_budget(data)) == len(data["budgets"]) - 1, "the last budget keeps a row"
    assert run(folder, "--compare", "other", "--skip-bad", "-o", "page.html") == 0


def test_a_page_of_signed_weights_has_the_plan_of_the_command_and_an_npy_no_command(folder, capsys):
    weights = np.where(np.arange(300) % 5, 1.0, -1.5)
    Path("w.csv").write_text("weight\n" + "\n".join(map(str, weights)))
    assert run("w.csv", "-o", "page.html") == 0
    data = data_of(Path("page.html").read_text())
    plan = obrs.Profile(np.log(np.abs(weights)), sign=np.sign(weights)).plan(data["budgets"])
    assert data["ess"] == pytest.approx([row["ess"] for row in plan], rel=1e-5)
    np.save("x.npy", np.arange(30.0))
    assert run("x.npy", "--kind", "logit", "-o", "page.html") == 0
    assert [block["title"][:6] for block in data_of(Path("page.html").read_text())["code"]] == ["Python"]


def test_notebooks_show_small_tables_without_scripts(scores):
    profile = obrs.Profile(scores)
    kept = obrs.sample(lambda ids: obrs.normals(ids, 1, seed=1)[:, 0], lambda x: x, 50, budget=2)
    model = obrs.rivals.Model(generate=lambda z: z[:, 0], log_ratio=lambda x: -0.2 * x * x, dim=1)
    real = np.random.default_rng(3).normal(size=(300, 3))
    compared = obrs.rivals.compare(model, 2, samplers=["obrs"], n=50)
    evaluated = obrs.evaluate(real=real, fake=real + 0.3, log_ratio=scores[:300], budgets=[1, 2])
    plans = profile.plan([1, 2]), profile.plan([2], groups=np.arange(2000) % 2)
    for thing in (profile, *plans, kept, obrs.diagnose(scores + 1, scores, 2), compared, evaluated):
        drawn = thing._repr_html_()
        outline = Outline(drawn)
        assert outline.open == []
        assert "table" in outline.tags
        assert "script" not in outline.tags
        assert len(drawn) < 12_000
    assert "~" in profile.plan([1])._repr_html_()


def test_page_of_the_docs_is_made_with_the_template_as_it_is():
    spec = importlib.util.spec_from_file_location("report_tool", ROOT / "tools" / "report.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    page = tool.PAGE.read_text()
    assert tool.refill(page) == page, "run python tools/report.py template picture"
    assert len(page) < 250_000
