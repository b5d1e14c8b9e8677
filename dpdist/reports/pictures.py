"""The pictures of a report that need more than a list of numbers: convergence, noise against signal, metrics."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpdist.charts import LARGEST, Series, bars, dots, figure, lines
from dpdist.html import escape, facts, number, table, warning

_MOST_POINTS = 200
_MOST_CURVES = 4


def convergence(rounds: NDArray[np.float64]) -> str:
    """How the released iterates settle: length of each step, and distance to the last iterate.

    Parameters
    ----------
    rounds : array (n_rounds, n_parameters)
        Released values; fewer than three make no picture.
    """
    if len(rounds) < 3:
        return ""
    steps = np.linalg.norm(np.diff(rounds, axis=0), axis=1)
    away = np.linalg.norm(rounds[:-1] - rounds[-1], axis=1)
    at = _thinned(len(steps))
    x = [float(i + 1) for i in at]
    series = [
        Series("distance to the last iterate", away[at].tolist(), x),
        Series("length of the step", steps[at].tolist(), x),
    ]
    caption = (
        "Euclidean lengths, computed from the released iterates only. Steps that have stopped getting shorter are "
        "mostly the noise of a round."
    )
    last = f"The last step has length {number(float(steps[-1]), 3)}, the first {number(float(steps[0]), 3)}."
    data = table(
        ["after round", *(s.name for s in series)],
        [(int(i) + 1, float(away[i]), float(steps[i])) for i in at],
        "Convergence of the released iterates",
    )
    return figure(
        lambda width: lines(
            series,
            title=f"Line chart: convergence over {len(rounds)} released iterates",
            description=last,
            x_label="round",
            width=width,
            log=True,
        ),
        caption,
        data,
    )


def noise(releases: Sequence[Mapping[str, Any]]) -> str:
    """Size of the noise of each release against the size of what was released.

    Releases that share a name are one curve over the rounds, the others are dots in one chart.
    """
    usable = [r for r in releases if r.get("noise_std") is not None and r.get("rms") is not None]
    if not usable:
        return ""
    groups: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for release in usable:
        groups[str(release.get("name"))].append(release)
    curves = {name: group for name, group in groups.items() if len(group) > 2}
    single = [release for name, group in groups.items() if name not in curves for release in group]
    parts = [
        "<p>What was released is signal and noise together, both per entry. Where the two sizes are alike, the release "
        "is mostly noise.</p>"
    ]
    parts += [_curve(name, group) for name, group in list(curves.items())[:_MOST_CURVES]]
    for name, group in list(curves.items())[_MOST_CURVES:]:
        single.append({**group[-1], "name": f"{name} (last of {len(group)})"})
    if single:
        parts.append(_pairs(single))
    return "".join(parts)


_NOISE, _SIZE = "standard deviation of the noise", "root mean square of the release"


def _curve(name: str, group: Sequence[Mapping[str, Any]]) -> str:
    at = _thinned(len(group))
    shown = [group[i] for i in at]
    x = [float(i + 1) for i in at]
    series = [
        Series(_SIZE, [float(r["rms"]) for r in shown], x),
        Series(_NOISE, [float(r["noise_std"]) for r in shown], x),
    ]
    caption = f"{len(group)} releases of {name}: size of what was released, and of the noise in it."
    data = table(
        ["release", _SIZE, _NOISE],
        [(int(i) + 1, float(group[i]["rms"]), float(group[i]["noise_std"])) for i in at],
        caption,
    )
    return figure(
        lambda width: lines(
            series,
            title=f"Line chart: noise against signal of {len(group)} releases of {name}",
            description=_share(group[-1]),
            x_label=f"release of {name}",
            width=width,
            log=True,
        ),
        caption,
        data,
    )


def _pairs(releases: Sequence[Mapping[str, Any]]) -> str:
    shown = releases[:LARGEST]
    labels = [str(r.get("name")) for r in shown]
    series = [Series(_SIZE, [float(r["rms"]) for r in shown]), Series(_NOISE, [float(r["noise_std"]) for r in shown])]
    more = f" (the first {len(shown)} of {len(releases)})" if len(releases) > len(shown) else ""
    caption = f"Releases that were made once{more}: the further the noise lies to the left, the better."
    rows = [(label, float(r["rms"]), float(r["noise_std"])) for label, r in zip(labels, shown, strict=True)]
    title = f"Dot chart: noise against signal of {', '.join(labels[:3])}{' and others' if len(labels) > 3 else ''}"
    return figure(
        lambda width: dots(labels, series, title=title, description=_share(shown[0]), width=width),
        caption,
        table(["release", _SIZE, _NOISE], rows, caption),
    )


def _share(release: Mapping[str, Any]) -> str:
    rms, std = float(release["rms"]), float(release["noise_std"])
    if rms == 0:
        return f"In {release.get('name')} nothing but zeros was released."
    return f"In {release.get('name')} the noise is {number(100 * std / rms, 2)} % of the size of what was released."


def metrics(found: Mapping[str, Any] | None) -> str:
    """Errors against the truth, which exist only where the data was generated."""
    names = {
        "error": "this run, private",
        "nonprivate_error": "the same without privacy",
        "trivial_error": "the trivial answer",
    }
    rows = [(label, float(found[key])) for key, label in names.items() if found.get(key) is not None] if found else []
    if not found or not rows:
        return ""
    what = str(found.get("what") or "error")
    caption = f"Measured: {what}. Smaller is better."
    labels, values = [label for label, _ in rows], [value for _, value in rows]
    # sizes of a hundredth would be invisible as lengths
    positive = [v for v in values if v > 0]
    log = len(positive) == len(values) and max(values) > 20 * min(values)
    return "<p>The data of this run was generated, so the truth is known. Real data has no such section.</p>" + figure(
        lambda width: dots(
            labels,
            [Series("error", values)],
            title="Dot chart: error of the run, without privacy, and of the trivial answer",
            description="; ".join(f"{label}: {number(value, 3)}" for label, value in rows) + ".",
            width=width,
            log=log,
        ),
        caption,
        table(["result", "error"], rows, caption),
    )


def _thinned(count: int) -> list[int]:
    """Indices of at most `_MOST_POINTS` of ``count``, evenly, with the first and the last."""
    return sorted({round(i) for i in np.linspace(0, count - 1, min(count, _MOST_POINTS))})


def expected(outlook: Mapping[str, Any] | None, after: float | None) -> str:
    """What public numbers said of the error before the fit, with its warnings, and what the releases said after it.

    Parameters
    ----------
    outlook : mapping or None
        Of the record of a run: that which its plan has.
    after : float or None
        ``expected_error`` of the record.
    """
    if not outlook or outlook["predicted_error"] is None:
        return ""
    low, high, trivial = outlook["low"], outlook["high"], outlook["trivial_error"]
    before = number(outlook["predicted_error"], 3)
    if low is not None:
        before = f"{number(low, 2)} to {number(high, 2)}; {outlook['unknown']} makes it wide"
    rows = [
        ("before the fit, from public numbers", before),
        ("after it, from what was released", None if after is None else number(after, 3)),
        ("ignoring the data, at most", None if trivial is None else number(trivial, 3)),
        ("what it measures", outlook["what"]),
    ]
    told = "".join(warning("Before the charge:", f"{text}.") for text in outlook["warnings"])
    return told + facts([(name, value) for name, value in rows if value is not None], "The error that was expected")


def intervals(found: Mapping[str, Any] | None) -> str:
    """Estimates with intervals, as a picture and as the table that a summary prints; or why there are none.

    Parameters
    ----------
    found : mapping or None
        ``inference`` of the record of a run.
    """
    if not found:
        return ""
    if "none" in found:
        return f"<p>No standard errors: {escape(found['none'])}.</p>"
    rows, level = found["rows"], found["level"]
    share = f"{100 * level:g} %"
    keys = ["name", "coefficient", "standard_error", "z", "p", "low", "high"]
    cells = [
        [*(row[key] for key in keys), None if row["noise_share"] is None else f"{row['noise_share']:.0%}"]
        for row in rows
    ]
    head = ["", "coefficient", "standard error", "z", "p", "lower end", "upper end", "due to noise"]
    caption = f"Estimates with intervals of {share}, the noise of privacy included"
    data = table(head, cells, caption)
    shown = [row for row in rows if None not in (row["coefficient"], row["low"], row["high"])]
    shown = sorted(shown, key=lambda row: -abs(row["coefficient"]))[:LARGEST]
    if not shown:
        return data
    labels, values = [row["name"] for row in shown], [row["coefficient"] for row in shown]
    whiskers = [(row["high"] - row["low"]) / 2 for row in shown]
    away = sum(row["low"] > 0 or row["high"] < 0 for row in rows)
    said = f"{away} of {len(rows)} intervals do not contain 0."
    more = "" if len(shown) == len(rows) else f" The {len(shown)} largest of {len(rows)} are drawn."
    picture = figure(
        lambda width: bars(
            labels, values, title=f"Bar chart: {caption}", description=said, width=width, whisker=whiskers
        ),
        f"{caption}. {said}{more}",
        data,
        "Show estimates, standard errors and tests as a table",
    )
    notes = "".join(f'<p class="soft">{escape(note)}</p>' for note in found.get("notes") or [])
    return picture + notes
