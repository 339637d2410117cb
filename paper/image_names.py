"""What the image experiments compare, by name, and what it is called in their tables; needs no torch."""

__all__ = ["CONSTANTS", "JUDGES", "RATIOS", "title"]

RATIOS = {
    "none": "none, all the same",
    "own": "the GAN's own critic",
    "tuned": "the critic, trained further",
    "pixels": "a network on pixels",
    "features": "last layer of a classifier",
    "outputs": "outputs of a classifier",
    "gradients": "features without labels",
}
"""The ratios that are compared, and what they are called."""
CONSTANTS = {"global": "one constant", "class": "one per class", "shares": "shares of the data"}
"""How many constants there are, and what that is called."""
JUDGES = {
    "classifier": "another classifier",
    "efficientnet_lite0": "EfficientNet-Lite0",
    "inception_v3": "Inception-v3, so that it is the FID",
}
"""Whose features the distances are of; of EfficientNet-Lite0 the 64 principal components of real images."""
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
    "imagenet": "BigGAN, ImageNet",
}


def title(generator: str) -> str:
    """Return what a generator is called, from its name and seed.

    Example:
        >>> title("cifar10-gan-1")
        'conditional GAN, CIFAR-10, seed 1'
    """
    name, _, seed = generator.rpartition("-")
    return f"{_MODELS.get(name, name)}, seed {seed}"
