"""`obrs plan`: what each budget buys, from a file of scores or a folder of them."""

import json
import warnings
from glob import glob
from math import exp, isfinite, sqrt
from shutil import get_terminal_size
from textwrap import wrap
from typing import Annotated, Any

import numpy as np
import typer

from .._checks import check_budget
from .._files import check_not_input, check_out
from .._text import finite, text_table, unknown_name
from ..errors import InputError
from .app import Command, app, complain
from .columns import (
    Beta,
    Column,
    Delimiter,
    EventWeight,
    Files,
    Format,
    Header,
    Logit,
    LogRatio,
    Probability,
    Reward,
    SkipBad,
    about,
    kind_of,
    number,
    read_scores,
    report_bad,
    short,
)
from .groups import SHOWN, Group, Shares, draw_groups, group_labels, read_shares

__all__ = ["plan"]

_SHOWN = SHOWN | {"precision": "precision"}
_USUAL = "1.5,2,4,8"


@app.command(
    cls=Command,
    epilog="""
        obrs plan scores.csv --logit --budgets 2,4,8
        obrs plan scores.csv --logit --for kl=0.05
        obrs plan scores/ --logit -n 250
        obrs plan completions.jsonl --reward --beta 0.5 --group prompt_id
    """,
)
def plan(
    files: Files,
    column: Column = None,
    log_ratio: LogRatio = False,
    logit: Logit = False,
    probability: Probability = False,
    reward: Reward = False,
    beta: Beta = None,
    event_weight: EventWeight = None,
    weights: Annotated[str | None, typer.Option(metavar="NAME", help="The column of masses, if any.")] = None,
    budgets: Annotated[str | None, typer.Option(metavar="K,K,…", help=f"Proposals per kept sample; {_USUAL}.")] = None,
    goals: Annotated[
        list[str] | None,
        typer.Option("--for", metavar="GOAL=X", help="The smallest budget for kl=0.05, ess=0.5, truncated=0.001, …"),
    ] = None,
    n: Annotated[int | None, typer.Option("-n", min=1, help="Samples wanted; shows the proposals they cost.")] = None,
    recall: Annotated[float, typer.Option(metavar="SHARE", help="The recall at which precision is shown.")] = 0.9,
    group: Group = None,
    shares: Shares = None,
    plot: Annotated[str | None, typer.Option(metavar="FILE.png", help="Draw the profile as well.")] = None,
    skip_bad: SkipBad = False,
    delimiter: Delimiter = None,
    header: Header = None,
    format: Format = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Show what each budget buys, and what it costs."""
    from ..files import Profiles, Reading, load_profiles
    from ..profile import Profile, removable_kl
    from ..scores import find_sources

    asked = [_goal(text) for text in goals or []]
    budgets = ("" if asked else _USUAL) if budgets is None else budgets
    wanted = [check_budget(number(text, "--budgets")) for text in budgets.split(",") if text or not asked]
    kind = kind_of(event_weight, log_ratio=log_ratio, logit=logit, probability=probability, reward=reward)
    if (group or shares is not None) and (weights or event_weight or asked or plot):
        raise InputError(
            "a plan by groups is of rows of equal mass: leave out --weights, --event-weight, --for, --plot"
        )
    if plot is not None:
        check_out(plot)
        check_not_input(plot, *files, *(path for pattern in files for path in glob(pattern)))
    where: Any = files[0] if len(files) == 1 else files
    options: dict[str, Any] = {"format": format, "delimiter": delimiter, "header": header}
    scores: dict[str, Any] = {"column": event_weight or column, "kind": kind, "beta": beta, "skip_bad": skip_bad}
    sources = find_sources(where, **options)
    title = files[0] if len(files) == 1 else f"{files[0]} and {len(files) - 1} more"
    title = f"{title}, {len(sources)} files" if len(sources) > 1 else sources[0].shown

    if group or shares is not None or weights or event_weight:  # these are read into memory
        given = read_shares(shares, group, header)
        reading = Reading.find(sources, group=group, **scores)
        batch, good, values = read_scores(sources, reading, weights)
        if group:
            labels, parts = group_labels(batch, group, given)
            rows = about(title, lambda: Profile(values).plan(wanted, n=n, groups=labels[good], shares=parts))
            typer.echo(draw_groups(rows, _title(title, len(values), reading), as_json))
            return
        masses = None if weights is None else batch.numbers(weights)[good]
        sign = None if event_weight is None else np.sign(batch.numbers(event_weight, skip_bad=skip_bad)[good])
        profile = about(title, lambda: Profile(values, masses, sign=sign))
        found = Profiles(reading, len(values), 0, profile, profile)
    else:
        found = load_profiles(where, **scores, **options)
        profile = found.whole
        report_bad(found.bad, found.rows + found.bad)
    if found.rows == 1:
        complain("warning: one score says nothing about a budget; a plan needs the scores of a sample")
    reached = about(title, lambda: [profile.budget_for(**goal, recall=recall) for goal in asked])
    rows = about(title, lambda: found.plan(sorted({*wanted, *reached}), n=n, recall=recall))
    _draw_profile(plot, profile, wanted or reached)
    if as_json:
        typer.echo(json.dumps(finite(rows), indent=2))
        return
    typer.echo(_title(title, found.rows, found.reading))
    typer.echo(f"M = {profile.max_budget:.4g}: largest ratio seen / mean ratio, of these scores")
    if event_weight:
        typer.echo(_signs(batch.numbers(event_weight, skip_bad=True), profile.net))
    elif found.reading.kind != "reward":  # its ratio is known up to a constant only
        typer.echo(_mean_ratio(profile, found.rows if weights is None else None))
    for text, budget in zip(goals or [], reached, strict=True):
        typer.echo(f"K = {budget:.6g} is the smallest budget for {text}")
    notes = [f"low–high is a 95 % interval; precision is at recall {recall:g}"]
    if found.whole is not found.sample:
        notes.append(
            f"of all rows, counted in cells of 1/256 nat, which changes KL by less than 1e-5; the intervals are those "
            f"of a sample of {found.sample.size:,} rows"
        )
    if any(row["budget"] > profile.max_budget for row in rows):
        notes.append("above M exact rejection costs less than the budget, and the rate is 1/M")
    if any(row["unreliable"] for row in rows):
        notes.append(f"~ not to be relied on from {found.sample.size:,} scores: the tail may be heavier than they show")
    if not event_weight:
        notes.append(removable_kl(profile.divergence("kl"), [row["budget"] for row in rows]))
    typer.echo(_draw(rows, notes))


def _title(name: str, rows: int, reading: Any) -> str:
    return f"{name}: {rows:,} scores, column {reading.column!r} read as {reading.kind}"


def _draw_profile(path: str | None, profile: Any, budgets: list[float]) -> None:
    """Draw the profile, with as many budgets as a picture can show."""
    if path is None:
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # matplotlib's word for a machine that is slow at the moment
            profile.plot(budgets[:6]).savefig(path, dpi=150)
    except ValueError as error:  # matplotlib's word for an extension that it does not know
        raise InputError(f"--plot {path}: {error}") from error


def _goal(text: str) -> dict[str, Any]:
    """Read `kl=0.05`."""
    from ..profile import GOALS

    key, equals, value = text.partition("=")
    if key not in GOALS:
        raise unknown_name(key, GOALS, "goal")
    try:
        return {key: float(value)}
    except ValueError as error:
        got = repr(value) if equals else "nothing"
        raise InputError(f"--for {key} must be a number, as in {key}=0.5, got {got}") from error


def _signs(weight: Any, net: float) -> str:
    """Return a line on what the signs of event weights leave."""
    negative = f"{100 * np.mean(weight < 0):.3g} % of the events are negative"
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
