"""The trainer: what it computes, how it goes on after a stop, what it takes and what it refuses."""

import json
import os

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset
from training.small_run import networks, points, same, train, weights

import obrs
from obrs._files import hold
from obrs.errors import InputError, InputTypeError, Interrupted, NotFiniteError
from obrs.training import critic_loss, generator_loss, load_trained
from obrs.training.data import Draws
from obrs.training.losses import GENERATOR_LOSSES
from obrs.training.trained import checkpoints

# What it computes


def test_a_run_is_the_algorithm_written_out_by_hand():
    """Two stages: a rate that falls; then a new critic, alone at first, and the loss for K."""
    x = points()
    shared = {"critic_steps": 2, "betas": (0.0, 0.9), "ema": lambda step: 0.9 if step else 0.0}
    falling = {"lr": (lambda share: 1e-3 * (1 - share), 1e-2)}
    first = train(x, loss="non_saturating", steps=2, **shared, **falling)
    new = networks(width=8)[1]
    options = {"warm_up": 1, "gradient_penalty": 0.3, "r1": 0.2, "lr": (1e-3, 1e-2), "budget": 1.05, "batch_size": 64}
    run = train(x, (networks()[0], new), start_from=first, new_critic=True, **shared, **options)

    generator, critic = networks()
    ema, data = weights(generator), torch.as_tensor(x, dtype=torch.float32)
    rows = torch.from_numpy(next(Draws(0, 1000).rows(128, 0)))
    adams = [torch.optim.Adam(net.parameters(), 1e-2, (0.0, 0.9)) for net in (generator, critic)]
    seen = 0
    for step in range(6):
        late, size = step >= 2, 64 if step >= 2 else 32
        draws = Draws(0, size)
        if step == 2:
            critic = networks(width=8)[1]
            adams = [torch.optim.Adam(net.parameters(), 1e-2, (0.0, 0.9)) for net in (generator, critic)]
        for turn in range(1 if step == 2 else 2):
            real, seen = data[rows[seen : seen + size]], seen + size
            fake = generator(draws.draw(torch.randn, "latent", step, turn, 2)).detach()
            loss = F.softplus(-critic(real)).mean() + F.softplus(critic(fake)).mean()
            if late:
                mix = draws.draw(torch.rand, "mix", step, turn)[:, None]
                for at, centre, weight in ((mix * real + (1 - mix) * fake, 1, 0.3), (real.clone(), 0, 0.1)):
                    at.requires_grad_()
                    (slope,) = torch.autograd.grad(critic(at).sum(), at, create_graph=True)
                    loss = loss + weight * (slope.norm(dim=1) - centre).square().mean()
            adams[1].zero_grad()
            loss.backward()
            adams[1].step()
        if step == 2:
            continue
        log_r = critic(generator(draws.draw(torch.randn, "latent", step, -1, 2)))
        if late:
            log_c = obrs.solve_log_c(log_r.detach(), 1.05)
            rate = torch.clamp(log_r.detach() + log_c, max=0).exp().mean()
            left = torch.where(log_r > -log_c, log_r, -log_c) + rate.log()
            loss = -F.softplus(left).mean() / rate  # f*(f'(u)) of the GAN divergence is log(1 + u), up to a constant
        else:
            loss = F.softplus(-log_r).mean()
        adams[0].zero_grad()
        loss.backward()
        adams[0].param_groups[0]["lr"] = 1e-3 if late else 1e-3 * (1 - step / 2)
        adams[0].step()
        ema = torch.lerp(ema, weights(generator), 0.1) if step else weights(generator)
    assert seen == 4 * 32 + 7 * 64 > len(x)
    torch.testing.assert_close(weights(new), weights(critic), rtol=0, atol=3e-5)
    torch.testing.assert_close(weights(run.generator), ema, rtol=0, atol=3e-6)
    assert [(row["step"], "generator" in row) for row in run.log] == [(3, False), (4, True), (5, True), (6, True)]
    assert run.log[-1]["log_c"] == pytest.approx(float(log_c), abs=1e-5)
    assert run.log[-1]["rate"] == pytest.approx(float(rate), abs=1e-5)


@pytest.mark.parametrize("name", GENERATOR_LOSSES)
def test_every_loss_trains_both_networks(name):
    given = networks()
    before = [weights(network) for network in given]
    run = train(given=given, loss=name, budget=1.001, lr=(1e-3, 1e-2))
    assert not any(torch.equal(old, weights(network)) for old, network in zip(before, given, strict=True))
    assert all(np.isfinite([row["critic"], row["generator"]]).all() for row in run.log)


def test_c_is_solved_every_so_many_steps():
    rows = train(steps=7, constant_every=3, budget=1.05).log
    assert [rows[i]["log_c"] == rows[i - 1]["log_c"] for i in range(1, 7)] == [True, True, False, True, True, False]


def test_the_same_seed_gives_the_same_bits_and_leaves_the_global_numbers_alone():
    before = torch.get_rng_state()
    first, again, other = (train(seed=seed) for seed in (3, 3, 4))
    assert same(first, again)
    assert not same(first, other)
    assert torch.equal(torch.get_rng_state(), before)


def test_bf16_keeps_weights_in_float32_and_sees_them_move():
    plain, narrow = (train(loss="dual", steps=30, lr=(1e-6, 1e-2), precision=precision) for precision in ("no", "bf16"))
    assert {x.dtype for name, x in narrow.state.tensors.items() if name.startswith("generator/")} == {torch.float32}
    assert not same(plain, narrow)
    before, after = plain.log[0]["critic"], plain.log[-1]["critic"]
    assert narrow.log[-1]["critic"] == pytest.approx(after, abs=0.2 * abs(after - before))
    assert narrow.propose(range(4)).dtype == torch.float32


# What it makes


def test_a_run_samples_at_a_budget_from_the_averaged_generator():
    given = networks()
    run = train(given=given, ema=0.5)
    assert run.generator is not given[0]
    x = run.propose(range(50), seed=2)
    with torch.no_grad():
        torch.testing.assert_close(x, run.generator(obrs.normals(range(50), 2, seed=2, like=x)))
    kept = run.sample(20, budget=2.5, seed=2)
    assert (len(kept), kept.proposed) == (20, 50)
    assert all(any(torch.equal(row, one) for one in x) for row in kept.x)
    assert repr(run).startswith("Trained(step 3, ")
    assert not given[0].training


def test_a_hinge_critic_needs_a_second_output_for_a_log_ratio():
    with pytest.raises(InputError, match=r"says no log-ratio; give it a second output, shape \(n, 2\)"):
        train(loss="hinge").sample(2, budget=2)
    run = train(given=networks(heads=2), loss="hinge", steps=1, lr=(1e-3, 0.0))
    generator, critic = networks(heads=2)
    with torch.no_grad():
        score = critic(generator(Draws(0, 32).draw(torch.randn, "latent", 0, -1, 2)))[:, 0]
    assert run.log[-1]["generator"] == pytest.approx(float(-score.mean()), abs=1e-5)
    x = run.propose(range(5))
    assert torch.equal(run.log_ratio(x), run.critic(x)[:, 1].detach())


class Labelled(nn.Module):
    latent = 2

    def __init__(self, outputs):
        super().__init__()
        self.table, self.line, self.outputs = nn.Embedding(3, 2), nn.Linear(2, outputs), outputs

    def forward(self, x, labels):
        assert labels.shape == x.shape[:1]
        y = self.line(x + self.table(labels))
        return y if self.outputs > 1 else y[:, 0]


def test_labels_reach_both_networks_and_are_as_frequent_as_in_the_data(tmp_path):
    labels = np.array([0, 2, 2, 2] * 32)
    run = train((points(), labels), (Labelled(2), Labelled(1)), ema=0.5, out=tmp_path)
    x, drawn = run.propose(np.arange(4000))
    share = (drawn == 2).float().mean()
    assert abs(float(share) - 0.75) < 4 * (0.75 * 0.25 / 4000) ** 0.5
    assert not (drawn == 1).any()
    again = load_trained(tmp_path, Labelled(2), Labelled(1))
    assert torch.equal(again.propose(np.arange(4000))[0], x)
    assert torch.equal(again.log_ratio((x, drawn)), run.log_ratio((x, drawn)))
    assert again.log == run.log


class Pairs(Dataset):
    def __init__(self, labels=True):
        self.x, self.labels = torch.as_tensor(points(), dtype=torch.float32), labels

    def __len__(self):
        return len(self.x)

    def __getitem__(self, row):
        return (self.x[row], row % 3) if self.labels else self.x[row]


@pytest.mark.parametrize("loader", [False, True])
def test_a_dataset_or_a_loader_trains_as_an_array_does(loader):
    def wrap(dataset):
        return DataLoader(dataset, batch_size=7, shuffle=True) if loader else dataset

    assert same(train(), train(wrap(Pairs(labels=False))))
    labels = np.arange(128) % 3
    torch.manual_seed(0)
    start = [Labelled(2).state_dict(), Labelled(1).state_dict()]
    runs = []
    for data in (
        (points(), labels),
        wrap(Pairs()),
        TensorDataset(torch.as_tensor(points()), torch.as_tensor(labels)),
    ):
        given = Labelled(2), Labelled(1)
        for network, state in zip(given, start, strict=True):
            network.load_state_dict(state)
        runs.append(train(data, given))
    assert same(runs[0], runs[1])
    assert same(runs[0], runs[2])


# After a stop


def test_a_run_goes_on_to_the_same_bits_from_every_checkpoint(tmp_path):
    options = {"steps": 6, "warm_up": 2, "constant_every": 3, "ema": 0.9, "save_every": 1, "keep": 9, "budget": 1.05}
    first = train(given=networks(), loss="dual", ema=0.9)
    options["start_from"] = first

    def dropout():
        torch.manual_seed(0)
        return nn.Sequential(*networks()[0], nn.Dropout(0.1)), networks()[1]

    torch.manual_seed(0)
    options["start_from"] = train(given=dropout(), loss="dual", ema=0.9)
    whole = train(given=dropout(), out=tmp_path / "whole", **options)
    for stop in (3, 4, 6, 8, 11):
        part = tmp_path / f"stopped-{stop}"
        (part / "checkpoints").mkdir(parents=True)
        for path in checkpoints(tmp_path / "whole")[: stop - 2]:
            (part / "checkpoints" / path.name).write_bytes(path.read_bytes())
        (part / "log.jsonl").write_text((tmp_path / "whole" / "log.jsonl").read_text() + '{"step": 12, "sec')
        torch.rand(stop)  # whatever else the second process does
        again = train(given=dropout(), out=part, **options)
        assert same(again, whole), stop
        assert again.log == whole.log
        assert [json.loads(line) for line in (part / "log.jsonl").read_text().splitlines()] == again.log
    assert [row["step"] for row in whole.log] == [4, 5, 6, 7, 8, 9, 10, 11]


def test_ctrl_c_is_one_line_and_the_run_goes_on(tmp_path):
    class Pressed(nn.Module):
        latent, presses = 2, True

        def __init__(self):
            super().__init__()
            self.inner, self.passes = networks()[0], 0

        def forward(self, z):
            self.passes += torch.is_grad_enabled()
            if self.passes == 3 and Pressed.presses:
                raise KeyboardInterrupt
            return self.inner(z)

    options = {"save_every": 1, "out": tmp_path}
    with pytest.raises(Interrupted, match="interrupted after step 2; call again with out="):
        train(given=(Pressed(), networks()[1]), **options)
    Pressed.presses = False
    again = train(given=(Pressed(), networks()[1]), **options)
    assert same(again, train(given=(Pressed(), networks()[1])))


def test_what_is_not_finite_ends_the_run_in_one_line_with_the_last_good_state(tmp_path):
    given = networks()
    explodes = {"loss": (critic_loss("chi2"), generator_loss("exact", "chi2")), "lr": (1e-3, 1e20), "steps": 50}
    with pytest.raises(
        NotFiniteError, match=r"the \w+ loss is not finite at step \d+; the networks are as after step"
    ) as caught:
        train(given=given, save_every=1, log_every=50, out=tmp_path, **explodes)
    assert "\n" not in str(caught.value)
    good = caught.value.partial
    assert torch.isfinite(weights(*given)).all()
    assert torch.equal(weights(good.critic), weights(load_trained(tmp_path, *networks()).critic))
    assert train(start_from=good).log[-1]["step"] == good.state.facts["step"] + 3

    class Leap(nn.Linear):
        def forward(self, z):
            x = super().forward(z)
            x.register_hook(lambda gradient: gradient * torch.nan) if x.requires_grad else None
            return x

    leap = Leap(2, 2)
    before = weights(leap)
    with pytest.raises(
        NotFiniteError, match=r"a weight is not finite at step 1; .* after step 0 again; try a lower lr"
    ):
        train(given=(leap, networks()[1]), steps=1)
    assert torch.equal(weights(leap), before)


# What it refuses


@pytest.mark.parametrize(
    ("options", "error", "line"),
    [
        ({"loss": None}, InputError, "'exact' for points.*'paper_raw', the paper's, for images"),
        ({"loss": (critic_loss("hinge"), generator_loss("exact"))}, InputError, "needs a critic that returns a log-r"),
        ({"loss": [critic_loss("gan"), abs]}, InputTypeError, "loss must be a name or .critic_loss"),
        ({"data": np.zeros((5, 1, 8, 8), np.uint8)}, InputTypeError, "data are bytes; .* x / 127.5 - 1"),
        ({"data": np.zeros((5, 3))}, InputError, r"the generator makes samples of \(2,\), the data are \(3,\)"),
        ({"data": (points(), np.zeros(3, int))}, InputError, r"labels must be classes from 0 on, shape \(128,\)"),
        ({"data": "points"}, InputTypeError, "data must be samples, with labels, or a Dataset, got 'points'"),
        ({"given": (nn.Linear(2, 2), abs)}, InputTypeError, r"critic must be a torch\.nn\.Module, got <built-in"),
        ({"given": (nn.Linear(2, 2), nn.Linear(2, 1))}, InputError, r"one critic output per sample, .* got \(2, 1\)"),
    ],
)
def test_mistakes_are_one_line(options, error, line):
    with pytest.raises(error, match=line) as caught:
        train(**options)
    assert "\n" not in str(caught.value)


def test_a_folder_is_not_resumed_with_other_settings(tmp_path):
    train(out=tmp_path)
    with pytest.raises(InputError, match=r"was made with budget=2\.0, got 3\.0"):
        train(out=tmp_path, budget=3)
    with pytest.raises(InputError, match="was made with data="):
        train(points(seed=1), out=tmp_path)
    given = networks()
    before = weights(*given)
    with pytest.raises(InputError, match="has done 3 steps already, got steps=2"):
        train(given=given, out=tmp_path, steps=2)
    [entry] = (each for each in os.scandir(tmp_path.parent) if each.name == tmp_path.name)  # os.PathLike, and no Path
    with pytest.raises(InputError, match=r"another critic: .* shape"):
        train(given=(networks()[0], networks(heads=2)[1]), start_from=entry)
    with hold(tmp_path / "checkpoints"), pytest.raises(InputError, match="another run is writing"):
        train(given=given, out=tmp_path, steps=9)
    assert torch.equal(weights(*given), before), "what is refused has loaded nothing"
    last = tmp_path / "checkpoints" / "step-00000009.safetensors"
    for wrong in (b"not safetensors", {}, {"obrs": "{}"}, {"obrs": "5"}, {"obrs": "[" * 100_000}):
        last.write_bytes(wrong) if isinstance(wrong, bytes) else save_file({}, last, wrong)
        with pytest.raises(InputError, match="is not a checkpoint of a run"):
            train(out=tmp_path)
