"""An accept step inside `jit`: exactly n samples from one compiled loop, which makes proposals until it has them.

Run:  python examples/jit_accept.py

Target: a ring of eight narrow bumps. Model: one wide normal. Arrays inside `jit` have a fixed shape, so the loop
carries a buffer of n samples, how many are in it, and the next id. All randomness is a function of the ids: no key is
carried, and the ids that it keeps are those that NumPy keeps.
"""

import jax
import jax.numpy as jnp
import numpy as np

import obrs
from obrs.data.mixtures import ring
from obrs.metrics.modes import mode_scores

N, BATCH, BUDGET = 2_000, 1_024, 8
TARGET, SIGMA, WIDTH = ring(8, radius=2.0, sigma=0.15), 0.15, 1.8


def generate(ids):
    return WIDTH * obrs.normals(ids, 2, seed=0, like=jnp.zeros(0))


def log_ratio(x):
    """Of the target to the model, up to a constant, which the rule does not mind."""
    square = jnp.sum((x[:, None] - jnp.asarray(TARGET.means)) ** 2, axis=2)
    return jax.nn.logsumexp(-square / (2 * SIGMA**2), axis=1) + jnp.sum(x**2, axis=1) / (2 * WIDTH**2)


rule = obrs.Budgeted.fit(log_ratio(generate(range(10**6, 10**6 + 20_000))), BUDGET)


def more(state):
    """One batch of proposals: those that are accepted go into the buffer, behind those that are there."""
    kept, ids, count, first = state
    new = first + jnp.arange(BATCH)
    x = generate(new)
    accepted = obrs.accept(rule(log_ratio(x)), new, seed=0)
    place = jnp.where(accepted, count + jnp.cumsum(accepted) - 1, N)  # N is outside the buffer: dropped
    kept, ids = kept.at[place].set(x, mode="drop"), ids.at[place].set(new, mode="drop")
    return kept, ids, count + accepted.sum(), first + BATCH


def main():
    sample = jax.jit(lambda state: jax.lax.while_loop(lambda state: state[2] < N, more, state))
    x, ids, _, stop = map(np.asarray, sample((jnp.zeros((N, 2)), jnp.zeros(N, int), 0, 0)))
    print(f"{N} samples of {ids[-1] + 1} proposals: 1 in {(ids[-1] + 1) / N:.2f}, wanted 1 in {BUDGET}")
    for name, points in (("proposed", generate(range(N))), ("kept", x)):
        found = mode_scores(modes=TARGET.means, fake=points, sigma=SIGMA)
        print(f"{name:8} {100 * found.precision:5.1f} % within 4 sigma of a bump, {found.modes} bumps")
    log_a = np.asarray(rule(log_ratio(generate(np.arange(stop)))))
    same = np.flatnonzero(obrs.accept(log_a, np.arange(stop), seed=0))[:N]
    print(f"ids that differ from NumPy's: {np.count_nonzero(same != ids)} of {N}")


if __name__ == "__main__":
    main()
