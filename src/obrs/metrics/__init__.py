"""Metrics: numbers that compare samples with a target."""
