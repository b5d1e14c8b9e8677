"""Sparse regression under local differential privacy."""
