"""Audit the printed versions that are not private, and ours: one JSON object, for ``dpdist audit --exhibit``."""

from __future__ import annotations

import json
import sys

from tests.privacy.exhibits.table import EXHIBITS, WRONG, audit

if __name__ == "__main__":
    rows = []
    for exhibit in EXHIBITS:
        print(f"dpdist: auditing {exhibit.id} ({exhibit.what})", file=sys.stderr, flush=True)
        rows.append(audit(exhibit))
    print(json.dumps({"format": "dpdist-exhibits/1", "wrong": WRONG, "exhibits": rows}))
