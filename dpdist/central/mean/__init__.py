"""Means of columns."""
