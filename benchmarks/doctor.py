"""What the doctor says of planted faults, and what following its advice is worth.

    python benchmarks/doctor.py [--out FILE.json]

The faults are those of tests/planted.py: log-ratios of two normals one apart, bent in some way, whose true values are
known. For each: the verdict with 200, 2000 and 20 000 scores of each kind; then, on 40 000 fresh samples of each kind,
the KL that a budget removes with the scores as they are, and beside it what the exact ratio removes. Where the verdict
on 2000 scores is not "fit", its advice is followed: the repair that it offers, and a logistic ratio fitted anew.
"""

import sys
import warnings
from pathlib import Path

import numpy as np
from bench import options, write

from obrs.errors import InputError
from obrs.ratios.doctor import SEEN, diagnose
from obrs.ratios.refit import Head, refit

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from planted import FAULTS, kl_removed

BUDGET, SIZES, FRESH = 2.6, (200, 2000, 20_000), 40_000


def verdict(name, n):
    real, fake, *_ = FAULTS[name](n, np.random.default_rng(1))
    try:
        return diagnose(real, fake, BUDGET)
    except InputError:  # too few rows that differ
        return None


def effect(name, n=2000):
    """Return the KL removed as it is, with the exact ratio, and after what the doctor advises."""
    real, fake, true_real, true_fake = FAULTS[name](n, np.random.default_rng(1))
    fresh_real, fresh_fake, best_real, best_fake = FAULTS[name](FRESH, np.random.default_rng(2))
    loss = {"as it is": kl_removed(fresh_fake, BUDGET, fresh_real), "exact": kl_removed(best_fake, BUDGET, best_real)}
    diagnosis = diagnose(real, fake, BUDGET)
    if diagnosis.verdict in ("fit", SEEN, "untestable"):
        return loss
    if (repair := diagnosis.calibration) is not None:
        loss["repaired"] = kl_removed(repair(fresh_fake), BUDGET, repair(fresh_real))
    options = {"features": lambda x: x, "steps": 200, "batch_size": 256, "progress": False}
    ratio = refit(true_real[:, None], true_fake[:, None], Head(), **options)
    scores = [np.asarray(ratio(x[:, None]), dtype=np.float64) for x in (best_fake, best_real)]
    return loss | {"refitted": kl_removed(scores[0], BUDGET, scores[1])}


def main():
    parser = options(__doc__)
    arguments = parser.parse_args()
    rows = []
    warnings.simplefilter("ignore")  # a refit of what hardly overlaps says so
    for name in FAULTS:
        verdicts = {str(n): verdict(name, n) for n in SIZES}
        row = {"fault": name, "verdicts": {n: one.verdict if one else "too few rows" for n, one in verdicts.items()}}
        row["kl removed"] = {key: round(value, 4) for key, value in effect(name).items()}
        rows.append(row)
        print(f"{name:26}", *(f"{v:13}" for v in row["verdicts"].values()), row["kl removed"], flush=True)
    write(arguments.out, "doctor", {"budget": BUDGET, "fresh": FRESH}, rows=rows)


if __name__ == "__main__":
    main()
