"""The steps of the two players by themselves, who decides when c is solved, and what processes share."""

from dataclasses import replace
from math import log

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import obrs
from obrs.errors import InputError
from obrs.training import step as module
from obrs.training.batches import GENERATOR, Batches, load_data
from obrs.training.config import TrainConfig
from obrs.training.networks import build_networks
from obrs.training.processes import Processes, join_processes
from obrs.training.step import Game, Player, critic_step, generator_step, objective
from obrs.training.window import BudgetWindow

SMALL = TrainConfig(
    data="grid25", batch_size=32, data_size=128, generator_width=16, critic_width=16, generator_loss="paper_raw"
)


def game(config, lr=1e-2):
    networks = build_networks(config, (2,), 0, objective(config).outputs)
    players = [Player(network, torch.optim.SGD(network.parameters(), lr)) for network in networks]
    window = BudgetWindow(config.budget, every=config.constant_every)
    batches = Batches(load_data(config), config)
    return networks, Game(objective(config), *players, batches, window, config.parts, config.gradient_penalty)


def gradients(network):
    return torch.cat([p.grad.flatten() for p in network.parameters()])


def test_a_critic_step_ascends_the_dual_bound_and_leaves_the_generator_alone():
    (generator, critic), ours = game(SMALL)
    before = {name: x.clone() for name, x in critic.state_dict().items()}
    found = critic_step(ours, 5, 0)
    by_hand = build_networks(SMALL, (2,), 0, 1)[1]
    real, z = ours.batches.real(5, 0, 0)[0], ours.batches.latent(5, 0, 0)[0]
    # T = f'(r) of the GAN divergence is logsigmoid(log r), and f*(T) is softplus(log r) - 2 log 2
    bound = F.logsigmoid(by_hand(real)).mean() - F.softplus(by_hand(generator(z).detach())).mean()
    (-bound).backward()
    torch.testing.assert_close(gradients(critic), gradients(by_hand))
    assert float(found["critic"]) == pytest.approx(float(-bound.detach()) - 2 * log(2), abs=1e-5)
    for name, x in critic.named_parameters():
        torch.testing.assert_close(x, before[name] - 1e-2 * x.grad)
    assert all(p.grad is None for p in generator.parameters())


def test_a_generator_step_descends_algorithm_2_and_leaves_the_critic_alone():
    config = replace(SMALL, budget=1.001)
    (generator, critic), ours = game(config)
    found = generator_step(ours, 5)
    assert all(p.grad is None and p.requires_grad for p in critic.parameters())
    by_hand = build_networks(config, (2,), 0, 1)[0]
    log_r = critic(by_hand(ours.batches.latent(5, GENERATOR, 0)[0]))
    log_c = obrs.solve_log_c(log_r.detach(), 1.001)
    a, r = torch.clamp(log_r + log_c, max=0.0).exp(), log_r.exp()
    k_a = a / a.detach().mean()  # K a, as 1/K = E_Q[a] while K <= M
    u = r / k_a
    loss = (k_a * (u * u.log() - (u + 1) * (u + 1).log())).mean()
    loss.backward()
    torch.testing.assert_close(gradients(generator), gradients(by_hand), rtol=1e-4, atol=1e-6)
    assert float(found.loss) == pytest.approx(float(loss.detach()), abs=1e-5)
    assert float(found.cut.log_c) == pytest.approx(float(log_c), abs=1e-5)
    torch.testing.assert_close(torch.cat(found.log_ratio), log_r.detach())


@pytest.mark.parametrize("parts", [1, 4])
@pytest.mark.parametrize(("mode", "turns"), [("dual", []), ("exact", ["window"]), ("two_critics", ["batch", "window"])])
def test_one_owner_solves_for_c_where_the_loss_needs_it(monkeypatch, parts, mode, turns):
    solved = []

    def counted(log_ratio, budget, **options):
        solved.append(("batch", len(log_ratio)))
        return solve(log_ratio, budget, **options)

    def updated(window, log_ratio):
        solved.append(("window", len(log_ratio)))
        return update(window, log_ratio)

    solve, update = module.solve_cut, BudgetWindow.update
    monkeypatch.setattr(module, "solve_cut", counted)
    monkeypatch.setattr(BudgetWindow, "update", updated)
    ours = game(replace(SMALL, generator_loss=mode, parts=parts))[1]
    critic_step(ours, 0, 0)
    generator_step(ours, 0)
    assert solved == [(turn, 32) for turn in turns]


def test_a_user_s_network_with_a_method_no_sync_is_called_as_any_other():
    class Own(nn.Linear):
        def no_sync(self):
            raise AssertionError

    network = Own(2, 1)
    player = Player(network, torch.optim.SGD(network.parameters(), 1.0))
    with player.sharing(last=False):
        assert torch.equal(player(torch.ones(1, 2)), player.alone(torch.ones(1, 2)))


@pytest.mark.parametrize("name", ["DEEPSPEED", "FSDP", "MEGATRON_LM"])
def test_networks_that_are_to_be_split_are_refused(monkeypatch, name):
    monkeypatch.setenv(f"ACCELERATE_USE_{name}", "true")
    with pytest.raises(InputError, match="networks are copied to every process, not split; set up accelerate without"):
        join_processes()


def test_without_a_launcher_there_is_one_process():
    pytest.importorskip("accelerate")
    found = join_processes()
    assert (found.rank, found.count, found.first) == (0, 1, True)
    x = torch.arange(3.0)
    assert Processes().gather(x) is x
    assert Processes().mean(x) is x
