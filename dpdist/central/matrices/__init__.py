"""Second moments, and what is made of them: principal components, covariances and precision matrices."""
