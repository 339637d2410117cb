"""Install the wheel of `dist/` without extras in an empty environment, and run the Python lines of the README there.

Where a block of output follows a block of Python, that must be what it prints. Run by `make install-check`.
"""

import os
import re
import subprocess
import tempfile
import venv
from pathlib import Path
from zipfile import ZipFile

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:```\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)


def main() -> None:
    """Stop with an error if the wheel holds more than obrs, or if a block of the README fails or prints other text."""
    (wheel,) = (ROOT / "dist").glob("*.whl")
    if more := [name for name in ZipFile(wheel).namelist() if not name.startswith(("obrs/", "obrs-"))]:
        raise SystemExit(f"{wheel.name} has {len(more)} files that are not of obrs, such as {more[0]}")
    blocks = BLOCK.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    if not blocks:
        raise SystemExit("README.md has no block of Python")
    with tempfile.TemporaryDirectory() as home:
        venv.create(home, with_pip=True)
        python = Path(home, "Scripts/python.exe" if os.name == "nt" else "bin/python")
        pip = [python, "-m", "pip", "--disable-pip-version-check", "--quiet"]
        subprocess.run([*pip, "install", "-c", ROOT / "constraints.txt", wheel], check=True)
        for code, expected in blocks:
            run = subprocess.run([python, "-c", code], cwd=home, check=True, stdout=subprocess.PIPE, text=True)
            if expected and run.stdout != expected:
                raise SystemExit(f"README.md says\n{expected}but its lines print\n{run.stdout}")
    print(f"{wheel.name}: runs {len(blocks)} block(s) of README.md without extras")


if __name__ == "__main__":
    main()
