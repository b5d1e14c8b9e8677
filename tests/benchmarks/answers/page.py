"""The table of all cells, and that of the page, which is written between two markers."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from tests.benchmarks.answers.verdicts import RULES, Judged, broken, failures, overall

PAGE = Path(__file__).parents[3] / "deploy" / "site" / "benchmarks.md"
BEGIN, END = "<!-- answers: python -m tests.benchmarks answers -->", "<!-- end of answers -->"


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.1e}" if abs(value) >= 100 else f"{value:.4f}"


def table(found: Sequence[Judged]) -> Iterator[str]:
    """One line for each cell: errors, predictions, passes, and what fails."""
    columns = ("no privacy", "constant", "default", "+-", "at least", "at most", "after", "passes", "best own", "rival")
    yield f"{'cell':50}" + "".join(f"{name:>11}" for name in columns) + "  best own solver, fails"
    for j in found:
        record = j.line["own"]["auto"]
        name, best = j.best
        after = None if record["after"] is None else float(np.mean(record["after"]))
        values = (
            float(np.mean(j.line["not private"])),
            float(j.constant.mean()),
            float(j.default.mean()),
            float(j.default.std(ddof=1) / len(j.default) ** 0.5),
            *(record["before"] if isinstance(record["before"], list) else [record["before"]] * 2),
            after,
            record["passes"],
            float(best.mean()),
            _rival(j),
        )
        verdicts = ", ".join(broken(j, found)) or "-"
        shown = verdicts if j.cell.problem.counts else f"(not counted: {verdicts})"
        yield f"{j.cell.name:50}" + "".join(f"{_number(v):>11}" for v in values) + f"  {name}; {shown}"


def summary(found: Sequence[Judged]) -> Iterator[str]:
    """Shares over all cells, and what fails by name."""
    for name, (said, holds) in overall(found).items():
        yield f"{'' if holds else 'FAILS '}{name}: {said}"
    named = failures(found)
    yield f"{len(named)} failures" if named else "the gate holds"
    yield from named


# -- the page --------------------------------------------------------------------------------------------------------


def _group(j: Judged) -> tuple[str, str]:
    problem = j.cell.problem
    if problem.real:
        return problem.family, f"{problem.law}, {problem.n_rows} x {problem.n_features}"
    kind = "nearly separable law" if problem.separable else "laws" if problem.counts else "laws of the rules"
    if problem.family == "robust":  # where some diverge, means say nothing
        kind = problem.law
    return problem.family, f"{kind}, {problem.n_rows} x {problem.n_features}"


def _three(cells: Iterable[Judged], value: object) -> str:
    by_epsilon: dict[float, list[float]] = {}
    for j in cells:
        number = value(j)  # type: ignore[operator]
        if number is not None:
            by_epsilon.setdefault(j.cell.epsilon, []).append(number)
    return " / ".join(_short(float(np.mean(v))) for _, v in sorted(by_epsilon.items())) or "-"


def _short(value: float) -> str:
    if abs(value) < 5e-5:
        return "0"
    return f"{value:.0f}" if abs(value) >= 10 else f"{value:.2g}" if abs(value) >= 0.01 else f"{value:.4f}"


def _rival(j: Judged) -> float | None:
    """Medians of diffprivlib, which runs away on some seeds; the mean of adaptive sufficient statistics."""
    if j.diffprivlib is not None:
        return float(np.median(j.diffprivlib))
    return float(np.mean(j.line["adassp"])) if "adassp" in j.line else None


def _middle(j: Judged) -> float:
    return float(np.mean(j.floor) if j.diffprivlib is None else np.median(j.floor))


def _fails(cells: Sequence[Judged], found: Sequence[Judged]) -> str:
    told: dict[str, list[str]] = {}
    for j in cells:
        where = f"{'' if j.cell.problem.real else j.cell.problem.law + ' '}{j.cell.epsilon:g}"
        for rule in broken(j, found):
            told.setdefault(rule, []).append(where)
    return "; ".join(f"{rule} ({', '.join(wheres)})" for rule, wheres in told.items()) or "none"


TITLES = {
    "logistic": "log-loss", "squared": "squared error", "robust": "robust", "sparse": "few coefficients",
    "sparse classes": "few coefficients, log-loss", "hinge": "support vectors, wrong classes",
    "four classes": "four classes, log-loss",
}  # fmt: skip


def markdown(found: Sequence[Judged]) -> str:
    """What stands between the markers."""
    head = ("", "rows x columns", "constant", "default", "best own solver", "rival", "what fails, and at which epsilon")
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    by_group = sorted(found, key=lambda j: (list(TITLES).index(_group(j)[0]), not j.cell.problem.counts))
    groups: dict[tuple[str, str, bool], list[Judged]] = {}
    for j in by_group:
        groups.setdefault((*_group(j), j.cell.problem.counts), []).append(j)
    for (family, name, counts), cells in groups.items():
        means = [
            _three(cells, lambda j: float((j.constant - j.floor).mean())),
            _three(cells, lambda j: float((j.default - j.floor).mean())),
            _three(cells, lambda j: float((j.best[1] - j.floor).mean()) if len(j.own) > 1 else None),
            _three(cells, lambda j: None if _rival(j) is None else _rival(j) - _middle(j)),
        ]
        last = _fails(cells, found) if counts else "(not counted)"
        lines.append(f"| {TITLES[family]} | {name} | {' | '.join(means)} | {last} |")
    named = failures(found)
    cells_missed = len({name.split(": ")[0] for name in named if not name.startswith("overall")})
    counting = sum(j.cell.problem.counts for j in found)
    said = [f"- {name}: {told}{'' if holds else ' (**fails**)'}" for name, (told, holds) in overall(found).items()]
    kinds = [f"*{rule}*: {sentence}" for rule, sentence in RULES.items()]
    gate = f"**{cells_missed} of the {counting} cells that count fail in some way.**" if named else "All cells hold."
    return "\n".join([*lines, "", gate, "", *said, "", f"What fails means: {'; '.join(kinds)}.", ""])


def between_markers(text: str) -> str:
    """What a page has there now."""
    return text.split(BEGIN, 1)[1].split(END, 1)[0].strip("\n")


def write(found: Sequence[Judged], path: Path = PAGE) -> None:
    """Put the table where the markers are."""
    before, rest = path.read_text().split(BEGIN, 1)
    _, after = rest.split(END, 1)
    path.write_text("".join(itertools.chain(before, BEGIN, "\n", markdown(found), END, after)))
