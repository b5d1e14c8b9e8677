"""``dpdist question``, ``randomise`` and ``aggregate``: a survey from the question to the estimate."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys

import numpy as np
import pytest

from dpdist import local
from dpdist.data.growing import GrowingGroup
from dpdist.errors import DataError
from dpdist.identity import tagged
from dpdist.jobs import job_data
from dpdist.jobs.job import load_job
from dpdist.jobs.questions import fit_reports
from dpdist.local.randomisers.answer_responses import BitResponses
from dpdist.local.statistics.task_answers import TaskAnswers
from dpdist.local.surfaces.surface_losses import CustomLoss
from dpdist.local.survey.protocol import LocalProtocol
from dpdist.local.survey.questionnaire import Survey
from dpdist.local.survey.wire import decode, report_bytes
from dpdist.privacy.randomness.draws import StreamDraws
from tests.cli.command import call

SECRET = "1234.5678"
DPDIST = [sys.executable, "-m", "dpdist.cli"]


@pytest.fixture
def survey(capsys, tmp_path):
    """The description of a question with three categories."""
    path = tmp_path / "survey.json"
    said = call(capsys, "question", "--categories", "no,yes,unsure", "--epsilon", 4, "--output", path)
    assert said.code == 0 and said.out == said.err == ""
    return path


def test_from_the_question_to_the_estimate(capsys, survey, tmp_path):
    answers = ["no"] * 200 + ["yes"] * 700 + [2] * 100
    (tmp_path / "answers.jsonl").write_text("\n".join(map(json.dumps, answers)))
    store = tmp_path / "reports.zarr"
    said = call(capsys, "randomise", "--protocol", survey, "--input", tmp_path / "answers.jsonl", "--output", store)
    assert (said.code, said.out, said.err) == (0, "", "")

    found = json.loads(call(capsys, "aggregate", "--protocol", survey, store, "--json").out)
    assert found["received"] == found["counted"] == 1000 and set(found["rejected"].values()) == {0}
    error = 6 * found["standard_error"]  # a false alarm has a chance of 1e-8
    assert np.abs(np.array(found["estimate"]) - [0.2, 0.7, 0.1]).max() < error < 0.2
    assert found["guarantee"]["epsilon"] == 4 and found["guarantee"]["model"] == "local"
    assert found["poisoned"]["bound"] == pytest.approx(0.01 / (np.expm1(4.0) / (np.exp(4.0) + 2)), rel=1e-6)

    text = call(capsys, "aggregate", "--protocol", survey, store, "--quiet").out
    assert "1,000 received, 1,000 counted" in text and "Rejected   none" in text and "In the local model" in text
    rows = {
        line.split()[0]: float(line.split()[1]) for line in text.splitlines() if line.startswith(("no ", "yes", "uns"))
    }
    assert list(rows) == ["no", "yes", "unsure"] and max(rows, key=rows.get) == "yes"


def test_reports_as_lines_and_as_bytes(capsys, survey, tmp_path):
    lines = [call(capsys, "randomise", "--protocol", survey, "--value", value).out for value in ("yes", "no", "2", "1")]
    length = report_bytes(Survey.read(survey))
    assert all(len(line) == 2 * length + 1 for line in lines) and len(set(lines)) == 4
    (tmp_path / "all.hex").write_text("".join(lines) + "not hexadecimal\n" + lines[0] + lines[1][:-3] + "\n")
    (tmp_path / "all.bin").write_bytes(b"".join(map(bytes.fromhex, [*lines, lines[0]])) + b"the rest")
    for name, lost in (("all.hex", 2), ("all.bin", 1)):
        found = json.loads(call(capsys, "aggregate", "--protocol", survey, tmp_path / name, "--json").out)
        assert found["counted"] == 4 and found["rejected"]["length"] == lost and found["rejected"]["duplicate"] == 1
        text = call(capsys, "aggregate", "--protocol", survey, tmp_path / name).out
        assert f"{lost} wrong length" in text and "1 duplicate" in text


def test_pipes(survey):
    command = [sys.executable, "-m", "dpdist.cli", "randomise", "--protocol", str(survey), "--input", "-", "--raw"]
    done = subprocess.run(command, input=b'"yes"\n{"X": 0}\nrubbish\n', capture_output=True, timeout=300)
    protocol = Survey.read(survey)
    assert done.returncode == 0 and done.stderr == b"" and len(done.stdout) == 3 * report_bytes(protocol)
    table = np.frombuffer(done.stdout, np.uint8).reshape(3, -1)
    assert decode(protocol, table).counts["valid"] == 3, "a record that is no answer reports, too"


@pytest.mark.parametrize("kind", [["--numbers", 1, "--low", 0, "--high", 10], ["--vector", 2, "--radius", 1]])
@pytest.mark.parametrize(
    "record", [SECRET, f"[{SECRET}]", '"x"', "NaN", "[1,2,3]", "{", '{"y": 1}', "null", "[[1]]", "1e400"]
)
def test_a_record_decides_nothing_but_the_report(capsys, tmp_path, kind, record):
    """Not the length of the output, the exit code, nor a message."""
    assert call(capsys, "question", *kind, "--epsilon", 1, "--output", tmp_path / "q.json").code == 0
    said = call(capsys, "randomise", "--protocol", tmp_path / "q.json", "--record", record)
    survey = Survey.read(tmp_path / "q.json")
    assert said.code == 0 and said.err == "" and len(said.out) == 2 * report_bytes(survey) + 1
    assert decode(survey, [bytes.fromhex(said.out)]).counts["valid"] == 1


@pytest.mark.parametrize("value", ["maybe", SECRET, "3", "1,2", ""])
def test_a_mistyped_value_is_refused_and_not_repeated(capsys, survey, value):
    said = call(capsys, "randomise", "--protocol", survey, "--value", value)
    assert said.code == 2 and said.out == "" and "no category of the question; there are: no, yes, unsure" in said.err
    assert not value or (f"'{value}'" not in said.err and SECRET not in said.err)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--epsilon", 1], "give one of --categories, --n-categories, --numbers, --vector, --tasks, not 0; or a JOB"),
        (
            ["kway-fourier", "--epsilon", 1],
            "--epsilon is for questions without a job: set params, method and budget in",
        ),
        (["--categories", "a,b", "--epsilon", 1, "--n-rows", 9], "--n-rows is for the question of a job"),
        (["dp-gd"], "dp-gd has a trusted coordinator, which asks nobody"),
        (["kway-fourer"], "did you mean 'kway-fourier'"),
        (["kway-fourier", "--n-rows", 60000], "60000 users are too few for 175 sets of bits: at least 200 for each"),
        (["kway-fourier", "--set", "budget.epsilon=-1"], "budget.epsilon"),
        (["hinge-ldp", "--round", 50], "hinge-ldp asks 50 groups of users, with the numbers 0 to 49"),
        (["hinge-ldp", "--state", "a"], "--state takes numbers separated by commas"),
        (["nldp-glm-pubcov", "--set", "data.public_rows=0"], "from public rows without labels"),
        (["--epsilon", 1, "--numbers", 1, "--vector", 2], "not 2"),
        (["--epsilon", 1, "--categories", "a"], "at least two names"),
        (["--epsilon", 1, "--categories", "a,b,a"], "labels must be different names, and 'a' is there twice"),
        (["--epsilon", 0, "--categories", "a,b"], "epsilon"),
        (["--epsilon", 1, "--categories", "a,b", "--method", "oeu"], "method"),
        (["--epsilon", 1, "--numbers", 1], "--low is missing"),
        (["--epsilon", 1, "--numbers", 1, "--low", 0], "--high is missing"),
        (["--epsilon", 1, "--vector", 3], "radius"),
        (["--epsilon", 1, "--vector", 3, "--radius", 1, "--method", "gaussian"], "delta"),
        (["--categories", "a,b"], "--epsilon"),
    ],
)
def test_questions_that_are_none(capsys, words, message):
    said = call(capsys, "question", *words)
    assert said.code == 2 and said.out == "" and message in said.err


def test_a_category_may_have_a_comma(capsys, tmp_path):
    names = 'Democrat,"Independent, near Democrat",Other'
    place = tmp_path / "party.json"
    assert call(capsys, "question", "--categories", names, "--epsilon", 1, "--output", place).code == 0
    value = "Independent, near Democrat"
    assert call(capsys, "randomise", "--protocol", place, "--value", value).code == 0
    refused = call(capsys, "randomise", "--protocol", place, "--value", "near Democrat")
    assert refused.code == 2 and value in refused.err


def test_a_question_in_the_field_is_not_replaced_by_another(capsys, tmp_path):
    place = tmp_path / "survey.json"
    words = ["question", "--categories", "a,b", "--output", place, "--epsilon"]
    assert call(capsys, *words, 1).code == 0
    asked = place.read_bytes()
    assert call(capsys, *words, 1).code == 0  # the same question
    refused = call(capsys, *words, 2)
    assert refused.code == 2 and "is there already, and is not this question" in refused.err
    assert place.read_bytes() == asked


def test_a_table_is_no_file_of_records(capsys, tmp_path, survey):
    """Each of its lines would be an empty record, in silence."""
    (tmp_path / "answers.csv").write_text("answer\nyes\nno\n")
    said = call(capsys, "randomise", "--protocol", survey, "--input", tmp_path / "answers.csv")
    assert said.code == 2 and said.out == "" and "is a table by its name" in said.err


@pytest.mark.parametrize("method", ["krr", "sue", "oue", "olh", "hadamard-response", "subset-selection"])
def test_every_method_for_categories(capsys, tmp_path, method):
    path = tmp_path / "q.json"
    path.write_text(call(capsys, "question", "--n-categories", 20, "--method", method, "--epsilon", 1).out)
    line = call(capsys, "randomise", "--protocol", path, "--value", 7).out
    (tmp_path / "r.hex").write_text(line)
    found = json.loads(call(capsys, "aggregate", "--protocol", path, tmp_path / "r.hex", "--json").out)
    assert found["method"] == method and len(found["estimate"]) == 20


def test_an_answer_is_given_one_way(capsys, survey):
    for ways, n in (((), "none"), (("--value", "yes", "--record", '"yes"'), "2")):
        said = call(capsys, "randomise", "--protocol", survey, *ways)
        assert said.code == 2 and said.out == "" and f"one of --value, --record and --input: {n} given" in said.err


def test_a_wrong_protocol_file_is_named(capsys, tmp_path):
    (tmp_path / "job.yaml").write_text("method: dp-gd")
    for words in (["randomise", "--value", "1"], ["aggregate", "reports.zarr"]):
        said = call(capsys, words[0], "--protocol", tmp_path / "job.yaml", *words[1:])
        assert said.code == 2 and "job.yaml: this is no description of a survey" in said.err
        said = call(capsys, words[0], "--protocol", tmp_path / "none.json", *words[1:])
        assert said.code == 2 and "none.json" in said.err


def test_reports_of_another_question_are_not_counted(capsys, survey, tmp_path):
    other = tmp_path / "other.json"
    call(capsys, "question", "--categories", "no,yes,unsure", "--epsilon", 5, "--output", other)
    (tmp_path / "r.hex").write_text(call(capsys, "randomise", "--protocol", other, "--value", "yes").out)
    said = call(capsys, "aggregate", "--protocol", survey, tmp_path / "r.hex")
    assert said.code == 2 and "none of the 1 reports is a valid answer to this survey (survey: 1)" in said.err


SURFACE = {"low": 0.0, "high": 1.0, "epsilon": 2.0}
MARGIN = {"classes": [0, 1], "radius": 1.0, "row_norm": 1.0, "epsilon": 2.0}
LATENT = {"noise_std": 1.0, "radius": 2.0, "start": [1.0, 0.0, 0.0], "epsilon": 2.0}
PUBLISHED = {
    "parities": lambda: local.Marginals(2, epsilon=2.0).protocol(100_000, 3),
    "conjunctions": lambda: local.Marginals(2, method="chebyshev", epsilon=2.0).protocol(100_000, 3),
    "cosines": lambda: local.DensityQueries(0.0, 1.0, epsilon=2.0).protocol(100_000, 3),
    "public rows": lambda: (
        local.LogisticRegression(classes=[0, 1], method="public-covariance", epsilon=2.0)
        .decided(100_000, 3)
        .given(np.random.default_rng(0).normal(size=(99, 3)))
        .protocols[0]
    ),
    **{
        reporter: lambda reporter=reporter: local.RiskSurface("welsch", reporter=reporter, **SURFACE).protocol(10**6, 3)
        for reporter in ("hybrid", "one-bit", "coding", "transform", "split")
    },
    **{
        f"latent {method}": lambda method=method: local.TwoComponentMixture(
            method, delta=1e-6 if method == "truncate" else None, **LATENT
        ).protocol(100_000, 3)
        for method in ("l2", "coordinate", "truncate")
    },
    "latent lines": lambda: local.MixedRegression(**LATENT).protocol(100_000, 3),
    **{
        method: lambda method=method: local.LinearSVC(
            method=method, delta=None if method == "direction" else 1e-6, **MARGIN
        ).protocol(100_000, 3)
        for method in ("direction", "hermite", "copies")
    },
}
"""Questions that an estimator writes, of three columns."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_devices_answer_what_estimators_ask(capsys, tmp_path, name):
    protocol = PUBLISHED[name]()
    labelled, path, store = "y" in protocol.arrays, tmp_path / "q.json", tmp_path / "reports.zarr"
    path.write_text(
        Survey(protocol, state=[0.1, 0.2, 0.3] if name == "copies" or name.startswith("latent") else None).to_json()
    )
    record = {"X": [1, 0.25, 0], **({"y": 1} if labelled else {})}
    (tmp_path / "records.jsonl").write_text("\n".join(map(json.dumps, [record] * 38 + [None, {"X": "rubbish"}])))
    said = call(capsys, "randomise", "--protocol", path, "--input", tmp_path / "records.jsonl", "--output", store)
    assert (said.code, said.out, said.err) == (0, "", "")
    found = json.loads(call(capsys, "aggregate", "--protocol", path, store, "--json").out)
    assert found["counted"] == 40 and np.isfinite(found["estimate"]).all() and found["standard_error"] > 0
    assert found["guarantee"]["epsilon"] == 2.0
    typed = call(capsys, "randomise", "--protocol", path, "--value", "1,0.25,0")
    assert (typed.code, "X, y" in typed.err) == ((2, True) if labelled else (0, False))


def test_a_loss_of_ones_own_is_not_published():
    loss = CustomLoss(tagged("first column")(lambda w, X: X[:, 0]), 0.0, 1.0)
    with pytest.raises(DataError, match="CustomLoss is none of the classes that a survey can name"):
        Survey(local.RiskSurface(loss, **SURFACE).protocol(10_000, 1)).to_json()


ASKED = {
    "kway-fourier": ["data.n=20000", "data.d=4", "params.order=3", "budget.epsilon=8"],
    "kway-cheb": ["data.n=60000", "data.d=4", "params.order=3", "budget.epsilon=8"],
    "smooth-query-trig": ["data.n=4000", "budget.epsilon=8"],
    "local-bernstein": ["data.n=4000", "data.d=1", "budget.epsilon=8"],
    "local-bernstein-1bit": ["data.n=4000", "data.d=1", "budget.epsilon=8"],
    "local-bernstein-genprot": ["data.n=4000", "data.d=1", "budget.epsilon=4"],
    "nldp-glm-pubcov": ["data.n=4000", "data.d=3", "budget.epsilon=8", "data.public_rows=2000"],
    "nldp-glm-pub": ["data.n=4000", "data.d=3", "budget.epsilon=8", "data.public_rows=2000"],
    "linear-surrogate-ldp": ["data.n=4000", "data.d=3", "budget.epsilon=8"],
    "hermite-poly-ldp": ["data.n=4000", "data.d=3", "budget.epsilon=8"],
}
"""Jobs whose question real users answer, at an epsilon at which so few of them tell something."""
SHARE_OF_TRIVIAL = {"kway-cheb": 1.0}
"""Where it is not .6: noise is secret, and all are at least 6 standard deviations from it."""


def records_of(name, settings):
    """The users of a job as devices have them, the job, and what is known of them."""
    job = load_job(name, settings)
    dataset, generated = job_data.load(job)
    rows = {array: values.tolist() for array, values in dataset.read(0, dataset.n_rows).items() if array in "Xy"}
    lines = [json.dumps(dict(zip(rows, row, strict=True))) for row in zip(*rows.values(), strict=True)]
    return "\n".join(lines), job, generated


@pytest.mark.parametrize("name", ASKED)
def test_a_job_is_asked_of_devices_and_fitted_to_what_they_send(capsys, tmp_path, name):
    records, job, generated = records_of(name, ASKED[name])
    path, store, sets = tmp_path / "q.json", tmp_path / "reports.zarr", [w for s in ASKED[name] for w in ("--set", s)]
    (tmp_path / "records.jsonl").write_text(records)
    assert call(capsys, "question", name, *sets, "--output", path).code == 0
    sent = call(capsys, "randomise", "--protocol", path, "--input", tmp_path / "records.jsonl", "--output", store)
    assert (sent.code, sent.out, sent.err) == (0, "", "")
    aggregate = ["aggregate", "--protocol", path, store, "--job", name, *sets]
    found = json.loads(call(capsys, *aggregate, "--json").out)
    assert found["counted"] == job.data["n"] and set(found["fitted"]) == {
        o.removesuffix("_") for o in job.method.outputs
    }
    assert call(capsys, *aggregate).code == 0

    model = fit_reports(job, local.aggregate(Survey.read(path), str(store)))
    for array, values in found["fitted"].items():
        np.testing.assert_array_equal(np.asarray(values), getattr(model, f"{array}_"))
    metric = generated.metric(model)
    assert metric.error(model) < SHARE_OF_TRIVIAL.get(name, 0.6) * metric.trivial()
    other = call(capsys, *aggregate, "--set", "budget.epsilon=3")
    assert other.code == 2 and "these are reports to another question than this estimator asks" in other.err


def test_real_processes_ask_answer_and_add_up(tmp_path):
    """Two devices at once, of a question about data that nobody has in one place."""
    words = ["kway-fourier", "--n-rows", "6000", "--n-features", "4", "--set", "params.order=2"]
    question = subprocess.run([*DPDIST, "question", *words], capture_output=True, timeout=300, check=True)
    (tmp_path / "q.json").write_bytes(question.stdout)
    halves = ["\n".join(['{"X": [1, 1, 0, 1]}', "[1, 1, 0, 1]"] * 600), "\n".join(["[0, 0, 0, 1]"] * 1200)]
    randomise = [*DPDIST, "randomise", "--protocol", tmp_path / "q.json", "--input", "-"]
    devices = [subprocess.Popen(randomise, stdin=-1, stdout=-1, stderr=-1, text=True) for _ in halves]
    told = [device.communicate(half, timeout=300) for device, half in zip(devices, halves, strict=True)]
    assert [device.returncode for device in devices] == [0, 0] and [err for _, err in told] == ["", ""]
    (tmp_path / "all.hex").write_text("".join(out for out, _ in told))
    words = ["aggregate", "--protocol", tmp_path / "q.json", tmp_path / "all.hex", "--job", *words, "--json"]
    found = json.loads(subprocess.run([*DPDIST, *words], capture_output=True, timeout=300, check=True).stdout)
    assert found["counted"] == 2400 and len(found["fitted"]["estimates"]) == 10
    model = local.Marginals(2, epsilon=1.0)
    model.fit_reports(local.aggregate(Survey.read(tmp_path / "q.json"), str(tmp_path / "all.hex")), 6000, 4)
    assert model.estimates_.tolist() == found["fitted"]["estimates"] and model.guarantee_.epsilon == 1.0
    assert abs(model.marginal([0, 1])[1, 1] - 0.5) < 6 * model.standard_error([0, 1])  # fails once in 1e9


def test_reports_of_several_rounds_are_not_taken_for_one(capsys, tmp_path):
    model = local.LinearSVC(method="copies", delta=1e-6, **MARGIN)
    reports = local.simulate(model.protocol(100_000, 3), {"X": np.zeros((9, 3)), "y": np.ones(9)}, random_state=0)
    with pytest.raises(DataError, match="'copies' asks 50 groups of users one after another"):
        model.fit_reports(reports, 100_000, 3)
    said = call(capsys, "aggregate", "--protocol", "q.json", "reports.hex", "--n-rows", 9)
    assert said.code == 2 and "give it with --job" in said.err


def full(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("name", ["report.bin", "reports.zarr"])
def test_a_full_disk_leaves_no_reports_behind(capsys, survey, tmp_path, monkeypatch, name):
    """What is left could be sent, and the answers be randomised a second time beside it."""
    (tmp_path / "out").mkdir()
    words = ["randomise", "--protocol", survey, "--value", "yes", "--output", tmp_path / "out" / name]
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        patched.setattr(GrowingGroup, "finish", full)
        said = call(capsys, *words)
    assert said.code == 2 and name in said.err and "No space left on device; make room and start again" in said.err
    assert list((tmp_path / "out").iterdir()) == [], "nothing under any name"
    assert call(capsys, *words).code == 0, "the same command again"
    again = call(capsys, *words)
    assert again.code == 2 and ("is there already" in again.err or "already stored there" in again.err)


def test_a_question_is_written_whole_or_not_at_all(capsys, survey, monkeypatch):
    other = survey.with_name("other.json")
    monkeypatch.setattr(os, "fsync", full)
    said = call(capsys, "question", "--n-categories", 3, "--epsilon", 1, "--output", other)
    assert said.code == 2 and f"{other}: No space left" in said.err
    assert [path.name for path in survey.parent.iterdir()] == [survey.name]


def test_reports_go_through_a_pipe(survey, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    words = [*DPDIST, "randomise", "--protocol", survey, "--value", "yes", "--output", tmp_path / "pipe"]
    with subprocess.Popen(words) as device:
        sent = (tmp_path / "pipe").read_bytes()
    assert device.returncode == 0 and len(sent) == report_bytes(Survey.read(survey))


def test_answers_to_tasks_from_the_question_to_the_labels(capsys, tmp_path):
    question, store = tmp_path / "tasks.json", tmp_path / "reports.zarr"
    assert call(capsys, "question", "--tasks", 12, "--epsilon", 3, "--output", question).code == 0
    truth = np.arange(12) % 2
    records = [[None if j == i % 12 else int(truth[j]) for j in range(12)] for i in range(200)]
    (tmp_path / "answers.jsonl").write_text("\n".join(map(json.dumps, records)))
    said = call(capsys, "randomise", "--protocol", question, "--input", tmp_path / "answers.jsonl", "--output", store)
    assert (said.code, said.out, said.err) == (0, "", "")
    found = json.loads(call(capsys, "aggregate", "--protocol", question, store, "--json").out)
    assert found["counted"] == 200 and found["labels_of_tasks"] == truth.tolist()
    said = call(capsys, "aggregate", "--protocol", question, store)
    assert "Share of answers" in said.out and "replacing all 12 of them: e^36" in " ".join(said.out.split())
    survey = Survey.read(question)
    assert report_bytes(survey) == 30 + 2, "eight answers to a byte"


def test_what_is_no_question_about_tasks_is_refused(capsys):
    for wrong, message in (
        (["--categories", "a,b", "--classes", 3], "give --tasks as well"),
        (["--tasks", 3, "--method", "krr"], "one law, randomised response"),
        (["--tasks", 3, "--n-categories", 3], "one kind of value"),
    ):
        said = call(capsys, "question", "--epsilon", 1, *wrong)
        assert said.code == 2 and message in said.err


def test_devices_have_answers_and_no_packed_bytes(capsys):
    for method in ("mv-private", "ds-full-ldp"):
        shape = ("--n-rows", 100, "--n-features", 2)
        said = call(capsys, "question", method, *shape, "--set", "params.layout=packed", "--set", "params.n_tasks=16")
        assert said.code == 2 and "ask with layout='cells'" in said.err and not said.out


def test_a_question_about_tasks_in_a_plain_protocol_is_added_up(capsys, tmp_path):
    question = tmp_path / "plain.json"
    question.write_text(Survey(LocalProtocol(TaskAnswers(9), BitResponses(9, 1.0))).to_json())
    words = ("--protocol", question, "--record", "[0, 1, 1, 0, 1, 1, 1, 1, 0]", "--output", tmp_path / "reports.zarr")
    assert call(capsys, "randomise", *words).code == 0
    said = call(capsys, "aggregate", "--protocol", question, tmp_path / "reports.zarr")
    assert said.code == 0 and "replacing all 9 of them: e^9" in " ".join(said.out.split())


def test_what_reads_all_reports_again_is_not_fitted_to_their_sum():
    model = local.TruthInference("dawid-skene", epsilon=2.0)
    rows = np.random.default_rng(0).integers(0, 2, (500, 6))
    reports = local.simulate(model.protocol(500, 6), {"X": rows}, random_state=0)
    with pytest.raises(DataError, match=r"only the sum of these reports was kept.*goes through all of them again"):
        model.fit_reports(reports, 500, 6)
    with pytest.raises(DataError, match=r"reports are added up first, by dpdist.local.aggregate"):
        model.fit_reports(str, 500, 6)


def test_a_store_that_changes_while_it_is_read_again_is_noticed(tmp_path):
    model, rows = local.TruthInference("dawid-skene", epsilon=2.0), np.ones((50, 6))
    survey = Survey(model.protocol(50, 6))
    sent = local.encode(survey, survey.protocol.randomise({"X": rows}, StreamDraws(np.random.default_rng(1))))
    reports = local.aggregate(survey, sent)
    assert model.fit_reports(reports, 50, 6).abilities_.shape == (50,)
    sent[7] = 0
    with pytest.raises(DataError, match="50 reports were counted and now there are 49: the store was changed"):
        model.fit_reports(reports, 50, 6)


def test_labels_by_ability_from_the_reports_of_devices(capsys, tmp_path):
    """Twice sent ones count once; and what is told of reports to a question with another epsilon."""
    generator, store = np.random.default_rng(0), tmp_path / "reports.zarr"
    truth, able = generator.integers(0, 2, 200), np.where(np.arange(100) < 20, 0.95, 0.55)
    X = np.where(generator.random((100, 200)) < able[:, None], truth, 1 - truth)
    question, shape = tmp_path / "tasks.json", ("--n-rows", 90, "--n-features", 200)
    asked = ("ds-auto", *shape, "--set", "budget.epsilon=3")
    assert call(capsys, "question", *asked, "--output", question).code == 0
    survey = Survey.read(question)
    sent = local.encode(survey, survey.protocol.randomise({"X": X}, StreamDraws(np.random.default_rng(1))))
    local.write_reports(store, [sent, sent[:3]])
    job = ("--job", *asked)
    found = json.loads(call(capsys, "aggregate", "--protocol", question, store, *job, "--json").out)
    assert found["counted"] == 100 and found["rejected"]["duplicate"] == 3
    labels, abilities = (np.array(found["fitted"][name]) for name in ("labels", "abilities"))
    vote = np.array(found["labels_of_tasks"])
    assert np.mean(labels != truth) < 0.5 * np.mean(vote != truth) and abilities[:20].min() > abilities[20:].mean()
    said = call(capsys, "aggregate", "--protocol", question, store, *job)
    assert said.code == 0 and "Share of answers" in said.out and "abilities:" in said.out
    rows = [line.split() for line in said.out.split("Share of answers")[1].splitlines()[1:41]]
    assert [int(row[1]) for row in rows] == labels[:40].tolist() != vote[:40].tolist(), "the table is that of the job"
    assert "... and 160 more" in said.out
    said = call(capsys, "aggregate", "--protocol", question, store, "--job", "ds-auto", *shape)
    assert said.code == 2 and "reports to another question" in said.err
