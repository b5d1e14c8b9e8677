"""How long a run waits for a cluster: seconds of this process's monotonic clock.

A machine's own clock may be set back or ahead while a run waits; the monotonic one goes on evenly.
"""

from __future__ import annotations

CONNECT = 10.0
"""For a scheduler to let us in, and for its first worker."""
ANSWER = 10.0
"""For an answer that needs no computing."""
NOTICE = 10.0
"""Without progress, until the workers are asked what they do."""
PATIENCE = 120.0
"""Without progress, until a run ends with `dpdist.errors.ClusterUnavailable`. Replaced pods are back in 10 to 60."""
TRANSFER = 600.0
"""The same for rows and results on their way between parties that all answer: how far they are cannot be seen."""
