"""The truth behind the answers of a crowd, with nobody to trust."""
