"""LARS: densities that integrate to one, samples that follow them, exact gradients, and rates that are met."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
zuko = pytest.importorskip("zuko")
lars = pytest.importorskip("obrs.rivals.lars")
BudgetedBase, ResampledBase, replace_base = lars.BudgetedBase, lars.ResampledBase, lars.replace_base

EDGES = np.linspace(-6, 6, 301)
CENTRES = (EDGES[:-1] + EDGES[1:]) / 2
GRID = torch.tensor(np.stack(np.meshgrid(CENTRES, CENTRES, indexing="ij"), -1))
CELL = (EDGES[1] - EDGES[0]) ** 2

pytestmark = pytest.mark.usefixtures("one_thread")


def steep(base):
    """Make the acceptance of a new base vary: it starts almost constant."""
    with torch.no_grad():
        base.network[-2].weight *= 30
    base.estimate_z(2**18)
    return base.eval()


def resampled_base(T=100, **constants):
    torch.manual_seed(0)
    return steep(ResampledBase(2, T, width=16, **constants).double())


def budgeted_base(budget, **constants):
    torch.manual_seed(0)
    return steep(BudgetedBase(2, budget, width=16, **constants).double())


BASES = {f"resampled, T={t}": lambda t=t: resampled_base(t) for t in (1, 2, 5, 100)}
BASES |= {f"budgeted, K={k}": lambda k=k: budgeted_base(k) for k in (1, 1.5, 3, 100)}


@pytest.fixture(params=BASES.values(), ids=BASES, scope="module")
def base(request):
    return request.param()


@torch.no_grad()
@torch.no_grad()
def test_density_integrates_to_one(base):
    assert float(base.log_prob(GRID).exp().sum()) * CELL == pytest.approx(1, abs=0.01)


@torch.no_grad()
def test_samples_follow_the_density(base):
    n = 40_000
    z = base.draw(n, seed=3).z.numpy()
    borders = EDGES[[0, 112, 130, 143, 155, 168, 185, 300]]
    seen, *_ = np.histogram2d(z[:, 0], z[:, 1], bins=[borders, borders])
    mass = base.log_prob(GRID).exp().numpy() * CELL
    where = np.searchsorted(borders, CENTRES) - 1
    expected = np.zeros_like(seen)
    np.add.at(expected, (where[:, None], where[None, :]), mass)
    expected *= n / expected.sum()
    chi2 = float(((seen - expected) ** 2 / expected).sum())
    freedom = seen.size - 1
    assert chi2 < freedom + 5 * np.sqrt(2 * freedom)


def test_draws_do_not_depend_on_the_block_and_repeat_by_seed(monkeypatch, base):
    whole = base.draw(300, seed=5)
    monkeypatch.setattr("obrs.rivals.lars._BLOCK", 64)
    again = base.draw(300, seed=5)
    assert torch.equal(whole.z, again.z)
    assert whole.proposed == again.proposed
    assert not torch.equal(whole.z, base.draw(300, seed=6).z)


@pytest.mark.parametrize("T", [1, 2, 5, 100])
def test_cost_of_the_resampled_base(T):
    base, n = resampled_base(T), 20_000
    rate = float(base.rate)
    tries = (1 - (1 - rate) ** T) / rate
    assert base.draw(n).proposed / n == pytest.approx(tries, abs=4 * tries / n**0.5 + 0.01)
    assert tries <= min(T, 1 / rate)


@pytest.mark.parametrize("budget", [1, 1.5, 3])
def test_rate_of_the_budgeted_base_is_one_in_budget(budget):
    base, n = budgeted_base(budget), 20_000
    proposed = base.draw(n, seed=2).proposed
    share = 1 / budget
    # of the run, and of the 2**18 candidates that c was solved on
    error = np.sqrt(share * (1 - share) * (1 / proposed + 2**-18))
    assert abs(n / proposed - share) <= 4 * error
    assert base.estimate_z(1000) == pytest.approx(share, rel=1e-6)


def numeric_gradient(loss, parameter, index, step=1e-5):
    values = []
    for sign in (1, -1):
        with torch.no_grad():
            parameter[index] += sign * step
        values.append(loss())
        with torch.no_grad():
            parameter[index] -= sign * step
    return (values[0] - values[1]) / (2 * step)


def likelihood(base, x):
    """Mean log-density of a training batch, on the same candidates and from the same Z in every call."""
    state = {key: value.clone() for key, value in base.named_buffers()}
    value = base.train().log_prob(x).mean()
    for key, buffer in base.named_buffers():
        buffer.copy_(state[key])
    return value


@pytest.mark.parametrize(
    "make",
    [
        lambda: resampled_base(100, momentum=1.0),
        lambda: resampled_base(3, momentum=1.0),
        lambda: budgeted_base(1.5, draws=512),
        lambda: budgeted_base(3, draws=512),
        lambda: budgeted_base(1e6, draws=512),
    ],
    ids=["Z, T=100", "Z, T=3", "log c, K=1.5", "log c, K=3", "log c, K > M"],
)
def test_gradient_is_that_of_finite_differences(make):
    base, x = make(), torch.tensor(np.random.default_rng(0).normal(size=(50, 2)) + 0.5)
    parameters = [base.network[-2].weight, base.network[1].weight]
    exact = torch.autograd.grad(likelihood(base, x), parameters)
    for parameter, gradient in zip(parameters, exact, strict=True):
        for index in [(0, 1), (0, 0)]:
            numeric = numeric_gradient(lambda: float(likelihood(base, x).detach()), parameter, index)
            assert float(gradient[index]) == pytest.approx(float(numeric), rel=1e-4, abs=1e-7)


def test_average_of_z_has_the_value_of_many_batches_and_the_gradient_of_one():
    base, x = resampled_base(5, momentum=0.1), torch.zeros(1, 2, dtype=torch.float64)
    start = base.rate.clone()

    @torch.no_grad()
    def batch_rate():
        drawn = base.drawn.clone()
        rate = torch.sigmoid(base._fresh_scores(base.draws)).mean()
        base.drawn.copy_(drawn)
        return rate

    batch = float(batch_rate())
    averaged = 0.9 * float(start) + 0.1 * batch
    parameter = base.network[-2].bias

    @torch.no_grad()
    def surrogate():  # Z moves with the batch, from where the average is
        z, a = averaged + batch_rate() - batch, torch.sigmoid(base._score(x))
        missed = (1 - z) ** 4
        return torch.log((1 - missed) * a / z + missed).mean() - np.log(2 * np.pi)

    numeric, expected = numeric_gradient(lambda: float(surrogate()), parameter, 0), float(surrogate())
    value = base.train().log_prob(x).mean()
    (exact,) = torch.autograd.grad(value, parameter)
    assert float(base.rate) == pytest.approx(averaged)
    assert value.item() == pytest.approx(expected)
    assert float(exact) == pytest.approx(numeric, rel=1e-4)


def test_base_is_a_distribution_for_zuko():
    flow = replace_base(zuko.flows.NICE(2, context=3, transforms=2), ResampledBase(2, T=10, width=8))
    context = torch.zeros(4, 3)
    assert flow(context).log_prob(torch.zeros(4, 2)).shape == (4,)
    assert flow(context).sample((5,)).shape == (5, 4, 2)
    plain = replace_base(zuko.flows.NICE(2, transforms=2), BudgetedBase(2, 2, width=8))
    torch.manual_seed(1)
    first = plain().sample((7,))
    torch.manual_seed(1)
    assert torch.equal(first, plain().sample((7,)))
    assert first.shape == (7, 2)
    assert plain().sample().shape == (2,)


def rings(n, seed):
    rng = np.random.default_rng(seed)
    angle, radius = rng.uniform(0, 2 * np.pi, n), rng.choice([0.8, 2.0], n) + 0.08 * rng.normal(size=n)
    return torch.tensor(np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1), dtype=torch.float32)


def train_flow(base=None):
    """A flow after 150 steps of maximum likelihood, and its log-likelihood of fresh samples."""
    torch.manual_seed(0)
    flow = zuko.flows.NICE(2, transforms=4, hidden_features=(32, 32))
    flow, real = flow if base is None else replace_base(flow, base()), rings(4000, 0)
    adam = torch.optim.Adam(flow.parameters(), lr=3e-3)
    for _ in range(150):
        adam.zero_grad()
        (-flow().log_prob(real[torch.randint(len(real), (256,))]).mean()).backward()
        adam.step()
    flow.eval()
    if base is not None:
        flow.base.estimate_z()
    with torch.no_grad():
        return flow, float(flow().log_prob(rings(2000, 1)).mean())


def test_filtered_base_explains_two_rings_better_than_a_gaussian():
    _, gaussian = train_flow()
    _, resampled_ = train_flow(lambda: ResampledBase(2, width=64))
    flow, budgeted_ = train_flow(lambda: BudgetedBase(2, 3, width=64, draws=1024))
    assert resampled_ > gaussian + 0.15
    assert budgeted_ > gaussian + 0.15
    assert flow.base.draw(3000).proposed / 3000 == pytest.approx(3, rel=0.1)
