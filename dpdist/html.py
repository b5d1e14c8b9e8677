"""Small strings of HTML: escaping, numbers, tables, and the look that notebooks and reports share.

No dependencies, so that every room can describe itself. Whatever comes from outside passes through `escape`: `table`
does it for every cell that is not `Markup`, and `Markup` is only made here and by the charts.
"""

from __future__ import annotations

import html
import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


class Markup(str):
    """A string that is HTML already, with everything from outside escaped."""

    __slots__ = ()


def escape(value: object) -> str:
    """Make any value safe as text and inside a quoted attribute; `Markup` stays as it is.

    Examples
    --------
    >>> escape('<script>"a" & b</script>')
    '&lt;script&gt;&quot;a&quot; &amp; b&lt;/script&gt;'
    """
    return value if isinstance(value, Markup) else html.escape(str(value))


def is_number(value: object) -> bool:
    """Whether a cell is a number, of Python's or of NumPy's."""
    return not isinstance(value, bool | str) and (hasattr(value, "__index__") or hasattr(value, "__float__"))


def number(value: Any, digits: int = 4) -> str:
    """Write a number with as many digits as a reader wants.

    Examples
    --------
    >>> [number(v) for v in (100_000, 2 / 3, 12345.678, 1.5e-6, 1e20, float("nan"))]
    ['100,000', '0.6667', '12,346', '1.5e-06', '1e+20', 'not a number']
    """
    if hasattr(value, "__index__"):
        return f"{operator.index(value):,}"
    value = float(value)
    if math.isnan(value):
        return "not a number"
    if math.isinf(value):
        return "infinite" if value > 0 else "-infinite"
    if value == 0:
        return "0"
    if not 1e-4 <= abs(value) < 1e7:
        mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
        return f"{_trim(mantissa)}e{exponent}"
    return _trim(f"{value:,.{max(0, digits - 1 - math.floor(math.log10(abs(value))))}f}")


def _trim(digits: str) -> str:
    return digits.rstrip("0").rstrip(".") if "." in digits else digits


def percent(share: float) -> str:
    """A probability in per cent, away from 50 % so that it never promises more than it holds.

    Examples
    --------
    >>> percent(0.7310585786300049), percent(0.2689414213699951), percent(0.50025), percent(1.0)
    ('73.2 %', '26.8 %', '50.025 %', '100 %')
    """
    away = abs(share - 0.5) * 100
    if away == 0:
        return "50 %"
    decimals = 1 if away >= 0.1 else min(1 - math.floor(math.log10(away)), 12)
    grain = 10.0**-decimals
    shown = min(math.ceil(away / grain - 1e-9) * grain, 50.0)
    return f"{50 + math.copysign(shown, share - 0.5):.{decimals}f}".removesuffix(".0") + " %"


def cell(value: object) -> str:
    """One value as it stands in a table: escaped, numbers shortened, nothing as a dash."""
    if value is None:
        return "&ndash;"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return number(value) if is_number(value) else escape(value)


def table(head: Sequence[str], rows: Iterable[Sequence[object]], caption: str) -> Markup:
    """Build a table whose first column names the rows; cells that are numbers are set flush right.

    Examples
    --------
    >>> "<th scope=\\"row\\">a &amp; b</th>" in table(["name", "value"], [["a & b", 1.0]], "Example")
    True
    """
    lines = [f"<caption>{escape(caption)}</caption>"]
    lines.append("<thead><tr>" + "".join(f'<th scope="col">{escape(h)}</th>' for h in head) + "</tr></thead>")
    lines.append("<tbody>")
    for first, *others in rows:
        data = "".join(("<td class='n'>" if is_number(value) else "<td>") + cell(value) + "</td>" for value in others)
        lines.append(f'<tr><th scope="row">{cell(first)}</th>{data}</tr>')
    lines.append("</tbody>")
    return scrolling("<table>" + "\n".join(lines) + "</table>", caption)


def records(rows: Sequence[Mapping[str, object]], caption: str) -> Markup:
    """Build a table of dicts, one row each; keys without any value are left out.

    Examples
    --------
    >>> "fold" in records([{"name": "gradient", "count": 30, "fold": None}], "Plan")
    False
    """
    keys = dict.fromkeys(key for row in rows for key, value in row.items() if value is not None)
    return table(list(keys), [[row.get(key) for key in keys] for row in rows], caption)


def facts(pairs: Iterable[tuple[str, object]], caption: str) -> Markup:
    """Build a table of names and values, without a visible heading."""
    rows = "".join(f'<tr><th scope="row">{escape(name)}</th><td>{cell(value)}</td></tr>' for name, value in pairs)
    return scrolling(f'<table class="facts"><caption>{escape(caption)}</caption><tbody>{rows}</tbody></table>', caption)


def scrolling(content: str, name: str) -> Markup:
    """Let wide content scroll by itself, by mouse and by keyboard, instead of the page."""
    return Markup(f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(name)}">{content}</div>')


def details(summary: str, content: str) -> Markup:
    """Content that opens on demand."""
    return Markup(f"<details><summary>{escape(summary)}</summary>{content}</details>")


def card(title: str, *content: str) -> str:
    """What a ``_repr_html_`` returns: a titled card that brings its own style.

    Examples
    --------
    >>> "<b>Dataset &lt;x&gt;</b>" in card("Dataset <x>", facts([("rows", 10)], "Dataset"))
    True
    """
    style = "<style>" + STYLE + "</style>"
    return f'<div class="dpdist card">{style}<p class="name"><b>{escape(title)}</b></p>{"".join(content)}</div>'


def warning(title: str, text: str) -> Markup:
    """A banner that can't be overlooked."""
    return Markup(f'<div class="warning" role="note"><p><strong>{escape(title)}</strong> {escape(text)}</p></div>')


_LIGHT = """
--page:#f5f6f8;--card:#ffffff;--ink:#1b2430;--soft:#566170;--line:#d9dee5;--grid:#e6eaef;--link:#1f5fa8;
--one:#2f6db5;--two:#b4531a;--three:#4b7f52;--rest:#dde2e9;
--warn-back:#fff3dd;--warn-ink:#6b3d00;--warn-line:#d18a1c;
"""
_DARK = """
--page:#12161c;--card:#1a2028;--ink:#e6eaf0;--soft:#a5b0be;--line:#333d4a;--grid:#29323d;--link:#8cc0f5;
--one:#6aaaf0;--two:#eb9a62;--three:#84c08c;--rest:#39434f;
--warn-back:#3a2b10;--warn-ink:#ffdca3;--warn-line:#d18a1c;
"""

# Everything is scoped under one class: a notebook shows several of these among foreign content.
STYLE = f"""
.dpdist{{{_LIGHT}color:var(--ink);font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,
"Liberation Sans",sans-serif;font-variant-numeric:tabular-nums}}
@media (prefers-color-scheme:dark){{.dpdist{{{_DARK}}}}}
@media print{{.dpdist{{{_LIGHT}}}}}
.dpdist.card{{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:12px 16px;max-width:760px;
font-size:14px}}
.dpdist .name{{margin:0 0 6px}}
.dpdist .name b{{font-weight:650}}
.dpdist p{{margin:0 0 10px;color:var(--ink)}}
.dpdist .soft{{color:var(--soft)}}
.dpdist .scroll{{overflow-x:auto;max-width:100%}}
.dpdist table{{border-collapse:collapse;font-size:14px;margin:0 0 10px;background:none}}
.dpdist caption{{text-align:left;color:var(--soft);padding:0 0 4px;caption-side:top}}
.dpdist th,.dpdist td{{text-align:left;vertical-align:top;padding:5px 18px 5px 0;border-bottom:1px solid var(--line);
font-weight:400;color:var(--ink);background:none;white-space:normal}}
.dpdist thead th,.dpdist table.facts th{{color:var(--soft)}}
.dpdist table.facts{{width:100%}}
.dpdist table.facts th{{width:34%;min-width:112px}}
.dpdist td.n{{text-align:right;white-space:nowrap}}
.dpdist table.facts td{{overflow-wrap:anywhere}}
.dpdist td.n:last-child{{padding-right:4px}}
.dpdist figure{{margin:14px 0 18px}}
.dpdist figcaption{{color:var(--soft);font-size:14px;margin:4px 0 6px;max-width:68ch}}
.dpdist svg{{display:block;width:100%;height:auto;overflow:visible}}
.dpdist .wide svg{{max-width:820px}}
.dpdist .narrow svg{{max-width:480px}}
.dpdist .narrow{{display:none}}
@media (max-width:640px){{.dpdist .wide{{display:none}}.dpdist .narrow{{display:block}}
.dpdist table{{font-size:12px}}.dpdist th,.dpdist td{{padding-right:5px}}.dpdist td{{overflow-wrap:anywhere}}}}
@media print{{.dpdist .wide{{display:block}}.dpdist .narrow{{display:none}}}}
.dpdist svg text{{font-size:12px;fill:var(--soft)}}
.dpdist svg text.ink{{fill:var(--ink)}}
.dpdist svg .end{{text-anchor:end}}
.dpdist svg .middle{{text-anchor:middle}}
.dpdist svg .grid{{stroke:var(--grid)}}
.dpdist svg .axis{{stroke:var(--soft)}}
.dpdist svg .link{{stroke:var(--line);stroke-width:3}}
.dpdist svg .fill-1{{fill:var(--one)}}
.dpdist svg .fill-2{{fill:var(--two)}}
.dpdist svg .fill-3{{fill:var(--three)}}
.dpdist svg .fill-0{{fill:var(--rest)}}
.dpdist svg .line-1{{stroke:var(--one)}}
.dpdist svg .line-2{{stroke:var(--two)}}
.dpdist svg .line-3{{stroke:var(--three)}}
.dpdist svg .curve{{fill:none;stroke-width:2;stroke-linejoin:round}}
.dpdist svg .dashed{{stroke-dasharray:6 4}}
.dpdist svg .whisker{{stroke:var(--ink);stroke-width:1.5;fill:none}}
.dpdist details{{margin:0 0 10px;font-size:14px}}
.dpdist summary{{cursor:pointer;color:var(--link)}}
.dpdist details[open] summary{{margin-bottom:6px}}
.dpdist .warning{{background:var(--warn-back);border-left:4px solid var(--warn-line);border-radius:4px;
padding:10px 14px;margin:0 0 16px}}
.dpdist .warning p{{margin:0;color:var(--warn-ink)}}
"""
