"""Ranking and metrics: losses of pairs of rows, of which every row is in many."""
