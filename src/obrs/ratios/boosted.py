"""Gradient-boosted trees, grown by scikit-learn and kept as plain arrays."""

from dataclasses import dataclass
from math import log
from time import perf_counter
from typing import Any

import numpy as np

from .._inputs import check_count
from ..errors import MissingLibraryError
from .descent import Outcome, check_rate
from .pairs import Task, Tensor, check_numbers
from .scorers import Scorer

__all__ = ["Boosted", "walk"]


@dataclass(frozen=True)
class Boosted:
    """Gradient-boosted trees (scikit-learn's), for tabular data: no scaling to think of, seconds.

    Fitted once on all real samples and as many fakes; `steps` and `batch_size` of `refit` do not matter, and there is
    nothing to resume. The trees are kept as plain arrays, and saved as such.

    Args:
        rounds: Trees at most; a tenth of the training samples decides when to stop.
        leaves: Leaves of a tree.
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
        check_count(self.leaves, "leaves")
        check_rate(self.lr)

    def fit(self, task: Task) -> tuple[Scorer, Outcome]:
        """Grow the trees."""
        import torch

        try:
            from sklearn.ensemble import HistGradientBoostingClassifier
        except ImportError as error:
            raise MissingLibraryError("Boosted needs scikit-learn: pip install 'obrs[ratios]'") from error
        started = perf_counter()
        n_real = task.real.size
        n_fake = task.fake.size or n_real
        real, fake = (
            source.batch(0, n).flatten(1).cpu().numpy() for source, n in ((task.real, n_real), (task.fake, n_fake))
        )
        check_numbers(fake, "propose")
        model = HistGradientBoostingClassifier(
            max_iter=self.rounds,
            max_leaf_nodes=self.leaves,
            learning_rate=self.lr,
            early_stopping=True,
            random_state=task.seed % 2**32,
        )
        model.fit(np.concatenate([real, fake]), np.repeat([1, 0], [n_real, n_fake]))
        module = torch.nn.ModuleDict()
        depth = _keep_trees(model, module, log(n_fake / n_real))
        stopped = "all rounds done" if model.n_iter_ == self.rounds else "no better validation loss"
        outcome = Outcome(int(model.n_iter_), perf_counter() - started, stopped, (), n_fake)
        return Scorer("trees", module.to(task.device), {"depth": depth}), outcome


def _keep_trees(model: Any, module: Any, prior: float) -> int:
    """Turn scikit-learn's trees into arrays (trees, nodes) and return the depth of the deepest."""
    import torch

    trees = [predictor.nodes for (predictor,) in model._predictors]
    size = max(map(len, trees))
    feature, branch = np.zeros((len(trees), size), np.int64), np.zeros((len(trees), size, 2), np.int64)
    threshold, value = np.zeros((2, len(trees), size))
    for i, nodes in enumerate(trees):
        n, leaf, own = len(nodes), nodes["is_leaf"].astype(bool), np.arange(len(nodes))
        feature[i, :n], value[i, :n] = np.where(leaf, 0, nodes["feature_idx"]), np.where(leaf, nodes["value"], 0.0)
        threshold[i, :n] = np.where(leaf, np.inf, nodes["num_threshold"])
        for side, name in enumerate(("left", "right")):
            branch[i, :n, side] = np.where(leaf, own, nodes[name])
    start = float(np.ravel(model._baseline_prediction)[0]) + prior
    arrays = {
        "feature": feature,
        "branch": branch,
        "threshold": threshold,
        "value": value,
        "start": np.array(start),
    }
    for name, array in arrays.items():
        module.register_buffer(name, torch.from_numpy(array))
    return int(max(nodes["depth"].max() for nodes in trees))


def walk(module: Any, x: Tensor, depth: int) -> Tensor:
    """Walk down all trees at once; a node without children leads to itself."""
    import torch

    flat = x.flatten(1).double()
    rows = torch.arange(len(flat), device=x.device)[:, None]
    tree = torch.arange(len(module.feature), device=x.device)[None]
    at = torch.zeros((len(flat), len(module.feature)), dtype=torch.int64, device=x.device)
    for _ in range(depth):
        right = flat[rows, module.feature[tree, at]] > module.threshold[tree, at]
        at = module.branch[tree, at, right.long()]
    return module.start + module.value[tree, at].sum(1)
