"""``report.html``: one file that says what was asked, what was released, what that cost and what it is worth.

It needs no script, no network and no font of its own, follows the reader's light or dark scheme, and is made from
``run.json`` and the released arrays alone: there is nothing in it that was not public or released. Everything in those
files is escaped. Parts of the record that a method does not have (history, metrics, a limit ...) leave out their
section.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from dpdist.charts import figure, shares, span
from dpdist.data.encoding import Encoding
from dpdist.estimators.representation import released
from dpdist.html import STYLE, Markup, cell, details, escape, facts, number, percent, records, scrolling, table, warning
from dpdist.privacy.guarantee import rounded_up, suspicion
from dpdist.reports import pictures
from dpdist.reports.crowd_pictures import crowd
from dpdist.reports.mixture_pictures import components
from dpdist.reports.plain_words import in_plain_words
from dpdist.reports.unit_table import UnitTable
from dpdist.runs.directory import RECORD, OutputError, output_error, read_arrays, read_run
from dpdist.runs.simulated_fits import with_simulated
from dpdist.runs.storage import Arrays, ResultStoreError, result_store

REPORT = "report.html"


def write_report(location: str | os.PathLike[str]) -> str | Path:
    """Render the report of a run and put it beside its record as ``report.html``.

    Parameters
    ----------
    location : path or address
        A run directory, or one in an object store, with ``run.json``, and ``released.zarr`` if the run has released
        anything.

    Returns
    -------
    Path or str
        Of the report. An earlier one is replaced as a whole.

    Raises
    ------
    OutputError
        If the directory is not a run's, is damaged, or cannot be written to.
    """
    store = result_store(location)
    run = with_simulated(location, read_run(location))
    name = (run.get("released") or {}).get("path")
    arrays = {} if name is None else read_arrays(store, name)
    try:
        page = render(run, arrays)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        raise OutputError(
            f"{store.shown(RECORD)} cannot be rendered: it is not what dpdist run writes ({type(error).__name__})"
        ) from error
    path = store.shown(REPORT)
    try:
        store.replace(REPORT, page.encode())
    except ResultStoreError as error:
        fix = error.fix or "make room, or make the directory writable"
        raise output_error(error, f"the report cannot be written to {path} ({error.why}): {fix}") from None
    return path


def render(run: Mapping[str, Any], arrays: Arrays) -> str:
    """The page, from the record of a run and its released arrays (``history`` are the released iterates)."""
    sections = [
        ("asked", "What was asked", _asked(run)),
        ("released", "What was released", _released(run, arrays)),
        ("sure", "How sure it is", _sure(run)),
        ("expected", "What was expected", pictures.expected(run.get("outlook"), run.get("expected_error"))),
        ("units", "In the units of the table", _units(run)),
        ("crowd", "Labels and users", crowd(arrays)),
        ("components", "Components", components(run, arrays)),
        ("guarantee", "What is guaranteed", _guarantee(run)),
        ("budget", "Budget before and after", _budget(run)),
        ("convergence", "Convergence", pictures.convergence(_rounds(run, arrays))),
        ("noise", "Noise against signal", pictures.noise(run.get("releases") or [])),
        ("metrics", "How good it is", pictures.metrics(run.get("metrics"))),
        ("plan", "The plan", _plan(run)),
        ("provenance", "Provenance", _provenance(run)),
    ]
    kept = [(key, title, body) for key, title, body in sections if body]
    links = "".join(f'<li><a href="#{key}">{title}</a></li>' for key, title, _ in kept)
    content = "".join(
        f'<section aria-labelledby="{key}"><h2 id="{key}">{title}</h2>{body}</section>' for key, title, body in kept
    )
    title = escape(f"{run.get('title') or run.get('id') or 'Run'}: report")
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        # a browser asks for an icon unless it is told that there is none
        f'<link rel="icon" href="data:,"><title>{title}</title><style>{STYLE}{_PAGE}</style></head>'
        f'<body class="dpdist"><header>{_head(run)}</header><nav aria-label="Contents"><ol>{links}</ol></nav>'
        f"<main>{content}</main>"
        f"<footer><p>{escape(_footer(run))}</p></footer></body></html>\n"
    )


def _head(run: Mapping[str, Any]) -> str:
    guarantee, data = run.get("guarantee") or {}, run.get("dataset") or {}
    rows = data.get("n_rows")
    about = str(run.get("estimator") or run.get("id") or "A run")
    if "id" in data:
        about += f" of dataset {data['id']}"
        about += ", a private number of rows" if rows is None else f", {number(rows)} rows"
    tiles = [
        ("epsilon", rounded_up(guarantee["epsilon"]) if "epsilon" in guarantee else None),
        ("delta", rounded_up(guarantee["delta"]) if "delta" in guarantee else None),
        ("releases", _short(guarantee.get("n_releases"))),
        ("rounds", _short(run.get("rounds"))),
        ("data passes", _short(run.get("passes"))),
        ("seconds", _short(run.get("seconds"))),
    ]
    shown = "".join(f"<div><dt>{name}</dt><dd>{escape(v)}</dd></div>" for name, v in tiles if v is not None)
    banners = []
    if run.get("status", "done") != "done":
        banners.append(
            warning(
                "Not finished.",
                f"The status of this run is “{run.get('status')}”. What it had been charged by then stays charged; "
                "go on with it by dpdist run --resume.",
            )
        )
    if run.get("simulation") or guarantee.get("simulation"):
        banners.append(
            warning(
                "Simulation.",
                "The noise came from a seed and can be removed again by anybody who knows it. No guarantee holds; the "
                "numbers say what would hold with secret noise.",
            )
        )
    return (
        f'<p class="soft">dpdist report &middot; {escape(run.get("id", ""))}</p>'
        f"<h1>{escape(run.get('title') or run.get('id') or 'Run')}</h1>"
        f'<p class="lead">{escape(about)}.</p><dl class="tiles">{shown}</dl>{"".join(banners)}'
    )


def _short(value: Any) -> str | None:
    return None if value is None else number(value, 3)


def _asked(run: Mapping[str, Any]) -> str:
    asked = run.get("asked") or {}
    if not asked:
        return ""
    rows = [(key, _plain(value)) for key, value in _flat("", asked)]
    text = yaml.safe_dump(json.loads(json.dumps(asked)), sort_keys=False, allow_unicode=True, default_flow_style=None)
    job = scrolling(f"<pre><code>{escape(text)}</code></pre>", "The job as YAML")
    return facts(rows, "The job as it was run") + details("The same as a job file (YAML)", job)


def _flat(path: str, value: Any) -> list[tuple[str, Any]]:
    """Nested mappings as one list of dotted keys, as ``--set`` takes them."""
    if isinstance(value, Mapping) and value:
        return [pair for key, v in value.items() for pair in _flat(f"{path}.{key}" if path else str(key), v)]
    return [(path, value)]


def _plain(value: Any) -> Any:
    return ", ".join(map(str, value)) if isinstance(value, list) else value if value != {} else None


def _released(run: Mapping[str, Any], arrays: Arrays) -> str:
    described = (run.get("released") or {}).get("arrays") or {}
    params = (run.get("asked") or {}).get("params") or {}
    columns = params.get("categories") or ((run.get("dataset") or {}).get("columns") or {}).get("X") or ()
    classes = params.get("classes") or ()
    parts, single = [], []
    for name in sorted(arrays.keys() - {"history"}, key=[*described, *arrays].index):
        values, noise_std = arrays[name], (described.get(name) or {}).get("noise_std")
        if values.size == 1:
            error = "" if noise_std is None else f" (its noise has standard deviation {number(noise_std)})"
            single.append((name, cell(values.ravel()[0].item()) + error))
            continue
        shape = " x ".join(map(str, values.shape))
        names: Sequence[str] = columns if values.ndim and name != "intercept" else ()
        parts.append(f'<h3>{escape(name)} <span class="soft">{shape}</span></h3>')
        parts.append(released(name, values, names, classes, noise_std))
    if not parts and not single:
        return "<p>This run released no arrays.</p>"
    if single:
        parts.append(facts([(name, Markup(value)) for name, value in single], "Single numbers"))
    path = (run.get("released") or {}).get("path")
    where = "" if path is None else f'<p class="soft">All of them are in {escape(path)} beside this report.</p>'
    noise = "noise from a seed and no guarantee" if run.get("simulation") else "their noise; the guarantee covers them"
    made = [(one["id"], one["title"], one["estimator"]) for one in run.get("then") or ()]
    if made:
        caption = "Made of the second moment, at no further cost; their arrays begin with the method"
        noise += f".</p>{table(['method', 'what it is', 'estimator'], made, caption)}<p>All have the same guarantee"
    return f"<p>These values carry {noise}.</p>" + "".join(parts) + where


def _sure(run: Mapping[str, Any]) -> str:
    """Estimates with intervals, by formula and by fits to rows of the fitted law; or why there are none."""
    again = run.get("bootstrap")
    if not again:
        return pictures.intervals(run.get("inference"))
    said = "<h3>By fits to rows of its own law</h3><p>Estimates without the bias of the method, at no further cost.</p>"
    return pictures.intervals(run.get("inference")) + said + pictures.intervals(again["inference"])


def _units(run: Mapping[str, Any]) -> str:
    """What was declared of the columns, and the coefficients, or means, in their units."""
    stored = (run.get("dataset") or {}).get("encoding")
    if not stored:
        return ""
    declared = Encoding.from_attributes(stored).described()
    caption = "What was declared of the columns of the table, before anything was read"
    parts = [table(["column", "declared"], [list(pair) for pair in declared.items()], caption)] if declared else []
    if (found := UnitTable.of(run)) is not None:
        parts.append(table(found.head, found.rows, found.caption))
    return "".join(parts)


def _guarantee(run: Mapping[str, Any]) -> str:
    held = run.get("guarantee") or {}
    if "epsilon" not in held or "delta" not in held:
        return ""
    epsilon, delta = float(held["epsilon"]), float(held["delta"])
    unit = str(held.get("unit", "row"))
    furthest, chance = suspicion(epsilon, delta)
    low, high = percent(1 - furthest), percent(furthest)
    plain = in_plain_words(held, unit, epsilon, delta)
    if held.get("simulation"):
        plain = f"Nothing of this holds for a simulation; with secret noise it would. {plain}"
    if chance == 0:
        plain += f" Whatever came out, the suspicion is between {low} and {high} afterwards."
    elif chance <= 0.1:
        plain += (
            f" The suspicion moves beyond {high}, or below {low}, with a chance of at most {number(chance, 3)} each: "
            "that is what delta leaves room for."
        )
    else:
        plain += f" A delta of {number(delta)} is so large that nothing can be said about a single outcome."
    caption = f"How far a suspicion of 50 % about one {unit} can move" + (
        f", except with a chance of at most {number(chance, 3)}." if chance else "."
    )
    ends = [("at least", low), ("before", "50 %"), ("at most", high)]
    picture = figure(
        lambda width: span(
            1 - furthest,
            0.5,
            furthest,
            title=f"Scale: a suspicion of 50 % moves to between {low} and {high}",
            description=caption,
            width=width,
        ),
        caption,
        table(["the suspicion", "chance"], ends, caption),
    )
    numbers = facts(
        [
            ("epsilon", rounded_up(epsilon)),
            ("delta", rounded_up(delta)),
            ("who is trusted", "nobody (local model)" if held.get("model") == "local" else "who ran the job (central)"),
            ("neighbouring datasets", f"{held.get('relation')} ({unit})"),
            ("added up by the accountant", held.get("accountant")),
            ("what was released", held.get("mechanisms")),
            ("simulation", bool(held.get("simulation"))),
        ],
        "The guarantee in numbers",
    )
    return (
        f'<p class="statement">{escape(held.get("text", ""))}</p><h3>In plain words</h3><p>{escape(plain)}</p>'
        f"{picture if chance <= 0.1 else ''}{numbers}"
    )


def _budget(run: Mapping[str, Any]) -> str:
    budget = run.get("budget") or {}
    before, after, limit = (budget.get(key) or {} for key in ("before", "after", "limit"))
    if not after:
        return ""
    rows: list[list[object]] = []
    drawn: list[tuple[str, Sequence[float], float]] = []
    for key in ("epsilon", "delta"):
        spent, now = float(before.get(key) or 0), float(after.get(key) or 0)
        rows.append([key, spent, now - spent, now])
        if limit:
            whole = float(limit[key])
            rows[-1] += [whole, max(whole - now, 0.0)]
            if whole > 0:
                drawn.append((f"{key}: {number(now)} of {number(whole)} spent", (spent, now - spent), whole))
    head = ["", "before this run", "this run", "after"] + (["limit", "left"] if limit else [])
    data = table(head, rows, "What has been spent on this dataset, all runs together")
    kept = [f"{name.title()}: {escape(budget[name])}" for name in ("ledger", "journal") if budget.get(name)]
    where = f'<p class="soft">{"; ".join(kept)}</p>' if kept else ""
    if not limit:
        note = "No limit is set for this dataset: spending is recorded, not limited. Set one with dpdist budget set."
        return f"<p>{note}</p>{data}{where}"
    names = ["before this run", "this run"]
    caption = "What has been spent on this dataset, as a share of its limit."
    said = "; ".join(label for label, _, _ in drawn)
    picture = figure(
        lambda width: shares(drawn, names, title=f"Budget: {said}", description=caption, width=width), caption, data
    )
    return picture + where


def _rounds(run: Mapping[str, Any], arrays: Arrays) -> NDArray[np.float64]:
    """One row per round: the released iterates, those of several binary problems side by side."""
    history = arrays.get("history")
    if history is None or history.ndim < 2 or history.dtype.kind not in "fiu":
        return np.empty((0, 0))
    coef = arrays.get("coef")
    problems = coef.shape[0] if coef is not None and coef.ndim == 2 else 1
    length, rest = len(history), len(history) % problems
    flat = history.reshape(length, -1).astype(np.float64)
    if problems == 1 or rest:
        return flat
    # problem after problem, each with all its rounds
    return flat.reshape(problems, length // problems, -1).swapaxes(0, 1).reshape(length // problems, -1)


def _plan(run: Mapping[str, Any]) -> str:
    items = (run.get("plan") or {}).get("items") or []
    if not items:
        return ""
    accountant = (run.get("plan") or {}).get("accountant")
    caption = f"Fixed from public numbers before any row was read; added up by {accountant}"
    return records(items, caption)


def _provenance(run: Mapping[str, Any]) -> str:
    data, environment = run.get("dataset") or {}, run.get("environment") or {}
    about = [
        ("run", run.get("run_id")),
        ("status", run.get("status")),
        ("started", run.get("started")),
        ("finished", run.get("finished")),
        ("dataset", data.get("id")),
        ("account", data.get("account")),
        ("source", data.get("source")),
        ("rows", "private" if data.get("n_rows") is None else data["n_rows"]),
        ("privacy unit", data.get("unit")),
        ("most rows of one unit", data.get("max_rows_per_unit")),
    ]
    arrays = [
        (name, spec.get("dtype"), " x ".join("private" if k is None else str(k) for k in spec.get("shape") or []))
        for name, spec in (data.get("arrays") or {}).items()
    ]
    parts = [facts([(k, v) for k, v in about if v is not None], "The run and its data")]
    if arrays:
        parts.append(table(["array", "dtype", "shape"], arrays, "Arrays that were read"))
    if environment:
        parts.append(facts(environment.items(), "Software"))
    return "".join(parts)


def _footer(run: Mapping[str, Any]) -> str:
    version = (run.get("environment") or {}).get("dpdist", "")
    return f"Written by dpdist {version}. Everything on this page is public or was released with noise.".replace(
        "  ", " "
    ).replace(" .", ".")


_PAGE = Markup("""
body.dpdist{margin:0;background:var(--page);padding:32px 20px 40px}
.dpdist header,.dpdist nav,.dpdist main,.dpdist footer{max-width:880px;margin:0 auto}
.dpdist h1{font-size:30px;line-height:1.2;font-weight:680;letter-spacing:-.01em;margin:2px 0 6px;overflow-wrap:anywhere}
.dpdist h2{font-size:20px;line-height:1.3;font-weight:650;margin:0 0 14px}
.dpdist h3{font-size:16px;font-weight:650;margin:20px 0 6px}
.dpdist h3 .soft{font-weight:400;margin-left:6px}
.dpdist .lead{font-size:17px;color:var(--soft);overflow-wrap:anywhere}
.dpdist section .soft{font-size:14px}
.dpdist section p{max-width:68ch;overflow-wrap:anywhere}
.dpdist a{color:var(--link)}
.dpdist .tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(116px,1fr));gap:10px;margin:18px 0}
.dpdist .tiles div{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:10px 14px}
.dpdist dt{font-size:13px;color:var(--soft)}
.dpdist dd{margin:0;font-size:21px;font-weight:600}
.dpdist nav ol{display:flex;flex-wrap:wrap;gap:4px 18px;list-style:none;padding:0;margin:4px 0 20px;font-size:14px}
.dpdist section{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:22px 26px 14px;
margin:0 0 18px}
.dpdist .statement{border-left:4px solid var(--one);padding-left:14px}
.dpdist pre{font:13px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,"Liberation Mono",monospace;margin:0 0 10px}
.dpdist footer p{font-size:13px;color:var(--soft)}
@media (max-width:640px){body.dpdist{padding:18px 12px}.dpdist section{padding:16px 14px 8px}.dpdist h1{font-size:25px}}
@media print{body.dpdist{padding:0;background:none}.dpdist nav,.dpdist details{display:none}
.dpdist section{border:0;padding:0;margin:0 0 20px}.dpdist figure,.dpdist tr,.dpdist .warning{break-inside:avoid}
.dpdist h2,.dpdist h3{break-after:avoid}}
""")
