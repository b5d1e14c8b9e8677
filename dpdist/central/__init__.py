"""Algorithms with a trusted coordinator, one module per problem family."""

import dpdist.estimators  # noqa: F401 - before scikit-learn
from dpdist.central.aggregate.combine import Attention, ClippedMean
from dpdist.central.aggregate.sample_and_aggregate import SampleAndAggregate
from dpdist.central.latent.gaussian_mixture import GaussianMixture, MixtureEM
from dpdist.central.latent.gradient_em import ClippedEM, SplitEM, TruncatedEM
from dpdist.central.latent.latent_models import MissingCovariateRegression, MixedRegression, TwoComponentMixture
from dpdist.central.latent.weighted_em import MapEM, PreconditionedEM, StatisticsEM
from dpdist.central.linear.bounding import (
    All,
    ClipCoordinate,
    ClipLabel,
    ClipNorm,
    ClipResidual,
    Sample,
    ScaleRows,
    Shrink,
    SmoothTruncate,
    Split,
    Trim,
    Truncate,
)  # fmt: skip
from dpdist.central.linear.frank_wolfe import FrankWolfe
from dpdist.central.linear.gradient_descent import AcceleratedGradient
from dpdist.central.linear.hard_threshold import HardThresholding
from dpdist.central.linear.heavy_tailed import GradientDescent
from dpdist.central.linear.minimizer import Minimizer
from dpdist.central.linear.mirror import AcceleratedMirror, MirrorDescent
from dpdist.central.linear.models import LinearRegression, LinearSVC, LogisticRegression
from dpdist.central.linear.net import ExponentialNet
from dpdist.central.linear.newton import Newton
from dpdist.central.linear.perturbation import PerturbedObjective, PerturbedOutput
from dpdist.central.linear.preconditioned import PreconditionedGradient
from dpdist.central.linear.robust_newton import RobustNewton
from dpdist.central.linear.saddle_escape import SaddleEscape
from dpdist.central.linear.second_order import TrustRegion
from dpdist.central.linear.stationary import HeavyBall, Langevin
from dpdist.central.linear.subspace import SubspaceNewton
from dpdist.central.linear.sufficient_statistics import SufficientStatistics
from dpdist.central.linear.variance_reduced import SVRG, Katyusha, SVRGPlusPlus
from dpdist.central.matrices.components import PCA, SparsePCA
from dpdist.central.matrices.second_moment import SecondMoment
from dpdist.central.matrices.sparse_matrices import GraphicalLasso, OutputPerturbation, SparseCovariance
from dpdist.central.mean.columns import ClippedColumns, Mean, SmoothTruncatedMean, TrimmedMean, TruncatedMean
from dpdist.central.pairs.metric import MetricLearner
from dpdist.central.pairs.metric_gradient import MetricGradient
from dpdist.central.pairs.ranking import PairwiseRanker
from dpdist.central.pairs.ranking_gradient import PairGradient
from dpdist.central.pairs.ranking_online import PairChains, PairOnline
from dpdist.central.pairs.ranking_output import PairOutput
from dpdist.central.pairs.ranking_preconditioned import PreconditionedPairs
from dpdist.central.pairs.ranking_stream import PairStream
from dpdist.estimators.moment_covariances import NoisyCovariance, ThresholdedCovariance
from dpdist.estimators.moment_precisions import CovariancePerturbation

__all__ = [
    "PCA", "SVRG", "AcceleratedGradient", "AcceleratedMirror", "All", "Attention", "ClipCoordinate", "ClipLabel",
    "ClipNorm", "ClipResidual", "ClippedColumns", "ClippedEM", "ClippedMean", "CovariancePerturbation",
    "ExponentialNet", "FrankWolfe", "GaussianMixture", "GradientDescent", "GraphicalLasso", "HardThresholding",
    "HeavyBall", "Katyusha", "Langevin", "LinearRegression", "LinearSVC", "LogisticRegression", "MapEM", "Mean",
    "MetricGradient", "MetricLearner", "Minimizer", "MirrorDescent", "MissingCovariateRegression", "MixedRegression",
    "MixtureEM", "Newton", "NoisyCovariance", "OutputPerturbation", "PairChains", "PairGradient", "PairOnline",
    "PairOutput", "PairStream",
    "PairwiseRanker",
    "PerturbedObjective", "PerturbedOutput", "PreconditionedEM", "PreconditionedGradient", "PreconditionedPairs",
    "RobustNewton", "SVRGPlusPlus", "SaddleEscape", "Sample", "SampleAndAggregate", "ScaleRows", "SecondMoment",
    "Shrink", "SmoothTruncate", "SmoothTruncatedMean", "SparseCovariance", "SparsePCA", "Split", "SplitEM",
    "StatisticsEM", "SubspaceNewton", "SufficientStatistics", "ThresholdedCovariance", "Trim", "TrimmedMean",
    "Truncate", "TruncatedEM", "TruncatedMean", "TrustRegion", "TwoComponentMixture",
]  # fmt: skip
