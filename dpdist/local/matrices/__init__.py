"""Second moments and what is made of them, with nobody to trust."""
