"""Train for K = 2 in a PyTorch loop of your own: Algorithm 2 in twelve lines. Run: python examples/train_loop.py"""

import torch

from obrs.models.mlp import mlp_critic, mlp_generator
from obrs.training import critic_loss, critic_step, generator_loss, generator_step

data = torch.randn(10_000, 2, generator=torch.manual_seed(0)) @ torch.tensor([[1.0, 0.9], [0.0, 0.4]])
generator, critic = mlp_generator(width=32), mlp_critic(width=32)
adams = [torch.optim.Adam(network.parameters(), 2e-3, (0.5, 0.999)) for network in (generator, critic)]
for _ in range(300):
    real, fake = data[torch.randint(len(data), (256,))], generator(torch.randn(256, 2))
    of_critic = critic_step(critic, adams[1], real, fake, loss=critic_loss("gan"))  # update T
    step = generator_step(generator, critic, adams[0], torch.randn(256, 2), loss=generator_loss("paper_raw"), budget=2)
spread = generator(torch.randn(10_000, 2)).std(0)
print(f"c {float(step.cut.log_c.exp()):.2f}, spread {spread[0]:.2f} and {spread[1]:.2f}, of the data 1.00 and 0.98")
