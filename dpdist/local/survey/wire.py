"""Reports as bytes: what a device sends, and what a server accepts.

======  =========================================================================================
bytes   content
======  =========================================================================================
0       0xD9
1       version of the format, 1
2-5     number of the round, unsigned
6-13    the first 8 bytes of `Survey.fingerprint`: which question was answered, with which epsilon
14-29   random id of the report, drawn by the device: a report that arrives twice counts once
30-     one report of the randomiser, as its ``report`` type says
======  =========================================================================================

Numbers are little-endian. A report has the same length whatever it says. Nothing in the header depends on the record;
the id is not the user's and is good for nothing but finding duplicates. The format holds no signature: who may send a
report, and that nobody changes it on the way, is for the transport to see to, and what the others could do is
bounded by `dpdist.local.survey.aggregation.Aggregated.poisoned`.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpdist.errors import DataError
from dpdist.local.survey.questionnaire import Survey
from dpdist.privacy.randomness.draws import SystemDraws

MAGIC = 0xD9
VERSION = 1
HEADER = 30
_ID = slice(14, HEADER)
ID_BYTES = 16

Bytes = NDArray[np.uint8]


class Verdict(enum.IntEnum):
    """What became of a report; everything but VALID is counted and left out."""

    VALID = 0
    LENGTH = 1
    """Too short or too long."""
    VERSION = 2
    """No report, or one of another version of the format."""
    ROUND = 3
    """An answer to this question, or another one, in another round."""
    SURVEY = 4
    """An answer to another question, or with another epsilon."""
    DOMAIN = 5
    """No honest device can have sent it."""
    DUPLICATE = 6
    """Its id was seen before."""


@dataclass(frozen=True, eq=False)
class Decoded:
    """What `decode` makes of a batch.

    Attributes
    ----------
    reports : ndarray
        The valid ones, in order.
    ids : ndarray of uint8, shape (n_valid, 16)
    verdicts : ndarray of uint8
        A `Verdict` per report that came in.
    """

    reports: NDArray[Any]
    ids: Bytes
    verdicts: NDArray[np.uint8]

    @property
    def counts(self) -> dict[str, int]:
        """How often each verdict was given, by its name in lower case."""
        return counted(self.verdicts)


def report_bytes(survey: Survey) -> int:
    """Length of one encoded report."""
    return HEADER + survey.protocol.randomiser.report.itemsize


def new_ids(n: int) -> Bytes:
    """Random ids, from the operating system."""
    return SystemDraws().words(2 * n).view(np.uint8).reshape(n, ID_BYTES)


def encode(survey: Survey, reports: NDArray[Any], ids: Bytes | None = None) -> Bytes:
    """Bytes of reports, one row each.

    Parameters
    ----------
    survey : Survey
    reports : ndarray
        What ``survey.protocol.randomise`` returned.
    ids : ndarray of uint8, shape (n, 16), optional
        Default: random.

    Returns
    -------
    ndarray of uint8, shape (n, report_bytes)

    Examples
    --------
    >>> from dpdist.local.statistics.bounded_values import Box
    >>> from dpdist.local.survey.protocol import LocalProtocol
    >>> from dpdist.local.randomisers.scalars import OneBit
    >>> survey = Survey(LocalProtocol(Box(1), OneBit(1, epsilon=1.0)))
    >>> sent = encode(survey, np.array([1, -1, 1], dtype=np.int8))
    >>> sent.shape, decode(survey, [*map(bytes, sent), b"rubbish"]).counts["length"]
    ((3, 31), 1)
    """
    base, shape = _type(survey)
    if not isinstance(reports, np.ndarray):
        raise DataError(f"reports are the array that survey.protocol.randomise returns, got {type(reports).__name__}")
    if reports.dtype != base or reports.shape[1:] != shape:
        raise DataError(
            f"reports of {survey.protocol.name} have the type {base} and the shape (n, {', '.join(map(str, shape))}), "
            f"got {reports.dtype} and {reports.shape}"
        )
    n = len(reports)
    data = np.empty((n, report_bytes(survey)), np.uint8)
    data[:, : _ID.start] = _head(survey)
    data[:, _ID] = new_ids(n) if ids is None else ids
    stored = np.ascontiguousarray(reports, dtype=base.newbyteorder("<"))
    data[:, HEADER:] = np.frombuffer(stored.tobytes(), np.uint8).reshape(n, -1) if n else 0
    return data


def decode(survey: Survey, data: Bytes | Sequence[bytes]) -> Decoded:
    """The reports in a batch of bytes, and a verdict on each; never fails, whatever the bytes are.

    Parameters
    ----------
    survey : Survey
    data : ndarray of uint8, shape (n, any), or sequence of bytes
        A row that is all zeros stands for a report of a wrong length (in a store all rows have one length).

    Returns
    -------
    Decoded
        Of several valid reports with one id the first is valid.

    Examples
    --------
    >>> from dpdist.local.statistics.bounded_values import Box
    >>> from dpdist.local.survey.protocol import LocalProtocol
    >>> from dpdist.local.randomisers.scalars import OneBit
    >>> survey = Survey(LocalProtocol(Box(1), OneBit(1, epsilon=1.0)))
    >>> sent = encode(survey, np.array([1, -1], dtype=np.int8))
    >>> found = decode(survey, [*map(bytes, sent), bytes(sent[0]), b"rubbish"])
    >>> found.reports.tolist(), {verdict: n for verdict, n in found.counts.items() if n}
    ([1, -1], {'valid': 2, 'length': 1, 'duplicate': 1})
    """
    table = data if isinstance(data, np.ndarray) else packed(survey, data)
    table, reports, verdicts = checked(survey, table)
    chosen = np.flatnonzero(verdicts == Verdict.VALID)
    ids = table[chosen, _ID]
    again = repeated(ids.copy().view(np.uint64))
    verdicts[chosen[again]] = Verdict.DUPLICATE
    return Decoded(reports[~again], ids[~again], verdicts)


def packed(survey: Survey, messages: Sequence[bytes]) -> Bytes:
    """Messages as rows of one length; those of another length become zeros."""
    length = report_bytes(survey)
    if isinstance(messages, str | bytes) or any(isinstance(message, str) for message in messages):
        raise DataError("reports are a list of bytes; of lines that dpdist randomise prints: bytes.fromhex(line)")
    rows = b"".join(bytes(m) if len(m) == length else bytes(length) for m in messages)
    return np.frombuffer(rows, np.uint8).reshape(len(messages), length)


def checked(survey: Survey, table: Bytes) -> tuple[Bytes, NDArray[Any], NDArray[np.uint8]]:
    """`decode` without the search for duplicates: the rows, the valid reports, and the verdicts."""
    base, shape = _type(survey)
    n, length = len(table), report_bytes(survey)
    verdicts = np.zeros(n, np.uint8)
    if table.ndim != 2 or table.dtype != np.uint8 or table.shape[1] != length:
        verdicts[:] = Verdict.LENGTH
        return np.zeros((n, length), np.uint8), np.empty((0, *shape), base), verdicts
    head = _head(survey)
    # the first check that fails is what is told, so it comes last
    for verdict, part in ((Verdict.SURVEY, slice(6, 14)), (Verdict.ROUND, slice(2, 6)), (Verdict.VERSION, slice(0, 2))):
        verdicts[(table[:, part] != head[part]).any(axis=1)] = verdict
    lost = np.flatnonzero(table[:, 0] == 0)
    verdicts[lost[~table[lost].any(axis=1)]] = Verdict.LENGTH
    chosen = np.flatnonzero(verdicts == Verdict.VALID)
    payload = table[chosen, HEADER:]
    reports = np.frombuffer(payload.tobytes(), base.newbyteorder("<")).reshape(len(chosen), *shape).astype(base)
    good = np.ones(len(chosen), np.bool_) if base != np.bool_ else (payload <= 1).all(axis=1)
    with np.errstate(all="ignore"):
        good &= survey.protocol.randomiser.valid(reports)
    verdicts[chosen[~good]] = Verdict.DOMAIN
    return table, reports[good], verdicts


def repeated(keys: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Which of the keys (one per row, of one or more words) were there before, in the order of the rows."""
    words = keys if keys.ndim == 2 else keys[:, None]
    order = np.lexsort(words.T[::-1]) if words.shape[1] > 1 else np.argsort(words[:, 0], kind="stable")
    same = np.zeros(len(keys), np.bool_)
    ordered = words[order]
    same[order[1:]] = (ordered[1:] == ordered[:-1]).all(axis=1)
    return same


def counted(verdicts: NDArray[np.uint8]) -> dict[str, int]:
    """How often each verdict was given, by its name in lower case."""
    counts = np.bincount(verdicts, minlength=len(Verdict))
    return {verdict.name.lower(): int(counts[verdict]) for verdict in Verdict}


def _head(survey: Survey) -> Bytes:
    """What all reports of a survey begin with."""
    fingerprint = bytes.fromhex(survey.fingerprint)[:8]
    return np.frombuffer(bytes([MAGIC, VERSION]) + survey.round.to_bytes(4, "little") + fingerprint, np.uint8)


def _type(survey: Survey) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """Type and shape of one report."""
    report = survey.protocol.randomiser.report
    return (report, ()) if report.subdtype is None else report.subdtype
