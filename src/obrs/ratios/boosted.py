"""Gradient-boosted trees, grown on histograms and kept as plain tensors."""

from dataclasses import dataclass
from math import inf, log
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from .._inputs import check_count
from ..errors import InputError
from ..fitting.loop import check_rate
from .methods import Fit, Scorer
from .task import Outcome, Task, Tensor, check_numbers

__all__ = ["Boosted", "tree_scores"]

Floats = np.ndarray[Any, Any]

_BINS = 256  # of each feature; splits lie between them
_VALIDATION = 10  # one in so many samples decides when to stop
_PATIENCE = 10  # rounds without a better validation loss
_FEWEST = 20  # samples in a leaf
_FLAT = 1e-3  # least curvature of the loss in a leaf
_CELLS = 2**20  # numbers that a histogram counts at a time


@dataclass(frozen=True)
class Boosted:
    """Gradient-boosted trees, for tabular data: no need to scale features, and fitted in seconds.

    The trees are fitted once, on all real samples and as many fakes. `steps` of `refit` has no effect, and a checkpoint
    is written only at the end.

    Args:
        rounds: Number of trees at most; a tenth of the training samples decides when to stop.
        leaves: Leaves of a tree, at least 2.
        lr: Factor for the output of each tree.

    Example:
        >>> import numpy as np
        >>> from obrs.ratios.refit import refit
        >>> rng = np.random.default_rng(0)
        >>> real, fake = rng.normal(1.0, 1.0, (1000, 2)), rng.normal(0.0, 1.0, (1000, 2))
        >>> refit(real, fake, Boosted(rounds=20)).report.log_loss < 0.69
        True

    References:
        | Greedy Function Approximation: A Gradient Boosting Machine (Friedman, 2001)
        | LightGBM: A Highly Efficient Gradient Boosting Decision Tree (Ke et al., 2017), histograms, leaf-wise growth
    """

    rounds: int = 500
    leaves: int = 31
    lr: float = 0.1

    def __post_init__(self) -> None:
        check_count(self.rounds, "rounds")
        if check_count(self.leaves, "leaves") < 2:
            raise InputError(f"leaves must be a whole number of at least 2, got {self.leaves}: one leaf splits nothing")
        check_rate(self.lr)

    def fit(self, task: Task) -> Fit:
        """Grow the trees."""
        import torch

        module = torch.nn.ModuleDict()
        if task.file is not None and (saved := task.file.read()):
            tensors, facts = saved
            outcome = Outcome(**facts["outcome"] | {"history": ()})
        else:
            started = perf_counter()
            n_real = task.real.size
            n_fake = task.fake.size or n_real
            with task.seeded():
                samples = task.real.batch(0, n_real), task.fake.batch(0, n_fake)
            real, fake = (x.flatten(1).cpu().numpy() for x in samples)
            check_numbers(fake, "propose")
            trees, rounds = _boost(real, fake, self, np.random.default_rng(task.seed))
            tensors = {name: torch.from_numpy(array) for name, array in _joined(trees).items()}
            stopped = "all rounds done" if rounds == self.rounds else "no better validation loss"
            outcome = Outcome(rounds, perf_counter() - started, stopped, (), n_fake)
            if task.file is not None:
                task.file.write(tensors, {"outcome": outcome._asdict()})
        for name, tensor in tensors.items():
            module.register_buffer(name, tensor)
        return Scorer(tree_scores, module.to(task.device)), outcome


class _Node(NamedTuple):
    """A node of a tree. A sample goes to `child`, or to the node after it if its feature is above the threshold.

    A leaf is its own child, and its threshold is infinite. Its value is added to the score.
    """

    feature: int
    threshold: float
    child: int
    value: float


Tree = list[_Node]  # the root comes first


class _Leaf(NamedTuple):
    """A leaf that may be split.

    Attributes:
        node: Its number in the tree.
        rows: The samples in it.
        sums: Gradient, curvature and number of its samples, by feature and bin: shape `(3, features, bins)`.
        gain, feature, bin: The best split, above and up to this bin of this feature.
    """

    node: int
    rows: Floats
    sums: Floats
    gain: float
    feature: int
    bin: int


def _boost(real: Floats, fake: Floats, method: Boosted, rng: np.random.Generator) -> tuple[list[Tree], int]:
    """Grow trees one after the other, each on the gradient of the log-loss that the others leave.

    Returns:
        The trees up to the best validation loss, and how many were grown.
    """
    x = np.concatenate([real, fake])
    is_real = np.repeat([1.0, 0.0], [len(real), len(fake)])
    held = np.concatenate([rng.permutation(len(part)) % _VALIDATION == 0 for part in (real, fake)])
    edges = [_edges(column) for column in x[~held].T]
    codes = np.stack([np.searchsorted(edge, column) for edge, column in zip(edges, x.T, strict=True)]).astype(np.uint8)
    log_prior = log(len(real) / len(fake))
    log_ratio = np.zeros(len(x))
    trees: list[Tree] = []
    best, best_loss = 0, inf
    while len(trees) < method.rounds and len(trees) - best < _PATIENCE:
        p = (1 + np.tanh((log_ratio + log_prior) / 2)) / 2  # the probability of being real
        weights = np.stack([p - is_real, p * (1 - p), np.ones(len(x))]) * ~held
        tree, added = _grow(codes, edges, weights, method)
        trees.append(tree)
        log_ratio += added
        loss = float(np.mean(np.logaddexp(0.0, np.where(is_real, -1, 1) * (log_ratio + log_prior))[held]))
        if loss < best_loss:
            best, best_loss = len(trees), loss
    return trees[:best], len(trees)


def _edges(column: Floats) -> Floats:
    """Return ascending float32 thresholds between the values of a feature, or between its quantiles if it has many."""
    values = np.unique(column)
    if len(values) > _BINS:
        values = np.unique(np.quantile(column, np.linspace(0, 1, _BINS)).astype(np.float32))
    low, high = values[:-1], values[1:]
    middle = low + (high - low) / 2
    return np.where(middle < high, middle, low)  # between neighbours among float32 there is no middle


def _grow(codes: Floats, edges: list[Floats], weights: Floats, method: Boosted) -> tuple[Tree, Floats]:
    """Grow one tree, by a split of the leaf with the largest gain, again and again.

    Args:
        codes: The bin of each feature and sample, shape `(features, n)`.
        edges: The thresholds between the bins of each feature.
        weights: Gradient, curvature and count of each sample, shape `(3, n)`; 0 for those that are held out.
        method: Leaves and learning rate.

    Returns:
        The tree, and what it adds to the score of each sample.
    """
    tree: Tree = []

    def leaf(rows: Floats, sums: Floats) -> _Leaf:
        number = len(tree)
        gradient, curvature, _ = sums[:, 0].sum(1)
        tree.append(_Node(0, inf, number, -method.lr * float(gradient / max(curvature, _FLAT))))
        return _Leaf(number, rows, sums, *_best_split(sums))

    every = np.arange(codes.shape[1])
    leaves = [leaf(every, _histogram(codes, weights, every))]
    while len(leaves) < method.leaves and (parent := max(leaves, key=lambda leaf: leaf.gain)).gain > 0:
        above = codes[parent.feature, parent.rows] > parent.bin
        rows = parent.rows[~above], parent.rows[above]
        small = int(len(rows[1]) < len(rows[0]))
        counted = _histogram(codes, weights, rows[small])  # the sums of the larger part follow from it
        sums = (parent.sums - counted, counted) if small else (counted, parent.sums - counted)
        children = [leaf(*part) for part in zip(rows, sums, strict=True)]
        threshold = float(edges[parent.feature][parent.bin])
        tree[parent.node] = _Node(parent.feature, threshold, children[0].node, 0.0)
        leaves = [other for other in leaves if other is not parent] + children
    added = np.empty(codes.shape[1])
    for end in leaves:
        added[end.rows] = tree[end.node].value
    return tree, added


def _histogram(codes: Floats, weights: Floats, rows: Floats) -> Floats:
    """Add up the weights of these samples in each bin of each feature: shape `(3, features, bins)`."""
    picked, parts = weights.take(rows, axis=1), []
    some = max(1, _CELLS // max(len(rows), 1))  # features at a time
    for at in range(0, len(codes), some):
        part = codes[at : at + some].take(rows, axis=1)
        cells = (part + _BINS * np.arange(len(part))[:, None]).ravel()
        sums = [np.bincount(cells, np.tile(weight, len(part)), len(part) * _BINS) for weight in picked]
        parts.append(np.stack(sums).reshape(3, len(part), _BINS))
    return np.concatenate(parts, axis=1)


def _best_split(sums: Floats) -> tuple[float, int, int]:
    """Return the gain of the best split, its feature and its bin; the gain is -inf if no split is allowed.

    The gain is the decrease of the loss by Newton's method, from G²/H of the whole to that of both parts.
    """
    left = np.cumsum(sums, axis=2)[:, :, :-1]
    whole = sums[:, 0].sum(1)[:, None, None]
    right = whole - left
    allowed = (np.minimum(left[2], right[2]) >= _FEWEST) & (np.minimum(left[1], right[1]) >= _FLAT)
    with np.errstate(divide="ignore", invalid="ignore"):
        gain = left[0] ** 2 / left[1] + right[0] ** 2 / right[1] - whole[0] ** 2 / whole[1]
    gain = np.where(allowed, gain, -inf)
    feature, split = divmod(int(np.argmax(gain)), _BINS - 1)
    return float(gain[feature, split]), feature, split


def _joined(trees: list[Tree]) -> dict[str, Floats]:
    """Return the nodes of all trees as columns, and where the trees start."""
    sizes = [len(tree) for tree in trees]
    roots = np.cumsum([0, *sizes], dtype=np.int64)[:-1]
    nodes = [node for tree in trees for node in tree]
    return {
        "roots": roots,
        "feature": np.asarray([node.feature for node in nodes], np.int64),
        "threshold": np.asarray([node.threshold for node in nodes], np.float32),
        "child": np.asarray([node.child for node in nodes], np.int64) + np.repeat(roots, sizes),
        "value": np.asarray([node.value for node in nodes], np.float32),
    }


def tree_scores(scorer: Scorer, module: Any, x: Tensor) -> Tensor:
    """Add up the values of the leaves that a sample reaches, shape `(n,)`; NaN for a sample with a NaN in it."""
    import torch

    flat = x.flatten(1)
    node, before = module.roots.expand(len(x), -1), None  # of each sample in each tree
    while before is None or not torch.equal(node, before):
        above = flat.gather(1, module.feature.take(node)) > module.threshold.take(node)
        node, before = module.child.take(node) + above, node
    return torch.where(flat.isnan().any(1), torch.nan, module.value.take(node).sum(1))
