"""The walk of a new user: a conditional hinge GAN on digits, the doctor's verdict, and its repair, run as written."""

import numpy as np
import pytest
import torch

import obrs
import paper.train  # noqa: F401  # the networks that configurations name
from obrs.critics import FINE_TUNE, FROM_SCRATCH
from obrs.errors import InputError
from obrs.ratios.doctor import diagnose
from paper.data.images import load
from paper.train import train

pytest.importorskip("sklearn")


@pytest.fixture(scope="module")
def digits():
    return load("digits")


@pytest.fixture(scope="module")
def run(digits):
    settings = {
        "generator": {"name": "conv_generator", "latent": 8, "width": 4},
        "critic": {"name": "conv_critic", "width": 4, "spectral_norm": True},
        "loss": "hinge",
        "steps": 20,
        "batch_size": 32,
    }
    return train(settings, data=(digits.train[:700], digits.train_labels[:700]))


@pytest.mark.filterwarnings("ignore:the classifier separates the two sets")  # so few steps make poor digits
@pytest.mark.filterwarnings("ignore:the two sets hardly overlap")
def test_the_repair_of_a_conditional_hinge_critic_runs_as_written(digits, run):
    with pytest.raises(InputError, match="says no log-ratio") as caught:
        run.log_ratio(run.propose(range(3)))
    assert FINE_TUNE in str(caught.value)
    x, y = torch.as_tensor(digits.train[700:]), torch.as_tensor(digits.train_labels[700:])
    with torch.no_grad():
        scores = run.critic(x, y), run.critic(*run.propose(range(800)))
    diagnosis = diagnose(*scores, budget=4, kind="hinge")
    assert (diagnosis.verdict, diagnosis.repair) == ("unfit", FINE_TUNE)
    assert any(note.advice and note.advice.python == FROM_SCRATCH for note in diagnosis.notes)

    given = {"obrs": obrs, "real": (x, y), "propose": run.propose, "critic": run.critic}
    for call in (diagnosis.repair, FROM_SCRATCH):
        quick = call[:-1] + ", steps=30, batch_size=64)"
        log_ratio = eval(quick, given)  # the words of the doctor
        assert log_ratio.report.log_loss < 0.68  # below chance, 0.693
        kept = obrs.sample(run.propose, log_ratio, 100, budget=4)
        assert (kept.x[0].shape, kept.x[1].shape) == ((100, 1, 8, 8), (100,))
    assert np.isfinite(kept.log_ratio).all()
