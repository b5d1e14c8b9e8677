"""Optimisation and estimation from released values: public arrays in, arrays out."""
