"""The command line: `obrs plan` and `obrs select`, for whoever has a file of scores.

A command is a function under `@app.command()`, and the first line of its docstring is its line in `obrs --help`. It
imports what it needs itself, so that help stays fast, and raises `ObrsError` or `OSError`; `main` makes one line of it.
"""

import json
import os
import sys
from collections.abc import Callable, Sequence
from math import exp, inf, isfinite
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from . import __version__
from ._inputs import check_budget
from .errors import InputError, ObrsError

if TYPE_CHECKING:
    from .scores import Table

__all__ = ["KINDS", "app", "main", "to_log_ratio"]

Numbers = np.ndarray[Any, Any]

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

_ClickError: Any = typer.BadParameter.__mro__[2]  # of click, or of the copy of it inside later versions of typer
_STRIDE = 0x9E3779B97F4A7C15  # between the seeds of pools that must not share their random numbers
_SHOWN = {
    "rate": "rate",
    "kl": "KL",
    "rkl": "rev. KL",
    "tv": "TV",
    "js": "JS",
    "chi2": "χ²",
    "ess": "ESS",
    "precision": "precision",
}

File = Annotated[str, typer.Argument(metavar="FILE", help="A csv, jsonl, parquet, npy or npz; - is standard input.")]
Column = Annotated[str | None, typer.Option(metavar="NAME", help="The column of scores, if there are several.")]
LogRatio = Annotated[bool, typer.Option("--log-ratio", help="Scores are log p(x) - log q(x).")]
Logit = Annotated[bool, typer.Option("--logit", help="Scores are logits of a discriminator, data against model.")]
Reward = Annotated[bool, typer.Option("--reward", help="Scores are rewards; the target is q(x) exp(reward / beta).")]
Beta = Annotated[float | None, typer.Option(metavar="B", help="The temperature of the reward.")]
Format = Annotated[str | None, typer.Option("--format", metavar="EXT", help="The format where no extension says it.")]


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    """Keep the samples that bring you closest to the target, on a budget."""
    if version:
        typer.echo(f"obrs {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def plan(
    file: File,
    column: Column = None,
    log_ratio: LogRatio = False,
    logit: Logit = False,
    reward: Reward = False,
    beta: Beta = None,
    weights: Annotated[str | None, typer.Option(metavar="NAME", help="The column of masses, if any.")] = None,
    budgets: Annotated[str, typer.Option(metavar="K,K,…", help="Proposals per kept sample.")] = "1.5,2,4,8",
    n: Annotated[int | None, typer.Option("-n", min=1, help="Samples wanted; shows the proposals they cost.")] = None,
    recall: Annotated[float, typer.Option(metavar="SHARE", help="The recall at which precision is shown.")] = 0.9,
    format: Format = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Show what each budget buys, and what it costs."""
    from . import scores
    from .profile import Profile

    wanted = [check_budget(_number(text, "--budgets")) for text in budgets.split(",")]
    table = scores.read_table(file, format)
    name, kind, values = _log_ratios(table, column, _kind(log_ratio, logit, reward), beta)
    masses = None if weights is None else scores.column(table, weights)
    profile = _about(table, lambda: Profile(values, masses))
    rows = _about(table, lambda: profile.plan(wanted, n=n, recall=recall))
    if as_json:
        typer.echo(json.dumps([{key: _finite(cell) for key, cell in row.items()} for row in rows], indent=2))
        return
    typer.echo(f"{table.name}: {len(values):,} scores, column {name!r} read as {kind}")
    typer.echo(f"M = {profile.max_budget:.4g}: largest ratio seen / mean ratio, of this sample")
    if kind != "reward":  # its ratio is known up to a constant only
        typer.echo(_mean_ratio(profile.log_mean_ratio, values, masses))
    typer.echo(_drawn(rows, len(values), recall, profile.max_budget))


@app.command()
def select(
    file: File,
    out: Annotated[str, typer.Option("--out", "-o", metavar="FILE", help="Where to write; - is standard output.")],
    n: Annotated[int | None, typer.Option("-n", min=1, help="Rows to keep, exactly; of each group, if any.")] = None,
    budget: Annotated[float | None, typer.Option(metavar="K", help="Keep 1 row in K instead.")] = None,
    column: Column = None,
    log_ratio: LogRatio = False,
    logit: Logit = False,
    reward: Reward = False,
    beta: Beta = None,
    group: Annotated[str | None, typer.Option(metavar="NAME", help="The column of classes or prompts, if any.")] = None,
    seed: Annotated[int, typer.Option(help="The same seed keeps the same rows.")] = 0,
    design: Annotated[str, typer.Option(help="How to draw: pivotal, systematic, sampford or poisson.")] = "pivotal",
    format: Format = None,
) -> None:
    """Keep exactly n rows of a file, or 1 in K, with their weights."""
    from . import scores

    if (n is None) == (budget is None):
        raise InputError("say how many rows to keep: either -n or --budget")
    share = None if budget is None else 1 / check_budget(budget)
    if out != "-":
        scores.format_of(out)
    table = scores.read_table(file, format)
    _, _, values = _log_ratios(table, column, _kind(log_ratio, logit, reward), beta)
    codes, names = (np.zeros(len(values), np.int64), [""]) if group is None else scores.labels(table, group)
    sizes = np.bincount(codes)
    # 6500 / 2.6 is 2500, whichever way the division was rounded
    quota = np.full(len(sizes), n) if share is None else np.floor(sizes * share * (1 + 1e-12)).astype(np.int64)
    _check_quota(table, values, codes, quota, ["" if group is None else f"{group} {key!r}: " for key in names])
    kept, pi = _about(table, lambda: _select(values, codes, quota, seed, design))
    extra = {"weight": _weights(values[kept], pi[kept], codes[kept]), "inclusion_probability": pi[kept]}
    scores.write_table(out, scores.take(table, kept, extra), format if out == "-" else None)
    where = "standard output" if out == "-" else out
    typer.echo(
        f"kept {len(kept)} of {len(values)} rows (1 in {len(values) / max(len(kept), 1):.4g}): {where}", err=True
    )


KINDS: dict[str, Callable[[Numbers, float], Numbers]] = {
    "log_ratio": lambda scores, beta: scores,
    "logit": lambda scores, beta: scores,
    "reward": lambda scores, beta: (scores - max(scores.max(), -1e300)) / beta,  # what overflows has r = 0
}


def to_log_ratio(scores: Numbers, kind: str, beta: float | None = None) -> Numbers:
    """Turn scores into log-ratios, those of rewards up to a constant.

    Args:
        scores: Numbers, none of them NaN or +inf.
        kind: A key of `KINDS`: "log_ratio"; "logit", of a discriminator that tells data from model, which is the
            log-ratio; or "reward", for the target q(x) exp(reward / beta).
        beta: The temperature of the reward.

    Example:
        >>> to_log_ratio(np.asarray([1.0, 3.0]), "reward", beta=0.5)
        array([-4.,  0.])
    """
    if (kind == "reward") != (beta is not None):
        raise InputError("a reward needs --beta, its temperature" if beta is None else "--beta is for rewards only")
    if beta is not None and not (beta > 0 and isfinite(beta)):
        raise InputError(f"beta must be above 0 and finite, got {beta:g}")
    with np.errstate(over="ignore"):
        return KINDS[kind](scores, 1.0 if beta is None else beta)


def _kind(log_ratio: bool, logit: bool, reward: bool) -> str | None:
    told = [kind for kind, said in zip(KINDS, (log_ratio, logit, reward), strict=True) if said]
    if len(told) > 1:
        raise InputError("scores are of one kind: give one of --log-ratio, --logit, --reward")
    return told[0] if told else None


def _log_ratios(table: "Table", name: str | None, kind: str | None, beta: float | None) -> tuple[str, str, Numbers]:
    """Return the column of scores, its kind, and its log-ratios: as told, or as there is only one choice."""
    from . import scores

    columns = list(table.columns)
    named = [key for key in (*KINDS, "score") if key in columns]
    choices = ([kind] if kind in columns else [], named, table.numeric(), columns)
    name = name or next((str(choice[0]) for choice in choices if len(choice) == 1), None)
    if name is None:
        listed = ", ".join(columns)
        raise InputError(f"{table.name} has no single column of scores; choose --column from {listed}")
    values = scores.column(table, name)
    kind = kind or (name if name in KINDS else None)
    if kind is None:
        raise InputError(f"{table.name}: is column {name!r} a --log-ratio, a --logit or a --reward with --beta?")
    return name, kind, to_log_ratio(values, kind, beta)


def _check_quota(table: "Table", values: Numbers, codes: Numbers, quota: Numbers, groups: list[str]) -> None:
    """Raise unless every group has enough rows with r > 0, and something to give."""
    sizes, possible = np.bincount(codes), np.bincount(codes, weights=values > -inf).astype(np.int64)
    for wrong in np.flatnonzero((quota < 1) | (quota > possible))[:1]:
        want, have, size = quota[wrong], possible[wrong], sizes[wrong]
        if want < 1:
            what = f"nothing would be kept of {size} rows; lower the budget"
        elif want > size:
            what = f"cannot keep {want} of {size} rows"
        else:
            what = f"cannot keep {want} rows, only {have} of {size} have r > 0"
        raise InputError(f"{table.name}: {groups[wrong]}{what}")


def _select(values: Numbers, codes: Numbers, quota: Numbers, seed: int, design: str) -> tuple[Numbers, Numbers]:
    """Return the kept rows, ascending, and every row's probability of it: groups that keep as many go together."""
    from .selection import inclusion_probability, select

    kept, pi = [], np.empty(len(values))
    for turn, n in enumerate(np.unique(quota).tolist()):
        rows = np.flatnonzero(quota[codes] == n)
        groups = None if len(quota) == 1 else np.unique(codes[rows], return_inverse=True)[1]
        its_seed = (seed + turn * _STRIDE) % 2**64 if turn else seed
        kept.append(rows[select(values[rows], n, seed=its_seed, design=design, groups=groups)])
        pi[rows] = inclusion_probability(values[rows], n, groups=groups)
    return np.sort(np.concatenate(kept)), pi


def _weights(values: Numbers, pi: Numbers, codes: Numbers) -> Numbers:
    """Return r / pi with mean 1 over the rows of each group: between groups the scale of r may mean nothing."""
    log_weight = values - np.log(pi)
    top = np.full(codes.max(initial=0) + 1, -inf)
    np.maximum.at(top, codes, log_weight)
    weight = np.exp(log_weight - top[codes])
    mean = np.bincount(codes, weights=weight) / np.maximum(np.bincount(codes), 1)
    return np.asarray(weight / mean[codes])


def _mean_ratio(log_mean: float, values: Numbers, masses: Numbers | None) -> str:
    """Say what the mean ratio is; far from 1, the ratio is not calibrated or the model misses a part."""
    w = np.ones(len(values)) if masses is None else masses
    relative = np.exp(values[w > 0] - log_mean) - 1
    error = float(np.sqrt(np.sum((w[w > 0] * relative) ** 2)) / np.sum(w))
    mean = (
        f"E[r] = {_short(exp(log_mean))} ± {exp(log_mean) * error:.1g}"
        if abs(log_mean) < 20
        else f"E[r] = e^{log_mean:.4g}"
    )
    return f"{mean}: the mean ratio, 1 if it is calibrated"


def _drawn(rows: list[dict[str, Any]], count: int, recall: float, most: float) -> str:
    """Draw the plan: intervals beside the values if the terminal is wide enough, else below them."""
    from rich import box
    from rich.console import Console
    from rich.measure import Measurement
    from rich.table import Table as Grid

    def grid(between: str) -> Grid:
        drawn = Grid(*titles, box=box.SIMPLE_HEAD, pad_edge=False, padding=0)
        for title in drawn.columns:
            title.justify, title.no_wrap = "right", True
        for row in rows:
            cost = [f"{row['proposals']:,.0f}"] if has_cost else []
            drawn.add_row(f"{row['budget']:g}", *(_cell(row, key, between) for key in _SHOWN), *cost)
        return drawn

    has_cost = rows[0]["proposals"] is not None
    titles = ["budget", *_SHOWN.values(), *(["proposals"] if has_cost else [])]
    console = Console(highlight=False)
    needs = Measurement.get(console, console.options.update(max_width=1000), grid(" ")).maximum
    notes = [f"± is a 95 % interval; precision is at recall {recall:g}"]
    if any(row["budget"] > most for row in rows):
        notes.append("above M exact rejection costs less than the budget, and the rate is 1/M")
    if any(row["unreliable"] for row in rows):
        notes.append(f"~ the tail of the ratio is too heavy to trust these from {count:,} scores")
    with console.capture() as capture:
        console.print(grid(" " if needs <= console.width else "\n"), *notes, sep="\n")
    return "\n".join(line.rstrip() for line in capture.get().strip("\n").splitlines())


def _cell(row: dict[str, Any], key: str, between: str) -> str:
    value = row[key]
    text = ("~" if key in row["unreliable"].split() else "") + _short(value)
    half = max(row[f"{key}_high"] - value, value - row[f"{key}_low"]) if isfinite(value) else 0.0
    return text if half == 0 else f"{text}{between}±{_short(half) if half >= 0.0005 else '<.001'}"


def _short(x: float) -> str:
    return f"{round(x, 3) + 0.0:.3f}" if abs(x) < 10 else f"{x:.3g}"  # never -0.000


def _finite(x: Any) -> Any:
    return None if isinstance(x, float) and not isfinite(x) else x


def _number(text: str, name: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise InputError(f"{name} must be numbers with commas between them, got {text.strip()!r}") from error


def _about(table: "Table", compute: Callable[[], Any]) -> Any:
    """Name the file in what goes wrong."""
    try:
        return compute()
    except ObrsError as error:
        raise InputError(f"{table.name}: {error}") from error


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0, 2 for a mistake, 1 for a failure, 130 for Ctrl-C.

    `--debug`, anywhere, or OBRS_DEBUG in the environment shows where an error comes from.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments or bool(os.environ.get("OBRS_DEBUG"))
    try:
        code = app([text for text in arguments if text != "--debug"], prog_name="obrs", standalone_mode=False)
        sys.stdout.flush()
        return int(code or 0)
    except (BrokenPipeError, SystemExit):  # whoever reads has seen enough; typer makes it an exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except (ObrsError, OSError, ModuleNotFoundError, _ClickError) as error:
        if debug:
            raise
        typer.echo(f"error: {' '.join(_said(error).split())}", err=True)
        return 1 if isinstance(error, OSError) else 2


def _said(error: Any) -> str:
    if isinstance(error, _ClickError):
        return str(error.format_message())
    if isinstance(error, ModuleNotFoundError):
        return f"this needs {error.name}: pip install 'obrs[cli]'"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror.lower()}" if error.filename else error.strerror.lower()
    return str(error)


if __name__ == "__main__":
    sys.exit(main())
