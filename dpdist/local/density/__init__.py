"""Densities and other smooth functions of numbers, with nobody to trust."""
