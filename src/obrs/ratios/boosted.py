"""Gradient-boosted trees, grown by scikit-learn and kept as plain arrays."""

from dataclasses import asdict, dataclass
from math import log
from time import perf_counter
from typing import Any

import numpy as np

from .._inputs import check_count
from ..errors import InputError, MissingLibraryError
from ..fitting.loop import check_rate
from .descent import Outcome, checkpoint_of
from .pairs import Task, Tensor, check_numbers
from .scorers import Scorer

__all__ = ["Boosted", "tree_scores"]

_TREES = 8  # at a time
_FIELDS = {"is_leaf", "value", "feature_idx", "num_threshold", "left", "right"}  # of scikit-learn's nodes


@dataclass(frozen=True)
class Boosted:
    """Gradient-boosted trees (scikit-learn's), for tabular data: no scaling to think of, seconds.

    Fitted once on all real samples and as many fakes; `steps` of `refit` does not matter, and a checkpoint is written
    when all is done. The trees are kept as plain arrays, and saved as such.

    Args:
        rounds: Trees at most; a tenth of the training samples decides when to stop.
        leaves: Leaves of a tree, at least 2.
        lr: What the answer of each tree is multiplied by.

    Example:
        >>> import numpy as np
        >>> from obrs.ratios.refit import refit
        >>> rng = np.random.default_rng(0)
        >>> real, fake = rng.normal(1.0, 1.0, (1000, 2)), rng.normal(0.0, 1.0, (1000, 2))
        >>> refit(real, fake, Boosted(rounds=20)).report.log_loss < 0.69
        True
    """

    rounds: int = 500
    leaves: int = 31
    lr: float = 0.1

    def __post_init__(self) -> None:
        check_count(self.rounds, "rounds")
        if check_count(self.leaves, "leaves") < 2:
            raise InputError(f"leaves must be a whole number of at least 2, got {self.leaves}: one leaf splits nothing")
        check_rate(self.lr)

    def fit(self, task: Task) -> tuple[Scorer, Outcome]:
        """Grow the trees."""
        import torch

        try:
            from sklearn.ensemble import HistGradientBoostingClassifier
        except ImportError as error:
            raise MissingLibraryError("Boosted needs scikit-learn: pip install 'obrs[ratios]'") from error
        module = torch.nn.ModuleDict()
        checkpoint = checkpoint_of(task)
        if checkpoint is not None and (read := checkpoint.read()):
            tensors, facts = read
            for name, tensor in tensors.items():
                module.register_buffer(name, tensor)
            return Scorer("trees", module.to(task.device)), Outcome(**facts["outcome"] | {"history": ()})
        started = perf_counter()
        n_real = task.real.size
        n_fake = task.fake.size or n_real
        with task.seeded():
            real, fake = (x.flatten(1).cpu().numpy() for x in (task.real.batch(0, n_real), task.fake.batch(0, n_fake)))
        check_numbers(fake, "propose")
        model = HistGradientBoostingClassifier(
            max_iter=self.rounds,
            max_leaf_nodes=self.leaves,
            learning_rate=self.lr,
            early_stopping=True,
            random_state=task.seed % 2**32,
        )
        model.fit(np.concatenate([real, fake]), np.repeat([1, 0], [n_real, n_fake]))
        _keep_trees(model, module, log(n_fake / n_real))
        stopped = "all rounds done" if model.n_iter_ == self.rounds else "no better validation loss"
        outcome = Outcome(int(model.n_iter_), perf_counter() - started, stopped, (), n_fake)
        if checkpoint is not None:
            checkpoint.write(module.state_dict(), {"outcome": asdict(outcome)})
        return Scorer("trees", module.to(task.device)), outcome


def _keep_trees(model: Any, module: Any, prior: float) -> None:
    """Turn scikit-learn's trees into tensors.

    A tree asks all its questions of a sample at once. Of the way to a leaf the tensors know where it turns right, +1,
    and where left, -1: the sample is in the leaf for which the sum of its yeses is the number of right turns.
    """
    import torch

    trees, start = _grown(model)
    leaves = max(int(nodes["is_leaf"].sum()) for nodes in trees)
    feature, threshold = np.zeros((len(trees), leaves), np.int64), np.full((len(trees), leaves), np.inf)
    turns, rights = np.zeros((len(trees), leaves, leaves), np.float32), np.full((len(trees), leaves), -1, np.float32)
    value = np.zeros((len(trees), leaves), np.float32)
    for i, nodes in enumerate(trees):
        number = np.where(nodes["is_leaf"], np.cumsum(nodes["is_leaf"]), np.cumsum(1 - nodes["is_leaf"])) - 1
        ways: list[tuple[int, dict[int, int]]] = [(0, {})]
        while ways:
            at, way = ways.pop()
            node, mine = nodes[at], int(number[at])
            if node["is_leaf"]:
                value[i, mine], rights[i, mine] = node["value"], sum(turn > 0 for turn in way.values())
                turns[i, mine, list(way)] = list(way.values())
            else:
                feature[i, mine], threshold[i, mine] = node["feature_idx"], node["num_threshold"]
                ways += [(int(node["left"]), way | {mine: -1}), (int(node["right"]), way | {mine: 1})]
    narrow = threshold.astype(np.float32)  # rounded down, so that a float32 is above it as it is above the threshold
    threshold = np.where(narrow > threshold, np.nextafter(narrow, np.float32(-np.inf)), narrow)
    tensors = {"feature": feature, "threshold": threshold, "turns": turns, "rights": rights, "value": value}
    for name, array in (tensors | {"start": np.array(start + prior, np.float32)}).items():
        module.register_buffer(name, torch.from_numpy(array))


def _grown(model: Any) -> tuple[list[Any], float]:
    """Return the nodes of the trees and what they start from; scikit-learn has no public name for them."""
    try:
        trees = [predictor.nodes for (predictor,) in model._predictors]
        if missing := _FIELDS - set(trees[0].dtype.names):
            raise AttributeError(f"nodes have no {', '.join(sorted(missing))}")
        return trees, float(np.ravel(model._baseline_prediction)[0])
    except (AttributeError, TypeError, ValueError, IndexError) as error:
        import sklearn

        raise MissingLibraryError(
            f"Boosted cannot read the trees of scikit-learn {sklearn.__version__} ({error}); "
            "install another version of it, or use Network()"
        ) from error


def tree_scores(module: Any, x: Tensor) -> Tensor:
    """Add up what the leaves say in which a sample ends, shape `(n,)`; NaN for a sample with a NaN in it."""
    import torch

    flat = x.flatten(1).T.contiguous()
    total = module.start.expand(len(x)).clone()
    for at in range(0, len(module.value), _TREES):
        part = slice(at, at + _TREES)
        yes = flat[module.feature[part]] > module.threshold[part, :, None]  # trees, questions, samples
        leaf = module.turns[part] @ yes.float() == module.rights[part, :, None]
        total += (module.value[part, None] @ leaf.float()).sum(0)[0]
    return torch.where(flat.isnan().any(0), torch.nan, total)
