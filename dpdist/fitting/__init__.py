"""What all estimators share, whoever is trusted: parameters, input, the run of a fit, and how a fit shows itself."""
