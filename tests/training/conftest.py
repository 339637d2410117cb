import paper.named  # noqa: F401  # the densities, data sets and networks that configurations name here
