"""Fitting networks: the training loop, seeds, the gradient penalty and files of tensors that every room shares."""
