"""What the commands print: tables for people, CSV and JSON for programs."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

Row = Mapping[str, Any]
_OPERATORS = tuple("=+-@\uff1d\uff0b\uff0d\uff20")  # the last four are full-width forms


def as_table(rows: Sequence[Row], titles: Mapping[str, str]) -> str:
    """Aligned columns of plain text, never cut: ``titles`` maps the keys to show to their headings.

    Numbers are aligned on the right. Characters that a terminal would act on are replaced.

    Examples
    --------
    >>> rows = [{"run": "monday", "epsilon": 0.5}, {"run": "tue", "epsilon": 10}]
    >>> print(as_table(rows, {"run": "run", "epsilon": "eps"}))
    run     eps
    monday  0.5
    tue      10
    """
    cells = [[_cell(row[key]) for key in titles] for row in rows]
    lines = [list(titles.values()), *cells]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    numeric = [bool(rows) and all(_is_number(row[key]) for row in rows) for key in titles]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, numeric, strict=True)
        ).rstrip()
        for line in lines
    )


def as_list(pairs: Sequence[tuple[str, str]]) -> str:
    """Names and values below each other.

    Examples
    --------
    >>> print(as_list([("Dataset", "survey"), ("Limit", "none")]))
    Dataset  survey
    Limit    none
    """
    width = max(len(name) for name, _ in pairs)
    return "\n".join(f"{name:<{width}}  {_clean(value)}".rstrip() for name, value in pairs)


def as_csv(rows: Sequence[Row], columns: Sequence[str]) -> str:
    """CSV with a header line; None is an empty field, numbers have all their digits.

    Names are anybody's, and a spreadsheet computes a cell that begins like a formula: such a text gets a ``'`` before
    it, and characters that could begin another cell are replaced (JSON has texts as they are).

    Examples
    --------
    >>> print(as_csv([{"run": "=1+1", "epsilon": -0.5}], ["run", "epsilon"]))
    run,epsilon
    '=1+1,-0.5
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: _inert(value) for key, value in row.items()} for row in rows)
    return text.getvalue().removesuffix("\n")


def as_json(value: Any) -> str:
    """One JSON value, indented."""
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)


def deliver(text: str, output: str | None = None) -> None:
    """Print a text, or write it to the file ``output``."""
    if output is None:
        click.echo(text)
    else:
        write_whole(output, f"{text}\n".encode())


def write_whole(path: str, data: bytes, *, new: bool = False) -> None:
    """Write a file as a whole or not at all, whatever happens meanwhile; a ``new`` one replaces none.

    Raises
    ------
    FileExistsError
        If a new one is there already.
    """
    place = Path(os.path.expanduser(path)).resolve()
    aside = place.with_name(f".{place.name}.{secrets.token_hex(4)}.partial")
    try:
        if place.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if place.exists() and not place.is_file():  # a pipe, or a terminal
            place.write_bytes(data)
            return
        try:
            with aside.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            if new:
                _name(aside, place)
            else:
                os.replace(aside, place)
        finally:
            aside.unlink(missing_ok=True)
    except OSError as error:
        error.filename, error.filename2 = path, None
        raise


def _name(aside: Path, place: Path) -> None:
    """Give a file its name, unless that is taken: of two that are written at once, one gets it."""
    try:
        os.link(aside, place)
    except FileExistsError:
        raise
    except OSError:  # a file system without links
        if place.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from None
        os.replace(aside, place)


def cost(epsilon: float, delta: float) -> str:
    """Epsilon and delta in words.

    Examples
    --------
    >>> cost(0.5, 1e-6)
    'epsilon 0.5, delta 1e-06'
    """
    return f"epsilon {epsilon:.6g}, delta {delta:.6g}"


def moment(when: str) -> str:
    """Shorten a UTC time stamp to seconds.

    Examples
    --------
    >>> moment("2026-01-31T02:00:00.123456+00:00")
    '2026-01-31 02:00:00 UTC'
    """
    return f"{when[:19].replace('T', ' ')} UTC"


def size(n_bytes: float) -> str:
    """Bytes in binary units.

    Examples
    --------
    >>> size(800), size(3 * 2**20), size(1.5 * 2**40)
    ('800 B', '3 MiB', '1.5 TiB')
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if n_bytes < 1024:
            return f"{n_bytes:.3g} {unit}" if unit != "B" else f"{n_bytes:.0f} B"
        n_bytes /= 1024
    return f"{n_bytes:.4g} TiB"


def _inert(value: Any) -> Any:
    """What a spreadsheet shows and does not compute."""
    if not isinstance(value, str):
        return value
    text = _clean(value).replace(";", ",")  # where cells are parted by semicolons, what follows one begins another
    return f"'{text}" if text.lstrip().startswith(_OPERATORS) else text


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.6g}" if isinstance(value, float) else _clean(str(value))


def _clean(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text)
