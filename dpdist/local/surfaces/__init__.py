"""The mean loss at every parameter, with nobody to trust."""
