"""What the README and the documentation show is run, compared and built."""

import contextlib
import io
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import obrs
from obrs.cli import main

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>`{3,})(?P<info>[^`\n]*)$")
NARROW = {"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb", "MPLBACKEND": "Agg"}

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))


@dataclass
class Block:
    """A fenced block: its info string, its text, the line it starts on, and the plain block right after it."""

    info: str
    text: str
    line: int
    output: str | None = None


def blocks_of(text):
    """Return the fenced blocks of a page, and the page without them."""
    blocks, prose, current, last_end = [], [], None, None
    for number, line in enumerate(text.splitlines(), 1):
        fence = FENCE.match(line)
        if current is None and fence:
            current = (fence["info"].strip(), number, fence["indent"], fence["ticks"], [])
        elif current and fence and fence["info"].strip() == "" and len(fence["ticks"]) >= len(current[3]):
            info, start, indent, _, lines = current
            block = Block(info, "\n".join(row.removeprefix(indent) for row in lines), start)
            if info == "" and last_end is not None and blocks and blocks[-1].info == "python":
                blocks[-1].output = block.text
            else:
                blocks.append(block)
            current, last_end = None, number
        elif current:
            current[4].append(line)
        else:
            prose.append(line)
            last_end = last_end if not line.strip() else None
    assert current is None, f"the block that starts on line {current[1]} has no end"
    return blocks, "\n".join(prose)


def tidy(text):
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines())


def run_python(page, blocks):
    """Run the blocks in one namespace, each at its own line numbers, and compare what they print."""
    namespace = {"__name__": "__main__"}
    for block in blocks:
        code = compile("\n" * block.line + block.text, str(page), "exec")
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, namespace)
        if block.output is not None:
            where = f"{page.name}, line {block.line}"
            assert tidy(printed.getvalue()) == tidy(block.output), where


def run_console(page, block):
    """Run each `$ obrs …` of a block and compare what it prints."""
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        while command.endswith("\\"):
            more, _, expected = expected.partition("\n")
            command = command[:-1] + more
        program, *arguments = shlex.split(command, comments=True)
        where = f"{page.name}, line {block.line}: {command}"
        assert program == "obrs", f"{where}: only obrs is run in such a block"
        printed, said = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True), io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(said):
            main(arguments)
        assert tidy(printed.buffer.getvalue().decode()) == tidy(expected), f"{where}\n{said.getvalue()}"


@each_page
def test_every_example_of_a_page_runs_and_prints_what_it_says(page, tmp_path, monkeypatch, request):
    blocks, _ = blocks_of(page.read_text())
    if any("import jax" in block.text for block in blocks):
        request.getfixturevalue("single_precision_jax")
    for name, value in NARROW.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    run_python(page, [b for b in blocks if b.info == "python"])
    for block in blocks:
        if block.info == "console" and block.text.startswith("$ obrs "):
            run_console(page, block)


@each_page
def test_no_python_example_is_exempt_from_running(page):
    blocks, _ = blocks_of(page.read_text())
    exempt = [
        f"line {b.line}: {b.info}" for b in blocks if re.match(r"(python|py|pycon)\b", b.info) and b.info != "python"
    ]
    assert not exempt


@each_page
def test_every_relative_link_and_image_leads_somewhere(page):
    _, prose = blocks_of(page.read_text())
    prose = re.sub(r"`[^`\n]*`", "", prose)
    targets = re.findall(r"\]\(\s*<?([^)\s>]+)", prose) + re.findall(r"(?:src|href)=\"([^\"]+)\"", prose)
    local = [t.split("#")[0] for t in targets if not re.match(r"[a-z]+:|#", t)]
    missing = [t for t in local if not (page.parent / t).exists()]
    assert not missing


def test_api_page_has_every_public_name():
    documented = set(re.findall(r"^::: obrs\.(?:\w+\.)*(\w+)$", (DOCS / "api.md").read_text(), re.MULTILINE))
    assert set(obrs.__all__) <= documented


def test_errata_name_every_check_and_every_check_exists():
    named = set(re.findall(r"`(test_erratum_\w+)`", (DOCS / "errata.md").read_text()))
    written = set(re.findall(r"^def (test_erratum_\w+)", (ROOT / "tests" / "test_errata.py").read_text(), re.MULTILINE))
    assert named == written


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built site; a warning of the build is an error."""
    for module in ("mkdocs", "material", "mkdocstrings"):
        pytest.importorskip(module)
    folder = tmp_path_factory.mktemp("site")
    # not --quiet: it would silence the warnings before --strict counts them
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


def test_site_builds_without_a_warning(site):
    assert (site / "index.html").is_file()
    assert (site / "repo" / "examples" / "results" / "minimal.png").is_file()


def test_site_has_the_tables_of_experiments_and_the_map_of_the_code(site):
    assert "no correction" in (site / "evidence" / "language.html").read_text()
    page = (site / "map.html").read_text()
    assert "<code>budget.py</code>" in page
    assert "<code>table_2.py</code>" in page


def test_site_needs_nothing_from_the_network(site):
    external = re.compile(r"<(?:script|img|iframe)[^>]+src=\"?https?://[^\s>]*|<link[^>]+href=\"?https?://[^\s>]*")
    found = {match for page in site.rglob("*.html") for match in external.findall(page.read_text())}
    assert not found


def test_no_star_of_a_formula_became_emphasis(site):
    for page in site.rglob("*.html"):
        emphasised = re.findall(r"<em>([^<]*)", page.read_text())
        assert not [text for text in emphasised if "=" in text and "(" in text], page.name


def test_blocks_are_found_with_their_output():
    text = "```python\nprint(1)\n```\n\n```\n1\n```\ntext\n```\nplain\n```\n    ```python\n    x\n    ```\n"
    blocks, prose = blocks_of(text)
    assert [(b.info, b.text, b.output) for b in blocks] == [
        ("python", "print(1)", "1"),
        ("", "plain", None),
        ("python", "x", None),
    ]
    assert prose == "\ntext"
