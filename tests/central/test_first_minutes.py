"""What an analyst types first: frames, labels of every kind, Dask, paths, sparse matrices; and answers about them."""

from __future__ import annotations

import contextlib
import functools

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from dpdist import Dataset, Ledger, LinearRegression, LogisticRegression, Mean, MetricLearner, PairwiseRanker, local
from dpdist.central import ClipLabel, GradientDescent
from dpdist.data.ingestion import ingest
from dpdist.errors import BudgetError, DataError, MissingBound, NoIntervals

rng = np.random.default_rng(0)
N = 3000
FRAME = pd.DataFrame(rng.normal(size=(N, 3)) / 2, columns=["a", "b", "c"])
LABELS = np.where(FRAME["a"] > 0, "yes", "no")
KNOWN = {"row_norm": 1.0, "epsilon": 5.0, "delta": 1e-6, "random_state": 0, "solver": GradientDescent(n_rounds=4)}
X = FRAME.to_numpy()


# few rounds, which a fit warns of, are enough for answers that only have to be the same
pytestmark = pytest.mark.filterwarnings("ignore:.*is expected to come clearly closer.*")


def classifier(**options):
    return LogisticRegression(**{"classes": ["no", "yes"], **KNOWN, **options})


@functools.cache
def reference():
    return classifier().fit(X, LABELS)


@pytest.mark.parametrize(
    "labels",
    [
        pd.Series(LABELS),
        pd.Series(LABELS, dtype=object),
        pd.Series(LABELS, dtype="category"),
        pd.Series(LABELS, dtype="string"),
        pd.DataFrame({"label": pd.Categorical(LABELS)}),
        LABELS.astype(object),
        list(LABELS),
        da.from_array(LABELS.astype(object), chunks=700),
        dd.from_pandas(pd.Series(LABELS), npartitions=3),
        dd.from_pandas(pd.Series(LABELS, dtype="category"), npartitions=3),
    ],
    ids=lambda labels: f"{type(labels).__module__}.{getattr(labels, 'dtype', '')}",
)
def test_labels_of_every_kind_are_the_declared_classes(labels):
    model = classifier().fit(FRAME, labels)
    assert np.array_equal(model.coef_, reference().coef_) and list(model.feature_names_in_) == ["a", "b", "c"]


def test_an_object_that_is_no_class_is_a_missing_label_and_no_error():
    labels = LABELS.astype(object)
    labels[:5] = [None, 3, {}, np.nan, "undeclared"]
    texts = LABELS.astype("<U10")
    texts[:5] = "undeclared"
    assert np.array_equal(classifier().fit(X, labels).coef_, classifier().fit(X, texts).coef_)
    numbers = np.where(LABELS == "yes", 1, 0).astype(object)
    assert np.array_equal(classifier(classes=[0, 1]).fit(X, numbers).coef_, reference().coef_)
    assert np.array_equal(classifier(classes=np.array([0, 1])).fit(X, numbers).coef_, reference().coef_)
    with pytest.raises(DataError, match=r"pandas.to_numeric"):
        LinearRegression(loss="huber", **KNOWN).fit(X, labels)


@pytest.mark.parametrize(
    ("classes", "says"),
    [
        ({"no", "yes"}, "got a set: pass a list"),  # whose first label is another one in each process
        ({"no": 0, "yes": 1}, "got a dict: pass a list"),
        ((label for label in ("no", "yes")), "got a generator: pass a list"),
        (["no", 1], "texts only, or numbers only"),
        ([0, float("nan")], "no label equals NaN"),
        ([["no"], ["yes"]], "texts only, or numbers only"),
        (["no", "no"], "different labels|the two labels"),
        ("no", "different labels|the two labels"),
        (1, "different labels|the two labels"),
    ],
)
@pytest.mark.parametrize("kind", [LogisticRegression, PairwiseRanker, MetricLearner, local.LogisticRegression])
def test_classes_that_no_row_could_have_for_sure_are_refused_before_a_row_is_read(kind, classes, says):
    with pytest.raises(MissingBound, match=says):
        kind(classes=classes, row_norm=1.0, epsilon=1.0).fit(X, LABELS)


def test_frames_and_arrays_of_dask_are_fitted_to_the_same_bits():
    frame = dd.from_pandas(FRAME, npartitions=4)
    model = classifier().fit(frame, dd.from_pandas(pd.Series(LABELS), npartitions=4))
    assert np.array_equal(model.coef_, reference().coef_) and list(model.feature_names_in_) == ["a", "b", "c"]
    assert np.array_equal(classifier().fit(da.from_array(X, chunks=(900, 2)), LABELS).coef_, reference().coef_)
    lazy = model.predict(frame)
    assert hasattr(lazy, "dask") and np.array_equal(lazy.compute(), reference().predict(X))
    probable = reference().predict_proba(da.from_array(X, chunks=(900, 2)))
    assert probable.shape == (N, 2)
    np.testing.assert_allclose(probable.compute(), reference().predict_proba(X))


def test_what_cannot_be_fitted_says_what_to_do():
    with pytest.raises(DataError, match=r"sparse matrix.*X\.toarray\(\).*dpdist ingest rows\.svm"):
        classifier().fit(scipy.sparse.csr_matrix(X), LABELS)
    with pytest.raises(DataError, match=r"sparse matrix"):
        reference().predict(scipy.sparse.csr_array(X))
    with pytest.raises(DataError, match=r"in the column 'town'.*--levels COLUMN=a,b,c"):
        classifier().fit(FRAME.assign(town="A"), LABELS)


DAYS = pd.Series(pd.date_range("2024-01-01", periods=N, freq="h", tz="UTC"))


@pytest.mark.parametrize(
    ("X", "y", "says"),
    [
        (FRAME.assign(day=DAYS), FRAME["a"], r"dtype in the column 'day': .*\(column - .*\) / .*, the day in the same"),
        (FRAME.assign(day=DAYS - DAYS[0]), FRAME["a"], r"timedelta64.* in the column 'day': .* column / pandas.Timed"),
        (FRAME, DAYS, r"y has datetime64.*UTC\] dtype: .* \(y - pandas"),
        (FRAME, DAYS.dt.tz_localize(None), r"y has datetime64\[.*\] dtype: .* \(y - pandas.*\(days=1\)$"),
        (FRAME, DAYS.to_frame(), "y has datetime64"),
        (FRAME, DAYS - DAYS[0], r"y has timedelta64\[.*\] dtype: .* y / pandas"),
        (dd.from_pandas(FRAME.assign(day=DAYS), npartitions=2), FRAME["a"], "datetime64.* in the column 'day'"),
        (FRAME[[]], FRAME["a"], "a frame without columns"),
        (FRAME[["a", "b", "a"]], FRAME["a"], "2 columns called 'a'"),
    ],
    ids=[
        "date",
        "duration",
        "zoned label",
        "date label",
        "frame of a label",
        "duration label",
        "dask",
        "none",
        "twice",
    ],
)
def test_frames_with_dates_or_unclear_columns_say_what_to_do(X, y, says):
    with pytest.raises(DataError, match=says):
        LinearRegression(loss="huber", **{**KNOWN, "solver": "auto"}).fit(X, y)


def test_what_dates_are_advised_to_become_is_fitted():
    days = (DAYS - pd.Timestamp("2024-01-01", tz="UTC")) / pd.Timedelta(days=1) / 200
    model = LinearRegression(loss="huber", **{**KNOWN, "solver": "auto"}).fit(FRAME.assign(day=days), FRAME["a"])
    assert model.coef_.shape == (4,)


@pytest.mark.parametrize("epsilon", [1e-160, 1e20, 1e300])
def test_an_epsilon_beyond_what_can_be_computed_is_refused_in_words(epsilon):
    with pytest.raises(BudgetError, match=r"epsilon must be a number from 1e-100 to 1e\+12, got"):
        LogisticRegression(classes=["no", "yes"], **{**KNOWN, "epsilon": epsilon}).fit(FRAME, LABELS)


def test_an_unknown_parameter_is_told_from_those_there_are():
    with pytest.raises(TypeError, match=r"Mean has no parameter 'row_norm'; it has .*delta, epsilon"):
        Mean(row_norm=1.0)
    with pytest.raises(TypeError, match=r"no parameter 'eps'; did you mean 'epsilon'\?$"):
        Mean(eps=1.0)


def test_one_column_is_no_frame_and_a_frame_is_no_column():
    for column in (FRAME["a"], dd.from_pandas(FRAME, npartitions=2)["a"]):
        with pytest.raises(DataError, match=r"one column \('a'\).*frame\[\['a'\]\]"):
            classifier().fit(column, LABELS)
        with pytest.raises(DataError, match=r"frame\[\['a'\]\]"):
            local.Mean(low=-1.0, high=1.0).fit(column)
    answers = pd.DataFrame({"answer": LABELS})
    shares = local.Histogram(categories=["no", "yes"], epsilon=1.0, random_state=0)
    expected = shares.fit(LABELS).frequencies_
    assert np.array_equal(shares.fit(answers).frequencies_, expected)
    assert np.array_equal(shares.fit(dd.from_pandas(answers, npartitions=2)).frequencies_, expected)
    with pytest.raises(DataError, match=r"this frame has 3 columns: pass one of them, as in frame\['a'\]"):
        shares.fit(FRAME)


def test_a_path_is_opened_and_a_file_is_pointed_to_ingestion(tmp_path):
    Dataset.from_arrays(tmp_path / "x.zarr", X=X, y=LABELS)
    for place in (str(tmp_path / "x.zarr"), tmp_path / "x.zarr"):
        model = classifier(ledger=tmp_path / "ledger.sqlite").fit(place)
        assert np.array_equal(model.coef_, reference().coef_)
        assert np.array_equal(model.predict(place).compute(), reference().predict(X))
        assert model.score(place) == reference().score(X, LABELS)
        for ignored in ({"y": LABELS}, {"sample_weight": np.ones(len(X))}):
            with pytest.raises(DataError, match=r"score\(dataset\) takes the labels from the dataset"):
                model.score(place, **ignored)
    (tmp_path / "x.csv").write_text("a,b\n")
    for opened in (classifier().fit, Dataset.open):
        with pytest.raises(DataError, match=r"x\.csv is a file.*dpdist ingest"):
            opened(tmp_path / "x.csv")
    shares = local.Histogram(categories=["no", "yes"], epsilon=1.0, random_state=0)
    assert np.array_equal(shares.fit(pd.Series(LABELS, dtype="category")).frequencies_, shares.fit(LABELS).frequencies_)


# -- tables with units


@pytest.fixture(scope="module")
def prices(tmp_path_factory):
    """A table in years and dollars, with an empty cell in every seventh row."""
    folder = tmp_path_factory.mktemp("prices")
    rng = np.random.default_rng(1)
    table = pd.DataFrame({"age": rng.uniform(0, 100, N), "town": rng.choice(["A", "B"], N)})
    table["price"] = 1000 * table["age"] + 20_000 * (table["town"] == "B") + rng.normal(size=N) * 1000
    table["cheap"] = np.where(table["price"] < 60_000, "yes", "no")
    table.loc[::7, "age"] = np.nan
    table.to_csv(folder / "t.csv", index=False)
    asked = {"features": ["age"], "levels": {"town": ["A", "B"]}, "missing": {"age": "indicator"}}
    ranges = {"age": (0, 100), "price": (0, 125_000)}
    ingest(folder / "t.csv", folder / "x.zarr", ranges=ranges, label="price", **asked)
    ingest(folder / "t.csv", folder / "against.zarr", ranges=ranges, label="price", reference={"town": "A"}, **asked)
    asked = {**asked, "label": "cheap", "label_levels": ["no", "yes"]}
    ingest(folder / "t.csv", folder / "c.zarr", ranges={"age": (0, 100)}, **asked)
    return folder, table


@pytest.mark.parametrize("kind", [LogisticRegression, local.LogisticRegression, PairwiseRanker, MetricLearner])
def test_classes_that_the_dataset_does_not_declare_are_refused_before_anything_is_charged(prices, kind, tmp_path):
    """They would make every row a null row, in silence: an epsilon spent for a constant."""
    given = {"row_norm": 1.0, "delta": 1e-6} if kind is not local.LogisticRegression else {"row_norm": 1.0}
    with contextlib.closing(Ledger(tmp_path / "ledger.sqlite")) as ledger:
        for classes in (["No", "Yes"], np.array(["no", "maybe"])):
            with pytest.raises(DataError, match=r"no row can have: the dataset declares that 'cheap' is 'no', 'yes'"):
                kind(**given, classes=classes, ledger=ledger).fit(prices[0] / "c.zarr")
        assert not ledger.accounts()


def regression(**options):
    known = {"loss": "huber", "row_norm": 2.0, "epsilon": 1e6, "delta": 1e-6, "random_state": 0}
    return LinearRegression(**{**known, **options})


def test_a_frame_of_the_table_is_answered_in_the_units_of_the_table(prices, tmp_path):
    folder, table = prices
    model = regression(ledger=tmp_path / "l").fit(folder / "x.zarr")
    assert list(model.feature_names_in_) == ["age", "age is missing", "town=A", "town=B"]
    found = model.predict(table)
    full = table["age"].notna().to_numpy()
    assert np.abs(found - table["price"])[full].mean() < 2000 and model.score(table[full], table["price"][full]) > 0.98
    stored = model.predict(folder / "x.zarr")
    np.testing.assert_array_equal(stored.compute(), found)
    np.testing.assert_array_equal(model.predict(dd.from_pandas(table, npartitions=3)).compute(), found)
    assert model.score(folder / "x.zarr") == pytest.approx(model.score(table, table["price"].clip(0, 125_000)))
    rows = Dataset.open(folder / "x.zarr").read(0, N)["X"]
    with pytest.warns(UserWarning, match="feature names"):  # of scikit-learn, for rows without names
        scaled = model.predict(rows)
    np.testing.assert_allclose(62_500 * (scaled + 1), found, rtol=1e-12)


def test_coefficients_in_the_units_of_the_table_predict_what_the_model_predicts(prices, tmp_path):
    folder, table = prices
    # all levels of a category add up to the constant: with both, nobody knows how sure either is
    with pytest.raises(NoIntervals, match=r"as --levels makes them, with .* --reference COLUMN=LEVEL"):
        regression(ledger=tmp_path / "l").fit(folder / "x.zarr").original_units().confidence_intervals()
    compared = regression(ledger=tmp_path / "l").fit(folder / "against.zarr")
    rows = compared.original_units().summary().rows
    assert [row["name"] for row in rows] == ["age", "age is missing", "town=B", "intercept"]
    assert rows[2]["low"] < 20_000 < rows[2]["high"] and rows[2]["standard_error"] < 1000
    model = regression(ledger=tmp_path / "l", fit_intercept=False).fit(folder / "x.zarr")
    units = model.original_units()
    full = table[table["age"].notna()]
    plain = np.column_stack([full["age"], 0 * full["age"], full["town"] == "A", full["town"] == "B"])
    np.testing.assert_allclose(plain @ units.coef_ + units.intercept_, model.predict(full), rtol=1e-9)
    assert units.coef_[0] == pytest.approx(1000, rel=0.05)
    low, high = units.confidence_intervals()[0]
    assert low < units.coef_[0] < high and "price" in str(units.summary())
    np.testing.assert_allclose(units.standard_errors_[2:], 62_500 * model.standard_errors_[2:])
    np.testing.assert_allclose(units.standard_errors_[0], 62_500 / 50 * model.standard_errors_[0])
    # the prediction at one point has one standard error, in whichever units the coefficients are
    point = np.array([30.0, 0.0, 1.0, 0.0, 1.0])
    scaled = np.array([-0.4, 0.0, 1.0, 0.0])
    mine, own = units.wald_test(point), model.wald_test(scaled)
    assert mine.standard_errors[0] == pytest.approx(62_500 * own.standard_errors[0])
    with pytest.raises(DataError, match="in the units of the arrays"):
        reference().original_units()


def test_the_columns_because_of_which_there_are_no_intervals_are_named():
    """Those that are constant, or that say the same: a table of thirty columns is not to be searched for them."""
    rng = np.random.default_rng(3)
    table = pd.DataFrame(rng.uniform(-1, 1, (20_000, 3)), columns=["a", "b", "c"])
    known = {"row_norm": 2.0, "epsilon": 1.0, "delta": 1e-7, "random_state": 0}
    labels = np.where(table["a"] + rng.logistic(size=20_000) / 3 > 0, "yes", "no")
    model = LogisticRegression(classes=["no", "yes"], **known).fit(table.assign(rare=0.0), labels)
    with pytest.raises(NoIntervals, match=r"\. Above all: 'rare'$"):
        model.summary()
    twice = LinearRegression(gradient=ClipLabel(1.0), **known).fit(table.assign(same=table["a"]), table["a"] / 2)
    with pytest.raises(NoIntervals, match=r"\. Above all: ('a', 'same'|'same', 'a')$"):
        twice.summary()


def test_original_units_of_classes_are_log_odds_and_say_where_no_interval_is_valid(prices, tmp_path):
    folder, table = prices
    known = {"classes": ["no", "yes"], "row_norm": 2.0, "epsilon": 1e3, "delta": 1e-6, "random_state": 0}
    model = LogisticRegression(**known, solver=GradientDescent(n_rounds=5), ledger=tmp_path / "l").fit(
        folder / "c.zarr"
    )
    units = model.original_units()
    full = table[table["age"].notna()]
    plain = np.column_stack([full["age"], 0 * full["age"], full["town"] == "A", full["town"] == "B"])
    np.testing.assert_allclose(
        (plain @ units.coef_.T + units.intercept_)[:, 0], model.decision_function(full), rtol=1e-9, atol=1e-9
    )
    with pytest.raises(NoIntervals):
        units.summary()
    assert "no intervals" in repr(units) and "age" in repr(units)


def test_a_null_row_of_a_stored_dataset_has_no_answer_and_no_part_in_a_score(tmp_path):
    rows, labels = X.copy(), LABELS.astype("<U3")
    rows[3], labels[4] = np.nan, "?"
    Dataset.from_arrays(tmp_path / "x.zarr", X=rows, y=labels)
    found = reference().predict(tmp_path / "x.zarr").compute()
    assert found[3] == "" and np.array_equal(np.delete(found, 3), np.delete(reference().predict(X), 3))
    keep = np.arange(N) != 3
    assert reference().score(tmp_path / "x.zarr") == pytest.approx(reference().score(X[keep], labels[keep]))
    numbers = classifier(classes=[0, 1]).fit(X, (LABELS == "yes").astype(int))
    assert np.isnan(numbers.predict(tmp_path / "x.zarr").compute()[3])


def test_a_dataset_with_other_columns_or_ranges_is_refused(prices, tmp_path):
    folder, _ = prices
    model = regression(ledger=tmp_path / "l").fit(folder / "x.zarr")
    asked = {"features": ["age"], "levels": {"town": ["A", "B"]}, "missing": {"age": "indicator"}, "label": "price"}
    ingest(folder / "t.csv", tmp_path / "r.zarr", ranges={"age": (0, 90), "price": (0, 125_000)}, **asked)
    with pytest.raises(DataError, match="other ranges or levels"):
        model.predict(tmp_path / "r.zarr")
    ingest(folder / "t.csv", tmp_path / "c.zarr", ranges={"age": (0, 100)}, reference={"town": "B"}, **asked)
    with pytest.raises(DataError, match=r"reads 4 features"):
        model.predict(tmp_path / "c.zarr")
    ingest(folder / "t.csv", tmp_path / "s.zarr", **{**asked, "levels": {"town": ["B", "A"]}})
    with pytest.raises(DataError, match="not those of the model"):
        model.predict(tmp_path / "s.zarr")
    Dataset.from_arrays(tmp_path / "w.zarr", X=X)
    with pytest.raises(DataError, match="reads 4 features"):
        model.predict(tmp_path / "w.zarr")
