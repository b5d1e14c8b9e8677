"""Tables of several columns, with nobody to trust."""
