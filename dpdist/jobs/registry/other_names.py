"""Ids of the literature that are no methods: parts of methods, values of their parameters, and what is around them.

Other names of whole methods are the ``aliases`` in their rows.
"""

from __future__ import annotations

from dpdist.jobs.registry.registered import OtherName

_additive = "dpdist.privacy.mechanisms.additive"
_selection = "dpdist.privacy.mechanisms.selection"
_forms = "dpdist.privacy.accounting.closed_forms"

OTHER_NAMES = (
    # noise and selection
    OtherName("laplace", "Laplace noise on the grid of a sum, under epsilon alone",
              ("private-robust-mean",), library=f"{_additive}.Laplace"),
    OtherName("gaussian-analytic", "Gaussian noise, calibrated exactly",
              ("dp-gd", "out-pert", "catoni-mean"), library=f"{_forms}.gdp_mu"),
    OtherName("discrete-gaussian", "Gaussian noise of whole numbers", library=f"{_additive}.DiscreteGaussian"),
    OtherName("discrete-laplace", "Laplace noise of whole numbers", library=f"{_additive}.DiscreteLaplace"),
    OtherName("grid-release", "Sums of whole multiples of a power of two, and noise of such",
              library="dpdist.kernels.grid"),
    OtherName("em-gumbel", "The exponential mechanism, by which a vertex is chosen",
              ("dp-fw-l1", "ht-dp-fw", "residual-clip-fw"), library=f"{_selection}.ExponentialMechanism"),
    OtherName("permute-and-flip",
              "Selection that is at least as good as the exponential mechanism, under epsilon alone",
              library=f"{_selection}.PermuteAndFlip"),
    OtherName("report-noisy-max", "Selection of the largest score with exponential noise",
              library=f"{_selection}.NoisyMax"),
    OtherName("oneshot-topk", "Selection of several scores at once, with one draw of noise for each",
              ("residual-clip-iht",), library=f"{_selection}.select_top"),
    OtherName("peeling", "The largest coordinates of a vector, chosen privately and released with noise",
              ("residual-clip-iht", "ht-dp-iht", "ht-sparse-opt", "sparse-mean-ht"),
              library="dpdist.privacy.mechanisms.peeling.Peel"),
    OtherName("peeling-zcdp", "The same, accounted as zero-concentrated differential privacy",
              ("residual-clip-iht",), library="dpdist.privacy.mechanisms.peeling.Peel"),
    # accounting
    OtherName("gdp", "Gaussian differential privacy: composition in closed form", library=f"{_forms}.gdp_mu"),
    OtherName("zcdp", "Zero-concentrated differential privacy", library=f"{_forms}.rho_for"),
    OtherName("rdp", "Renyi differential privacy", library=f"{_forms}.renyi_epsilon"),
    OtherName("pld", "Privacy loss distributions", library="dpdist.privacy.accounting.profiles"),
    OtherName("composition", "One factor for the noise of a plan, so that all its releases together meet the budget",
              library="dpdist.privacy.accounting.calibration.calibrate"),
    OtherName("subsampling", "What reading a random sample of the rows is worth",
              ("dp-sgd", "rgd-catoni-stoch"), {"params.rows": "sample"}, f"{_forms}.amplify_poisson"),
    OtherName("parallel", "Rounds on disjoint parts of the rows, which are paid for once",
              ("ht-dp-fw",), {"params.rows": "split"}, "dpdist.data.folds"),
    OtherName("shuffling", "What it is worth that nobody knows who sent which report",
              library="dpdist.privacy.accounting.amplification.shuffle_epsilon"),
    OtherName("neighbours", "Between which datasets a guarantee holds",
              settings={"params.neighbours": "add-or-remove-one"}, library="dpdist.privacy.budget.Neighbours"),
    OtherName("filter", "The limit of an account, and what is refused because of it",
              library="dpdist.privacy.accounting.filter"),
    OtherName("odometer", "What was spent so far ('dpdist budget show')", library="dpdist.privacy.accounting.totals"),
    OtherName("ledger", "The book of all charges ('dpdist budget')", library="dpdist.privacy.ledger.ledger.Ledger"),
    OtherName("noise-once", "Released values on file, so that none is drawn a second time",
              library="dpdist.privacy.ledger.journal.Journal"),
    OtherName("rng", "Randomness by counters, the same on any machine",
              library="dpdist.privacy.randomness.streams.Stream"),
    OtherName("fixed-point-sum", "Sums that do not depend on the order", library="dpdist.kernels.grid"),
    OtherName("sanitise", "Rows that cannot be used become rows that count nothing",
              library="dpdist.kernels.clip.sanitise"),
    OtherName("audit-cp", "A lower bound on what leaks, from many runs on two datasets ('dpdist audit')",
              library="dpdist.privacy.audit.two_point.audit_two_point"),
    OtherName("audit-one-run", "The same from one run with many canaries",
              library="dpdist.privacy.audit.two_point.audit_one_run"),
    # rows and their bounds
    OtherName("catoni-phi", "Soft truncation of numbers",
              ("catoni-mean", "rgd-catoni"), {"params.gradient": "truncate"},
              "dpdist.kernels.truncation.SoftTruncation"),
    OtherName("catoni-psi", "Soft truncation of numbers, smoothed", ("catoni-smoothed-mean",),
              {"params.method": "smooth-truncate"}, "dpdist.kernels.truncation.SmoothTruncation"),
    OtherName("shrink", "Features and labels cut off before they are multiplied", ("ht-private-lasso", "ht-dp-iht"),
              {"params.gradient": "shrink"}, "dpdist.central.linear.bounding.Shrink"),
    OtherName("cheb-collect", "Noisy copies of a user's row, in one report",
              ("cheb-learn",), library="dpdist.local.linear.glm_copies.copies_protocol"),
    OtherName("sgll-losses", "Losses of generalised linear models, whose gradient is linear in the label",
              ("cheb-learn", "linear-surrogate-ldp"), library="dpdist.local.linear.generalised_linear"),
    OtherName("sigm", "Stochastic intermediate gradients", ("cheb-learn",),
              library="dpdist.solvers.loops.intermediate_gradient"),
    # second moments
    OtherName("second-moment-map", "Exact second moments of bounded rows, which are never released without noise",
              ("m2-goe", "m2-two-sided-wishart"), library="dpdist.queries.moment_sums.SecondMomentSum"),
    OtherName("glasso", "The graphical lasso of a matrix that is released already",
              ("glasso-cov-perturb",), library="dpdist.solvers.graphical_lasso.glasso"),
    OtherName("spca-diag", "Principal components of the columns with the largest variances",
              ("spca-fps", "spca-ldp"), {"params.n_nonzero": "NUMBER"}, "dpdist.solvers.subspaces.largest_diagonal"),
    OtherName("approx-convex-min", "The least value of a noisy surface, in the box",
              ("local-bernstein", "local-bernstein-1bit"), {"params.smoothing": "0.5"},
              "dpdist.solvers.bernstein.minimise_bernstein"),
    OtherName("sosp-select", "Which of the last iterates looks most like a local minimum, by released Hessians",
              ("sosp-dp-gd",), library="dpdist.central.linear.second_order.CertifiedDescent"),
    # what errors are compared with
    OtherName("mixture-packing-lb", "What no private method can do better",
              library="dpdist.privacy.audit.lower_bounds.lower_bound"),
    OtherName("minimax-curves", "Rates of sparse regression in the local model",
              library="dpdist.privacy.audit.lower_bounds.sparse_regression_rates"),
    OtherName("hard-instance", "Rows that are hardest for sparse regression in the local model ('dpdist figures "
              "exp-scaling')", ("nldp-marginal",), {"data.generate": "hard-instance"}),
    OtherName("lb-spiked", "Short rows that are hardest for principal components", ("pca-ldp",),
              {"data.generate": "lb-spiked"}),
    OtherName("lb-sparse-cov", "Rows that are hardest for sparse covariances", ("cov-threshold-ldp",),
              {"data.generate": "lb-sparse-cov"}),
    OtherName("spca-nonprivate-ref", "Sparse components without privacy, which errors are compared with",
              ("spca-ldp",), library="dpdist.problems.matrix_metrics.SparseSubspaceDistance"),
    OtherName("ds-em", "Labels from a crowd without privacy, which errors are compared with", ("ds-private",),
              library="dpdist.solvers.dawid_skene.one_coin"),
    OtherName("exp-fast-erm", "Experiments with faster solvers ('dpdist figures fig-3.1' to fig-3.4)",
              ("dp-svrg", "dp-svrgpp", "dp-katyusha", "dp-accmd")),
    OtherName("exp-heavy", "Experiments with heavy-tailed rows ('dpdist figures fig-3.5' to fig-3.8)",
              ("rgd-catoni", "rgd-trim", "saa-clipmean")),
    *(OtherName(f"exp-{name}", f"An experiment ('dpdist figures exp-{name}')")
      for name in (*(f"5.{i}" for i in range(1, 11)), "6.1-low-synth", "6.1-low-real", "6.1-high", "6.2", "6.3",
                   "nldp", "scaling", "surfaces", "kway", "densities", "crowd")),
    OtherName("auto",
              "In a job, with a key estimator: what the estimator chooses from public numbers; the plan and the "
              "result say which method that is", settings={"method": "auto", "estimator": "NAME"}),
)  # fmt: skip
