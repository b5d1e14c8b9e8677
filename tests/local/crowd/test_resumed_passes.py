"""A worker that is lost and a run that is killed draw no second response; what a report tells is audited."""

from __future__ import annotations

import signal
import textwrap
from pathlib import Path

import numpy as np
import pytest

from dpdist import Dataset, Ledger
from dpdist.jobs import audit_local
from dpdist.jobs.audit_local import audit_reports
from dpdist.jobs.job import load_job
from dpdist.local.crowd.answer_passes import AnswerPasses
from dpdist.local.crowd.answer_protocol import AnswerProtocol, SomeReports, Weighted, in_units
from dpdist.local.crowd.crowd_methods import DawidSkene
from dpdist.local.crowd.label_inference import Rule
from dpdist.local.crowd.truth_inference import TruthInference
from dpdist.local.randomisers.answer_responses import BitResponses
from dpdist.local.statistics.task_answers import TaskAnswers
from tests import processes
from tests.cli.command import call

PIPELINES = Path(__file__).parents[3] / "pipelines"


def answers(n, m):
    generator = np.random.default_rng(0)
    truth = generator.integers(0, 2, m)
    return np.where(generator.random((n, m)) < 0.75, truth, 1 - truth)


def test_a_part_that_is_asked_again_has_the_same_responses():
    """What a scheduler does when a worker is lost. The control: a key per task, under which the mean of two tries has
    less noise than was paid for."""
    X = answers(200, 64)
    query = AnswerPasses(AnswerProtocol(TaskAnswers(64), BitResponses(64, 0.5)), rule=Rule(), n_rows=200)
    numbers, scale = in_units(np.column_stack([1 - X.mean(axis=0), X.mean(axis=0)]))
    for request in (SomeReports(tuple(range(200))), Weighted(numbers, scale)):

        def asked(key, request=request):
            found = query.summarise_at(0, {"X": X}, (key, request), None)
            return found[0][1] if isinstance(found, list) else found

        assert np.array_equal(asked(bytes(32)), asked(bytes(32)))
        assert not np.array_equal(asked(bytes(32)), asked(b"another key, for another task!!!"))

    def mean_of_two(*keys):
        reports = [query.summarise_at(0, {"X": X}, (key, SomeReports(tuple(range(200)))), None)[0][1] for key in keys]
        bits = [np.unpackbits(r.astype(np.uint8), axis=1, bitorder="little") for r in reports]
        return np.mean((np.mean(bits, axis=0) - 0.5) ** 2)

    once = mean_of_two(bytes(32), bytes(32))
    assert mean_of_two(bytes(32), b"another key, for another task!!!") < 0.6 * once


SCRIPT = """
    import os, signal
    import numpy as np
    from dpdist import Dataset, Ledger
    from dpdist.local.crowd.answer_passes import AnswerPasses
    from dpdist.local.crowd.crowd_methods import DawidSkene
    from dpdist.local.crowd.truth_inference import TruthInference
    asked, done = AnswerPasses.summarise_at, []
    def dying(self, first, block, state, rows):
        done.append(first)
        if len(done) == 4:
            os.kill(os.getpid(), signal.SIGKILL)
        return asked(self, first, block, state, rows)
    AnswerPasses.summarise_at = dying
    data = Dataset.open({data!r})
    method, ledger = DawidSkene(n_rounds=5), Ledger({ledger!r})
    TruthInference(method, epsilon=1.0, run_id="r", ledger=ledger, cluster="threads").fit(data)
"""


def test_a_run_that_is_killed_in_a_pass_goes_on_under_its_charge(tmp_path):
    """Nobody saw a response of the killed run: nothing was released, and the charge stands for the new ones."""
    X = answers(60, 40)
    Dataset.from_arrays(str(tmp_path / "d.zarr"), X=X)
    script = textwrap.dedent(SCRIPT).format(data=str(tmp_path / "d.zarr"), ledger=str(tmp_path / "l.sqlite"))
    code, said = processes.run(script)
    assert code == -signal.SIGKILL, said[-2000:]
    ledger, data = Ledger(tmp_path / "l.sqlite"), Dataset.open(tmp_path / "d.zarr")
    assert ledger.spent(data.account).epsilon == 40.0, "charged before anything was drawn"
    model = TruthInference(DawidSkene(n_rounds=5), epsilon=1.0, run_id="r", ledger=ledger).fit(data)
    again = TruthInference(DawidSkene(n_rounds=5), epsilon=1.0, run_id="r", ledger=ledger).fit(data)
    assert ledger.spent(data.account).epsilon == 40.0
    assert np.array_equal(model.label_probabilities_, again.label_probabilities_)


@pytest.mark.parametrize(("unit", "paid"), [("row", 40), ("answer", 1)])
def test_an_interrupted_run_says_what_its_account_paid(capsys, monkeypatch, tmp_path, unit, paid):
    """It said epsilon 1, of an answer, where the account of rows had been charged for all forty."""
    Dataset.from_arrays(str(tmp_path / "d.zarr"), X=answers(20, 40), unit=unit)

    def stopped(self, released):
        raise KeyboardInterrupt

    monkeypatch.setattr(AnswerPasses, "found", stopped)
    job, name = tmp_path / "job.yaml", Dataset.open(tmp_path / "d.zarr").id
    data, ledger = tmp_path / "d.zarr", tmp_path / "l.sqlite"
    job.write_text(f"method: ds-auto\ndata: {{path: {data}}}\nbudget: {{epsilon: 1.0}}\nledger: {ledger}\n")
    said = call(capsys, "run", job, "--output", tmp_path / "out", "--quiet")
    assert said.code == 130 and f"Charged to the dataset {name}: epsilon {paid}, delta 0, on file in" in said.err


def test_which_tasks_were_answered_is_no_leak_of_one_report_per_record(monkeypatch):
    """The control: a record without answers that says so, by a report of its own."""
    job = load_job(PIPELINES / "ds-full-ldp.yaml", ["budget.epsilon=1.0"])
    record = audit_reports(job, n_runs=60)
    assert not record["contradicted"], record
    drawn = audit_local._drawn

    def telling(protocol, records, width, n_users):
        found = drawn(protocol, records, width, n_users)
        return found * (0 if np.isnan(records["X"]).all() else 1)

    monkeypatch.setattr(audit_local, "_drawn", telling)
    assert audit_reports(job, n_runs=100)["contradicted"]


def test_an_audit_says_what_all_answers_of_a_record_have():
    record = audit_reports(load_job(PIPELINES / "mv-private.yaml", ["data.d=6"]), n_runs=50)
    assert record["protects"] == {"what": "one answer", "parts": 6} and not record["contradicted"]


def test_neighbours_of_an_audit_differ_in_one_answer():
    model = TruthInference(epsilon=1.0)
    ((one, other),) = model.worst_neighbours(1, 5).values()
    assert (one["X"] != other["X"]).sum() == 1
    assert set(TruthInference(unit="record", epsilon=1.0).worst_neighbours(1, 5)) == {"all answers", "answered or not"}
