'''Generated worlds with a known truth, and how answers are judged.

A problem is one object, a `dpdist.problems.problem.Problem`: its generator with public parameters and their defaults,
and the metrics that judge answers by the truth, each for one kind of answer (`dpdist.estimators.answer_kinds`). An
estimator declares the kinds it gives, so that a job that asks a method for what it does not give is refused when it is
loaded. Jobs, figures and tests measure with the same metrics.

To add a problem, write a generator and an entry of the table ``PROBLEMS`` of its module, ``<what it holds>_problems``;
a new module is named in `dpdist.problems.catalog.FAMILIES`. Nothing else is touched:

```python
def subspaces(n_rows, n_features=20, *, rank=2, **placing: Unpack[Placing]):
    """Rows near a subspace."""
    generation = Generation("synthetic.subspaces", placing, n_features=n_features, rank=rank)
    truth = ...                                    # from generation.truth_generator(): belongs to no row
    return generation.dataset(n_rows, np.zeros(n_features), rows=...)[0], truth


class SubspaceDistance(TruthMetric):
    """What no metric of `dpdist.problems.metrics` says yet; a new kind of answer is a line of `Answer`."""

    answer = Answer.SUBSPACE                       # what is judged; an estimator says answers = (Answer.SUBSPACE,)
    what = "largest sine between the subspaces"

    def error(self, model): ...                    # from model.components_ and self.world.truth
    def trivial(self): return 1.0
    def reference(self, X, y): ...                 # a model with components_, fitted without privacy


PROBLEMS = (
    Problem("subspaces", "subspaces: rows near one", subspaces, parameters(d=20, rank=2), (SubspaceDistance,)),
)
```

A metric that compares on fresh rows reads ``world.X``, and ``world.law`` what the problem's ``law`` knows of their
labels. A parameter that both sides have, such as a number of components, is named in ``shared``, and has to agree.
'''
