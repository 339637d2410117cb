"""Run notebooks in fresh kernels: python tools/notebooks.py [NAME...] writes notebooks/built/NAME.ipynb."""

import sys
from pathlib import Path

import jupytext
import nbclient
import nbformat

NOTEBOOKS = Path(__file__).resolve().parents[1] / "notebooks"


def run(name, timeout=3600):
    """Return a notebook with its outputs; a cell that fails is an error."""
    notebook = jupytext.read(NOTEBOOKS / f"{name}.py", fmt="py:percent")
    return nbclient.execute(notebook, cwd=NOTEBOOKS, timeout=timeout, kernel_name="python3")


if __name__ == "__main__":
    for name in sys.argv[1:] or sorted(path.stem for path in NOTEBOOKS.glob("*.py")):
        built = NOTEBOOKS / "built" / f"{name}.ipynb"
        built.parent.mkdir(exist_ok=True)
        nbformat.write(run(name), built)
        print(built)
