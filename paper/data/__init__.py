"""The few data sets that experiments and refits need: mixtures with exact densities, and small images."""
