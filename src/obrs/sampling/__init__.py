"""OBRS and its rivals under one protocol: from a proposal, a log-ratio and a rule to samples and their cost."""
