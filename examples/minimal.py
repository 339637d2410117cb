"""OBRS on two known mixtures: how close a model gets to its target for K proposals per kept sample.

Run:  python examples/minimal.py            (writes out/minimal.json and out/minimal.png; what the docs show:
      python examples/minimal.py --out examples/results)

Target P: two narrow bumps. Model Q: two wide ones, so r = p/q is bounded and everything can be computed
by quadrature as well as by sampling. Expect KL(P||Q) = 0.505 before, 0.065 after at K = 2, and 0 from K = M = 3.87 on.
"""

import argparse
import json
from pathlib import Path

import numpy as np

import obrs
from obrs.looks import LOOKS, figure, restyle

TARGET = [(0.55, -1.4, 0.40), (0.45, 1.3, 0.50)]  # weight, mean, standard deviation
MODEL = [(0.40, -0.9, 1.00), (0.60, 1.6, 1.10)]
GRID = np.linspace(-8, 8, 4001)


def density(mixture, x):
    return sum(w * np.exp(-0.5 * ((x - m) / s) ** 2) / (s * np.sqrt(2 * np.pi)) for w, m, s in mixture)


def propose(ids, seed=0):
    """Samples of the model, one per id: which bump, then where in it."""
    z = obrs.normals(ids, 2, seed=seed)
    _, mean, sd = np.array(MODEL).T
    bump = (z[:, 1] < 0.2533471).astype(int)  # a standard normal is below this with probability 0.6
    return mean[bump] + sd[bump] * z[:, 0]


def log_ratio(x):
    return np.log(density(TARGET, x)) - np.log(density(MODEL, x))


def divergence(rule, name):
    """Divergence from the target to what is kept, by quadrature: E_kept[f(p / kept)]."""
    p, q = density(TARGET, GRID), density(MODEL, GRID)
    kept = q * np.exp(rule(log_ratio(GRID)))
    kept /= np.trapezoid(kept, GRID)
    return float(np.trapezoid(kept * obrs.divergences.DIVERGENCES[name].f(np.log(p) - np.log(kept)), GRID))


def table(budgets, n=100_000):
    """One row per budget: c fitted on one sample, the rate measured on another."""
    pilot, ids = log_ratio(propose(np.arange(n), seed=1)), np.arange(n)
    fresh = log_ratio(propose(ids, seed=2))
    rows = []
    for budget in budgets:
        rule = obrs.Budgeted.fit(pilot, budget)
        accepted = obrs.accept(rule(fresh), ids, seed=2)
        before = obrs.Budgeted(np.inf)
        rows.append(
            {
                "budget": budget,
                "rate": float(np.mean(accepted)),
                "kl before": divergence(before, "kl"),
                "kl after": divergence(rule, "kl"),
                "tv before": divergence(before, "tv"),
                "tv after": divergence(rule, "tv"),
            }
        )
    return rows


def precision_recall(kept, points=400):
    """The precision-recall curve of Simon et al. (2019): alpha = E_Q[min(l p/q, 1)], beta = alpha / l."""
    p = density(TARGET, GRID)
    lam = np.tan(np.linspace(1e-3, np.pi / 2 - 1e-3, points))
    alpha = np.trapezoid(np.minimum(lam[:, None] * p, kept), GRID, axis=1)
    return alpha, alpha / lam


def draw(path, budget=2.0):
    """The paper's one-dimensional figure: densities, acceptance, precision and recall, and what K buys."""
    p, q, x = density(TARGET, GRID), density(MODEL, GRID), log_ratio(GRID)
    masses = {"weights": q}
    rules = {
        "exact": obrs.rules.Unbudgeted.fit(x),
        "drs": obrs.rules.DRS.fit(log_ratio(propose(np.arange(200_000))), budget),
        "obrs": obrs.Budgeted.fit(x, budget, **masses),
    }
    drawn, model, ours = figure(10, 7), LOOKS["model"].colour, LOOKS["obrs"].colour
    densities, acceptances, curves, scaling = drawn.subplots(2, 2).flat

    densities.fill_between(GRID, p, color="0.85", label="target P")
    densities.plot(GRID, q, color=model, label="model Q")
    ids = np.arange(200_000)
    fresh = propose(ids, seed=3)
    kept = fresh[obrs.accept(rules["obrs"](log_ratio(fresh)), ids, seed=3)]
    densities.hist(kept, bins=120, range=(-5, 6), density=True, color=ours, alpha=0.25, label="kept samples")
    for name, rule in rules.items():
        line = {"color": LOOKS[name].colour, "ls": LOOKS[name].line}
        after = q * np.exp(rule(x))
        after /= np.trapezoid(after, GRID)
        if name != "exact":
            densities.plot(GRID, after, label=f"kept by {LOOKS[name].label}", **line)
        acceptances.plot(GRID, np.exp(rule(x)), label=LOOKS[name].label, **line)
        alpha, beta = precision_recall(after)
        curves.plot(beta, alpha, label=LOOKS[name].label, **line)
    densities.set(title=f"densities, 1 in {budget:g} kept", xlim=(-5, 6), xlabel="x", ylabel="density")
    acceptances.set(title="acceptance functions", xlim=(-5, 6), xlabel="x", ylabel="a(x)")

    alpha, beta = precision_recall(q)
    curves.plot(beta, alpha, color=model, label="model Q")
    curves.set(title="precision and recall after rejection", xlabel="recall", ylabel="precision")

    scaling.plot(beta, alpha, color=model, label="model Q")
    scaling.plot(beta, np.minimum(budget * alpha, 1), color=ours, label=f"OBRS: precision × {budget:g}, at most 1")
    slope = budget * np.exp(rules["obrs"].log_c)
    reach = min(1.0, 1 / slope)
    scaling.plot([0, reach], [0, slope * reach], color="0.4", ls=":", label="λ = K c")
    for at in range(40, len(beta), 40):
        scaling.annotate(
            "",
            (beta[at], min(budget * alpha[at], 1)),
            (beta[at], alpha[at]),
            arrowprops={"arrowstyle": "->", "color": "0.6"},
        )
    scaling.set(title="every recall keeps K times its precision", xlabel="recall", ylabel="precision")
    for axis in (densities, acceptances, curves, scaling):
        axis.legend(fontsize=8)
    for axis in (curves, scaling):
        axis.set(xlim=(0, 1.02), ylim=(0, 1.05))
    densities.set_ylim(0, 0.56)
    drawn.savefig(path, dpi=130)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for minimal.json and minimal.png")
    out = parser.parse_args().out
    rows = table([1, 1.5, 2, 3, 4])
    print("Keep 1 in K proposals of the model, as close to the target as that allows:\n")
    print(f"{'budget K':>8} {'rate':>8} {'KL before':>11} {'KL after':>9} {'TV before':>11} {'TV after':>9}")
    for row in rows:
        print(
            f"{row['budget']:8g} {row['rate']:8.3f} {row['kl before']:11.3f} {row['kl after']:9.3f} "
            f"{row['tv before']:11.3f} {row['tv after']:9.3f}"
        )
    out.mkdir(parents=True, exist_ok=True)
    record = {"experiment": "minimal", "target": TARGET, "model": MODEL, "rows": rows, "obrs": obrs.__version__}
    (out / "minimal.json").write_text(json.dumps(record, indent=2) + "\n")
    with restyle():
        draw(out / "minimal.png")
    print(f"\nWrote {out / 'minimal.json'} and {out / 'minimal.png'} (densities, acceptance, precision and recall).")
    print("With your own model: rule = obrs.Budgeted.fit(log_ratio_of_some_proposals, budget=4), then")
    print("keep the proposals with obrs.accept(rule(log_ratio), ids, seed=0).")


if __name__ == "__main__":
    main()
