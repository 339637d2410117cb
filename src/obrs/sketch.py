"""The sketch of a pool: about 1 MB that finds c, and exactly n rows, among rows that are nowhere in memory.

Two passes over rows that may lie in many files or on many machines. The first fills sketches, a histogram of log r
each, which are merged: in any order, to the same bits. `Sketch.solve` finds the bin in which -log c lies, and with it a
bracket for the key `log u - log r` of the last row that is kept. The second pass decides on all rows outside the
bracket and hands the few others, the open rows, to `SketchCut.finish`. That returns the exact cut: the constant c that
`solve_log_c` would have found with all rows in memory, and exactly the rows that `select(…, design="priority")` would
have chosen.

    sketch = Sketch()
    for log_ratio, ids in parts:
        sketch = sketch.add(log_ratio, ids)
    cut = sketch.solve(n=1000)
    cut = cut.finish(*(cut.judge(ids, log_ratio).open for log_ratio, ids in parts))
    kept = [ids[cut.keep(ids, log_ratio) == 1] for log_ratio, ids in parts]

Where the open rows would be too many (`SketchCut.held_bytes`), as where a third of all scores is the same, `zoom` is a
sketch of the open interval alone, with finer bins: fill it in one more pass, and `narrow` the cut with it.

Rows are chosen by a uniform of their id and the seed. Those kept by one score have small uniforms where the score is
small. **To select again from what was kept, by another score, use another seed**, such as `seed_for(name, seed)`: with
the same one, uniforms are no longer uniform, and the second choice is biased.

References:
    | Sequential Poisson Sampling (Ohlsson, 1998)
    | Priority Sampling for Estimation of Arbitrary Subset Sums (Duffield, Lund & Thorup, 2007)
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from hashlib import blake2b
from math import frexp, inf, isnan, sqrt
from operator import index
from typing import Any, NamedTuple

import numpy as np

from . import _bins
from ._arrays import as_floats, host_values, host_view
from ._bins import Bins, Far
from ._checks import check_budget, check_count, check_positive, check_ratios, check_seed, out_of_reach
from ._repeats import Repeats
from .draws import as_ids, priority_key
from .errors import BracketError, InputError, InputTypeError
from .profile import Plan, Profile
from .root import condensed, slack_of, solve_sorted
from .types import Array

__all__ = ["MEMORY", "Judged", "Open", "Sketch", "SketchCut", "seed_for"]

Floats = np.ndarray[Any, Any]
Ints = np.ndarray[Any, Any]

MEMORY = 256 << 20  # bytes of open rows beyond which one should zoom in first
_ROW_BYTES = 24  # of an open row: id, log-ratio, and its key
_FINEST = 62  # level
_WIDEST = 1e150  # bins, whose width is squared
_NOTHING = Far()  # lies outside


class Open(NamedTuple):
    """What `SketchCut.finish` must see of a part of the pool.

    Attributes:
        kept: How many rows of the part are kept for sure; how many units, where rows have costs.
        ids, log_ratio: The rows whose key is in the bracket, or whose log-ratio is in the bin of c.
        cost: What they cost, or None.
    """

    kept: int
    ids: Ints
    log_ratio: Floats
    cost: Ints | None = None


class Judged(NamedTuple):
    """What a cut says of a part of the pool.

    Attributes:
        decision: int8 beside each row: 1 kept, 0 dropped, -1 undecided.
        open: The part that `SketchCut.finish` must see.
    """

    decision: Ints
    open: Open


@dataclass(frozen=True, eq=False)
class Sketch:
    """A mergeable summary of the log-ratios of a pool: `Sketch().add(log_ratio, ids).merge(other).solve(n=…)`.

    Nothing is changed in place: `add` and `merge` return a new sketch. It can be pickled, and saved as JSON.

    Args:
        rows: Rows so far, those with r = 0 included.
        mass: What they cost; without costs their number.
        bins: The histogram of those with r > 0.
        top: The largest log-ratio.
        dearest: The largest cost.
        seed: The seed of the uniforms; None as long as there are no rows.
        costs: Whether rows have costs; None as long as there are no rows.
        low, high: Rows with a log-ratio outside `[low, high)` are passed over (`SketchCut.zoom`).
        repeats: A sample of ids, with how often each came.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> x, ids = rng.normal(size=10_000), np.arange(10_000)
        >>> halves = [Sketch().add(x[half], ids[half]) for half in (slice(0, 5000), slice(5000, None))]
        >>> cut = halves[0].merge(halves[1]).solve(budget=4)
        >>> cut = cut.finish(cut.judge(ids, x).open)
        >>> from obrs import solve_log_c
        >>> bool(np.isclose(cut.log_c, solve_log_c(x, 4), rtol=1e-15)), int(np.sum(cut.keep(ids, x)))
        (True, 2475)
    """

    rows: int = 0
    mass: int = 0
    bins: Bins = Bins.none()  # noqa: RUF009
    top: float = -inf
    dearest: int = 1
    seed: int | None = None
    costs: bool | None = None
    low: float = -inf
    high: float = inf
    repeats: Repeats | None = None

    def add(self, log_ratio: Array, ids: Array | None = None, seed: int = 0, *, cost: Array | None = None) -> "Sketch":
        """Return the sketch with these rows as well.

        Args:
            log_ratio: Log-ratios, shape `(n,)`; -inf means r = 0. NaN and +inf are refused.
            ids: Integers, shape `(n,)`. Here they serve to estimate how many are repeated, and may be left out.
            seed: Integer with `0 <= seed < 2**64`, the same for all rows.
            cost: What each row costs, shape `(n,)`: whole numbers of at least 0, such as tokens. For all rows or none.
        """
        x = host_view(as_floats(log_ratio, "log_ratio"))
        if x is None or x.ndim != 1:
            raise InputError(f"log_ratio must have one axis, that of the rows, got shape {np.shape(log_ratio)}")
        if not x.size:
            return self
        check_ratios(x)
        units, seed = _as_units(cost, x), check_seed(seed)
        self._check_alike(seed, units is not None)
        sample = self.repeats
        if ids is not None:
            names = as_ids(ids)
            if names.shape != x.shape:
                raise InputError(f"log_ratio and ids must have one shape, got {x.shape} and {names.shape}")
            sample = Repeats.of(names, sample)
        rows, mass = x.size, x.size if units is None else int(units.sum())
        wanted = _within(x, Far(self.low, self.high))
        if not wanted.all():
            x, units = x[wanted], None if units is None else units[wanted]
        return replace(
            self,
            rows=self.rows + rows,
            mass=self.mass + mass,
            bins=_bins.joined(self.bins, _bins.of_rows(x, units, self.bins.level)),
            top=max(self.top, float(x.max(initial=-inf))) + 0.0,  # -0 is 0, whichever came first
            dearest=self.dearest if units is None else max(self.dearest, int(units.max(initial=1))),
            seed=seed,
            costs=units is not None,
            repeats=sample,
        )

    def merge(self, *others: "Sketch") -> "Sketch":
        """Return the sketch of all rows of all these sketches; in any order, the same to the last bit.

        Example:
            >>> a, b = Sketch().add([0.0, 1.0]), Sketch().add([-1.0])
            >>> a.merge(b).to_json() == b.merge(a).to_json() == Sketch().add([-1.0, 0.0, 1.0]).to_json()
            True
        """
        merged = self
        for other in others:
            merged = _merged(merged, other)
        return merged

    def _check_alike(self, seed: int | None, costs: bool | None) -> None:
        if None not in (seed, self.seed) and seed != self.seed:
            raise InputError(f"all rows of a sketch have one seed, got {seed} after {self.seed}")
        if None not in (costs, self.costs) and costs != self.costs:
            raise InputError("give a cost for all rows of a sketch, or for none")

    @property
    def width(self) -> float:
        """How wide the bins are, in nats: 2**-10, or more where log-ratios span more than 30 or so."""
        return float(np.ldexp(1.0, -self.bins.level))

    @property
    def possible(self) -> int:
        """Rows with r > 0; what they cost, where there are costs."""
        return int(self.bins.mass.sum())

    @property
    def repeated(self) -> float:
        """Estimated share of the rows whose id came before, from ids that a hash puts into a fixed share of all.

        Rows of one id share their uniform: they are kept together, as far as their scores allow. 0 without ids.

        Example:
            >>> Sketch().add(np.zeros(8), np.array([1, 2, 3, 4, 1, 2, 3, 4])).repeated
            0.5
        """
        return 0.0 if self.repeats is None else self.repeats.share

    def solve(self, *, budget: float | None = None, n: int | None = None, margin: float = 6.0) -> "SketchCut":
        """Find where 1 in `budget` rows, or exactly `n`, are cut off, as far as the sketch tells.

        Args:
            budget: K. The rule is that of `solve_log_c`: c is at least 1/max r, and a row is kept if its key is below
                log c.
            n: How many to keep, as in `select(…, design="priority")`; c is not floored. With costs, how many units.
            margin: For n, how many standard deviations the bracket leaves to chance on each side. If it was too few,
                which repeated ids may cause, `finish` raises `BracketError`.
        """
        if (budget is None) == (n is None):
            raise InputError("give a budget, or n: exactly one of the two")
        if not self.rows:
            raise InputError("the sketch is empty; add returns a new one: sketch = sketch.add(log_ratio, ids)")
        if (self.low, self.high) != (-inf, inf):
            raise InputError("this is the sketch of an interval; use cut.narrow(sketch)")
        return self._at_budget(check_budget(budget)) if n is None else self._at_size(n, margin)

    def _at_budget(self, budget: float) -> "SketchCut":
        share, possible = 1 / budget, self.possible
        if possible < share * self.mass * (1 - slack_of(self.rows, bool(self.costs))) or not possible:
            raise out_of_reach(share, possible / self.mass if self.mass else 0.0)
        cut = self._blank(min(share * self.mass, possible), floor=-self.top)
        if budget == 1:  # whatever has r > 0
            return replace(cut, log_c_low=inf, log_c_high=inf, sure=inf, never=inf)
        return self._expecting(_cut(self.bins, Far(), cut))

    def _at_size(self, n: Any, margin: float) -> "SketchCut":
        target, possible, margin = check_count(n, "n"), self.possible, check_positive(margin, "margin")
        if target > possible:
            what = f"the {self.rows} rows" if not self.costs else f"rows that cost {self.mass}"
            raise InputError(f"cannot select {target} of {what}: only {possible} have r > 0")
        # The number of keys below log t has mean alpha(t), and at most that variance where each row has its own
        # uniform. The second term is for a small n, where it is not normal (Bernstein).
        each = self.dearest * (1.0 if self.repeats is None else self.repeats.together)
        chance = margin * sqrt(target * each) + 0.6 * margin**2 * each
        return self._expecting(_cut(self.bins, Far(), self._blank(target, floor=-inf, chance=chance)))

    def _blank(self, target: float, **facts: Any) -> "SketchCut":
        about: dict[str, Any] = {"rows": self.rows, "mass": self.mass, "possible": self.possible, "top": self.top}
        return SketchCut(target=target, seed=self.seed or 0, costs=bool(self.costs), **about, **facts)

    def _expecting(self, cut: "SketchCut") -> "SketchCut":
        """Return the cut with the number of keys that are expected in its bracket."""
        with np.errstate(over="ignore"):
            below = [np.exp(np.minimum(self.bins.upper + end, 0.0)) for end in (cut.sure, cut.never)]
        return replace(cut, undecided=int(np.sum(self.bins.rows * (below[1] - below[0]))))

    def profile(self) -> Profile:
        """Return the profile of the pool, each bin taken for as many rows of its mean ratio.

        What an f-divergence loses by that is what ratios differ within a bin of width w: KL, reverse KL and JS at most
        w²/8 (1.2e-7 for bins of 2**-10), χ² + 1 and its like at most the share w²/4 of themselves. Rates, c, precision
        and recall are off by at most w/4 times the share of the rows in one bin.

        Example:
            >>> x = np.random.default_rng(0).normal(size=100_000)
            >>> sketched, exact = Sketch().add(x).profile(), Profile(x)
            >>> abs(sketched.divergence("kl", 4) - exact.divergence("kl", 4)) < 2**-20 / 8
            True
        """
        if not self.rows:
            raise InputError("the sketch is empty; add returns a new one: sketch = sketch.add(log_ratio, ids)")
        if self.bins.level >= 0:
            with np.errstate(divide="ignore"):
                value = np.log(self.bins.sums) - np.log(self.bins.mass) + np.floor(self.bins.lower)
        else:
            value = self.bins.lower / 2 + self.bins.upper / 2
        return Profile(
            np.append(value, -inf),
            np.append(self.bins.mass, self.mass - self.possible).astype(np.float64),
        )

    def plan(self, budgets: Iterable[float], *, n: int | None = None, recall: float = 0.9) -> Plan:
        """Return what each budget buys on this pool, as `Profile.plan` does, without its intervals.

        The pool is all there is: no sampling error. `…_low` and `…_high` bound what bins leave open, `error` is w²/4
        for bins of width w. Whether the largest ratios can be trusted is not asked; plan on a sample for that.

        Example:
            >>> rows = Sketch().add(np.random.default_rng(0).normal(size=10_000) / 2).plan([2], n=100)
            >>> round(rows[0]["kl"], 3), rows[0]["proposals"], rows[0]["error"] < 1e-6
            (0.005, 200.0, True)
        """
        number = None if n is None else check_count(n, "n")
        profile, error = self.profile(), min(self.width, _WIDEST) ** 2 / 4
        note = f"Of bins {self.width:.2g} wide: divergences are low by at most {error:.1g}, or that share of them."
        return Plan((_row(profile, check_budget(k), number, recall, error) for k in budgets), [note])

    def to_json(self) -> str:
        """Return the sketch as JSON; `Sketch.from_json` reads it."""
        plain: dict[str, Any] = {name: getattr(self, name) for name in ("rows", "mass", "dearest", "seed", "costs")}
        plain |= {name: _finite(getattr(self, name)) for name in ("top", "low", "high")}
        plain["bins"] = {
            name: column if isinstance(column, int) else column.tolist() for name, column in self.bins._asdict().items()
        }
        if self.repeats is not None:
            plain["repeats"] = {
                "shift": self.repeats.shift,
                "ids": self.repeats.ids.tolist(),
                "times": self.repeats.times.tolist(),
            }
        return json.dumps({"sketch": 1, **plain})

    @classmethod
    def from_json(cls, text: str) -> "Sketch":
        """Return the sketch that `to_json` saved.

        Example:
            >>> Sketch.from_json(Sketch().add([0.0, -np.inf]).to_json()).rows
            2
        """
        try:
            data = dict(json.loads(text))
            if data.pop("sketch") != 1:
                raise KeyError("sketch")
            for name in ("top", "low", "high"):
                data[name] = float(data[name])
            level, *columns = (data["bins"][name] for name in Bins._fields)
            data["bins"] = Bins(int(level), *(_whole(column) for column in columns))
            if len({len(column) for column in data["bins"][1:]}) > 1:
                raise ValueError("bins of unequal length")
            if (found := data.get("repeats")) is not None:
                ids, times = _whole(found["ids"]), _whole(found["times"])
                data["repeats"] = Repeats(int(found["shift"]), ids, times)
            for name in ("rows", "mass", "dearest"):
                data[name] = check_count(data[name], name, least=0)
            if data["seed"] is not None:
                check_seed(data["seed"])
            if not isinstance(data["costs"], bool | None) or isnan(data["top"] + data["low"] - data["high"]):
                raise ValueError("costs, or where rows lie")
            return cls(**data)
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
            raise InputError(f"a saved sketch must be the JSON of Sketch.to_json, got {text!r:.60}") from error


@dataclass(frozen=True)
class SketchCut:
    """Where a pool is cut, as far as is known: from `Sketch.solve` a bracket, from `finish` the exact cut.

    Args:
        rows, mass, possible, top: Of the pool: its rows, what they cost, what those with r > 0 cost, its largest
            log-ratio.
        target: What is to be accepted: n, or the mass over K.
        floor: log c is at least this: -log max r for a budget, -inf for n.
        seed, costs: As in the sketch.
        chance: What the size of the choice may be off by chance, in mass; 0 for a budget.
        at: The interval of -log c, and what lies outside of it.
        around: The same for all that `zoom` is to look at.
        crossing: Rows whose log-ratio is in the interval `at`, all of which `finish` must see; 0 once c is known.
        log_c_low, log_c_high: Bounds of log c; equal once it is known.
        sure, never: Keys below `sure` are kept, keys from `never` on are not.
        undecided: How many keys, about, lie between.
        level: Of the finer bins of `zoom`.
        last: Where the key `sure` itself is tied, the last id that is kept with it.
        spare: Where even that id is repeated, how many of its rows are kept; -1 for all.

    Example:
        >>> x, ids = np.random.default_rng(0).normal(size=10_000), np.arange(10_000)
        >>> cut = Sketch().add(x, ids).solve(n=2500)
        >>> bool(np.all(cut.keep(ids, x) >= 0)), cut.exact
        (False, False)
        >>> exact = cut.finish(cut.judge(ids, x).open)
        >>> int(np.sum(exact.keep(ids, x))), exact.exact
        (2500, True)
    """

    rows: int
    mass: int
    possible: int
    top: float
    target: float
    floor: float
    seed: int
    costs: bool
    chance: float = 0.0
    at: Far = _NOTHING
    around: Far = _NOTHING
    crossing: int = 0
    log_c_low: float = -inf
    log_c_high: float = inf
    sure: float = -inf
    never: float = inf
    undecided: int = 0
    level: int = _FINEST
    last: int | None = None
    spare: int = -1

    @property
    def exactly(self) -> bool:
        """Whether n rows were asked for, rather than 1 in K."""
        return self.floor == -inf

    @property
    def exact(self) -> bool:
        """Whether c and all decisions are known."""
        return self.crossing == 0 and self.log_c_low == self.log_c_high and (self.settled or self.last is not None)

    @property
    def settled(self) -> bool:
        """Whether no key can lie between `sure` and `never`."""
        return self.sure == self.never

    @property
    def log_c(self) -> float:
        """The constant; until `finish`, the middle of its bounds."""
        if self.log_c_low == self.log_c_high:
            return self.log_c_low
        return self.log_c_low / 2 + self.log_c_high / 2

    @property
    def held_bytes(self) -> int:
        """About how much memory the open rows take; above `MEMORY`, zoom in before the pass that holds them."""
        return _ROW_BYTES * (self.crossing + self.undecided)

    def keep(self, ids: Array, log_ratio: Array) -> Ints:
        """Decide on rows: 1 kept, 0 dropped, -1 undecided. An exact cut leaves none undecided, but see `spare`."""
        return self._decide(*self._keys(ids, log_ratio))

    def judge(self, ids: Array, log_ratio: Array, *, cost: Array | None = None) -> Judged:
        """Decide on rows as `keep` does, and return what `finish` must see of them."""
        names, key = self._keys(ids, log_ratio)
        x = np.asarray(host_view(as_floats(log_ratio, "log_ratio")), np.float64)  # as `add` reads them
        units = _as_units(cost, x)
        if (units is not None) != self.costs:
            raise InputError(f"the sketch was filled {'with' if self.costs else 'without'} costs; do so here, too")
        decision = self._decide(names, key)
        sure = decision == 1
        kept = int(np.count_nonzero(sure) if units is None else units[sure].sum())
        wanted = decision == -1
        if self.crossing:
            wanted |= _within(x, self.at)
        part = Open(kept, names[wanted], x[wanted], None if units is None else units[wanted])
        return Judged(decision, part)

    def _keys(self, ids: Array, log_ratio: Array) -> tuple[Ints, Floats]:
        names = as_ids(ids)
        return names, priority_key(log_ratio, names, seed=self.seed)

    def _decide(self, names: Ints, key: Floats) -> Ints:
        decision = (key < self.sure).astype(np.int8)
        undecided = (key >= self.sure) & (key < self.never)
        if self.last is None:
            decision[undecided] = -1
        elif undecided.any():  # the tie at the last key
            at = np.flatnonzero(undecided)
            decision[at] = names[at] <= self.last
            if self.spare >= 0:
                decision[at[names[at] == self.last]] = -1
        return decision

    def finish(self, *parts: Open) -> "SketchCut":
        """Return the exact cut, from what `judge` left open of all parts of the pool.

        Its `keep` decides on every row. Only if rows with the same id and the same log-ratio are tied for the last
        place, these are left at -1, and any `spare` of them are to be kept.
        """
        ids, x = (np.concatenate([part[i] for part in parts] or [np.empty(0, np.int64)]) for i in (1, 2))
        cost = (
            np.concatenate([part.cost for part in parts if part.cost is not None] or [ids[:0]]) if self.costs else None
        )
        cut = self
        if self.crossing:
            inside = _within(x, self.at)
            if np.count_nonzero(inside) != self.crossing:
                raise InputError(
                    f"{self.crossing} rows have a log-ratio between {self.at.low:g} and {self.at.high:g}, got "
                    f"{np.count_nonzero(inside)}; judge all rows that the sketch was filled with, and no others"
                )
            cut = _solved(self, x[inside], None if cost is None else cost[inside].astype(np.float64))
        if not self.exactly:
            return replace(cut, sure=cut.log_c, never=cut.log_c, undecided=0)
        key = priority_key(x, ids, seed=self.seed)
        held = (key >= self.sure) & (key < self.never)
        units = np.ones(len(key), np.int64) if cost is None else cost
        return cut._at_last(key[held], ids[held], units[held], sum(part.kept for part in parts))

    def _at_last(self, key: Floats, ids: Ints, units: Ints, kept: int) -> "SketchCut":
        """Return the cut after the last row that is kept: rows come by key, then by id."""
        order = np.lexsort((ids, key))
        key, ids, total = key[order], ids[order], kept + np.cumsum(units[order])
        number = int(np.searchsorted(total, self.target, side="right"))
        met = kept == self.target or (number > 0 and total[number - 1] == self.target)
        if kept > self.target or (number == len(key) and not met and self.never < inf):
            what = f"{kept} rows are below the bracket of the last key, and {len(key)} in it"
            raise BracketError(f"{what}, so the one of n = {self.target:g} is not; solve again with a larger margin")
        if number == len(key):
            return replace(self, sure=self.never, undecided=0)
        if number == 0:
            return replace(self, never=self.sure, undecided=0)
        before, after = key[number - 1], key[number]
        if before < after:  # between the two, so that the last bit of a logarithm decides nothing
            middle = before / 2 + after / 2 if np.isfinite(before) else after
            middle = float(middle if before < middle <= after else after)
            return replace(self, sure=middle, never=middle, undecided=0)
        tied = replace(self, sure=float(before), never=float(np.nextafter(before, inf)), last=int(ids[number - 1]))
        if ids[number] != ids[number - 1]:
            return replace(tied, undecided=0)
        same = (key == before) & (ids == ids[number])
        return replace(tied, spare=int(np.count_nonzero(same[:number])), undecided=int(np.count_nonzero(same)))

    def zoom(self) -> Sketch:
        """Return an empty sketch of the open interval alone, with finer bins: add all rows to it, then `narrow`."""
        low, high = self.around.low, self.around.high
        return Sketch(bins=Bins.none(self.level), low=low, high=high, seed=self.seed, costs=self.costs)

    def narrow(self, sketch: Sketch) -> "SketchCut":
        """Return the cut with the narrower bracket that the sketch of its interval gives."""
        if (sketch.low, sketch.high, sketch.rows) != (self.around.low, self.around.high, self.rows):
            raise InputError("narrow takes the sketch that zoom of this cut began, filled with all rows of the pool")
        cut = _cut(sketch.bins, self.around, self)
        if -inf < self.sure < self.never < inf:
            part, whole = (side.never / 2 - side.sure / 2 for side in (cut, self))  # halves: the whole may overflow
            return replace(cut, undecided=int(self.undecided * min(part / whole, 1.0)))
        return cut

    def to_json(self) -> str:
        """Return the cut as JSON; `SketchCut.from_json` reads it."""
        plain = asdict(self) | {name: [_finite(end) for end in getattr(self, name)] for name in ("at", "around")}
        return json.dumps({"cut": 1, **{name: _finite(value) for name, value in plain.items()}})

    @classmethod
    def from_json(cls, text: str) -> "SketchCut":
        """Return the cut that `to_json` saved.

        Example:
            >>> cut = Sketch().add([0.0, 1.0]).solve(budget=2)
            >>> SketchCut.from_json(cut.to_json()) == cut
            True
        """
        try:
            data = dict(json.loads(text))
            if data.pop("cut") != 1:
                raise KeyError("cut")
            for name in ("at", "around"):
                low, high, above, below = data[name]
                data[name] = Far(float(low), float(high), int(above), float(below))
            for name in ("rows", "mass", "possible", "crossing", "undecided"):
                data[name] = check_count(data[name], name, least=0)
            number = data["target"]  # n stays an integer: floats do not have all of them
            for name in ("top", "target", "floor", "chance", "log_c_low", "log_c_high", "sure", "never"):
                data[name] = float(data[name])
                if isnan(data[name]):
                    raise ValueError(name)
            data["target"] = number if type(number) is int else data["target"]
            for name in ("level", "spare", "last"):
                data[name] = None if name == "last" and data[name] is None else index(data[name])
            if not isinstance(data["costs"], bool):
                raise TypeError("costs")
            check_seed(data["seed"])
            return cls(**data)
        except (ValueError, TypeError, KeyError, OverflowError) as error:
            raise InputError(f"a saved cut must be the JSON of SketchCut.to_json, got {text!r:.60}") from error


def seed_for(score: str, seed: int = 0) -> int:
    """Return a seed of its own for the name of a score, so that selecting by one score and then by another is fair.

    Rows that were selected with a seed have uniforms that are small where their ratio was: by the same seed a second
    selection would prefer what the first one nearly dropped.

    Example:
        >>> seed_for("quality") == seed_for("quality"), seed_for("quality") == seed_for("safety")
        (True, False)
    """
    if not isinstance(score, str):
        raise InputTypeError(f"score must be the name of a score, got {type(score).__name__}")
    return int.from_bytes(blake2b(f"{check_seed(seed)}\0{score}".encode(), digest_size=8).digest(), "little")


def _within(x: Floats, far: Far) -> Floats:
    """Tell which log-ratios lie in the interval; r = 0 lies in none."""
    possible: Floats = x > -inf
    if far.low > -inf:
        possible &= x >= np.float64(far.low)  # a plain float would be rounded to the dtype of x
    if far.high < inf:
        possible &= x < np.float64(far.high)
    return possible


def _cut(bins: Bins, far: Far, cut: SketchCut) -> SketchCut:
    """Return the cut with what bins tell of an interval and all that is open in it."""
    found = less = more = _bins.crossing(bins, cut.target, far)
    sure, never = found.log_c_low, found.log_c_high
    if cut.chance:
        if cut.target > cut.chance:
            less = _bins.crossing(bins, cut.target - cut.chance, far)
        if cut.target + cut.chance < cut.possible:
            more = _bins.crossing(bins, cut.target + cut.chance, far)
        sure = -inf if less is found else min(less.log_c_low, sure)
        never = inf if more is found else max(more.log_c_high, never)
    inside = found.inside
    cut = replace(
        cut,
        at=found.far,
        around=Far(more.far.low, less.far.high, less.far.above, more.far.below),
        crossing=int(inside.rows.sum()),
        log_c_low=max(found.log_c_low, cut.floor),
        log_c_high=max(found.log_c_high, cut.floor),
        sure=max(sure, cut.floor),
        never=max(never, cut.floor),
        level=_finer(bins, more.far.low, less.far.high),
    )
    if cut.log_c_low == cut.log_c_high:  # exact rejection
        return replace(cut, crossing=0)
    return _solved(cut, inside.lower, inside.mass.astype(np.float64)) if inside.single else cut


def _finer(bins: Bins, low: float, high: float) -> int:
    """Return the level at which the bins of an interval, if none was empty, would be as many as may be."""
    here = np.flatnonzero((bins.lower >= low) & (bins.lower < high))
    if not here.size:
        return _FINEST
    reach = int(bins.place[here[-1]]) - int(bins.place[here[0]]) + 1  # in bins
    return min(bins.level + max(frexp(_bins.MOST / reach)[1] - 1, 1), _FINEST)


def _solved(cut: SketchCut, value: Floats, mass: Floats | None) -> SketchCut:
    """Return the cut with the exact c, from all log-ratios in its interval."""
    low, high, above, below = cut.at
    with np.errstate(all="ignore"):  # what overflows has quotient 0
        found = solve_sorted(*condensed(below, above, value, mass, low, high), cut.target)
    log_c = max(float(found[0]), cut.floor)
    cut = replace(cut, crossing=0, log_c_low=log_c, log_c_high=log_c)
    return cut if cut.exactly else replace(cut, sure=log_c, never=log_c)


def _merged(a: Sketch, b: Sketch) -> Sketch:
    if not isinstance(b, Sketch):
        raise InputTypeError(f"merge takes sketches, got {type(b).__name__}")
    if (a.low, a.high) != (b.low, b.high):
        raise InputError("sketches of different intervals cannot be merged")
    a._check_alike(b.seed, b.costs)
    return replace(
        a,
        rows=a.rows + b.rows,
        mass=a.mass + b.mass,
        bins=_bins.joined(a.bins, b.bins),
        top=max(a.top, b.top),
        dearest=max(a.dearest, b.dearest),
        seed=b.seed if a.seed is None else a.seed,
        costs=b.costs if a.costs is None else a.costs,
        repeats=b.repeats if a.repeats is None else a.repeats.merge(b.repeats),
    )


def _as_units(cost: Any, x: Floats) -> Ints | None:
    if cost is None:
        return None
    given = np.asarray(host_values(cost))
    if given.shape != x.shape:
        raise InputError(f"cost must have the shape of log_ratio {x.shape}, got {given.shape}")
    if given.dtype.kind not in "iuf" or not np.all((given >= 0) & (given < 2**32) & (given == np.floor(given))):
        raise InputError("cost must be whole numbers from 0 to 2**32, such as tokens; count in smaller units")
    return given.astype(np.int64)


def _row(profile: Profile, budget: float, n: int | None, recall: float, error: float) -> dict[str, Any]:
    row: dict[str, Any] = {"budget": budget}
    for key in ("rate", "kl", "rkl", "tv", "js", "chi2", "ess", "precision"):
        if key in ("rate", "ess"):
            value = getattr(profile, key)(budget)
        elif key == "precision":
            value = profile.precision_at(recall, budget)
        else:
            value = profile.divergence(key, budget)
        off = error * max(1.0, abs(value)) if value < inf else 0.0
        most = 1.0 if key in ("rate", "tv", "ess", "precision") else inf
        row |= {key: value, f"{key}_low": max(value - off, 0.0), f"{key}_high": max(min(value + off, most), value)}
    row |= {"proposals": None if n is None else n / row["rate"], "unreliable": "", "error": error}
    return row


def _whole(column: Any) -> Ints:
    """Return a column of whole numbers as JSON has it, or raise."""
    found = np.array(column, np.int64)
    if found.ndim != 1 or not all(type(cell) is int for cell in column):
        raise TypeError("a column of whole numbers")
    return found


def _finite(value: Any) -> Any:
    """Return a number as JSON has it: infinities as text, which `float` reads."""
    return str(value) if isinstance(value, float) and not np.isfinite(value) else value
