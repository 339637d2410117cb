"""The settings of the 25-Gaussian experiments: the GAN, and what is fitted to it. Plain numbers, no heavy library."""

from dataclasses import dataclass, fields
from typing import Any

from obrs._checks import check_count
from obrs.errors import InputError

__all__ = ["SMOKE", "STEP_SIZES", "Settings"]


@dataclass(frozen=True)
class Settings:
    """The part that the configurations of these experiments share.

    Args:
        real: Points of the target, at least 1000; a tenth is held out from all training, for calibration.
        stop_at: Share of high-quality samples to stop at.
        most: Steps after which training stops anyway.
        critic_steps: Further steps of the critic, against the finished generator.
        refit_steps: Steps of the refitted ratio.
        weight_steps: Steps of the weights of LatentRS.
        exact_samples: Samples in the histogram of the exact ratio.
        seed: Seed of data, weights, batches and samples.

    Example:
        >>> Settings.of(Settings(seed=3)) == Settings(seed=3)
        True
    """

    real: int = 64_000
    stop_at: float = 0.56
    most: int = 20_000
    critic_steps: int = 2000
    refit_steps: int = 1000
    weight_steps: int = 1000
    exact_samples: int = 2_000_000
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("real", "most", "critic_steps", "refit_steps", "weight_steps", "exact_samples"):
            check_count(getattr(self, name), name)
        if self.real < 1000:
            raise InputError(f"real must be at least 1000, a tenth is for calibration; got {self.real}")
        if not 0 < self.stop_at < 1:
            raise InputError(f"stop_at is a share between 0 and 1, got {self.stop_at}")

    @classmethod
    def of(cls, config: Any, *, seed: int | None = None) -> "Settings":
        """Return the settings in a configuration, with its seed or another."""
        values = {field.name: getattr(config, field.name) for field in fields(Settings)}
        return Settings(**(values if seed is None else values | {"seed": seed}))


STEP_SIZES = (1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1)
"""Sizes that `rivals.tuned` tries for DOT, DGflow and DDLS; the published ones, 0.01, 0.1 and 0.01, are among them."""

SMOKE: dict[str, Any] = {
    "real": 3000,
    "stop_at": 0.1,
    "most": 150,
    "critic_steps": 100,
    "refit_steps": 60,
    "weight_steps": 30,
    "exact_samples": 50_000,
}
"""Settings that take seconds."""
