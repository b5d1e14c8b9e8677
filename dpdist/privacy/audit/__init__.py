"""Attacks on our own guarantees, and what no private method can beat."""
