"""Fitting networks: the training loop, seeds, the gradient penalty, and files of tensors, for all packages that fit."""
