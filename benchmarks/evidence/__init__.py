"""What `benchmarks/ratios.py` runs: two cases, and the contest that both go through."""
