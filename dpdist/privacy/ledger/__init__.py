"""What was charged to whom, durably, and the released values: ledgers and journals, their copies and moves."""
