"""A fitted linear model as ONNX, so that a service without Python, or without dpdist, can predict with it.

What `predict` does with a row is a few operations on public and released numbers: columns from the units of the table
to those of ``X``, rows that are longer than the fit allowed scaled down, ``x @ coef_ + intercept_``, and for classes
the largest. Exporting releases nothing and charges nothing; predictions are as private as the rows that they are about.
"""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier
from sklearn.utils.validation import check_is_fitted

from dpdist.data.encoding import Encoding
from dpdist.errors import DataError, DpdistError
from dpdist.estimators.predicting import predicts_numbers
from dpdist.privacy.guarantee import rounded_up

OPSET = 17
"""Of ONNX 1.12 (2022): every operator that is used, in double precision."""
_PROBES = 64


def to_onnx(model: Any) -> Any:
    """The model as an ``onnx.ModelProto``.

    Its input ``X`` takes doubles, a row for each answer, with the columns that the model was fitted to, which
    ``metadata_props`` names: in the units of the table where the model knows it (categories as their columns of 0 and
    1), else in those of the array. Outputs are ``label`` and, of a logistic model, ``probabilities``; of numbers
    ``prediction``, in the units of ``predict``. The guarantee stands in ``metadata_props`` and ``doc_string``.

    Parameters
    ----------
    model : Estimator
        Fitted, with ``coef_`` and ``intercept_``: `LogisticRegression`, `LinearRegression` and `LinearSVC`, central or
        local, or the model of a run (`load_run`).

    Raises
    ------
    DataError
        Of a model that predicts otherwise than by a linear map of its columns.
    DpdistError
        Where the package ``onnx`` is not installed.

    Examples
    --------
    >>> from dpdist import LinearRegression
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(20_000, 2)) / 2
    >>> model = LinearRegression(loss="huber", row_norm=1.0, epsilon=1.0, delta=1e-6, random_state=0).fit(X, X[:, 0])
    >>> found = to_onnx(model)
    >>> [node.op_type for node in found.graph.node], found.graph.output[0].name
    (['MatMul', 'Add', 'Squeeze'], 'prediction')
    """
    if importlib.util.find_spec("onnx") is None:
        raise DpdistError(
            "models are exported by onnx, which is not installed: pip install 'dpdist[onnx]' (onnx>=1.16)"
        )
    check_is_fitted(model)
    return _Graph(model).model()


class _Graph:
    """The operations, one after another."""

    def __init__(self, model: Any) -> None:
        if not hasattr(model, "coef_") or not hasattr(model, "intercept_") or not hasattr(model, "predict"):
            raise _not_linear(model)
        import onnx

        self._model, self._onnx = model, onnx
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._last = "X"

    def model(self) -> Any:
        """All of it, compared with what the model says of some rows."""
        helper, model = self._onnx.helper, self._model
        encoding: Encoding | None = model._encoding
        scores = self._scores(encoding)
        outputs = self._classes(scores) if is_classifier(model) else self._numbers(scores, encoding)
        graph = helper.make_graph(
            self._nodes,
            type(model).__name__,
            [helper.make_tensor_value_info("X", self._onnx.TensorProto.DOUBLE, ["rows", int(model.n_features_in_)])],
            outputs,
            initializer=self._constants,
        )
        found = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=8,  # what readers of that opset know
            producer_name="dpdist",
            doc_string=model.guarantee_.text,
        )
        helper.set_model_props(found, self._properties(encoding))
        self._onnx.checker.check_model(found, full_check=True)
        self._compare(found, encoding)
        return found

    # -- the operations -----------------------------------------------------------------------------------------------

    def _scores(self, encoding: Encoding | None) -> NDArray[np.float64]:
        """``x @ coef_ + intercept_`` of what `predict` makes of a row; the coefficients, a row for each score."""
        model = self._model
        if encoding is not None:
            scale, shift = encoding.to_original
            if not np.all(scale == 1.0):
                self._then("Mul", self._constant("scale", scale))
                self._then("Add", self._constant("shift", shift))
                if encoding.spec.clip:
                    ranged = scale != 1.0
                    self._then("Max", self._constant("low", np.where(ranged, -1.0, -np.inf)))
                    self._then("Min", self._constant("high", np.where(ranged, 1.0, np.inf)))
        if (longest := getattr(model, "clipped_to_", None)) is not None:
            rows = self._last
            norm = self._node("ReduceL2", rows, axes=[1], keepdims=1)
            longer = self._node("Max", norm, self._constant("longest", np.array(float(longest))))
            share = self._node("Div", self._constant("bound", np.array(float(longest))), longer)
            self._last = self._node("Mul", rows, share)
        coef = np.atleast_2d(np.asarray(model.coef_, dtype=np.float64))
        self._then("MatMul", self._constant("coef", np.ascontiguousarray(coef.T)))
        self._then("Add", self._constant("intercept", np.broadcast_to(np.atleast_1d(model.intercept_), len(coef))))
        return coef

    def _classes(self, coef: NDArray[np.float64]) -> list[Any]:
        helper, kinds, scores = self._onnx.helper, self._onnx.TensorProto, self._last
        if len(coef) == 1:
            scores = self._node("Concat", self._node("Neg", scores), scores, axis=1)
        best = self._node("ArgMax", scores, axis=1, keepdims=0)
        classes = _as_stored(np.asarray(self._model.classes_))
        if classes.dtype.kind == "U":
            names = classes.tolist()
            self._constants.append(
                helper.make_tensor("classes", kinds.STRING, [len(names)], [n.encode() for n in names])
            )
            kind = kinds.STRING
        else:
            self._constant("classes", classes)
            kind = kinds.INT64 if classes.dtype.kind == "i" else kinds.DOUBLE
        self._nodes.append(helper.make_node("Gather", ["classes", best], ["label"]))
        outputs = [helper.make_tensor_value_info("label", kind, ["rows"])]
        if hasattr(self._model, "predict_proba"):
            # of two classes s(u), s(-u), which add up to 1; of more one against the rest, scaled
            chance = self._node("Sigmoid", scores)
            self._nodes.append(helper.make_node("LpNormalization", [chance], ["probabilities"], axis=1, p=1))
            outputs.append(helper.make_tensor_value_info("probabilities", kinds.DOUBLE, ["rows", len(classes)]))
        return outputs

    def _numbers(self, coef: NDArray[np.float64], encoding: Encoding | None) -> list[Any]:
        helper, kinds = self._onnx.helper, self._onnx.TensorProto
        single = np.ndim(self._model.coef_) == 1 or len(coef) == 1
        if encoding is not None and predicts_numbers(self._model) and encoding.label_scale != (1.0, 0.0):
            scale, shift = encoding.label_scale
            self._then("Sub", self._constant("label_shift", np.array(shift)))
            self._then("Div", self._constant("label_scale", np.array(scale)))
        if single:
            self._last = self._node("Squeeze", self._last, self._constant("second", np.array([1], dtype=np.int64)))
        self._nodes[-1].output[0] = "prediction"
        shape = ["rows"] if single else ["rows", len(coef)]
        return [helper.make_tensor_value_info("prediction", kinds.DOUBLE, shape)]

    def _then(self, operator: str, operand: str) -> None:
        self._last = self._node(operator, self._last, operand)

    def _node(self, operator: str, *inputs: str, **attributes: Any) -> str:
        name = f"{operator.lower()}_{len(self._nodes)}"
        self._nodes.append(self._onnx.helper.make_node(operator, list(inputs), [name], **attributes))
        return name

    def _constant(self, name: str, values: NDArray[Any]) -> str:
        self._constants.append(self._onnx.numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name

    # -- what stands beside, and whether it is true -------------------------------------------------------------------

    def _properties(self, encoding: Encoding | None) -> dict[str, str]:
        model = self._model
        names = encoding.names if encoding is not None else getattr(model, "feature_names_in_", None)
        said = {
            "guarantee": model.guarantee_.text,
            "epsilon": rounded_up(model.guarantee_.epsilon),
            "delta": rounded_up(model.guarantee_.delta),
            "columns": "\n".join(map(str, names)) if names is not None else "",
            "units": "of the table" if encoding is not None else "of the array",
        }
        return {name: value for name, value in said.items() if value}

    def _compare(self, found: Any, encoding: Encoding | None) -> None:
        """Refuse a model whose predictions are not those of the graph, on made-up rows of all sizes."""
        from onnx.reference import ReferenceEvaluator

        model = self._model
        rng = np.random.default_rng(0)
        rows = rng.normal(size=(_PROBES, model.n_features_in_)) * np.geomspace(1e-3, 30, _PROBES)[:, None]
        X = rows
        if encoding is not None:
            scale, shift = encoding.to_original
            rows = (X - shift) / scale
            if encoding.spec.clip:
                X = np.where(scale != 1.0, np.clip(rows * scale + shift, -1.0, 1.0), X)
        said = dict(
            zip([o.name for o in found.graph.output], ReferenceEvaluator(found).run(None, {"X": rows}), strict=True)
        )
        names = getattr(model, "feature_names_in_", None)
        if names is not None:
            import pyarrow as pa

            X = pa.table(dict(zip(map(str, names), X.T, strict=True)))
        expected = np.asarray(type(model).predict.of_rows(model, X))
        if encoding is not None and predicts_numbers(model):
            expected = encoding.label_in_units(expected)
        if "label" in said:
            same = (_as_stored(said["label"]) == _as_stored(expected)).all()
        else:
            same = np.allclose(said["prediction"], expected, rtol=1e-9, atol=1e-12)
        if not same:
            raise _not_linear(model)


def _as_stored(classes: NDArray[Any]) -> NDArray[Any]:
    """Labels as ONNX has them: texts, whole numbers or doubles."""
    if classes.dtype.kind in "OUT":
        return classes.astype(str)
    return classes.astype(np.int64 if classes.dtype.kind in "biu" else np.float64)


def _not_linear(model: Any) -> DataError:
    return DataError(
        f"{type(model).__name__} does not predict by a linear map of its columns, and only such models are exported: "
        "LogisticRegression, LinearRegression and LinearSVC. load_run('runs/x') predicts with the others"
    )
