"""Tables of any few columns from one report of every user: exact without noise, and as near as they say with it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from dpdist import Dataset, Ledger
from dpdist.errors import BudgetError, DataError
from dpdist.local import LocalProtocol, Marginals, Survey, aggregate, encode, write_reports
from dpdist.local.randomisers.coordinates import SampleCoordinates
from dpdist.local.statistics.bit_sets import BitSets, Conjunctions, Parities, bit_sets, n_bit_sets, parity_tickets
from dpdist.local.statistics.categories import Category
from dpdist.local.tables.table_methods import METHODS, ChebyshevTables, Levels
from dpdist.method import Public
from dpdist.privacy.budget import Budget
from dpdist.privacy.randomness.draws import StreamDraws
from dpdist.problems.catalog import PROBLEMS
from dpdist.solvers.disjunctions import chebyshev_differences, chebyshev_gap

LEVELS = [(2, 2, 2, 2), (3, 2, 5), (4, 4), (2, 7, 2, 3, 2)]
rng = np.random.default_rng(0)


def records(levels, n=500):
    X = np.column_stack([rng.integers(0, k, n) for k in levels]).astype(np.float64)
    X[:, -1] = np.where(rng.random(n) < 0.5, np.minimum(X[:, 0], levels[-1] - 1), X[:, -1])
    return X


def counted(X, levels, columns):
    """The table by counting: no library code."""
    table = np.zeros([levels[j] for j in columns])
    np.add.at(table, tuple(X[:, columns].astype(int).T), 1)
    return table / len(X)


def method_of(name, levels, order, n=10**9):
    return METHODS[name]().decide(Public(n, len(levels), Budget(1.0)), Levels(tuple(levels), order))


# -- what is asked ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("levels", LEVELS, ids=str)
def test_sets_are_all_that_meet_few_columns(levels):
    widths = [(k - 1).bit_length() for k in levels]
    column_of = np.repeat(np.arange(len(levels)), widths)
    for order in range(1, len(levels) + 1):
        expected = [s for s in range(1, 2 ** sum(widths))
                    if len({column_of[b] for b in range(sum(widths)) if s >> b & 1}) <= order]  # fmt: skip
        assert bit_sets(tuple(levels), order).tolist() == expected
        assert n_bit_sets(levels, order) == len(expected) == len(parity_tickets(tuple(levels), order))


@pytest.mark.parametrize("levels", LEVELS, ids=str)
@pytest.mark.parametrize("kind", [Parities, Conjunctions])
def test_values_of_a_device_and_of_a_compiled_pass_are_those_of_the_definition(kind, levels):
    X = records(levels, 200)
    X[3, 0], X[5, -1], X[7, 1] = np.nan, np.inf, -np.inf
    statistic = kind(levels, 2)
    values = statistic.values({"X": X})
    by_hand = np.concatenate([statistic.values({"X": X[i : i + 20]}) for i in range(0, 200, 20)])
    np.testing.assert_array_equal(values, by_hand)
    widths = [(k - 1).bit_length() for k in levels]
    for i, row in enumerate(X):
        if not np.isfinite(row).all():
            assert not values[i].any()
            continue
        word = sum(int(code) << sum(widths[:j]) for j, code in enumerate(row))
        shared = [bin(word & int(s)).count("1") for s in np.repeat(statistic.sets, statistic.n_tickets)]
        whole = [int(s).bit_count() for s in np.repeat(statistic.sets, statistic.n_tickets)]
        definition = [1 - 2 * (a % 2) for a in shared] if kind is Parities else np.where(np.equal(shared, whole), 1, -1)
        np.testing.assert_array_equal(values[i], definition)


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int64, np.float32])
@pytest.mark.parametrize("seed", range(5))
def test_codes_that_pandas_gives_missing_values_make_null_records(dtype, seed):
    """-1, and all else that is no level; of few rows and of many, which are counted by compiled code."""
    rng = np.random.default_rng(seed)
    levels = tuple(int(n) for n in rng.integers(3, 9, 3))
    X = np.stack([rng.integers(-2, n + 2, 200) for n in levels], axis=1).astype(dtype)
    unknown = ((X < 0) | (np.array(levels) <= X)).any(axis=1)
    missing = np.where(unknown[:, None], np.nan, X.astype(np.float64))
    for rows in (slice(None), slice(0, 3)):
        values = Parities(levels, 2).values({"X": X[rows]})
        assert np.array_equal(values, Parities(levels, 2).values({"X": missing[rows]}))
        assert np.array_equal(~values.any(axis=1), unknown[rows])
    codes = np.where(X[:, 0] < levels[0], X[:, 0], -1)
    assert np.array_equal(Category(levels[0]).values({"X": codes}) < 0, codes < 0)


@pytest.mark.parametrize("value, levels, null", [
    (0.49, 2, False), (0.51, 2, False), (7.0, 2, False), (-3.0, 2, False), (1e300, 2, False), (np.nan, 2, True),
    (0.5, 3, True), (3.0, 3, True), (-1.0, 3, True), (2.0, 3, False), (-0.0, 3, False), (1e300, 3, True),
])  # fmt: skip
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_what_is_a_bit_a_level_or_null(value, levels, null, dtype):
    with np.errstate(over="ignore"):
        X = np.array([[value, 1.0]] * 100).astype(dtype)
    null |= not np.isfinite(X[0, 0])
    for rows in (X, X[:1]):
        values = Parities((levels, 2), 1).values({"X": rows})
        assert (not values.any()) == null and np.isin(values, (-1.0, 0.0, 1.0)).all()


@pytest.mark.parametrize("dtype", [np.bool_, np.uint8, np.int64, np.float16])
def test_bits_may_be_stored_in_any_type(dtype):
    X = rng.integers(0, 2, (100, 4))
    np.testing.assert_array_equal(
        Parities((2,) * 4, 2).values({"X": X.astype(dtype)}), Parities((2,) * 4, 2).values({"X": X.astype(float)})
    )


@pytest.mark.parametrize(
    ("dtype", "kept"),
    [("?", "?"), ("u1", "u1"), ("i1", "i1"), ("i8", "f8"), (">f4", "f8"), ("f4", "f4")],
)
def test_users_whose_values_fill_a_byte_are_kept_in_one(dtype, kept):
    """Rows that stay in memory are counted by what is stored."""
    X, options = records((2, 2, 2), 2000), {"epsilon": 1.0, "ledger": Ledger(":memory:"), "random_state": 5}
    model = Marginals(2, **options)
    dataset = Dataset.from_arrays(X=X.astype(dtype))
    assert model._prepare(dataset.arrays)["X"](X.astype(dtype)).dtype == kept
    np.testing.assert_array_equal(model.fit(dataset).estimates_, Marginals(2, **options).fit(X).estimates_)


def test_sixty_four_bits_are_a_word():
    X = np.zeros((100, 64))
    X[:, [0, 31, 32, 63]] = 1
    statistic = Parities((2,) * 64, 1)
    assert (statistic.values({"X": X}) == -1).sum() == 100 * 4 * (statistic.size // 64)


# -- from reports to tables ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("levels", LEVELS, ids=str)
def test_without_noise_tables_are_those_of_counting(levels):
    X = records(levels)
    method = method_of("fourier", levels, 2)
    values = method.statistic.values({"X": X}).mean(axis=0)
    estimates = method.statistic.of_features(values) / method.statistic.of_features(np.ones(len(values)))
    for columns in itertools.permutations(range(len(levels)), 2):
        table = method.table(columns, estimates)
        np.testing.assert_allclose(table, counted(X, levels, list(columns)), atol=1e-12)


@pytest.mark.parametrize("order, degree", [(1, 1), (2, 2), (3, 2), (4, 3)])
def test_without_noise_chebyshev_misses_a_disjunction_by_its_gap_at_most(order, degree):
    X = records((2,) * 5)
    method = METHODS["chebyshev"](degree).decide(Public(10**6, 5, Budget(1.0)), Levels((2,) * 5, order))
    statistic = method.statistic
    estimates = statistic.restore(statistic.values({"X": X}).mean(axis=0))
    for columns in itertools.combinations(range(5), order):
        missed = method.table(columns, estimates) - counted(X, (2,) * 5, list(columns))
        assert np.abs(missed).max() <= chebyshev_gap(order, degree) + 1e-12


@pytest.mark.parametrize("k, degree", [(1, 1), (3, 2), (4, 3), (8, 5), (16, 8)])
def test_the_polynomial_is_0_at_0_and_near_1_after(k, degree):
    differences = chebyshev_differences(k, degree)
    binomials = np.array([[float(np.prod([(s - i) / (i + 1) for i in range(m)])) for m in range(degree + 1)]
                          for s in range(k + 1)])  # fmt: skip
    values = binomials @ differences
    assert abs(values[0]) < 1e-9 and np.abs(values[1:] - 1).max() <= chebyshev_gap(k, degree) + 1e-9


def test_estimates_are_unbiased_and_their_errors_as_stated():
    """4e5 users; each of 54 coordinates within 5 standard errors: fails by chance with 3e-5, and the seed is fixed."""
    X = records((3, 2, 5), 400_000)
    model = Marginals(2, levels=(3, 2, 5), epsilon=1.0, ledger=Ledger(":memory:"), random_state=1).fit(X)
    statistic = Parities((3, 2, 5), 2)
    exact = statistic.of_features(statistic.values({"X": X[:100_000]}).mean(axis=0)) / statistic.of_features(
        np.ones(statistic.size)
    )
    z = (model.estimates_ - exact) / model._tables.stds(model.n_reports_)
    assert np.abs(z).max() < 5 and 0.6 < np.sqrt(np.mean(z**2)) < 1.4
    table, errors = model.marginal([2, 0], unbiased=True), model.standard_error([2, 0])
    assert np.abs(table - counted(X, (3, 2, 5), [2, 0])).max() < 5 * errors
    projected = model.marginal([2, 0])
    assert projected.shape == (5, 3) and (projected >= 0).all() and abs(projected.sum() - 1) < 1e-12


@pytest.mark.parametrize(
    "method, n, band",
    [("fourier", 100_000, 0.033), ("chebyshev", 100_000, 0.13),
     pytest.param("fourier", 1_000_000, 0.012, marks=pytest.mark.slow)],
)  # fmt: skip
def test_errors_are_in_their_bands(method, n, band):
    errors = []
    for seed in range(5):
        generated = PROBLEMS["bits"].generate({"n": n, "random_state": seed})
        model = Marginals(3, method, epsilon=1.0, ledger=Ledger(":memory:"), random_state=seed)
        errors.append(generated.metric(model).error(model.fit(generated.dataset)))
    assert np.mean(errors) <= band and np.mean(errors) < 0.057, "the error of a constant"


@pytest.mark.parametrize("levels, order", [((2,) * 8, 2), ((3, 4, 2, 2), 3)])
def test_the_prediction_is_the_error_of_a_cell(levels, order):
    X = np.column_stack([rng.integers(0, k, 100_000) for k in levels])
    model = Marginals(order, levels=levels, epsilon=1.0, ledger=Ledger(":memory:"), random_state=0)
    predicted = model.decided(*X.shape).expected_error(model.plan(*X.shape))
    model.fit(X)
    widest = sorted(sorted(range(len(levels)), key=lambda j: -levels[j])[:order])
    assert 0.9 < model.standard_error(widest) / predicted < 1.1


@pytest.mark.parametrize("n, std, gap, parities", [(10**5, 0.045, 0.14, 0.024), (10**6, 0.036, 0.038, 0.0076)])
def test_what_conjunctions_cost_at_numbers_of_users_that_occur_is_as_it_is_said(n, std, gap, parities):
    found = Marginals(3, method="chebyshev", epsilon=1.0).decided(n, 10)
    assert found.foreseen_std(range(3)) == pytest.approx(std, rel=0.02)
    assert chebyshev_gap(3, found.degree) == pytest.approx(gap, rel=0.03)
    assert Marginals(3, epsilon=1.0).decided(n, 10).foreseen_std(range(3)) == pytest.approx(parities, rel=0.02)
    assert all(said in ChebyshevTables.__doc__ for said in (f"{std:g}"[1:], f"{gap:g}"[1:], f"{parities:g}"[1:]))


def test_drawing_parities_by_need_beats_drawing_them_alike():
    """By the exact formula: the mean variance of the cells of all tables of three of ten columns."""
    levels, order, stds = (2,) * 10, 3, {}
    method = method_of("fourier", levels, order)
    for name, tickets in (("need", method.statistic.n_tickets), ("alike", np.ones(175))):
        reports = 1e5 * tickets / tickets.sum()
        cells = [method.cell_std(c, method.stds(reports)) for c in itertools.combinations(range(10), order)]
        stds[name] = np.sqrt(np.mean(np.square(cells)))
    assert stds["need"] < 0.82 * stds["alike"]


# -- privacy ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Parities, Conjunctions])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0, 10.0])
def test_any_two_records_give_any_report_with_nearly_the_same_probability(kind, epsilon):
    """By counting words: the chance of a sign, for every value that any record has."""
    rows = np.array(list(itertools.product([0.0, 1.0, np.nan, np.inf, -5.0], repeat=3)))
    statistic = kind((2, 2, 2), 2)
    law = SampleCoordinates(statistic.size, epsilon, "auto", "one-bit").law
    values = np.unique(statistic.values({"X": rows}))
    assert set(values) <= {-1.0, 0.0, 1.0} and law.units == 1
    words = [law.signs // 2 + int(v * (law.signs // 2 - law.least)) for v in values]
    chances = [min(max(w, law.least), law.signs - law.least) for w in words]
    k = SampleCoordinates(statistic.size, epsilon, "auto", "one-bit").k
    odds = max(max(chances) / min(chances), max(law.signs - c for c in chances) / min(law.signs - c for c in chances))
    assert odds**k <= np.exp(epsilon)


def test_a_mechanism_that_spends_epsilon_on_every_coefficient_is_caught():
    """Three bits with epsilon each: what the source's algorithm does; a record and its complement tell them apart."""
    n, epsilon = 40_000, 1.0
    law = SampleCoordinates(1, epsilon, 1, "one-bit")
    signs = []
    for value in (1.0, -1.0):
        draws = StreamDraws(np.random.Generator(np.random.Philox(int(value) + 5)))
        signs.append(law.randomise(np.full((3 * n, 1), value), draws)["value"].reshape(n, 3))
    likely, rare = (float((s == 1).all(axis=1).mean()) for s in signs)
    assert likely / rare > np.exp(2 * epsilon), "far more than e^epsilon"


def test_reports_do_not_depend_on_chunks_and_are_those_of_devices():
    X = records((2, 3, 2), 10_000)
    results = []
    for partition in (10_000, 700):
        dataset = Dataset.from_arrays(X=X, partition_rows=partition, row_order="arrival")
        model = Marginals(2, levels=(2, 3, 2), epsilon=1.0, ledger=Ledger(":memory:"), random_state=3)
        results.append(model.fit(dataset).estimates_)
    np.testing.assert_array_equal(*results)
    protocol = LocalProtocol(Parities((2, 3, 2), 2), SampleCoordinates(Parities((2, 3, 2), 2).size, 1.0, 1, "one-bit"))
    one, many = (StreamDraws(np.random.Generator(np.random.Philox(1))) for _ in range(2))
    reports = protocol.randomise({"X": X[:500]}, one)
    np.testing.assert_array_equal(protocol.accumulate(reports), protocol.summarise({"X": X[:500]}, many))


def test_devices_answer_a_published_question(tmp_path):
    model = Marginals(2, levels=(2, 3, 2), epsilon=2.0)
    survey = Survey(model.protocol(50_000, 3))
    assert Survey.from_json(survey.to_json()) == survey
    X = records((2, 3, 2), 50_000)
    draws = StreamDraws(np.random.Generator(np.random.Philox(2)))
    write_reports(tmp_path / "reports.zarr", [encode(survey, survey.protocol.randomise({"X": X}, draws))])
    found = aggregate(survey, tmp_path / "reports.zarr")
    values = survey.protocol.statistic.values({"X": X}).mean(axis=0)
    assert np.abs(found.estimate - values).max() < 6 * found.standard_error


# -- wrong inputs -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parameters, error, says", [
    ({"order": 0}, BudgetError, "order"),
    ({"order": 7}, BudgetError, "from 1 to the number of columns, 6"),
    ({"order": 2.0}, BudgetError, "whole number"),
    ({"levels": [2, 2]}, DataError, "levels has 2 numbers, and the records have 6 columns"),
    ({"levels": [2, 2, 2, 2, 2, 1]}, BudgetError, "at least 2"),
    ({"levels": 3}, BudgetError, "list of whole numbers"),
    ({"levels": [2**40] * 6}, BudgetError, "64"),
    ({"method": "chebyshev", "levels": [2, 2, 2, 2, 2, 3]}, BudgetError, "for bits"),
    ({"method": "fourrier"}, BudgetError, "did you mean 'fourier'"),
    ({"delta": 1e-6, "method": "fourier"}, BudgetError, "pure guarantee"),
    ({"epsilon": 0.0}, BudgetError, "epsilon"),
    ({"fidelity": "sum"}, BudgetError, "exact law of the sum"),
    ({"order": 6, "levels": [8] * 6}, BudgetError, "6000 users are too few for 262143 sets of bits: .*fewer columns"),
    ({"order": 3}, BudgetError, "6000 .* 41 sets of bits: at least 200 for each are needed; order=2 fits, or 13600"),
    ({"order": 3, "method": ChebyshevTables(degree=3)}, BudgetError, "41 sets of bits: .*; degree=2 fits, or 8200 us"),
])  # fmt: skip
def test_wrong_parameters_are_refused_before_anything_is_charged(parameters, error, says):
    ledger = Ledger(":memory:")
    with pytest.raises(error, match=says):
        Marginals(**{"order": 2, "epsilon": 1.0, "ledger": ledger, **parameters}).fit(np.zeros((6000, 6)))
    assert ledger.accounts() == []


def test_too_many_sets_names_the_order_that_fits():
    with pytest.raises(BudgetError, match=r"order=5 of 64 .* order=4 fits"):
        Marginals(5).plan(10**9, 64)


@pytest.mark.parametrize("columns", [[0, 1, 2], [0, 0], [], [6], [-1], ["age"], [0.5], 0, None, [True], "ab"])
def test_tables_of_other_columns_are_refused(columns):
    model = Marginals(2, epsilon=5.0, ledger=Ledger(":memory:"), random_state=0).fit(records((2,) * 6, 6000))
    with pytest.raises(DataError, match="columns must be 1 to 2 different columns"):
        model.marginal(columns)


def test_queries_agree_with_each_other_and_wrong_patterns_are_refused():
    X = records((2, 3, 2), 5000)
    model = Marginals(2, levels=(2, 3, 2), epsilon=8.0, ledger=Ledger(":memory:"), random_state=0).fit(X)
    table = model.marginal([0, 1])
    assert model.conjunction([0, 1], [1, 2]) == table[1, 2]
    assert abs(model.disjunction([0, 1], [1, 2]) - (table[1].sum() + table[0, 2])) < 1e-12
    np.testing.assert_allclose(model.marginal([1, 0]), table.T, atol=1e-12)
    for pattern in ([1], [1, 3], [0.5, 1], [1, -1]):
        with pytest.raises(DataError, match="pattern"):
            model.conjunction([0, 1], pattern)
    np.testing.assert_array_equal(model.set_params(order=1).marginal([0, 1]), table)
    with pytest.raises(DataError, match="pattern"):
        model.conjunction([0, 1], 1)
    with pytest.raises(NotFittedError, match="not fitted"):
        Marginals().marginal([0])


def test_columns_of_a_frame_have_names():
    import pandas as pd

    X = pd.DataFrame(records((2, 2, 2), 5000), columns=["smokes", "drinks", "runs"])
    model = Marginals(2, epsilon=8.0, ledger=Ledger(":memory:"), random_state=0).fit(X)
    np.testing.assert_array_equal(model.marginal(["runs", "smokes"]), model.marginal([2, 0]))


def test_the_base_asks_nothing_by_itself():
    with pytest.raises(TypeError, match="abstract"):
        BitSets((2,), 1)
