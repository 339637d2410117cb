"""Adapt the build of the site.

* API pages are generated, one per package, from the names that its modules export.
* Notebooks are rendered from `notebooks/NAME.py`, with the outputs of `notebooks/built/NAME.ipynb` if `make notebooks`
  has made them.
* A page may link to files of the repository outside docs/: they are copied into the site, under repo/, so that a link
  such as `../examples/results/minimal.png` works on the site as it does in the repository.
* `Example:` and `References:` of docstrings become code and a list.
"""

import ast
import base64
import json
import posixpath
import re
from pathlib import Path

import griffe
from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(\]\()([^)#\s]+)")

NOTEBOOKS = ("quickstart", "two_moons", "cifar10", "pipeline", "rollouts", "parquet")
# Title of each API page, and its modules; after a colon the names to show, if not all that the module exports.
API = {
    "obrs": ("obrs", ["obrs", "obrs.types: Proposal LogRatio Rule"]),
    "rules": ("obrs.rules", ["obrs.rules", "obrs.groups", "obrs.budget", "obrs.profile", "obrs.divergences"]),
    "sampling": ("Samples and random numbers", ["obrs.sampling.samples: Calls", "obrs.estimate", "obrs.draws"]),
    "selection": ("obrs.selection", ["obrs.selection", "obrs.language"]),
    "files": ("obrs.files, ray and sql", ["obrs.files: read plan select Selected", "obrs.ray", "obrs.sql"]),
    "critics": ("obrs.critics", ["obrs.critics"]),
    "ratios": (
        "obrs.ratios",
        [
            "obrs.ratios: combine",
            "obrs.ratios.refit",
            "obrs.tuning",
            "obrs.ratios.doctor: Diagnosis",
            "obrs.ratios.calibration: fit_calibration Affine Isotonic",
            "obrs.ratios.plot",
        ],
    ),
    "metrics": ("obrs.metrics", ["obrs.metrics"]),
    "training": ("obrs.training", ["obrs.training"]),
    "rivals": ("obrs.rivals", ["obrs.rivals", "obrs.rivals.lars"]),
    "adapters": ("obrs.adapters", ["obrs.adapters"]),
    "models": ("obrs.models", ["obrs.models.classifier", "obrs.models.mlp"]),
    "errors": ("obrs.errors", ["obrs.errors"]),
}


def public_names(module):
    """Return the names in `__all__` of a module, read without importing it."""
    place = ROOT / "src" / Path(*module.split("."))
    path = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    names = []
    for node in ast.parse(path.read_text()).body:
        target = node.target if isinstance(node, ast.AugAssign) else getattr(node, "targets", [None])[0]
        if getattr(target, "id", None) == "__all__":
            names += ast.literal_eval(node.value)
    return names


def api_page(title, modules):
    """Return the Markdown of an API page."""
    front = public_names("obrs")
    lines = [f"# {title}", ""]
    for entry in modules:
        module, _, chosen = entry.partition(": ")
        for name in chosen.split() or public_names(module):
            if module == "obrs" or name not in front:
                # of a file and a function of one name, Griffe would take the file
                is_file = (ROOT / "src" / Path(*module.split("."), f"{name}.py")).is_file()
                lines += [f"::: {module}.{name}.{name}" if is_file else f"::: {module}.{name}", ""]
    return "\n".join(lines)


def notebook_cells(name):
    """Yield the cells of a notebook: its kind, its source and its outputs, which are empty unless it was built."""
    built = ROOT / "notebooks" / "built" / f"{name}.ipynb"
    if built.is_file():
        for cell in json.loads(built.read_text())["cells"]:
            yield cell["cell_type"], "".join(cell["source"]), cell.get("outputs", [])
        return
    text = (ROOT / "notebooks" / f"{name}.py").read_text()
    for kind, source in re.findall(r"^# %%( \[markdown\])?\n(.*?)(?=^# %%|\Z)", text, re.M | re.S):
        source = re.sub(r"^# ?", "", source, flags=re.M) if kind else source
        yield "markdown" if kind else "code", source.strip(), []


def notebook_page(name):
    """Return the Markdown of a notebook, and its pictures by file name."""
    parts, pictures = [], {}
    for kind, source, outputs in notebook_cells(name):
        parts.append(source if kind == "markdown" else f"```python\n{source}\n```")
        for output in outputs:
            if output.get("name") == "stderr":  # warnings of libraries, with paths of a machine
                continue
            data = output.get("data", {})
            text = "".join(output.get("text", "")) or "".join(data.get("text/plain", ""))
            if "image/png" in data:
                picture = f"{name}-{len(pictures)}.png"
                pictures[picture] = base64.b64decode("".join(data["image/png"]))
                parts.append(f"![Output of the cell above]({picture})")
            elif "text/html" in data:
                parts.append(re.sub(r"\n\s*\n", "\n", f"<div>{''.join(data['text/html'])}</div>"))
            elif text.strip():
                parts.append(f"```text\n{text.rstrip()}\n```")
    source = f"[{name}.py](../../notebooks/{name}.py) is the source of this page; `make notebooks` runs it."
    return "\n\n".join([parts[0], source, *parts[1:]]) + "\n", pictures


def resolve_link(target, src_uri):
    """Return the path in the repository that a link leads to if that is outside docs/, else None."""
    if "://" in target or target.startswith(("/", "mailto:")):
        return None
    path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(src_uri), target))
    return None if path.startswith("docs/") else path


def on_config(config):
    for section in config.nav:
        if "Reference" in section:
            section["Reference"] += [{title: f"api/{page}.md"} for page, (title, _) in API.items()]
        if "Notebooks" in section:
            section["Notebooks"] += [f"notebooks/{name}.md" for name in NOTEBOOKS]
    return config


def on_files(files, config):
    for page, (title, modules) in API.items():
        files.append(File.generated(config, f"api/{page}.md", content=api_page(title, modules)))
    for name in NOTEBOOKS:
        text, pictures = notebook_page(name)
        files.append(File.generated(config, f"notebooks/{name}.md", content=text))
        for picture, content in pictures.items():
            files.append(File.generated(config, f"notebooks/{picture}", content=content))
    for page in list(files.documentation_pages()):
        for _, target in LINK.findall(page.content_string):
            path = resolve_link(target, page.src_uri)
            if path and (ROOT / path).is_file() and f"repo/{path}" not in files.src_uris:
                files.append(File.generated(config, f"repo/{path}", abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown, page, config, files):
    here = posixpath.dirname(page.file.src_uri)

    def rewrite(match):
        path = resolve_link(match[2], page.file.src_uri)
        if path is None or f"repo/{path}" not in files.src_uris:
            return match[0]
        return match[1] + posixpath.relpath(f"repo/{path}", here or ".")

    return LINK.sub(rewrite, markdown)


class Sections(griffe.Extension):
    """Write `Example:` as Griffe wants it, in the plural, and turn the bars of `References:` into a list."""

    def on_instance(self, *, obj, **kwargs):
        if obj.docstring:
            text = re.sub(r"^( *)Example:$", r"\1Examples:", obj.docstring.value, flags=re.MULTILINE)
            obj.docstring.value = re.sub(r"^( *)\| ", r"\1- ", text, flags=re.MULTILINE)
