"""Exactly n of a scored folder: 200 of 1000 image files, chosen by scores in a file.

Run:  python examples/scored_folder.py        (works in a temporary folder)

The folder has 1000 PNG files of digits, as a collection from the web may be: half of them are broken, two digits on
top of each other. Clean images are at hand, too. A classifier of clean against collected, fitted on other images, gives
the scores, its logits. To choose, no image is opened: files and scores are matched by name.
"""

import shutil
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

import obrs
from obrs.adapters import from_folder


def collect(digits, n, seed):
    """Images as they were collected, and which of them are broken."""
    rng = np.random.default_rng(seed)
    one, other = digits[rng.integers(len(digits), size=(2, n))]
    broken = rng.random(n) < 0.5
    return np.where(broken[:, None], np.maximum(one, other), one), broken


def main():
    digits = np.random.default_rng(0).permutation(load_digits().data)  # 1797 images of 64 pixels, 0 to 16
    clean, collected = digits[:600], collect(digits[600:1200], 2_000, seed=1)[0]
    fit = make_pipeline(PCA(20), PolynomialFeatures(2), StandardScaler(), LogisticRegression(C=0.02, max_iter=1000))
    fit.fit(np.vstack([clean, collected]), np.repeat([1, 0], [len(clean), len(collected)]))

    with tempfile.TemporaryDirectory() as home:
        folder, chosen = Path(home, "collected"), Path(home, "chosen")
        folder.mkdir()
        chosen.mkdir()
        images, broken = collect(digits[1200:], 1_000, seed=2)
        with open(f"{home}/scores.csv", "w") as scores:
            print("file,logit", file=scores)
            for i, logit in enumerate(fit.decision_function(images)):
                Image.fromarray((images[i].reshape(8, 8) * 15).astype(np.uint8)).save(folder / f"{i:04}.png")
                print(f"{i:04}.png,{logit}", file=scores)

        pool = from_folder(folder, f"{home}/scores.csv")
        kept = obrs.select(pool.scores, 200)
        for i in kept:
            shutil.copy(pool.files[i], chosen)
        print(f"{len(list(chosen.iterdir()))} of {len(pool)} files were chosen")
        print(f"broken: {broken.mean():.1%} of the folder, {broken[kept].mean():.1%} of the chosen")


if __name__ == "__main__":
    main()
