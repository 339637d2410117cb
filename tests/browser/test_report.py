"""The report in a real browser: `make test-browser`, with Playwright on the Chromium of the system."""

import csv
import math
import re
import shlex
import shutil

import numpy as np
import pytest

import obrs
from obrs.cli.app import main

pytestmark = pytest.mark.browser

FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
FLAGS += ["--disable-component-update", "--disable-sync"]
TEN = [1, 1.25, 1.5, 2, 3, 4, 6, 8, 16, 32]


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("needs Chromium: apt-get install -y chromium")
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield started
        started.close()


@pytest.fixture
def show(browser):
    """Open a page; at the end, no page may have said an error or asked for anything but itself."""
    messages, requests, contexts = [], [], []

    def open_page(path, address="", **settings):
        context = browser.new_context(**({"viewport": {"width": 1280, "height": 900}} | settings))
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: messages.append(message.text))
        page.on("pageerror", lambda error: messages.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(f"file://{path}{address}")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not messages
    assert all(re.match(r"file://.*\.html|data:|blob:", url) for url in requests)


@pytest.fixture(scope="module")
def scores():
    return np.random.default_rng(0).normal(size=12_000) * 1.1


@pytest.fixture(scope="module")
def page_file(scores, tmp_path_factory):
    texts = [f"row {i}" for i in range(len(scores))]
    out = tmp_path_factory.mktemp("page") / "report.html"
    other = scores + np.random.default_rng(1).normal(size=len(scores))
    return obrs.report(scores, out=out, samples=texts, groups=np.arange(len(scores)) % 5, n=100, compare=other)


def go_to(page, budget):
    """Move the slider as the address does."""
    page.evaluate(f"location.hash = '#K={budget:g}'")
    page.wait_for_selector(f"#K >> text='K = {budget:g}'")


def number(page, key):
    """Return a number that the page shows, one unit of its last digit, and whether it is marked."""
    text = page.text_content(f"[data-value={key}]").replace(",", "")
    digits = text.strip("~ %")
    value = math.inf if "∞" in text else float(digits)
    unit = 10.0 ** -len(digits.partition(".")[2].partition("e")[0]) * 10.0 ** int(digits.partition("e")[2] or 0)
    return (value / 100, unit / 100, False) if "%" in text else (value, unit, text.startswith("~"))


def agrees(page, key, exact):
    value, unit, _ = number(page, key)
    return value == exact or abs(value - exact) <= 0.51 * max(unit, 1e-12)


def ids_in(page, side):
    return {int(i) for i in page.eval_on_selector_all(f"#{side} button", "x => x.map(e => e.dataset.id)")}


def test_numbers_are_those_of_the_profile_with_the_digits_that_the_interval_leaves(show, page_file, scores):
    page, profile = show(page_file), obrs.Profile(scores)
    plan = {row["budget"]: row for row in profile.plan(TEN)}
    for budget in TEN:
        go_to(page, budget)
        exact = {key: profile.divergence(key, budget) for key in ("kl", "rkl", "tv", "js", "chi2")}
        exact |= {"rate": profile.rate(budget), "ess": profile.ess(budget), "cost": 1 / profile.rate(budget)}
        row = plan[budget]
        exact["precision"] = row["precision"]
        for key, value in exact.items():
            assert agrees(page, key, value), (budget, key, value)
            assert number(page, key)[2] == (key in row["unreliable"].split()), (budget, key)
        if row["kl_high"] > row["kl_low"] and row["kl"] > 1e-3:
            half = (row["kl_high"] - row["kl_low"]) / 2
            assert min(half / 10, row["kl"] / 100) <= number(page, "kl")[1] <= half, budget


def test_headline_is_for_people(show, page_file, scores, tmp_path):
    page, profile = show(page_file, "#K=4"), obrs.Profile(scores)
    gone = 100 * (1 - profile.divergence("kl", 4) / profile.divergence("kl"))
    assert page.text_content("#headline").startswith(f"Keep 1 in 4: {gone:.0f} % of the gap to the target is gone.")
    go_to(page, 1)
    assert "Nothing is rejected" in page.text_content("#headline")
    assert page.locator("#first .tile").count() == 4
    assert not page.locator("[data-value=tv]").is_visible()
    page.click("summary")
    assert page.locator("[data-value=tv]").is_visible()
    for key in ("kl", "precision", "ess", "M"):
        tip = page.locator(".tile", has=page.locator(f"[data-value={key}]")).locator(".tip")
        assert tip.get_attribute("aria-label").count(".") == 1, key
        tip.focus()
        assert "none" not in tip.evaluate("x => getComputedStyle(x, '::after').content")


def test_kept_samples_are_those_of_the_library_and_fewer_the_larger_the_budget(show, page_file, scores):
    page = show(page_file, "#K=1")
    shown = before = ids_in(page, "in")
    assert len(shown) == 96
    for budget in TEN:
        go_to(page, budget)
        rule = obrs.Budgeted.fit(scores, budget)
        accepted = set(np.flatnonzero(obrs.accept(rule(scores), np.arange(len(scores)))).tolist())
        assert ids_in(page, "in") == shown & accepted, budget
        assert ids_in(page, "out") == shown - accepted, "side by side"
        assert ids_in(page, "in") <= before
        before = ids_in(page, "in")
        assert page.inner_text("#count").startswith(f"{len(before)} of 96")
    assert len(before) < 10


def test_samples_are_sorted_filtered_and_shown_whole(show, page_file, scores):
    page = show(page_file, "#K=2")
    everything = ids_in(page, "in") | ids_in(page, "out")
    page.select_option("#sort", "-1")
    order = page.eval_on_selector_all("#in button", "x => x.map(e => +e.dataset.id)")
    assert order == sorted(order, key=lambda i: -scores[i])
    page.select_option("#group", "3")
    assert ids_in(page, "in") | ids_in(page, "out") == {i for i in everything if i % 5 == 3}
    page.select_option("#group", "")
    page.fill("#low", "0.5")
    assert ids_in(page, "in") | ids_in(page, "out") == {i for i in everything if scores[i] >= 0.5}
    page.fill("#low", "")
    page.select_option("#by", "this")
    assert ids_in(page, "out") == set()
    page.select_option("#by", "")
    page.focus("#in button >> nth=0")
    page.keyboard.press("Enter")
    assert page.inner_text("#whole") == f"row {order[0]}"
    assert "kept up to K = " in page.inner_text("#dialog-facts")
    assert "the other score: log r" in page.inner_text("#dialog-facts")
    page.keyboard.press("Escape")
    assert not page.locator("#dialog").is_visible()


def test_curve_after_rejection_is_that_of_the_profile(show, page_file, scores):
    page, profile = show(page_file, "#K=4"), obrs.Profile(scores)
    points = re.findall(r"[ML](\S+) (\S+?)(?=[ML]|$)", page.get_attribute("#curve path.curve", "d"))
    x, y = np.asarray(points, dtype=float).T
    recall, precision = (x - 40) / 330 * 1.02, (196 - y) / 186 * 1.04
    for r in (0.2, 0.5, 0.8, 0.9, 0.95):
        drawn = float(np.interp(r, recall[::-1], precision[::-1]))
        assert drawn == pytest.approx(profile.plan([4], recall=r)[0]["precision"], abs=0.01), r


def test_redraw_takes_less_than_20_ms(show, page_file):
    page = show(page_file)
    measure = page.context.new_cdp_session(page)
    measure.send("Performance.enable", {"timeDomain": "threadTicks"})  # of the processor: others may be at work

    def seconds():
        return {row["name"]: row["value"] for row in measure.send("Performance.getMetrics")["metrics"]}["TaskDuration"]

    times = []
    for _ in range(5):
        begun = seconds()
        # with style and layout, which the browser would else put off
        page.evaluate(
            "() => { for (let i = 0; i < K.length; i++) { move(i); document.body.getBoundingClientRect(); } }"
        )
        times.append((seconds() - begun) / page.evaluate("K.length"))
    assert 0 < np.median(times) < 0.020


def test_keys_address_and_plan_rows_move_the_slider(show, page_file):
    page = show(page_file, "#K=8")
    assert page.inner_text("#K") == "K = 8"
    page.focus("#budget")
    page.keyboard.press("ArrowRight")
    above = page.inner_text("#K")
    assert float(above.removeprefix("K = ")) > 8
    assert page.evaluate("location.hash") == "#" + above.replace(" ", "")
    assert re.fullmatch(rf"{above}, keeps .* %, KL left .*", page.get_attribute("#budget", "aria-valuetext"))
    page.keyboard.press("Home")
    assert page.inner_text("#K") == "K = 1"
    page.click("#ticks button >> text='16'")
    assert page.evaluate("location.hash") == "#K=16"
    page.click("#plan tr[data-k='2'] td >> nth=2")
    assert page.inner_text("#K") == "K = 2"
    page.focus("#plan tr[data-k='4'] button")
    page.keyboard.press("Enter")
    assert page.inner_text("#K") == "K = 4"
    page.evaluate("location.hash = '#K=nonsense'")
    assert page.inner_text("#K") == "K = 4"
    page.focus("input[value=kl]")
    page.keyboard.press("ArrowRight")
    assert page.inner_text("#left-title") == "precision"


def test_groups_and_the_other_score_are_those_of_the_rule(show, page_file, scores):
    page = show(page_file, "#K=4")
    a = np.exp(obrs.Budgeted.fit(scores, 4)(scores))
    for group in range(5):
        shown = float(page.inner_text(f"[data-group='{group}']").strip(" %")) / 100
        assert shown == pytest.approx(a[group::5].mean(), rel=5e-3)
    assert re.match(r"At K = 4, [\d.]+ % of the kept are kept by the other score", page.inner_text("#compare-says"))


def test_the_list_of_the_page_is_what_its_command_keeps(show, tmp_path, monkeypatch, scores):
    monkeypatch.chdir(tmp_path)
    probability = 1 / (1 + np.exp(-scores[:900]))
    with open("d's scores.csv", "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["D", "text", "class"])
        rows.writerows([f"{p:.9f}", f'te,x"t {i}', i % 3] for i, p in enumerate(probability))
    for more, name in (["--show", "text", "--group", "class"], "index"), (["--id", "text"], "text"):
        options = ["--column", "D", "--kind", "probability", "--seed", "3", *more]
        assert main(["report", "d's scores.csv", *options, "-o", "page.html"]) == 0
        page = show(tmp_path / "page.html", "#K=4")
        assert page.locator(".three section:visible").count() == (2 if name == "index" else 3), "no curve by groups"
        command = page.locator("#code pre").first.inner_text()
        assert command.startswith("""obrs select 'd'"'"'s scores.csv' --column D --kind probability""")
        assert main(shlex.split(command)[1:]) == 0
        with open("kept.csv", newline="") as file:
            kept = [row["text"] for row in csv.DictReader(file)]
        with page.expect_download() as download:
            page.click("#download")
        assert download.value.suggested_filename == "kept-K4.csv"
        with open(download.value.path(), newline="") as file:
            listed = [row[name] for row in csv.DictReader(file)]
        assert (listed if name == "text" else [f'te,x"t {i}' for i in listed]) == kept
        assert len(kept) == 225
        go_to(page, 1)
        assert page.locator("#download").is_disabled()


HARD = ["</script><script>alert(1)</script>", "\"'`${}", "<!--", "<img src=x onerror=alert(1)>"]
HARD += ["a\u2028b", "\\u003c", "&amp;"]


def test_texts_are_shown_as_they_are(show, tmp_path):
    labels = np.asarray(HARD)[np.arange(70) % 7]
    out = tmp_path / "hard.html"
    obrs.report(np.linspace(-1, 1, 70), out=out, samples=labels, groups=labels, title=HARD[0])
    page = show(out, "#K=1")
    assert page.eval_on_selector_all("#in .item", "x => x.map(e => e.textContent)") == labels.tolist()
    assert set(page.eval_on_selector_all("#groups tbody th", "x => x.map(e => e.textContent)")) >= {HARD[0], HARD[1]}
    assert page.title() == page.inner_text("h1") == HARD[0]
    assert page.locator("img").count() == 0


def test_edges_of_the_input(show, tmp_path):
    minus_infinity = np.where(np.arange(400) % 4 == 0, -np.inf, np.random.default_rng(0).normal(size=400))
    cases = {
        "one row": ([0.3], {}),
        "equal rows": ([1.0, 1.0, 1.0], {}),
        "minus infinity": (minus_infinity, {"groups": np.where(minus_infinity == -np.inf, "none", "some")}),
        "K beyond M": (np.log([0.5, 1.0, 1.5]), {"budget": 30}),
        "heavy": (np.random.default_rng(1).standard_t(2, size=500) * 3, {}),
        "huge ratios": (np.asarray([-800.0, 0.0, 700.0]), {}),
    }
    for name, (values, more) in cases.items():
        values = np.asarray(values, dtype=float)
        out = tmp_path / f"{name}.html"
        page = show(obrs.report(values, out=out, samples=[name] * len(values), **more))
        profile, budgets = obrs.Profile(values), page.evaluate("K")
        if name == "K beyond M":
            assert "the gap to the target is gone" in page.text_content("#headline")
        page.evaluate("move(0)")
        shown = ids_in(page, "in")
        for i in {0, 1, *range(5, len(budgets), 9), len(budgets) - 1} & {*range(len(budgets))}:
            page.evaluate(f"move({i})")
            assert not re.search("NaN|undefined|null", page.inner_text("body")), (name, budgets[i])
            assert agrees(page, "kl", profile.divergence("kl", budgets[i])), (name, budgets[i])
            if i:  # the first is the model itself
                kept = obrs.accept(obrs.Budgeted.fit(values, budgets[i])(values), np.arange(len(values)))
                assert ids_in(page, "in") == set(np.flatnonzero(kept).tolist()) & shown, (name, budgets[i])
        if name == "minus infinity":
            assert page.inner_text("[data-group=none]") == "0 %"


def test_a_million_rows_fit(show, tmp_path):
    values = np.random.default_rng(2).normal(size=10**6)
    out = obrs.report(values, out=tmp_path / "million.html", groups=np.arange(10**6) % 3)
    assert out.stat().st_size <= 100_000
    page, profile = show(out, "#K=4"), obrs.Profile(values)
    assert agrees(page, "kl", profile.divergence("kl", 4))
    assert not page.locator("#download").is_visible()
    assert page.locator("#too-long").is_visible()


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_the_screen_by_day_and_by_night(show, tmp_path, page_file, width, scheme):
    settings = {"viewport": {"width": width, "height": 844}, "color_scheme": scheme}
    images = np.random.default_rng(0).integers(0, 256, (200, 28, 28), dtype=np.uint8)
    values = np.random.default_rng(0).normal(size=200)
    pictures = obrs.report(values, out=tmp_path / "images.html", samples=images)
    rates = obrs.report(obrs.Profile(values, calibrated=False), out=tmp_path / "rates.html")
    for path in (page_file, pictures, rates):
        page = show(path, "#K=2", **settings)
        assert page.evaluate("document.documentElement.scrollWidth") == width
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert ground == {"light": "rgb(246, 247, 248)", "dark": "rgb(18, 21, 24)"}[scheme]
        assert page.evaluate("[...document.images].every(image => image.naturalWidth === 28)")
    assert page.locator("svg:visible").count() == 1, "scores without a scale have one chart"
    assert page.text_content("#headline").startswith("Keep 1 in 2.")
    page.emulate_media(media="print")
    assert not page.locator("#budget").is_visible()
    assert page.locator("#plan").is_visible()
    assert page.pdf()[:4] == b"%PDF"
