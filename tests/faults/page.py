"""``deploy/FAULTS.md``: what every fault came to. The tests that cause the faults write it, and check it afterwards.

``DPDIST_WRITE_FAULTS=1 python -m pytest -m faults -n 0`` writes the rows anew; without it, what a test saw has to be
what the page says, in about the time that it says.
"""

from __future__ import annotations

import math
import os
import re
from pathlib import Path

from dpdist.engine import waits

PAGE = Path(__file__).parents[2] / "deploy" / "FAULTS.md"
RARE = 2 * waits.NOTICE + waits.ANSWER
"""What a cluster costs where the instant was such that what moves was lost, whether or not the row's runs met one."""
_ROW = re.compile(r"^\| (?P<fault>.+?) \| (?P<outcome>.+?) \| (?P<took>\d+) s \|$", re.MULTILINE)


def came_to(section: str, fault: str, outcome: str, seconds: float) -> None:
    """Write, or check, the row of a fault; on a machine that does other things, too, processes start more slowly."""
    text = PAGE.read_text()
    head, begin, rest = text.partition(f"\n## {section}\n")
    assert begin, f"{PAGE} has no section {section!r}"
    body, following, tail = rest.partition("\n## ")
    rows = {row["fault"]: (row["outcome"], int(row["took"])) for row in _ROW.finditer(body)}
    if os.environ.get("DPDIST_WRITE_FAULTS") == "1":
        rows[fault] = outcome, math.ceil(seconds)
        table = "".join(f"| {name} | {came} | {took} s |\n" for name, (came, took) in rows.items())
        intro = body.partition("\n| fault |")[0].rstrip("\n")
        body = f"{intro}\n\n| fault | came to | took |\n|---|---|---|\n{table}"
        PAGE.write_text(head + begin + body + following + tail)
        return
    assert fault in rows, f"{PAGE} has no row {fault!r} in {section!r}: write it (see tests.faults.page)"
    crowd = max(1.0, *(load / (os.cpu_count() or 1) for load in os.getloadavg()[:2]))
    most = max(2 * crowd * rows[fault][1], RARE if section == "Cluster" else 0.0) + 10
    assert rows[fault][0] == outcome and seconds <= most, (rows[fault], seconds, most)
