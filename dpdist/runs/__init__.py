"""Runs of jobs: their directories, their results, their provenance."""
