"""Names on a command line, separated by commas."""

from __future__ import annotations

import csv


def listed_names(text: str) -> tuple[str, ...]:
    """Split at commas; a name with a comma in it is quoted, as in CSV.

    >>> listed_names('no,"yes, of course"')
    ('no', 'yes, of course')
    """
    return tuple(word for word in next(csv.reader([text]), []) if word)
