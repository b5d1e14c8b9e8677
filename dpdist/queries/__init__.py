"""What is asked of rows in the central model: bounded sums with exact sensitivities."""
