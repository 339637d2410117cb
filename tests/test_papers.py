"""PAPERS.md has a row for every paper that a docstring cites, and names only what exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE, PAPER = ROOT / "src" / "obrs", ROOT / "paper"
ROWS = [line for line in (ROOT / "PAPERS.md").read_text().splitlines() if line.startswith("| ")][1:]
NAMES = sorted({name for row in ROWS for name in re.findall(r"`([^`]+)`", row)})


def citations():
    """Yield the citations below `References:`: who, when and where."""
    for path in (*SOURCE.rglob("*.py"), *PAPER.rglob("*.py")):
        text = re.sub(r"\n +(?=[^|\n]*\d{4}\))", " ", path.read_text())  # a citation may go on in the next line
        for line in re.findall(r"^ *\| (.+)$", text, re.MULTILINE):
            if match := re.search(r"\(([^()]+?),? (\d{4})\)", line):
                yield re.split(r",| and | & | et al", match[1])[0].strip(), match[2], path.name


CITED = sorted(set(citations()))


@pytest.mark.parametrize(("who", "year", "where"), CITED, ids=lambda value: value)
def test_every_paper_that_is_cited_has_a_row(who, year, where):
    assert any(re.search(rf"{who}\b[^;|]*\b{year}\b", row) for row in ROWS), f"{where} cites {who} {year}"


@pytest.mark.parametrize("name", [name for name in NAMES if "/" in name])
def test_every_path_that_is_named_exists(name):
    path, _, inside = name.partition(": ")
    assert (ROOT / path).exists()
    assert not inside or re.search(rf"\b{inside}\b", (ROOT / path).read_text())


@pytest.mark.parametrize("name", [name for name in NAMES if re.fullmatch(r"[a-z_]+(\.\w+)+(\(.*\))?", name)])
def test_every_function_that_is_named_exists(name):
    parts = name.partition("(")[0].split(".")
    place = ROOT if parts[0] == "paper" else SOURCE
    while parts and place.is_dir():
        part = parts[0]
        if not (place / part).is_dir() and not (place / f"{part}.py").is_file():
            break
        place = place / part if (place / part).is_dir() else place / f"{part}.py"
        parts.pop(0)
    code = (place / "__init__.py" if place.is_dir() else place).read_text()
    assert all(re.search(rf"\b{part}\b", code) for part in parts), f"{name} is not in {place}"
