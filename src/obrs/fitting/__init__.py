"""Fitting networks: the loop, averages, batches, seeds, penalties and files of tensors that every room shares."""
