"""That the gate of answers measures, remembers, judges and prints as it says; and what fails today, by name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.benchmarks.answers import command, page, verdicts
from tests.benchmarks.answers.cells import DIFFPRIVLIB, RECORDED, Cell, append, cells, missing, quick, read, run
from tests.benchmarks.answers.problems import HELD_OUT, LAWS, NEWTON, PURSUIT, RULE_OF, STATISTICS, generated
from tests.benchmarks.answers.real_tables import TABLES, loaded, real

KNOWN_FAILURES = Path(__file__).with_name("known_failures.txt")
"""What fails in the recorded results, a line each; edited by hand whenever results are recorded anew."""


def recorded() -> list[verdicts.Judged]:
    return verdicts.judged(cells(), read(RECORDED), read(DIFFPRIVLIB))


def known() -> list[str]:
    return KNOWN_FAILURES.read_text().splitlines()


# -- what is recorded ---------------------------------------------------------------------------------------------


def test_every_failure_is_known_and_every_known_one_still_fails():
    assert sorted(verdicts.failures(recorded())) == sorted(known())


def test_the_page_shows_what_is_recorded():
    assert page.between_markers(page.PAGE.read_text()) == page.markdown(recorded()).strip("\n")


def test_all_that_is_recorded_is_asked_for():
    names = {cell.name for cell in cells()}
    assert set(read(RECORDED)) <= names
    assert set(read(DIFFPRIVLIB)) <= names


def test_the_quick_part_is_recorded():
    assert not list(missing(quick(), RECORDED))


@pytest.mark.slow
def test_the_quick_part_fails_where_it_is_known_to(tmp_path, capsys):
    fresh = tmp_path / "fresh.jsonl"
    status = command.main(["--quick", "--results", str(fresh)])
    lines = read(fresh)
    assert set(lines) == {cell.name for cell in quick()}
    found = verdicts.failures(verdicts.judged(quick(), lines, read(DIFFPRIVLIB)))
    assert status == bool(found)
    assert {f for f in found if f.split(": ")[0] in lines} == {f for f in known() if f.split(": ")[0] in lines}


# -- what counts --------------------------------------------------------------------------------------------------

CHOSEN_ON = {"isotropic", "spectrum 1/j", "AR(.8)", "8 % positives", "0/1 columns", "scaled by 3"}
"""Generators on which the constants of Newton steps and sufficient statistics were chosen."""
CHOSEN_ON_TABLES = {("nycflights13", "flights"), ("DAAG", "nassCDS"), ("sampleSelection", "nlswork")}


def test_no_rule_is_judged_on_what_it_was_chosen_on():
    chosen_rows = {LAWS[name].rows for name in CHOSEN_ON}
    for problem in generated():
        if RULE_OF[problem.family] in (NEWTON, STATISTICS):
            assert problem.counts == (problem.law not in CHOSEN_ON)
            assert not problem.counts or LAWS[problem.law].rows not in chosen_rows, "the same rows under another name"
        elif RULE_OF[problem.family] == PURSUIT:
            assert problem.counts == (problem.law not in {"AR(.8)", "0/1 columns", "counts"})
        else:
            assert problem.counts == (problem.law.split(",")[0] not in {"AR(.8)", "0/1 columns"})
    for problem in real():
        assert problem.counts == (TABLES[problem.law].source not in CHOSEN_ON_TABLES)


def test_what_does_not_count_fails_nothing():
    cell = _cell("isotropic")
    bad = verdicts.Judged(cell, _line(cell.name, auto=[5.0] * 5), None)
    assert "constant" in _broken(cell, bad.line)
    assert verdicts.failures([bad]) == []


def test_six_tables_and_more_count():
    assert len({TABLES[p.law].source for p in real() if p.counts}) >= 6


@pytest.mark.parametrize("problem", [p for p in real() if p.n_rows < 30_000], ids=lambda p: p.law)
def test_tables_keep_their_public_bounds(problem):
    X, y = loaded(problem.law)
    assert len(X) - int(0.2 * len(X)) == problem.n_rows and X.shape[1] == problem.n_features
    assert np.isfinite(X).all() and np.abs(X).max() <= 1
    assert np.linalg.norm(X, axis=1).max() <= problem.bounds["row_norm"] * (1 + 1e-12)
    assert np.abs(y).max() <= 1
    assert len(np.unique(y)) == 2 or problem.family == "squared"


def test_a_seed_draws_the_same_rows_again_and_other_seeds_others():
    for problem in generated():
        if problem.n_rows * problem.n_features <= 200_000:
            first, again, other = problem.draw(0), problem.draw(0), problem.draw(1)
            assert np.array_equal(first.X, again.X) and np.array_equal(first.y, again.y)
            assert not np.array_equal(first.X, other.X)
            assert len(first.X) == problem.n_rows and len(first.y_test) == HELD_OUT


# -- how it is judged -----------------------------------------------------------------------------------------------


def test_worse_needs_the_margin_and_two_standard_errors():
    theirs = np.zeros(5)
    assert verdicts.worse(np.full(5, 0.2), theirs, 0.1)
    assert not verdicts.worse(np.full(5, 0.05), theirs, 0.1)
    assert not verdicts.worse(np.array([2.0, -1, 0, 1, -1]), theirs, 0.1), "twice the margin, in the noise"


def test_one_seed_that_runs_away_does_not_save_us():
    ours, theirs = np.full(5, 0.5), np.array([0.4, 0.41, 40.0, 0.4, 0.39])
    assert verdicts.worse_in_the_middle(ours, theirs, 0.002)
    assert not verdicts.worse(ours, theirs, 0.002)


def _line(name, *, auto, best=None, constant=0.7, floor=0.4, passes=7.0):
    record = {"solver": "newton", "before": 0.01, "after": [0.01] * 5, "passes": passes, "seconds": 1.0}
    own = {"auto": record | {"error": auto}, "other": record | {"error": best or auto}}
    return {"cell": name, "constant": [constant] * 5, "not private": [floor] * 5, "bounded": [floor] * 5, "own": own}


def _cell(law="counts", n=10_000, d=10, epsilon=1.0, family="logistic"):
    return next(c for c in cells() if (c.problem.law, c.problem.n_rows, c.problem.n_features) == (law, n, d)
                and c.epsilon == epsilon and c.problem.family == family)  # fmt: skip


def _broken(cell, line, theirs=None, others=()):
    judged = verdicts.Judged(cell, line, theirs)
    return set(verdicts.broken(judged, [judged, *others]))


def test_each_rule_fails_alone():
    cell = _cell()
    assert not _broken(cell, _line(cell.name, auto=[0.41] * 5), [0.41] * 5)
    assert _broken(cell, _line(cell.name, auto=[0.71] * 5)) == {"constant"}
    assert _broken(cell, _line(cell.name, auto=[0.702] * 5, floor=0.69, best=[0.702] * 5)) == {"gain"}
    assert _broken(cell, _line(cell.name, auto=[0.41] * 5), [0.407] * 5) == {"diffprivlib"}
    assert _broken(cell, _line(cell.name, auto=[0.43] * 5, best=[0.41] * 5)) == {"best own"}
    less = verdicts.Judged(_cell(epsilon=0.1), _line("less", auto=[0.40] * 5), None)
    assert _broken(cell, _line(cell.name, auto=[0.41] * 5), others=[less]) == {"more epsilon"}
    many = _cell(n=100_000)
    assert _broken(many, _line(many.name, auto=[0.41] * 5, passes=13.0)) == {"passes"}
    few = verdicts.Judged(cell, _line(cell.name, auto=[0.40] * 5), None)
    assert _broken(many, _line(many.name, auto=[0.41] * 5), others=[few]) == {"more rows"}
    right = verdicts.Judged(_cell("three factors", 20_000, family="robust"), _line("right", auto=[0.1] * 5), None)
    wrong = _cell("three factors, guess 10", 20_000, family="robust")
    assert _broken(wrong, _line(wrong.name, auto=[0.25] * 5), others=[right]) == {"guess"}
    squared = _cell(n=100_000, family="squared")
    assert _broken(squared, _line(squared.name, auto=[0.43] * 5, constant=1.0)) == {"not private"}
    statistics = {**_line(squared.name, auto=[0.42] * 5, constant=1.0), "adassp": [0.40] * 5}
    assert _broken(squared, statistics) == {"adassp"}


def test_predictions_are_compared_with_the_mean_excess():
    cell = _cell()
    line = _line(cell.name, auto=[0.41] * 5)
    judged = verdicts.Judged(cell, line, None)
    assert judged.after == pytest.approx(1.0) and judged.before
    none = verdicts.Judged(cell, _line(cell.name, auto=[0.4] * 5), None)
    assert none.after is None and none.before is None, "no excess to speak of"
    far = {**line, "own": {**line["own"], "auto": {**line["own"]["auto"], "after": [0.1] * 5}}}
    said, holds = verdicts.overall([verdicts.Judged(cell, far, None)])["predicted error after the fit"]
    assert said.startswith("0 of 1") and not holds
    for told, contains in (([0.005, 0.02], True), ([0.011, 0.02], False), (0.004, True), (0.003, False)):
        ranged = {**line, "own": {**line["own"], "auto": {**line["own"]["auto"], "before": told}}}
        assert verdicts.Judged(cell, ranged, None).before is contains


# -- how it is run ------------------------------------------------------------------------------------------------


def test_a_cell_that_is_there_is_not_run_again(tmp_path, monkeypatch, capsys):
    asked = []

    def measured(cell: Cell):
        asked.append(cell.name)
        if len(asked) == 3:
            raise KeyboardInterrupt
        return _line(cell.name, auto=[0.41] * 5)

    results = tmp_path / "results.jsonl"
    monkeypatch.setattr(command, "run", measured)
    with pytest.raises(KeyboardInterrupt):
        command.main(["--quick", "--results", str(results)])
    interrupted = asked.copy()
    command.main(["--quick", "--results", str(results)])
    names = [cell.name for cell in quick()]
    assert interrupted == names[:3] and asked == [*names[:3], *names[2:]]
    before = page.PAGE.read_bytes()
    command.main(["--quick", "--results", str(results)])
    assert len(asked) == len(names) + 1 and page.PAGE.read_bytes() == before, "other results are not those of the page"
    assert names[0] in capsys.readouterr().out


def test_a_cell_has_everybodys_errors_and_is_the_same_when_run_again(tmp_path):
    cell = next(c for c in quick() if c.problem.law == "CPS1988: log wage" and c.epsilon == 1.0)
    small = Cell(replace(cell.problem, draw=lambda seed: _first_rows(cell.problem.draw(seed))), cell.epsilon)
    first, again = run(small), run(small)
    assert set(first) == {"cell", "constant", "not private", "bounded", "adassp", "own"}
    assert set(first["own"]) == {"auto", "gradient", "accelerated, 60 rounds", "huber"}
    assert first["own"]["auto"]["solver"] == "sufficient-statistics"
    for name, record in first["own"].items():
        assert record["error"] == again["own"][name]["error"], name
        assert len(set(record["error"])) == 5
    path = tmp_path / "cells.jsonl"
    append(path, first)
    assert read(path) == {cell.name: first} and cell not in list(missing([cell], path))


def _first_rows(split):
    return replace(split, X=split.X[:2000], y=split.y[:2000], X_test=split.X_test[:2000], y_test=split.y_test[:2000])
