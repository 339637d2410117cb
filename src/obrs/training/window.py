"""The constant c during training, solved on the batch every so many steps.

A generator loss of Tw/OBRS needs two numbers about the model as it is now: `log c`, and the rate Z = E_Q[a] that it
gives. Both are constants of the step: no gradient goes through them.

References:
    | Optimal Budgeted Rejection Sampling for Generative Models (Verine et al., 2024), Algorithm 2
"""

from typing import Any

import torch

from .._checks import check_budget, check_count
from ..budget import Cut, solve_cut
from ..errors import InputError, InputTypeError

__all__ = ["BudgetWindow", "critic_output"]


def critic_output(x: Any, name: str) -> torch.Tensor:
    """Return the outputs of a critic in float32 or float64; refuse what is not one number per sample.

    Example:
        >>> critic_output(torch.zeros(2, dtype=torch.bfloat16), "fake").dtype
        torch.float32
        >>> critic_output(torch.zeros(256, 1), "fake")
        Traceback (most recent call last):
        obrs.errors.InputError: fake must have one critic output per sample, shape (n,), got (256, 1); squeeze it
    """
    if not isinstance(x, torch.Tensor) or not x.is_floating_point():
        kind = x.dtype if isinstance(x, torch.Tensor) else type(x).__name__
        raise InputTypeError(f"{name} must be a floating torch tensor of critic outputs, got {kind}")
    if x.ndim != 1 or x.numel() == 0:
        hint = "; squeeze it" if x.ndim == 2 and x.shape[1] == 1 else ""
        raise InputError(f"{name} must have one critic output per sample, shape (n,), got {tuple(x.shape)}{hint}")
    return x if x.dtype in (torch.float32, torch.float64) else x.float()


class BudgetWindow:
    """Solve for c on the log-ratios of a batch of fakes every so many steps; a batch of n gives 1/K to 0.5 / sqrt(n).

    Args:
        budget: Proposals per kept sample, at least 1.
        every: Solve at the first of so many updates, and use that result for the others.
        process_group: Of torch.distributed, if each process gives its own log-ratios.

    Example:
        >>> window = BudgetWindow(2)
        >>> window.update(torch.tensor([4.0, 1.0, 0.5, 0.5]).log()).log_c.exp()
        tensor(0.5000)
    """

    def __init__(self, budget: float, *, every: int = 1, process_group: Any = None) -> None:
        self.budget = check_budget(budget)
        self.every = check_count(every, "every")
        self.process_group = process_group
        self._updates = 0
        self._rejection: Cut | None = None

    @property
    def settings(self) -> tuple[float, int]:
        """Budget, and how often it solves."""
        return self.budget, self.every

    @property
    def due(self) -> bool:
        """Whether the next update solves for c on its log-ratios; if not, `pass_over` will do.

        Example:
            >>> window = BudgetWindow(2, every=2)
            >>> first = window.update(torch.tensor([4.0, 1.0, 0.5, 0.5]).log())
            >>> window.due, window.pass_over() is first, window.due
            (False, True, True)
        """
        return self._updates % self.every == 0  # the first one does

    def pass_over(self) -> Cut:
        """Count an update for which nothing is `due`; return the rejection to use in this step, the one before."""
        if self.due or self._rejection is None:
            raise InputError("this update needs log-ratios; give them to update")
        self._updates += 1
        return self._rejection

    def update(self, log_ratio: torch.Tensor) -> Cut:
        """Take in the log-ratios of a batch of fakes; return the rejection to use in this step."""
        new = critic_output(log_ratio, "log_ratio").detach()
        if self._rejection is None or self.due:
            # a NaN shows in the loss
            self._rejection = solve_cut(new, self.budget, check=False, process_group=self.process_group)
        self._updates += 1
        return self._rejection

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return what is needed to go on as if nothing had happened, as tensors.

        Example:
            >>> window, again = BudgetWindow(2, every=2), BudgetWindow(2, every=2)
            >>> _ = window.update(torch.tensor([4.0, 1.0, 0.5, 0.5]).log())
            >>> again.load_state_dict(window.state_dict())
            >>> again.pass_over().log_c.exp()
            tensor(0.5000)
        """
        if self._rejection is None:
            return {}
        return {
            "updates": torch.tensor(self._updates),
            "log_c": self._rejection.log_c,
            "log_rate": self._rejection.log_rate,
        }

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """Take over the state of another window."""
        if not state:
            self._updates, self._rejection = 0, None
            return
        missing = {"updates", "log_c", "log_rate"} - state.keys()
        if missing:
            raise InputError(
                f"the state of a budget window lacks {', '.join(sorted(missing))}; was it saved by another?"
            )
        self._updates = int(state["updates"])
        self._rejection = Cut(state["log_c"], state["log_rate"])
