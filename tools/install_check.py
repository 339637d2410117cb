"""Run the Python lines of the README where the wheel of `dist/` is installed alone, without extras.

Where a block of output follows a block of Python, that must be what it prints. Run by `make install-check`.
"""

import contextlib
import io
import re
import sys
from pathlib import Path
from zipfile import ZipFile

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:```\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)

if __name__ == "__main__":
    (wheel,) = (ROOT / "dist").glob("*.whl")
    if more := [name for name in ZipFile(wheel).namelist() if not name.startswith(("obrs/", "obrs-"))]:
        sys.exit(f"{wheel.name} has {len(more)} files that are not of obrs, such as {more[0]}")
    blocks = BLOCK.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    for code, expected in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, {})
        if expected and printed.getvalue() != expected:
            sys.exit(f"README.md says\n{expected}but its lines print\n{printed.getvalue()}")
    sys.exit(0 if blocks else "README.md has no block of Python")
