"""Training with the rejection inside."""
