"""Generated worlds with a known truth, and how answers are judged."""
