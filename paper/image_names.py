"""What the image experiments compare, by name, and what it is called in their tables; needs no torch."""

__all__ = ["CONSTANTS", "JUDGES", "RATIOS"]

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
