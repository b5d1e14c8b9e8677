"""Means under local differential privacy."""
