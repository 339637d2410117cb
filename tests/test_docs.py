"""What the README and the documentation show is run, compared and built."""

import contextlib
import importlib.util
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


def run_python(page, block, namespace):
    """Run a block at its own line numbers, and compare what it prints."""
    code = compile("\n" * block.line + block.text, str(page), "exec")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, namespace)
    if block.output is not None:
        assert tidy(printed.getvalue()) == tidy(block.output), f"{page.name}, line {block.line}"


def run_console(page, block):
    """Run each `$ obrs …` of a block and compare what it prints."""
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        program, *arguments = shlex.split(command, comments=True)
        where = f"{page.name}, line {block.line}: {command}"
        assert program == "obrs", f"{where}: only obrs is run in such a block"
        printed, errors = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True), io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(errors):
            main(arguments)
        assert tidy(printed.buffer.getvalue().decode()) == tidy(expected), f"{where}\n{errors.getvalue()}"


@each_page
def test_every_example_of_a_page_runs_and_prints_what_it_says(page, tmp_path, monkeypatch):
    blocks, _ = blocks_of(page.read_text())
    for name, value in NARROW.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "__main__"}
    for block in blocks:
        assert not re.match(r"(python|py|pycon)\b(?<!python$)", block.info), f"line {block.line} is not run"
        if block.info == "python":
            run_python(page, block, namespace)
        elif block.info == "console" and block.text.startswith("$ obrs "):
            run_console(page, block)


@each_page
def test_every_relative_link_and_image_leads_somewhere(page):
    _, prose = blocks_of(page.read_text())
    prose = re.sub(r"`[^`\n]*`", "", prose)
    targets = re.findall(r"\]\(\s*<?([^)\s>]+)", prose) + re.findall(r"(?:src|href)=\"([^\"]+)\"", prose)
    local = [t.split("#")[0] for t in targets if not re.match(r"[a-z]+:|#|(\.\./)*api/", t)]  # the build makes api/
    local = [re.sub(r"^(\.\./)*notebooks/(\w+)\.md$", rf"{ROOT}/notebooks/\2.py", t) for t in local]  # built pages
    missing = [t for t in local if not (page.parent / t).exists()]
    assert not missing


def test_commands_that_pages_name_have_these_options():
    """Options that no block runs are those of the program all the same."""
    from typer.main import get_command

    from obrs.cli import app

    commands = get_command(app).commands
    known = {name: {o for p in one.params for o in (*p.opts, *p.secondary_opts)} for name, one in commands.items()}
    wrong = []
    for page in PAGES:
        for line in re.findall(r"\bobrs (\w+) ([^`\n]*)", page.read_text()):
            if line[0] in known:
                options = re.findall(r"(?<!\S)(--[a-z-]+|-[a-z])(?![\w-])", line[1])
                wrong += [f"{page.name}: obrs {line[0]} {o}" for o in options if o not in {*known[line[0]], "--help"}]
    assert not wrong


@pytest.fixture(scope="module")
def hooks():
    pytest.importorskip("mkdocs")
    spec = importlib.util.spec_from_file_location("docs_hooks", DOCS / "hooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_reference_has_every_public_name(hooks):
    pages = "\n".join(hooks.api_page(*page) for page in hooks.API.values())
    shown = {re.sub(r"(\.\w+)\1$", r"\1", name) for name in re.findall(r"^::: (\S+)$", pages, re.MULTILINE)}
    assert {f"obrs.{name}" for name in obrs.__all__} <= shown
    for package in ("rules", "divergences", "selection", "rivals", "training", "adapters", "metrics", "critics"):
        names = {f"obrs.{package}.{name}" for name in hooks.public_names(f"obrs.{package}")}
        assert {name for name in names if name.rsplit(".", 1)[1] not in obrs.__all__} <= shown


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


def test_site_has_copied_files_tables_of_experiments_and_generated_pages(site):
    assert (site / "repo" / "examples" / "results" / "minimal.png").is_file()
    assert "no correction" in (site / "evidence.html").read_text()
    assert "obrs.rules.Stages" in (site / "api" / "rules.html").read_text()
    assert "tuned" in (site / "notebooks" / "cifar10.html").read_text()


def test_site_needs_nothing_from_the_network(site):
    external = re.compile(r"<(?:script|img|iframe)[^>]+src=\"?https?://[^\s>]*|<link[^>]+href=\"?https?://[^\s>]*")
    assert not {match for page in site.rglob("*.html") for match in external.findall(page.read_text())}
