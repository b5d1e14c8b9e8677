"""``dpdist question``, ``randomise`` and ``aggregate``: a survey from the question to the estimate."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from dpdist.local.survey.questionnaire import Survey
from dpdist.local.survey.wire import decode, report_bytes
from tests.cli.command import call

SECRET = "1234.5678"


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
    done = subprocess.run(command, input=b'"yes"\n{"X": 0}\nrubbish\n', capture_output=True, timeout=120)
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
        (["--epsilon", 1], "give one of --categories, --n-categories, --numbers, --vector, not 0"),
        (["--epsilon", 1, "--numbers", 1, "--vector", 2], "not 2"),
        (["--epsilon", 1, "--categories", "a"], "at least two names"),
        (["--epsilon", 1, "--categories", "a,a"], "different names"),
        (["--epsilon", 0, "--categories", "a,b"], "epsilon"),
        (["--epsilon", 1, "--categories", "a,b", "--method", "oeu"], "method"),
        (["--epsilon", 1, "--numbers", 1], "low"),
        (["--epsilon", 1, "--vector", 3], "radius"),
        (["--epsilon", 1, "--vector", 3, "--radius", 1, "--method", "gaussian"], "delta"),
        (["--categories", "a,b"], "--epsilon"),
    ],
)
def test_questions_that_are_none(capsys, words, message):
    said = call(capsys, "question", *words)
    assert said.code == 2 and said.out == "" and message in said.err


@pytest.mark.parametrize("method", ["krr", "sue", "oue", "olh", "hadamard-response", "subset-selection"])
def test_every_method_for_categories(capsys, tmp_path, method):
    path = tmp_path / "q.json"
    path.write_text(call(capsys, "question", "--n-categories", 20, "--method", method, "--epsilon", 1).out)
    line = call(capsys, "randomise", "--protocol", path, "--value", 7).out
    (tmp_path / "r.hex").write_text(line)
    found = json.loads(call(capsys, "aggregate", "--protocol", path, tmp_path / "r.hex", "--json").out)
    assert found["method"] == method and len(found["estimate"]) == 20


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
