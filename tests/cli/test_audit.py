"""``dpdist audit``: ours are not contradicted, broken ones are, and the exhibits stay in the tests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dpdist.cli.audit import as_text
from dpdist.privacy.mechanisms import additive as mechanisms
from tests.cli.command import call

JOB = """\
method: dp-gd
estimator: LinearRegression
data: {generate: linear, n: 1000, d: 3}
params: {row_norm: 1.0, gradient: {clip_norm: 1.0}, solver: {step_size: 0.1}, random_state: 7}
budget: {epsilon: 1.0, delta: 1.0e-6}
"""


@pytest.fixture
def job(tmp_path):
    (tmp_path / "job.yaml").write_text(JOB)
    return tmp_path / "job.yaml"


def test_ours_is_not_contradicted_and_ends_before_the_runs_are_used_up(capsys, job):
    said = call(capsys, "audit", job, "--json", "--quiet")
    record = json.loads(said.out)
    assert said.code == 0 and said.err == "" and record["contradicted"] is False
    assert record["claimed"]["mu"] == pytest.approx(0.896, abs=1e-3)
    assert record["found"]["mu"] <= record["claimed"]["mu"]
    assert record["found"]["epsilon"] <= record["claimed"]["epsilon"] <= 2.0
    assert 10 <= record["found"]["runs"] < 1000


def test_half_the_noise_is_caught_before_the_runs_are_used_up(capsys, job, monkeypatch):
    noise = mechanisms.Gaussian._noise
    monkeypatch.setattr(mechanisms.Gaussian, "_noise", lambda self, scale, *rest: noise(self, scale / 2, *rest))
    said = call(capsys, "audit", job, "--quiet", "--json", "--epsilon", "4")
    record = json.loads(said.out)
    assert said.code == 1 and record["contradicted"] is True and "bug" in said.err
    assert record["found"]["runs"] < 1000
    assert "CONTRADICTED" in as_text(record)


def test_the_result_for_people(capsys, job, tmp_path, monkeypatch):
    monkeypatch.setenv("DPDIST_LEDGER", str(tmp_path / "ledger.sqlite"))
    said = call(capsys, "audit", job, "--runs", "50", "--epsilon", "2", "--delta", "0.001")
    assert said.code == 0
    for part in ("dp-gd: Gradient descent", "epsilon 2, delta 0.001, mu", "at least epsilon", "not contradicted"):
        assert part in said.out, part
    assert not (tmp_path / "ledger.sqlite").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "--exhibit"),
        (("dp-gd", "--exhibit"), "--exhibit"),
        (("nowhere.yaml",), "not found"),
        (("dp-gd", "--runs", "10"), "50"),
        (("dp-gd", "--epsilon", "0"), "budget.epsilon"),
    ],
)
def test_user_errors_exit_with_2(capsys, words, message):
    said = call(capsys, "audit", *words)
    assert said.code == 2 and said.out == "" and message in said.err


def test_the_exhibits_of_a_checkout_are_run_in_a_process_of_their_own(capsys, tmp_path, monkeypatch):
    place = tmp_path / "tests" / "privacy" / "exhibits"
    place.mkdir(parents=True)
    for folder in (place, place.parent, place.parent.parent):
        (folder / "__init__.py").touch()
    row = {
        "id": "x",
        "source": "a book",
        "what": "no noise",
        "epsilon": 1.0,
        "delta": 0.0,
        "printed": 4.56789,
        "ours": 0.5,
    }
    (place / "__main__.py").write_text(f"print({json.dumps(json.dumps({'wrong': 1e-6, 'exhibits': [row]}))})")
    monkeypatch.chdir(tmp_path)
    said = call(capsys, "audit", "--exhibit")
    assert said.code == 0 and "a book" in said.out and "4.57" in said.out and "1e-06" in said.out
    assert json.loads(call(capsys, "audit", "--exhibit", "--json").out)["exhibits"] == [row]
    (place / "__main__.py").write_text("raise SystemExit(3)")
    assert call(capsys, "audit", "--exhibit").code == 2


def test_the_package_has_none_of_them():
    package = Path(mechanisms.__file__).parents[2]
    assert not [
        path for path in package.rglob("*.py") if "import" in path.read_text() and "from tests" in path.read_text()
    ]


@pytest.mark.slow
def test_every_printed_version_is_caught_and_ours_pass(capsys):
    found = json.loads(call(capsys, "audit", "--exhibit", "--json").out)
    assert len(found["exhibits"]) >= 8
    for row in found["exhibits"]:
        assert row["ours"] <= row["epsilon"] < row["printed"], row
