"""`obrs plan`: what each budget buys, from a file of scores or a folder of them."""

import json
import warnings
from collections.abc import Callable, Iterable, Iterator
from glob import glob
from math import exp, isfinite
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
    SKIP,
    Beta,
    Column,
    Delimiter,
    EventWeight,
    Files,
    Format,
    Header,
    Logit,
    LogRatio,
    Numbers,
    Probability,
    Reward,
    SkipBad,
    about,
    find_column,
    find_kind,
    is_folder,
    kind_of,
    log_ratios,
    number,
    said_bad,
    short,
    signed_weights,
)
from .groups import SHOWN, GroupColumns, Shares, drawn_groups, grouped_rows, read_shares

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
    group: GroupColumns = None,
    shares: Shares = None,
    plot: Annotated[str | None, typer.Option(metavar="FILE.png", help="Draw the profile as well.")] = None,
    skip_bad: SkipBad = False,
    delimiter: Delimiter = None,
    header: Header = None,
    format: Format = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Show what each budget buys, and what it costs."""
    from .. import scores
    from ..profile import Plan, Profile, removable_kl

    asked = [_goal(text) for text in goals or []]
    budgets = ("" if asked else _USUAL) if budgets is None else budgets
    wanted = [check_budget(number(text, "--budgets")) for text in budgets.split(",") if text or not asked]
    given = kind_of(log_ratio=log_ratio, logit=logit, probability=probability, reward=reward)
    if plot is not None:
        check_out(plot)
        check_not_input(plot, *files, *(path for pattern in files for path in glob(pattern)))
        if group:
            raise InputError("--plot draws one pool; leave out --group")

    def show(where: Any, pool: Any, profile: Profile, head: Iterable[str], drawn: Callable[[Any], str]) -> None:
        """Plan a pool, whose lines come before the table; they are made only if they are printed."""
        reached = about(where, lambda: [profile.budget_for(**goal, recall=recall) for goal in asked])
        rows = about(where, lambda: pool.plan(sorted({*wanted, *reached}), n=n, recall=recall))
        _picture(plot, profile, wanted or reached)
        if as_json:
            typer.echo(json.dumps(finite(rows), indent=2))
            return
        for line in head:
            typer.echo(line)
        for text, budget in zip(goals or [], reached, strict=True):
            typer.echo(f"K = {budget:.6g} is the smallest budget for {text}")
        typer.echo(drawn(rows))

    if is_folder(files):
        for option, is_given in (
            ("--group", bool(group)),
            ("--event-weight", event_weight is not None),
            ("--weights", weights is not None),
        ):
            if is_given:
                raise InputError(f"{option} is for one file in memory; a plan of a folder is of one pool")
        options = {"format": format, "delimiter": delimiter, "header": header}
        title, sketch, kind = _sketched(files, column, given, beta, skip_bad, options)
        _few(sketch.rows)
        profile = about(title, sketch.profile)

        def of_folder() -> Iterator[str]:
            yield f"{title}: {sketch.rows:,} scores, {kind}"
            yield f"M = {profile.max_budget:.4g}: largest ratio / mean ratio, of these scores"

        def of_all_rows(rows: Any) -> str:
            plain = [row | {f"{key}_{end}": row[key] for key in _SHOWN for end in ("low", "high")} for row in rows]
            note = f"of all rows, so there is no sampling error; precision is at recall {recall:g}"
            return _drawn(Plan(plain), sketch.rows, profile.max_budget, [note, *rows.notes])

        show(title, sketch, profile, of_folder(), of_all_rows)
        return

    def only(first: Any) -> set[str]:
        name = event_weight or find_column(first, column, given)
        wanted_columns = [name, *([] if weights is None else [weights]), *(group or [])]
        return {key for key in wanted_columns if first[key] is not None}  # a column that is not there is named

    table = scores.read_table(files[0], format, only=only, delimiter=delimiter, header=header)
    sign = None
    if skip_bad:
        every = len(table)
        table, bad = scores.without_bad(table, event_weight or find_column(table, column, given))
        said_bad(bad, every)
    if event_weight is None:
        name, kind, values = log_ratios(table, column, given, beta, advice=SKIP)
    else:
        name, kind = event_weight, "event weights"
        values, sign = signed_weights(table, event_weight, column, given)
    if group or shares is not None:
        for option, is_given, why in (
            ("--weights", weights is not None, "the proposals of a group are of equal mass"),
            ("--event-weight", sign is not None, "plan one group at a time"),
            ("--for", bool(asked), "a goal is for one pool"),
        ):
            if is_given:
                raise InputError(f"--group and {option} do not go together: {why}")
        parts = read_shares(shares, table, group, header)
        rows = grouped_rows(table, values, wanted, group or [], parts, n)
        typer.echo(drawn_groups(rows, f"{table.name}: {len(values):,} scores, column {name!r} read as {kind}", as_json))
        return
    _few(len(values))
    masses = None if weights is None else scores.column(table, weights)
    profile = about(table, lambda: Profile(values, masses, sign=sign))

    def of_table() -> Iterator[str]:
        yield f"{table.name}: {len(values):,} scores, column {name!r} read as {kind}"
        yield f"M = {profile.max_budget:.4g}: largest ratio seen / mean ratio, of this sample"
        if sign is not None:
            yield _signs(sign, profile)
        elif kind != "reward":  # its ratio is known up to a constant only
            yield _mean_ratio(profile.log_mean_ratio, values, masses)

    def of_sample(rows: Any) -> str:
        notes = [f"low–high is a 95 % interval; precision is at recall {recall:g}"]
        if sign is None:
            notes.append(removable_kl(profile.divergence("kl"), [row["budget"] for row in rows]))
        return _drawn(rows, len(values), profile.max_budget, notes)

    show(table, profile, profile, of_table(), of_sample)


def _sketched(
    files: list[str],
    column: str | None,
    kind: str | None,
    beta: float | None,
    skip_bad: bool,
    options: dict[str, Any],
) -> tuple[str, Any, str]:
    """Return what a folder is called, its sketch, and how its scores are read."""
    from ..engines import files as engine
    from ..engines.rows import find_sources, head

    where: Any = files[0] if len(files) == 1 else files
    sources = find_sources(where, **options)
    first = head(sources[0])
    name = find_column(first, column, kind)
    kind = find_kind(first, name, kind)
    sketch, bad = engine.sketch_of(where, column=name, kind=kind, beta=beta, skip_bad=skip_bad, **options)
    said_bad(bad, sketch.rows + bad)
    title = files[0] if len(files) == 1 else f"{files[0]} and {len(files) - 1} more"
    return f"{title}, {len(sources)} files", sketch, f"column {name!r} read as {kind}"


def _few(count: int) -> None:
    if count == 1:
        complain("warning: one score says nothing about a budget; a plan needs the scores of a sample")


def _picture(path: str | None, profile: Any, budgets: list[float]) -> None:
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


def _signs(sign: Numbers, profile: Any) -> str:
    """Return a line on what the signs of event weights leave."""
    negative = f"{100 * np.mean(sign < 0):.3g} % of the events are negative"
    share = f"{50 * (1 - profile.net):.3g} % of the sum of |w|"
    return f"{negative}, {share}: net {short(profile.net)}, so ESS is at most {short(profile.net**2)}"


def _mean_ratio(log_mean: float, values: Numbers, masses: Numbers | None) -> str:
    """Return a line with the mean ratio; far from 1, the ratio is not calibrated or the model misses a part."""
    w = np.ones(len(values)) if masses is None else masses
    relative = np.exp(values[w > 0] - log_mean) - 1
    error = float(np.sqrt(np.sum((w[w > 0] * relative) ** 2)) / np.sum(w))
    mean = (
        f"E[r] = {short(exp(log_mean))} ± {exp(log_mean) * error:.1g}"
        if abs(log_mean) < 20
        else f"E[r] = e^{log_mean:.4g}"
    )
    return f"{mean}: the mean ratio, 1 if it is calibrated"


def _drawn(rows: Any, count: int, most: float, about_rows: list[str]) -> str:
    """Draw the plan: intervals beside the values if the terminal is wide enough, else in one or two lines below."""

    def table(between: str, to: str, gap: int) -> str:
        return text_table(*rows.table(_SHOWN, lambda row, key: _cell(row, key, between, to)), left=0, gap=gap)

    drawn = [table(*how) for how in ((" ", "–", 2), ("\n", "–", 2), ("\n", "–", 1), ("\n", "–\n", 2), ("\n", "–\n", 1))]
    room = get_terminal_size().columns
    best = next((text for text in drawn if max(map(len, text.splitlines())) <= room), drawn[-1])
    notes = about_rows[:1]
    if any(row["budget"] > most for row in rows):
        notes.append("above M exact rejection costs less than the budget, and the rate is 1/M")
    if any(row["unreliable"] for row in rows):
        notes.append(f"~ not to be relied on from {count:,} scores: the tail may be heavier than they show")
    notes += filter(None, about_rows[1:])
    return "\n".join(["", best, "", *(line for note in notes for line in wrap(note, room))])


def _cell(row: dict[str, Any], key: str, between: str, to: str) -> str:
    value, low, high = (row[name] for name in (key, f"{key}_low", f"{key}_high"))
    text = ("~" if key in row["unreliable"].split() else "") + short(value)
    if low == value == high or not isfinite(value):
        return text
    ends = (short(end).removeprefix("0") for end in (low, high))  # .136–.374: eight of them stand in a line
    return f"{text}{between}{to.join(ends)}"
