"""How a bounded value becomes a report: one law in each module."""
