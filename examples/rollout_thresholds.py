"""What thresholds on importance ratios do to a batch of rollouts, with OBRS at the same rate beside each.

Run:  python examples/rollout_thresholds.py

An engine samples sequences of 4 to 12 tokens at temperature 1.2; the policy to train has temperature 1. Truncation
weighs a sequence by min(r, C), a mask by r up to C and by 0 above it, a geometric band by 1 if the T-th root of r lies
inside. ESS is that of the weights per trained sequence; TV is what is left to the batch with weights r.
"""

import numpy as np

import obrs

B, T, V, TEMPERATURE = 2_000, 12, 50, 1.2


def rollouts(seed):
    """Log-ratios of the sequences of a batch, and how many tokens each has."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(T, V))
    policy, engine = (x - np.logaddexp.reduce(x, axis=1, keepdims=True) for x in (logits, logits / TEMPERATURE))
    tokens = np.argmax(engine + rng.gumbel(size=(B, T, V)), axis=2)
    length = rng.integers(4, T + 1, B)
    log_ratio = (policy - engine)[np.arange(T), tokens]
    return np.sum(log_ratio * (np.arange(T) < length[:, None]), axis=1), length


def ess_and_tv(ratio, weight):
    """Return the effective sample size per trained sequence, and the total variation to the weights r."""
    ess = weight.sum() ** 2 / np.sum(weight**2) / np.count_nonzero(weight)
    return ess, np.abs(ratio / ratio.sum() - weight / weight.sum()).sum() / 2


def main():
    log_ratio, length = rollouts(seed=0)
    ratio, root, profile = np.exp(log_ratio), np.exp(log_ratio / length), obrs.Profile(log_ratio)
    weights = {f"truncate at {c:g}": np.minimum(ratio, c) for c in (2.0, 3.0)}
    weights |= {f"drop above {c:g}": ratio * (ratio <= c) for c in (2.0, 3.0)}
    weights |= {f"band {a:g} to {b:g}": 1.0 * ((root >= a) & (root <= b)) for a, b in ((0.999, 1.001), (0.99, 1.01))}
    print(f"{B} sequences{'':18}threshold{'':21}OBRS at the same rate")
    print(f"{'':24}{'trained':>9}{'ESS':>8}{'TV left':>9}{'':6}{'keep':>8}{'C':>9}{'ESS':>8}{'TV left':>9}")
    for method, weight in weights.items():
        trained = np.mean(weight > 0)
        # min(r, C) = C min(r/C, 1): to the same effect OBRS keeps the mean of min(r/C, 1)
        keep = np.mean(weight) / weight.max() if method.startswith("truncate") else trained
        ess, tv = ess_and_tv(ratio, weight)
        line = f"{method:24}{trained:9.1%}{ess:8.3f}{tv:9.3f}{'':6}{keep:8.1%}{np.exp(-profile.log_c(1 / keep)):9.3g}"
        print(f"{line}{profile.ess(1 / keep):8.3f}{profile.divergence('tv', 1 / keep):9.3f}")


if __name__ == "__main__":
    main()
