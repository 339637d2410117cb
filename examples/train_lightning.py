"""Train for K = 2 in a module as Lightning has it: manual optimisation. Run: python examples/train_lightning.py"""

import torch

from obrs.models.mlp import mlp_critic, mlp_generator
from obrs.training import critic_loss, critic_step, generator_loss, generator_step


class BudgetedGan(torch.nn.Module):  # with Lightning: (lightning.LightningModule), and no optimizers of your own
    automatic_optimization = False

    def __init__(self):
        super().__init__()
        self.generator, self.critic = mlp_generator(width=32), mlp_critic(width=32)

    def configure_optimizers(self):
        return [torch.optim.Adam(net.parameters(), 2e-3, (0.5, 0.999)) for net in (self.generator, self.critic)]

    def training_step(self, real, index):
        of_generator, of_critic = self.optimizers()
        fake, z = self.generator(torch.randn(len(real), 2)), torch.randn(len(real), 2)
        critic_step(self.critic, of_critic, real, fake, loss=critic_loss("gan"))
        generator_step(self.generator, self.critic, of_generator, z, loss=generator_loss("paper_raw"), budget=2)


# What `lightning.Trainer(max_steps=300).fit(gan, loader)` does
gan, data = BudgetedGan(), torch.randn(10_000, 2, generator=torch.manual_seed(0))
data = data @ torch.tensor([[1.0, 0.9], [0.0, 0.4]])
adams = gan.configure_optimizers()
gan.optimizers = lambda: adams
for index in range(300):
    gan.training_step(data[torch.randint(len(data), (256,))], index)
spread = gan.generator(torch.randn(10_000, 2)).std(0)
print(f"spread {spread[0]:.2f} and {spread[1]:.2f}, of the data 1.00 and 0.98")
