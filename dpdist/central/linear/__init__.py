"""Losses of a linear predictor: one module per family of solvers."""
