"""Make the example of a report, which the docs embed, and its picture in the README.

python tools/report.py page      # the page again, from a committed GAN of Fashion-MNIST: a minute or two
python tools/report.py template  # only put its numbers and images into the template as it is now
python tools/report.py picture   # draw the picture, with Playwright and the Chromium of the system
"""

import re
import shutil
import sys
from io import BytesIO
from pathlib import Path

import numpy as np

import obrs
from obrs.html.page import fill

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT))  # where `paper` is
PAGE = ROOT / "docs/guides/report-example.html"
PICTURE = ROOT / "docs/guides/report.png"
CLASSES = ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
_PIECES = re.compile(
    r"<h1>(?P<title>.*?)</h1>.*?<p class=\"quiet\">(?P<about>.*?)</p>.*?usual budgets:</p>(?P<plan>.*?)</noscript>"
    r".*?application/json\">(?P<data>.*?)</script>",
    re.DOTALL,
)


def make(seed=100):
    """Write the page: 10 000 proposals of the GAN, a ratio fitted on features, and test images for the doctor."""
    from obrs.ratios.refit import Network, classifier_features, refit
    from paper.image_gans import load_gan, parts

    gan, data = load_gan("fashion_mnist", 0), parts("fashion_mnist")

    def propose(start, n, block=500):
        batches = [gan.propose(np.arange(i, i + block), seed=seed) for i in range(start, start + n, block)]
        return [np.concatenate([part.numpy() for part in each]) for each in zip(*batches, strict=True)]

    method, features = Network(width=96, waves=0), classifier_features(*data["features"])
    fitted = refit(data["ratio"].x, propose(10**6, 14_000)[0], method, features=features, steps=800, batch_size=256)
    pool, labels = propose(0, 10_000)
    obrs.report(
        np.asarray(fitted(pool)),
        out=PAGE,
        samples=pool,
        groups=[CLASSES[label] for label in labels],
        real=np.asarray(fitted(data["test"].x)),
        n=2500,
        title="A small GAN of Fashion-MNIST: what each budget buys",
    )


def refill(page):
    """Return a page with its own numbers and images in the template as it is now."""
    return fill("report.html", text={}, html=_PIECES.search(page).groupdict())


def draw(budget=8):
    """Draw the first screen of the page."""
    from PIL import Image
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        window = browser.new_page(viewport={"width": 1200, "height": 790})
        window.goto(f"file://{PAGE}#K={budget}")
        Image.open(BytesIO(window.screenshot())).convert("RGB").save(PICTURE, optimize=True)
        browser.close()


if __name__ == "__main__":
    steps = {"page": make, "template": lambda: PAGE.write_text(refill(PAGE.read_text())), "picture": draw}
    for name in sys.argv[1:] or ["page"]:
        steps[name]()
