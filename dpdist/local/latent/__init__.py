"""Models with something hidden, where nobody is trusted."""
