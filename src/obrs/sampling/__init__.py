"""Rejection with a budget: from a proposal, a log-ratio and a rule to samples and their cost."""
