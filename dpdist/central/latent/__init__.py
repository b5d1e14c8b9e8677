"""Models with something hidden, fitted by private EM algorithms."""
