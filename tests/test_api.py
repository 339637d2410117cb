"""The public surface, as a file: a change to it is seen in review.

After a wanted change: python tests/test_api.py > tests/api.txt
"""

import dataclasses
import inspect
from importlib import import_module
from pathlib import Path

import obrs

SOURCE = Path(obrs.__file__).parent
MODULES = sorted(
    ".".join(["obrs", *path.relative_to(SOURCE).with_suffix("").parts]).removesuffix(".__init__")
    for path in SOURCE.rglob("*.py")
    if not any(part.startswith("_") and part != "__init__.py" for part in path.relative_to(SOURCE).parts)
)


def surface():
    """One line per name at the top level with its signature or keys, and one per module with its public names."""
    lines = []
    for name in sorted(obrs.__all__):
        thing = getattr(obrs, name)
        if inspect.isclass(thing):
            fields = ", ".join(f.name for f in dataclasses.fields(thing)) if dataclasses.is_dataclass(thing) else ""
            lines.append(f"{name}({fields})")
            for key in sorted(vars(thing)):
                if not key.startswith("_") and callable(getattr(thing, key)):
                    lines.append(f"{name}.{key}{signature(getattr(thing, key))}")
        elif callable(thing):
            lines.append(f"{name}{signature(thing)}")
        else:
            lines.append(f"{name}: {', '.join(thing)}")
    return lines + [f"{name}: {', '.join(public_names(name))}" for name in MODULES if name != "obrs"]


def public_names(module):
    return sorted(getattr(import_module(module), "__all__", ()))


def signature(function):
    parameters = inspect.signature(function).parameters.values()
    plain = [p.replace(annotation=inspect.Parameter.empty) for p in parameters]
    return str(inspect.Signature(plain))


def test_public_surface_is_the_one_on_file():
    assert surface() == (Path(__file__).parent / "api.txt").read_text().splitlines()


def test_every_public_function_has_an_example():
    for name in obrs.__all__:
        thing = getattr(obrs, name)
        if callable(thing):
            assert ">>>" in (thing.__doc__ or ""), name


if __name__ == "__main__":
    print("\n".join(surface()))
