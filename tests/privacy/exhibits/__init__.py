"""Mechanisms that are not private, as printed somewhere: controls that the audits must catch. Never import them."""
