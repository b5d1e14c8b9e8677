"""Budgets, guarantees and what they rest on: mechanisms, accounting, the ledger, randomness and audits; no data."""
