"""The paper's figures and tables, one module each: `python -m paper NAME`.

To add an experiment, say `table-9`:

1. Write `paper/table_9.py`. Its docstring says which figure or table it is, what is the same as in the paper, and what
   differs. It has

   - `Config`, a frozen dataclass of numbers, words and tuples of them, with `seed: int = 0` if anything is random;
   - `PRESETS = {"smoke": Config(...), "default": Config(...)}`: seconds, and what is committed under `paper/results`;
     and `"paper"`, the paper's size, where a person with GPUs could run it as it is;
   - `PAPER`, all of the paper's rows, also those that do not flatter, if it has numbers;
   - `run(config, rows)`, which adds rows to a `Record`, each a dict of numbers, words and arrays under its own name:

         for name, budget in rows.todo({f"K = {k:g}": k for k in config.budgets}):
             rows.add(name, {"budget": budget, "kl": measure(config, budget)})

     `todo` shows the bar and skips rows that an interrupted run has made already;
   - `figure(record)`, a matplotlib figure drawn from the record alone, in the looks of `style`;
   - `table(record)`, what is printed after a run, with the paper's numbers beside ours; and `markdown(record)` if pages
     want another form of it.

   Matplotlib, and what not everybody has, are imported in the functions that use them.
2. Add its `Entry` to `harness.py`, and its row to `README.md`. The tests then run its smoke preset.
3. Run `python -m paper table-9 --out paper/results`, look at the picture, and commit what it wrote.
"""

import sys
from importlib.util import find_spec

if find_spec("obrs") is None:
    sys.exit("error: paper needs obrs: run `make demo` once, then `.venv/bin/python -m paper`")
