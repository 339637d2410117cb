"""The few networks that experiments and refits need."""
