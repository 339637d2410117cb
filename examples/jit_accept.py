"""An accept step inside `jit`: exactly n samples from one compiled loop, which makes proposals until it has them.

Run:  python examples/jit_accept.py

Target: a ring of eight narrow bumps. Model: one wide normal. Arrays inside `jit` have a fixed shape, so the loop
carries a buffer of n samples, how many are in it, and how many proposals were made. Random numbers inside `jit` are
those of `jax.random`.
"""

import jax
import jax.numpy as jnp
import numpy as np

import obrs

N, BATCH, BUDGET = 2_000, 1_024, 8
SIGMA, WIDTH = 0.15, 1.8
BUMPS = 2 * np.stack([np.cos(np.arange(8) * np.pi / 4), np.sin(np.arange(8) * np.pi / 4)], axis=1)


def generate(key, n):
    return WIDTH * jax.random.normal(key, (n, 2))


def log_ratio(x):
    """Log-ratio of the target to the model, up to a constant, which does not change the rule."""
    square = jnp.sum((x[:, None] - jnp.asarray(BUMPS)) ** 2, axis=2)
    return jax.nn.logsumexp(-square / (2 * SIGMA**2), axis=1) + jnp.sum(x**2, axis=1) / (2 * WIDTH**2)


rule = obrs.Budgeted.fit(log_ratio(generate(jax.random.key(1), 20_000)), BUDGET)


def more(state):
    """One batch of proposals: those that are accepted go into the buffer, behind those that are there."""
    kept, numbers, count, proposed, key = state
    key, latents, uniforms = jax.random.split(key, 3)
    x = generate(latents, BATCH)
    accepted = jnp.log(jax.random.uniform(uniforms, (BATCH,))) < rule(log_ratio(x))
    place = jnp.where(accepted, count + jnp.cumsum(accepted) - 1, N)  # N is outside the buffer: dropped
    kept = kept.at[place].set(x, mode="drop")
    numbers = numbers.at[place].set(proposed + jnp.arange(BATCH), mode="drop")
    return kept, numbers, count + accepted.sum(), proposed + BATCH, key


def main():
    sample = jax.jit(lambda state: jax.lax.while_loop(lambda state: state[2] < N, more, state))
    state = (jnp.zeros((N, 2)), jnp.zeros(N, int), 0, 0, jax.random.key(0))
    x, numbers = map(np.asarray, sample(state)[:2])
    print(f"{N} samples of {numbers[-1] + 1} proposals: 1 in {(numbers[-1] + 1) / N:.2f}, wanted 1 in {BUDGET}")
    for name, points in (("proposed", np.asarray(generate(jax.random.key(2), N))), ("kept", x)):
        near = np.linalg.norm(points[:, None] - BUMPS, axis=2) < 4 * SIGMA
        share, bumps = near.any(axis=1).mean(), near.any(axis=0).sum()
        print(f"{name:8} {100 * share:5.1f} % within 4 sigma of a bump, {bumps} bumps")


if __name__ == "__main__":
    main()
