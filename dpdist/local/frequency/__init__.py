"""Frequencies under local differential privacy."""
