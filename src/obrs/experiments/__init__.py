"""The paper's figures and tables, one module each: `obrs reproduce NAME`.

To add an experiment, say `table-9`:

1. Write `experiments/table_9.py` with

   - `Config`, a frozen dataclass of numbers, words and tuples of them, with `seed: int = 0` if anything is random;
   - `PRESETS = {"smoke": Config(...), "default": Config(), "paper": Config(...)}`: seconds, what is committed under
     `results/`, and the paper's size; where that needs a GPU, the second one is called "cpu". Others may follow, each
     for other data of the paper;
   - `PAPER`, the paper's numbers as data; the docstring says what was chosen where the paper says nothing;
   - `run(config, rows)`, which adds rows, each a dict of numbers, words and arrays under its own name:

         for name, budget in rows.todo({f"K = {k:g}": k for k in config.budgets}):
             rows.add(name, {"budget": budget, "kl": measure(config, budget)})

     `todo` shows the bar and skips rows that an interrupted run has made already. So a row must depend on the
     configuration and its own name alone. `rows.progress` is for bars inside a row, `rows["name"]` is an earlier row;
   - `plot(record)`, which returns one matplotlib figure drawn from the record alone: `looks.figure`,
     `looks.look(method)` for colour, line, marker and label, `style.caption`, `record["name"]`,
     `numbers(row["curve"])`;
   - `render(record)`, what is printed after a run: a table in plain text, with the paper's numbers beside ours.

   Heavy libraries are imported in the functions that use them.
2. Add its `Entry` to `registry.py`. The tests then run its smoke preset, check its record and compare its pixels.
3. Run `obrs reproduce table-9 --out results`, look at the picture, commit both files, and give it a section under
   `docs/reproduce/`.
"""

from .record import Record, Rows, load, numbers
from .registry import EXPERIMENTS, Entry
from .runner import configure, draw, page, render, reproduce, reproduce_files

__all__ = [
    "EXPERIMENTS",
    "Entry",
    "Record",
    "Rows",
    "configure",
    "draw",
    "load",
    "numbers",
    "page",
    "render",
    "reproduce",
    "reproduce_files",
]
