"""Gradient-boosted trees, grown by LightGBM and kept as plain tensors."""

from dataclasses import dataclass
from math import inf, log
from time import perf_counter
from typing import Any

import numpy as np

from .._inputs import check_count, check_positive
from ..errors import InputError, MissingLibraryError
from ..fitting.loop import Course
from .labelled import encode_labels, join, label_numbers, parts
from .methods import Fit, Scorer
from .task import Task, Tensor, check_numbers

__all__ = ["Boosted", "tree_scores"]

Floats = np.ndarray[Any, Any]

_VALIDATION = 10  # one in so many samples decides when to stop
_PATIENCE = 10  # rounds without a better validation loss
_MOST_LEAVES = 131072  # that LightGBM allows


@dataclass(frozen=True)
class Boosted:
    """Gradient-boosted trees, for tabular data: no need to scale features, and fitted in seconds.

    LightGBM grows the trees, once, on all real samples and as many fakes. `steps` of `refit` has no effect, and a
    checkpoint is written only at the end. The fitted ratio and its file can be used without LightGBM. Labels are one
    more feature each, a one for the samples that have it; labels that are floats are features as they are.

    Args:
        rounds: Number of trees at most; a tenth of the training samples decides when to stop.
        leaves: Leaves of a tree at most, from 2 to 131072.
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
        | LightGBM: A Highly Efficient Gradient Boosting Decision Tree (Ke et al., 2017)
    """

    rounds: int = 500
    leaves: int = 31
    lr: float = 0.1

    def __post_init__(self) -> None:
        check_count(self.rounds, "rounds")
        if not 2 <= check_count(self.leaves, "leaves") <= _MOST_LEAVES:
            raise InputError(f"leaves must be a whole number from 2 to {_MOST_LEAVES}, got {self.leaves}")
        check_positive(self.lr, "lr")

    def fit(self, task: Task) -> Fit:
        """Grow the trees."""
        import torch

        module = torch.nn.ModuleDict()
        if task.file is not None and (saved := task.file.read()):
            tensors, facts = saved
            course, fakes = Course(**facts["course"] | {"history": ()}), facts["fakes"]
        else:
            _check_library()  # before samples are drawn for nothing
            started = perf_counter()
            n_real = task.real.size
            fakes = task.fake.size or n_real
            with task.seeded():
                samples = task.real.batch(0, n_real), task.fake.batch(0, fakes)
            encode_labels(module, task.form, join(samples))
            real, fake = (_table(module, x).cpu().numpy() for x in samples)
            check_numbers(fake, "propose")
            booster = _boost(real, fake, self, task.seed)
            tensors, rounds = _nodes(booster.dump_model()), booster.current_iteration()
            tensors |= dict(module.named_buffers())
            stopped = "all rounds done" if rounds == self.rounds else "no better validation loss"
            course = Course(rounds, perf_counter() - started, stopped, history=())
            if task.file is not None:
                task.file.write(tensors, {"course": course._asdict(), "fakes": fakes})
        for name, tensor in tensors.items():
            module.register_buffer(name, tensor)
        return Fit(Scorer(tree_scores, module.to(task.device)), course, fakes)


def _check_library() -> None:
    try:
        import lightgbm  # noqa: F401
    except ImportError as error:
        raise MissingLibraryError("Boosted needs lightgbm: pip install 'obrs[trees]'") from error


def _boost(real: Floats, fake: Floats, method: Boosted, seed: int) -> Any:
    """Fit a LightGBM booster, whose raw score is the log-ratio."""
    import lightgbm

    rng = np.random.default_rng(seed)
    x = np.concatenate([real, fake])
    is_real = np.repeat([1.0, 0.0], [len(real), len(fake)])
    log_prior = np.full(len(x), log(len(real) / len(fake)))  # where scores start, so that the trees add the ratio alone
    held = np.concatenate([rng.permutation(len(part)) % _VALIDATION == 0 for part in (real, fake)])
    constants = {
        "objective": "binary",
        "num_leaves": method.leaves,
        "learning_rate": method.lr,
        "use_missing": False,  # a node compares with its threshold and does nothing else
        "seed": int(rng.integers(2**31)),
        "deterministic": True,
        "force_row_wise": True,
        "num_threads": 1,  # more wait for each other on busy cores, and may crash beside those of torch on macOS
        "verbosity": -1,
    }
    training = lightgbm.Dataset(x[~held], is_real[~held], init_score=log_prior[~held], params=constants)
    validation = training.create_valid(x[held], is_real[held], init_score=log_prior[held], params=constants)
    stop = lightgbm.early_stopping(_PATIENCE, verbose=False)
    rounds = min(method.rounds, 2**31 - 1)  # LightGBM counts no further
    return lightgbm.train(
        constants, training, rounds, valid_sets=[validation], callbacks=[stop], keep_training_booster=True
    )


def _nodes(model: dict[str, Any]) -> dict[str, Tensor]:
    """Return the nodes of all trees as columns, all roots first.

    A sample goes to `child`, or to the node after it if its feature is above the threshold. A leaf is its own child,
    and its threshold is infinite. Its value is added to the score.

    Args:
        model: What `dump_model` of a booster returns.
    """
    import torch

    nodes = [tree["tree_structure"] for tree in model["tree_info"]]
    n_trees, rows = len(nodes), []
    for number, node in enumerate(nodes):  # children join the list while it is read
        if "leaf_value" in node:
            rows.append((0, inf, number, node["leaf_value"]))
        else:
            rows.append((node["split_feature"], node["threshold"], len(nodes), 0.0))
            nodes += [node["left_child"], node["right_child"]]
    feature, threshold, child, value = zip(*rows, strict=True)
    return {
        "roots": torch.arange(n_trees),
        "feature": torch.tensor(feature),
        "threshold": _rounded_down(torch.tensor(threshold, dtype=torch.float64)),
        "child": torch.tensor(child),
        "value": torch.tensor(value, dtype=torch.float32),
    }


def _rounded_down(threshold: Tensor) -> Tensor:
    """Return the largest float32 up to each threshold: no float32 lies between, so each falls on the same side."""
    import torch

    nearest = threshold.float()
    return torch.where(nearest > threshold, nearest.nextafter(torch.full_like(nearest, -inf)), nearest)


def _table(module: Any, batch: Any) -> Tensor:
    """Return samples as rows, followed by the numbers of their labels."""
    import torch

    x, label = parts(batch)
    return x.flatten(1) if label is None else torch.cat([x.flatten(1), label_numbers(module, label)], dim=1)


def tree_scores(scorer: Scorer, module: Any, batch: Any) -> Tensor:
    """Add up the values of the leaves that a sample reaches, shape `(n,)`; NaN for a sample with a NaN in it."""
    import torch

    flat = _table(module, batch)
    node, before = module.roots.expand(len(flat), -1), None  # of each sample in each tree
    while before is None or not torch.equal(node, before):
        above = flat.gather(1, module.feature.take(node)) > module.threshold.take(node)
        node, before = module.child.take(node) + above, node
    return torch.where(flat.isnan().any(1), torch.nan, module.value.take(node).sum(1))
