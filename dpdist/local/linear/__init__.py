"""Losses of a linear predictor under local differential privacy."""
