"""Printed reports of the local model that break their guarantee are caught, and ours are not."""

from __future__ import annotations

import pytest

from tests.privacy.exhibits.table import EXHIBITS, audit

LOCAL = (
    "local-bernstein-1bit", "local-bernstein-genprot", "smooth-query-trig", "kway-cheb", "ldp-vec-gauss",
    "l1-mean-proj",
)  # fmt: skip


@pytest.mark.parametrize("exhibit", [e for e in EXHIBITS if e.id in LOCAL], ids=lambda e: e.id)
def test_printed_reports_are_caught(exhibit):
    found = audit(exhibit)
    assert found["printed"] > exhibit.epsilon >= found["ours"]


def test_they_are_in_the_table():
    assert {e.id for e in EXHIBITS} >= set(LOCAL)
