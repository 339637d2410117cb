"""`obrs plan`: what each budget buys, from a file of scores or a folder of them."""

import json
import warnings
from glob import glob
from math import exp, isfinite, sqrt
from shutil import get_terminal_size
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .._files import check_not_input, check_out
from .._text import finite, text_table, unknown_name
from ..errors import InputError
from . import options
from .app import Command, app, complain
from .options import Amount, advanced, option, parse_amount, parse_numbers, short

if TYPE_CHECKING:
    from ..profile import Plan
    from .reading import Scores

__all__ = ["plan"]

_BY_GROUP = {"rate": "rate", "kl": "KL", "rkl": "rev. KL", "tv": "TV", "js": "JS", "chi2": "χ²", "ess": "ESS"}
_SHOWN = _BY_GROUP | {"precision": "precision"}
_USUAL = (1.5, 2.0, 4.0, 8.0)
_MOST = 20  # groups that are shown


@app.command(
    cls=Command,
    epilog="""
        obrs plan scores.csv --kind logit --budget 2,4,8
        obrs plan scores.csv --kind logit --for kl=0.05
        obrs plan scores/ --kind logit -n 250
        obrs plan completions.jsonl --kind reward --beta 0.5 --group prompt_id
    """,
)
def plan(
    files: options.Files,
    budget: options.Budgets = None,
    goals: Annotated[
        list[str] | None, option("GOAL=X", "The smallest budget for kl=0.05, ess=0.5, truncated=0.001, …", "--for")
    ] = None,
    n: Annotated[str | None, option(*options.N)] = None,
    column: options.Column = None,
    kind: options.Kind = None,
    beta: options.Beta = None,
    group: options.Group = None,
    shares: options.Shares = None,
    kl: Annotated[float | None, advanced(*options.KL)] = None,
    cost: options.Cost = None,
    recall: Annotated[float, advanced("SHARE", "The recall at which precision is shown; default 0.9.")] = 0.9,
    plot: Annotated[str | None, advanced("FILE.png", "Draw the profile as well.")] = None,
    as_json: Annotated[bool, advanced(None, "Print JSON instead of a table.", "--json")] = False,
    skip_bad: options.SkipBad = False,
    delimiter: options.Delimiter = None,
    header: options.Header = None,
    format: options.Format = None,
) -> None:
    """Show what each budget buys, and what it costs.

    With -n, what select would keep: the budget K = rows / n, and the proposals that n samples cost.
    """
    from .._checks import check_budget
    from ..profile import removable_kl
    from .reading import name_in_errors, open_scores

    wanted = [] if budget is None else [check_budget(k) for k in parse_numbers(budget, "--budget")]
    asked = [_parse_goal(text) for text in goals or []]
    amount = parse_amount(n, group)
    if (group or shares is not None) and (cost or asked or plot):
        raise InputError("a plan by groups is of rows of equal mass: leave out --cost, --for and --plot")
    if plot is not None:
        check_out(plot)
        check_not_input(plot, *files, *(path for pattern in files for path in glob(pattern)))
    reads: dict[str, Any] = {"skip_bad": skip_bad, "format": format, "delimiter": delimiter, "header": header}
    columns: dict[str, Any] = {"column": column, "kind": kind, "beta": beta, "group": group}
    scores = open_scores(files, kl=kl, amount=amount, **columns, **reads)
    if group or shares is not None:
        typer.echo(_plan_groups(scores, wanted, amount, shares, as_json))
        return
    found, units, signs = _load_profiles(scores, cost)
    profile, name = found.whole, scores.title
    if found.rows == 1:
        complain("warning: one score says nothing about a budget; a plan needs the scores of a sample")
    reached = name_in_errors(name, lambda: [profile.budget_for(**goal, recall=recall) for goal in asked])
    if not (wanted or reached):
        wanted = [*_USUAL, *_previewed(amount, units)]
    number = amount.n if isinstance(amount.n, int) else None
    rows = name_in_errors(name, lambda: found.plan(sorted({*wanted, *reached}), n=number, recall=recall))
    _draw_profile(plot, profile, wanted or reached)
    if as_json:
        typer.echo(json.dumps(finite(rows), indent=2))
        return
    typer.echo(_title(scores, found.rows, found.reading))
    typer.echo(f"M = {profile.max_budget:.4g}: largest ratio seen / mean ratio, of these scores")
    if signs:
        typer.echo(signs)
    elif found.reading.kind != "reward":  # its ratio is known up to a constant only
        typer.echo(_mean_ratio(profile, found.rows if cost is None else None))
    for text, k in zip(goals or [], reached, strict=True):
        typer.echo(f"K = {k:.6g} is the smallest budget for {text}")
    notes = [f"low–high is a 95 % interval; precision is at recall {recall:g}"]
    notes += [f"-n {n} is K = {k:.6g}" for k in _previewed(amount, units)]
    if found.whole is not found.sample:
        notes.append(
            f"of all rows, counted in cells of 1/256 nat, which changes KL by less than 1e-5; the intervals are those "
            f"of a sample of {found.sample.size:,} rows"
        )
    if any(row["budget"] > profile.max_budget for row in rows):
        notes.append("above M exact rejection costs less than the budget, and the rate is 1/M")
    if any(row["unreliable"] for row in rows):
        notes.append(f"~ not to be relied on from {found.sample.size:,} scores: the tail may be heavier than they show")
    if not signs:
        notes.append(removable_kl(profile.divergence("kl"), [row["budget"] for row in rows]))
    typer.echo(_draw(rows, notes))


def _previewed(amount: Amount, units: float) -> list[float]:
    """Return the budget at which `obrs select -n` keeps what was asked for, if there is as much."""
    if amount.budget is not None:
        return [amount.budget]
    return [units / amount.n] if isinstance(amount.n, int) and amount.n < units else []


def _load_profiles(scores: "Scores", cost: str | None) -> tuple[Any, float, str]:
    """Return the profiles of files, their size in rows or units of cost, and a line on signs; these are in memory."""
    import numpy as np

    from ..files import Profiles, load_profiles
    from ..profile import Profile
    from .reading import name_in_errors, report_bad

    reading = scores.find_reading()
    if cost is None and reading.kind != "weight":
        given = {key: value for key, value in scores.columns.items() if key != "group"}
        found = load_profiles(scores.where, **given, **scores.options)
        report_bad(found.bad, found.rows + found.bad)
        return found, found.rows, ""
    rows = scores.load(reading, cost)
    masses = None if cost is None else rows.batch.numbers(cost)[rows.good]
    sign = np.sign(rows.score) if reading.kind == "weight" else None
    profile = name_in_errors(scores.title, lambda: Profile(rows.log_ratio, masses, sign=sign))
    line = "" if sign is None else _signs(sign, profile.net)
    size = float(len(rows.score) if masses is None else masses.sum())
    return Profiles(reading, len(rows.score), 0, profile, profile), size, line


def _plan_groups(scores: "Scores", budgets: list[float], amount: Amount, shares: str | None, as_json: bool) -> str:
    """Return a plan with groups: n of each group is a plan with equal shares, n by label one with these shares."""
    from ..profile import Profile
    from .reading import group_labels, name_in_errors, read_shares

    parts = read_shares(shares, scores.columns["group"], scores.options)
    reading = scores.find_reading()
    if reading.kind == "weight":
        raise InputError("a plan by groups is of log-ratios, and event weights have signs: leave out --group")
    rows = scores.load(reading)
    if parts is None and amount.n is not None:
        parts = amount.n if isinstance(amount.n, dict) else "equal"
    labels, parts = group_labels(rows.batch, str(reading.group), parts)
    number = sum(amount.n.values()) if isinstance(amount.n, dict) else amount.n
    if isinstance(amount.n, int) and shares is None:
        number = amount.n * len(parts)
    wanted = budgets or [*_USUAL, *_previewed(amount._replace(n=number), len(rows.score))]
    table = name_in_errors(
        scores.title,
        lambda: Profile(rows.log_ratio).plan(sorted({*wanted}), n=number, groups=labels[rows.good], shares=parts),
    )
    if as_json:
        plain = [{**row, "groups": [group._asdict() for group in row["groups"]]} for row in table]
        return json.dumps(finite(plain), indent=2)
    return _draw_groups(table, _title(scores, len(rows.score), reading))


def _draw_groups(rows: "Plan", title: str) -> str:
    """Draw what each budget buys, and below it the budget of each group, marked where rejection is exact."""
    by_group = []
    lines = list(zip(*(row["groups"] for row in rows), strict=True))
    for line in lines[:_MOST]:
        cells = (f"{group.budget:.4g}{'*' if group.exact else ''}" if group.rate else "none" for group in line)
        by_group.append([str(line[0].label), f"{line[0].max_budget:.4g}", *cells])
    after = []
    if any(group.exact for row in rows for group in row["groups"]):
        after.append("* exact: a smaller budget would keep the same distribution within the group")
    if len(lines) > _MOST:
        after.append(f"{len(lines) - _MOST} more groups are in --json")
    parts = [
        title,
        "",
        text_table(*rows.table(_BY_GROUP, lambda row, key: short(row[key])), left=0),
        "",
        "below, for each group: M, from which on rejection is exact, and its budget",
        "",
        text_table(["group", "M", *(f"at {row['budget']:.4g}" for row in rows)], by_group),
    ]
    return "\n".join([*parts, *(["", *after] if after else [])])


def _title(scores: "Scores", rows: int, reading: Any) -> str:
    return f"{scores.title}: {rows:,} scores, column {reading.column!r} read as {reading.kind}{scores.note}"


def _draw_profile(path: str | None, profile: Any, budgets: list[float]) -> None:
    """Draw the profile, with as many budgets as a picture can show."""
    if path is None:
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # matplotlib warns if the machine is slow at the moment
            profile.plot(budgets[:6]).savefig(path, dpi=150)
    except ValueError as error:  # matplotlib does not know the extension
        raise InputError(f"--plot {path}: {error}") from error


def _parse_goal(text: str) -> dict[str, Any]:
    """Parse `kl=0.05`."""
    from ..profile import GOALS

    key, equals, value = text.partition("=")
    if key not in GOALS:
        raise unknown_name(key, GOALS, "goal")
    try:
        return {key: float(value)}
    except ValueError as error:
        got = repr(value) if equals else "nothing"
        raise InputError(f"--for {key} must be a number, as in {key}=0.5, got {got}") from error


def _signs(sign: Any, net: float) -> str:
    """Return a line on what the signs of event weights leave."""
    negative = f"{100 * float((sign < 0).mean()):.3g} % of the events are negative"
    share = f"{50 * (1 - net):.3g} % of the sum of |w|"
    return f"{negative}, {share}: net {short(net)}, so ESS is at most {short(net**2)}"


def _mean_ratio(profile: Any, rows: int | None) -> str:
    """Return a line with the mean ratio; far from 1, the ratio is not calibrated or the model misses a part."""
    log_mean = profile.log_mean_ratio
    if abs(log_mean) >= 20:
        mean = f"e^{log_mean:.4g}"
    else:
        error = "" if rows is None else f" ± {exp(log_mean) * sqrt((1 / profile.ess() - 1) / rows):.1g}"
        mean = f"{short(exp(log_mean))}{error}"
    return f"E[r] = {mean}: the mean ratio, 1 if it is calibrated"


def _draw(rows: Any, notes: list[str]) -> str:
    """Draw the plan: intervals beside the values if the terminal is wide enough, else in one or two lines below."""

    def table(between: str, to: str, gap: int) -> str:
        return text_table(*rows.table(_SHOWN, lambda row, key: _cell(row, key, between, to)), left=0, gap=gap)

    drawn = [table(*how) for how in ((" ", "–", 2), ("\n", "–", 2), ("\n", "–", 1), ("\n", "–\n", 2), ("\n", "–\n", 1))]
    room = get_terminal_size().columns
    best = next((text for text in drawn if max(map(len, text.splitlines())) <= room), drawn[-1])
    return "\n".join(["", best, "", *(line for note in notes for line in wrap(note, room))])


def _cell(row: dict[str, Any], key: str, between: str, to: str) -> str:
    value, low, high = (row[name] for name in (key, f"{key}_low", f"{key}_high"))
    text = ("~" if key in row["unreliable"].split() else "") + short(value)
    if low == value == high or not isfinite(value):
        return text
    ends = (short(end).removeprefix("0") for end in (low, high))  # .136–.374: eight of them stand in a line
    return f"{text}{between}{to.join(ends)}"
