"""Tables like well-known ones: the shares, blocks and tails that they are there for, and the law of their labels."""

from __future__ import annotations

import numpy as np
import pytest

from dpdist.errors import DataError
from dpdist.problems import lookalikes
from dpdist.problems.catalog import PROBLEMS

N = 20_000


def rows(make, **options):
    data, truth = make(N, **options)
    found = data.read(0, N)
    return found["X"], found["y"], truth


@pytest.mark.parametrize(
    ("make", "share"),
    [(lookalikes.covertype_like, 0.49), (lookalikes.ijcnn_like, 0.097), (lookalikes.adult_like, 0.24)],
)
@pytest.mark.parametrize("random_state", [0, 1])
def test_the_share_of_positives(make, share, random_state):
    _, y, _ = rows(make, random_state=random_state)
    assert abs(y.mean() - share) < 0.02


def test_blocks_and_tails():
    X, _, _ = rows(lookalikes.covertype_like)
    np.testing.assert_allclose(np.linalg.norm(X, axis=1), 1)
    for block in (slice(10, 14), slice(14, 54)):
        assert np.all(np.count_nonzero(X[:, block], axis=1) == 1)
    X, _, _ = rows(lookalikes.ijcnn_like)
    assert np.all(np.count_nonzero(X[:, :10], axis=1) == 1)
    raw = X[:, 10:] / X[:, :10].max(axis=1, keepdims=True)  # before the rows were normalised
    assert np.corrcoef(raw[:, 4], raw[:, 5])[0, 1] == pytest.approx(0.8, abs=0.03)
    X, _, _ = rows(lookalikes.adult_like)
    assert np.allclose(X[:, 6:].sum(axis=1), 8)
    assert X[:, 4].max() > 6 > 1.5 > abs(X[:, 4].min()), "log-normal, centred"


@pytest.mark.parametrize("name", ["covertype-like", "ijcnn-like", "adult-like", "skewed-logit"])
def test_the_probabilities_are_those_of_the_labels(name):
    """Labels given predicted probabilities: standardised sums over deciles, each beyond 6 with a chance below 1e-8."""
    problem = PROBLEMS[name]
    generated = problem.generate({"n": N})
    found = generated.dataset.read(0, N)
    p, y = np.exp(problem.law(found["X"], generated.truth, problem.parameters)[:, 1]), found["y"]
    for part in np.array_split(np.argsort(p), 10):
        assert abs((y[part] - p[part]).sum()) < 6 * np.sqrt((p[part] * (1 - p[part])).sum() + 1)


def test_the_same_rows_whatever_their_number():
    for make in (lookalikes.covertype_like, lookalikes.ijcnn_like, lookalikes.adult_like, lookalikes.skewed_logit):
        long, short = make(9000, 12)[0].read(0, 5000), make(5000, 12)[0].read(0, 5000)
        assert np.array_equal(long["X"], short["X"]) and np.array_equal(long["y"], short["y"])


def test_numbers_of_adult_and_what_is_refused():
    X, y, truth = rows(lookalikes.adult_like, target="number")
    noise = y - X @ truth
    assert abs(noise.mean()) < 0.3 and noise.std() > 4 and np.median(noise) < -1
    with pytest.raises(DataError, match="target"):
        lookalikes.adult_like(10, target="income")
    with pytest.raises(DataError, match="rows"):
        lookalikes.skewed_logit(10, rows="cauchy")
    for make in (lookalikes.covertype_like, lookalikes.ijcnn_like, lookalikes.adult_like):
        assert make(10, 1)[0].arrays["X"].shape == (10, 1)


def test_few_columns_that_matter():
    """Six standard deviations (and the seeds are fixed)."""
    X, y, truth = rows(lookalikes.covertype_like, n_nonzero=6, random_state=3)
    assert np.count_nonzero(truth) == np.count_nonzero(truth[:14]) == 6
    sizes = np.abs(truth[truth != 0])
    assert np.all((sizes >= 4) & (sizes <= 8))
    assert np.array_equal(X, rows(lookalikes.covertype_like, random_state=3)[0]), "the rows are the same"
    p = 1 / (1 + np.exp(-X @ truth))
    assert abs((y - p).sum()) < 6 * np.sqrt((p * (1 - p)).sum())
    for wrong in (-1, 15):
        with pytest.raises(DataError, match="n_nonzero"):
            lookalikes.covertype_like(10, n_nonzero=wrong)


def test_words_of_texts():
    n, d = 5000, 2000
    data, truth = lookalikes.rcv1_like(n, d, random_state=1)
    found = data.read(0, n)
    X, y = found["X"], found["y"]
    assert np.count_nonzero(truth) == np.count_nonzero(truth[:200]) == 20 and set(np.abs(truth)) == {0.0, 8.0}
    np.testing.assert_allclose(np.linalg.norm(X, axis=1), 1)
    assert 40 < np.count_nonzero(X, axis=1).mean() < 74
    reach = 1 / np.arange(1, d + 1)
    hit = 1 - (1 - reach / reach.sum()) ** 74
    assert np.all(np.abs((X > 0).mean(axis=0) - hit) < 7 * np.sqrt(hit * (1 - hit) / n) + 1 / n)
    p = 1 / (1 + np.exp(-X @ truth))
    assert abs((y - p).sum()) < 6 * np.sqrt((p * (1 - p)).sum())
    with pytest.raises(DataError, match="n_nonzero"):
        lookalikes.rcv1_like(10, 5, n_nonzero=6)
