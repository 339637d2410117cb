"""What the image experiments compare, by name, and what it is called in their tables; needs no torch."""

__all__ = ["CONSTANTS", "DATA", "JUDGES", "RATIOS", "title"]

RATIOS = {
    "own": "critic as it is",
    "tuned": "critic trained further",
    "outputs": "outputs of a classifier",
    "gradients": "features without labels",
    "tune": "tune",
}
"""The ratios that are compared, and what they are called; that of `obrs.tune` has constants of its own choice."""
CONSTANTS = {"global": "one constant", "class": "one per class", "calibrated": "calibrated"}
"""How many constants there are, and what that is called; "calibrated" is one constant after calibration by class."""
JUDGES = {
    "classifier": "another classifier",
    "efficientnet_lite0": "EfficientNet-Lite0",
    "inception_v3": "Inception-v3, so that it is the FID",
}
"""Whose features the distances are of; of EfficientNet-Lite0 the 64 principal components of real images."""
DATA = {"cifar10": "CIFAR-10", "fashion_mnist": "Fashion-MNIST", "celeba": "CelebA"}
_MODELS = {
    "digits": "conditional GAN, digits",
    "fashion_mnist": "conditional GAN, Fashion-MNIST",
    "fashion_vae": "VAE, Fashion-MNIST",
    "mnist_plain": "GAN, MNIST",
    "digits_plain": "GAN, digits",
    "cifar10-gan": "conditional GAN, CIFAR-10",
    "cifar10-plain": "unconditional GAN, CIFAR-10",
    "cifar10-biggan": "BigGAN, CIFAR-10",
    "celeba": "BigGAN, CelebA",
    "fashion_edm": "diffusion model, Fashion-MNIST",
}


def title(generator: str) -> str:
    """Return what a generator is called, from its name and seed.

    Example:
        >>> title("cifar10-gan-1")
        'conditional GAN, CIFAR-10, seed 1'
    """
    name, _, number = generator.rpartition("-")
    if generator == "gaussians":
        return "GAN, 25 Gaussians"
    counted = f"{number} updates" if name == "fashion_edm" else f"seed {number}"
    return f"{_MODELS.get(name, name)}, {counted}"
