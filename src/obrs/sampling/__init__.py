"""OBRS and its rivals under one protocol: a proposal, a log-ratio and a rule, in; samples and their cost, out."""
