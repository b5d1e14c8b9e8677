"""Experiments: many simulations, one picture."""
