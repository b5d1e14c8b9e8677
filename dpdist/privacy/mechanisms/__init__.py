"""Where noise meets data: one mechanism in each module, with what it costs."""
