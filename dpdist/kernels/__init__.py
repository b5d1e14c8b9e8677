"""What a partition computes: pure functions of arrays, in NumPy and numba, whose sums are exact integers."""
