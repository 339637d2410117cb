"""What a run does unless its configuration names a loss: what won in our evidence.

Of points there are three stages. First a usual GAN finds all modes; noise that fades helps it. Then a critic that sees
finer detail takes over, with the f-GAN's own loss. Last such a critic anew, and the generator is trained for what
rejection keeps. `python -m paper tw-obrs` compares them with runs of one stage. Of images a single stage with the loss
of the paper's Algorithm 2 was better than such three, and so was tuning with it, with a new critic that has a penalty
on its slope in place of spectral norm: `python -m paper figure-training` and `table-finetune`.
"""

from typing import Any

__all__ = ["IMAGES", "recipe", "recipe_of_images"]

IMAGES: set[str] = set()
"""Names of data that are images; whoever adds such data to `batches.SOURCES` adds its name here."""

_STEPS = (3000, 600, 2500)  # of the generator in each stage, as in the evidence; other runs have them in proportion
_ALONE = (400, 300)  # of the critic alone, before the last two
_TUNED = {
    "new_critic": True,
    "spectral_norm": False,
    "r1": 0.1,
    "generator_decay_from": 0.4,
}  # of images
_WAVES = {"critic_network": "fourier", "critic_width": 64, "critic_layers": 2}


def recipe(asked: Any) -> tuple[dict[str, Any], ...]:
    """Return the tables of the stages, as `TrainConfig.stage` has them; of the last one, to tune another run.

    The steps are divided among them. The later critics of points see sines and cosines of what they judge.

    Args:
        asked: A `TrainConfig` without stages.

    Example:
        >>> from obrs.training import TrainConfig
        >>> for stage in TrainConfig(steps=6100).stages:
        ...     print(stage.generator_loss, stage.critic_network or "as before", stage.warm_up, stage.steps)
        non_saturating as before 0 3000
        dual fourier 400 600
        exact fourier 300 2500
        >>> [stage.generator_loss for stage in TrainConfig(steps=2500, start_from="runs/first").stages]
        ['exact']
        >>> [stage.generator_loss for stage in TrainConfig(network="conv").stages]
        ['paper_raw']
    """
    if asked.network != "mlp" or asked.data in IMAGES:
        return recipe_of_images(asked)
    critic = {"new_critic": True, **_WAVES}
    last = {
        "generator_loss": "exact",
        "generator_lr": 0.7 * asked.generator_lr,
        "generator_decay_from": 0.4,
        "critic_decay_from": 1.0,
    }
    if asked.start_from:
        return ({**critic, "warm_up": round(asked.steps * _ALONE[1] / _STEPS[2]), **last},)
    first, second = (max(round(asked.steps * each / sum(_STEPS)), 1) for each in _STEPS[:2])
    alone = [round(asked.steps * each / sum(_STEPS)) for each in _ALONE]
    half = asked.batch_size // 2 if asked.batch_size % (2 * asked.parts) == 0 else asked.batch_size
    return (
        {
            "generator_loss": "non_saturating",
            "steps": first,
            "batch_size": half,
            "noise": 0.3,
            "noise_until": 0.7,
            "generator_decay_from": 0.7,
            "critic_decay_from": 0.7,
        },
        {
            **critic,
            "warm_up": alone[0],
            "generator_loss": "dual",
            "generator_lr": 0.5 * asked.generator_lr,
            "steps": second,
            "batch_size": asked.batch_size,
            "noise": 0.0,
            "generator_decay_from": 0.3,
            "critic_decay_from": 0.3,
        },
        {"warm_up": alone[1], **last, "steps": max(asked.steps - first - second, 1)},
    )


def recipe_of_images(asked: Any) -> tuple[dict[str, Any], ...]:
    """Return the table of the one stage that images have; Algorithm 2 is for the GAN's divergence alone."""
    loss = {"generator_loss": "paper_raw" if asked.divergence == "gan" else "exact"}
    if asked.network == "conv" and asked.start_from:
        return (_TUNED | loss | {"warm_up": asked.steps // 3},)
    return (loss,)
