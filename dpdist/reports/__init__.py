"""Pages and pictures of what was released."""
