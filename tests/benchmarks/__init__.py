"""Benchmarks: ``python -m tests.benchmarks [NAME ...] [--json]``.

Every number is a ratio of two things measured side by side in one run, because a bare second means nothing on a shared
machine. Each module registers its benchmarks with `tests.benchmarks.measure.benchmark`.
"""
