"""`obrs plan`: what each budget buys, from a file of scores or a folder of them."""

import json
from math import exp, isfinite, sqrt
from shutil import get_terminal_size
from textwrap import wrap
from typing import Annotated, Any

import typer

from .._files import check_not_input, check_out
from .._text import finite, name_in_errors, text_table, unknown_name
from ..errors import InputError
from .app import SCORES, Files, command, complain, option, parse_amount, parse_numbers, parse_pairs, rare_option, short

__all__ = ["describe_mean", "plan"]

_USUAL = (1.5, 2.0, 4.0, 8.0)
_MOST = 20  # groups that are shown


@command(
    """
        obrs plan scores.csv --kind logit --budget 2,4,8
        obrs plan scores.csv --kind logit --for kl=0.05
        obrs plan scores/ --kind logit -n 250
        obrs plan completions.jsonl --kind reward --beta 0.5 --group prompt_id
    """,
    "n column kind beta group shares",
    f"kl id cost {SCORES}",
)
def plan(
    files: Files,
    budget: Annotated[list[str] | None, option("K,K,…", "Proposals per kept sample.", "--budget")] = None,
    goals: Annotated[list[str] | None, option("GOAL=X", "The least budget for kl=0.05, ess=0.5, …", "--for")] = None,
    plot: Annotated[str | None, rare_option("FILE.png", "Draw the profile as well.")] = None,
    as_json: Annotated[bool, rare_option(None, "Print JSON instead of a table.", "--json")] = False,
    **shared: Any,
) -> None:
    """Show what each budget buys, and what it costs.

    With -n, what select would keep: the budget K = rows / n, and the proposals that n samples cost.
    """
    from .._checks import check_budget
    from ..profile import GOALS
    from .reading import open_scores, save_figure

    text, shares = shared.pop("n"), shared.pop("shares")
    budgets = [] if budget is None else [check_budget(k) for k in parse_numbers(budget, "--budget")]
    pairs = [goal for text in goals or [] for goal in parse_pairs(text, "--for must be as kl=0.5").items()]
    for name in [name for name, _ in pairs if name not in GOALS]:
        raise unknown_name(name, GOALS, "goal")
    n, implied = parse_amount(text, shared["group"])
    if (shared["group"] or shares is not None) and (shared["cost"] or pairs or plot):
        raise InputError("a plan by groups is of rows of equal mass: leave out --cost, --for and --plot")
    scores = open_scores(files, n, **shared)
    if plot is not None:
        check_out(plot)
        check_not_input(plot, *files, *(source.path for source in scores.sources))
    profile, total, size, number, by_group = _load(scores, n, shares)
    reading, sample = scores.schema, ""
    if reading.cost is None and profile.size < total:  # with costs, rows of none are left out
        sample = f"of a sample of {profile.size:,} rows"
    if total == 1:
        complain("warning: one score says nothing about a budget; a plan needs the scores of a sample")
    # the budget at which `obrs select -n` keeps what was asked for, if there is as much
    asks = implied if number is None else size / number if 0 < number < size else None
    with name_in_errors(scores.title):
        reached = [profile.budget_for(**{name: goal}) for name, goal in pairs]
        grid = sorted({*budgets, *reached}) or sorted({*_USUAL, *([asks] if asks else [])})
        rows = profile.plan(grid, n=number, **by_group)
    save_figure(lambda: profile.plot((budgets or grid)[:6]), plot)
    if as_json:
        plain = [row | {"groups": [group._asdict() for group in row["groups"]]} if by_group else row for row in rows]
        typer.echo(json.dumps(finite(plain), indent=2))
        if sample:
            complain(sample)
        return
    head = [f"{scores.title}: {total:,} scores, column {reading.column!r} read as {reading.kind}{scores.note}"]
    if not by_group:
        head.append(f"M = {profile.max_budget:.4g}: largest ratio seen / mean ratio, {sample or 'of these scores'}")
        head += describe_mean(profile, reading, profile.size)
    for k, (name, goal) in zip(reached, pairs, strict=True):
        head.append(f"K = {k:.6g} is the smallest budget for {name}={goal:g}")
    amount = f"-n {text} is K = {asks:.6g}" if asks else ""
    notes = _group_lines(rows) if by_group else _notes(profile, reading, rows, amount, sample)
    typer.echo("\n".join([*head, "", _table(rows), "", *notes]))


def _load(scores: Any, n: Any, shares: str | None) -> tuple[Any, int, float, int | None, dict[str, Any]]:
    """Return a profile, rows, their number or cost, how much to keep in all, and groups with their shares.

    With groups, costs or signs all rows are in memory; else a sample is, if they are many. To keep n of each group is a
    plan with equal shares, n by label one with these shares.
    """
    import numpy as np

    from ..files import sample_profile, scan_files
    from ..profile import Profile
    from .reading import group_labels, read_shares, report_bad

    reading = scores.schema
    parts = read_shares(shares, reading.group, **scores.options)
    if reading.group is None and reading.cost is None and reading.kind != "weight":
        profile, size, bad = sample_profile(scan_files(scores.sources), scores.sources[0].path, reading)
        report_bad(bad, size + bad)
        return profile, size, size, n, {}
    rows = scores.load()
    masses = None if reading.cost is None else rows.batch.numbers(reading.cost)[rows.good]
    with name_in_errors(scores.title):
        profile = Profile(rows.log_ratio, masses, sign=np.sign(rows.score) if reading.kind == "weight" else None)
    size = len(rows.score)
    if reading.group is None:
        return profile, size, float(size if masses is None else masses.sum()), n, {}
    parts = parts or (n if isinstance(n, dict) else n and "equal")
    labels, parts = group_labels(rows.batch, reading.group, parts)
    total = sum(n.values()) if isinstance(n, dict) else n and n * (len(parts) if shares is None else 1)
    return profile, size, size, total, {"groups": labels[rows.good], "shares": parts}


def _notes(profile: Any, reading: Any, rows: Any, amount: str, sample: str) -> list[str]:
    """Return the notes on a plan, in lines that fit the terminal."""
    from ..profile import removable_kl

    notes = ["low–high is a 95 % interval; precision is at recall 0.9", amount, sample]
    if any(row["budget"] > profile.max_budget for row in rows):
        notes.append("above M exact rejection costs less than the budget, and the rate is 1/M")
    if any(row["unreliable"] for row in rows):
        notes.append(f"~ not to be relied on from {profile.size:,} scores: the tail may be heavier than they show")
    if reading.kind != "weight":
        notes.append(removable_kl(profile.divergence("kl"), [row["budget"] for row in rows]))
    return [line for note in notes for line in wrap(note, get_terminal_size().columns)]


def _group_lines(rows: Any) -> list[str]:
    """Return the budget of each group, marked where rejection is exact."""
    groups = list(zip(*(row["groups"] for row in rows), strict=True))
    table = []
    for line in groups[:_MOST]:
        cells = (f"{group.budget:.4g}{'*' * group.exact}" if group.rate else "none" for group in line)
        table.append([str(line[0].label), f"{line[0].max_budget:.4g}", *cells])
    lines = ["below, for each group: M, from which on rejection is exact, and its budget", ""]
    lines.append(text_table(["group", "M", *(f"at {row['budget']:.4g}" for row in rows)], table))
    lines += ["", "* exact: a smaller budget keeps the same distribution within the group"] * ("*" in lines[-1])
    if len(groups) > _MOST:
        lines.append(f"{len(groups) - _MOST} more groups are in --json")
    return lines


def describe_mean(profile: Any, reading: Any, rows: int) -> list[str]:
    """Return a line with the mean ratio, which a reward does not have, or with the net sum of signed weights."""
    if reading.kind == "reward":
        return []
    if reading.kind == "weight":
        return [f"net {short(profile.net)}: the sum of w over that of |w|, so ESS is at most {short(profile.net**2)}"]
    log_mean = profile.log_mean_ratio
    mean = f"e^{log_mean:.4g}" if abs(log_mean) >= 20 else short(exp(log_mean))
    if reading.cost is None and abs(log_mean) < 20:
        mean += f" ± {exp(log_mean) * sqrt((1 / profile.ess() - 1) / rows):.1g}"
    return [f"E[r] = {mean}: the mean ratio, 1 if it is calibrated"]


def _table(rows: Any) -> str:
    """Draw the plan: intervals beside the values if the terminal is wide enough, else in one or two lines below."""
    from ..html.findings import NAMES

    def table(between: str, to: str, gap: int) -> str:
        return text_table(*rows.table(NAMES, lambda row, key: _cell(row, key, between, to)), left=0, gap=gap)

    drawn = [table(*how) for how in ((" ", "–", 2), ("\n", "–", 2), ("\n", "–", 1), ("\n", "–\n", 2), ("\n", "–\n", 1))]
    width = get_terminal_size().columns
    return next((text for text in drawn if max(map(len, text.splitlines())) <= width), drawn[-1])


def _cell(row: dict[str, Any], key: str, between: str, to: str) -> str:
    value = row[key]
    low, high = (row.get(f"{key}_{end}", value) for end in ("low", "high"))  # a plan by groups has no intervals
    text = ("~" if key in row.get("unreliable", "").split() else "") + short(value)
    if low == value == high or not isfinite(value):
        return text
    ends = (short(end).removeprefix("0") for end in (low, high))  # .136–.374: eight of them stand in a line
    return f"{text}{between}{to.join(ends)}"
