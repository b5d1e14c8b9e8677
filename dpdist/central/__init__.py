"""Algorithms with a trusted coordinator, one module per problem family."""

from dpdist.central.aggregate.combine import Attention, ClippedMean
from dpdist.central.aggregate.sample_and_aggregate import SampleAndAggregate
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
from dpdist.central.linear.newton import Newton
from dpdist.central.linear.perturbation import PerturbedObjective, PerturbedOutput
from dpdist.central.linear.robust_newton import RobustNewton
from dpdist.central.linear.sufficient_statistics import SufficientStatistics
from dpdist.central.linear.variance_reduced import SVRG, Katyusha, SVRGPlusPlus
from dpdist.central.mean.columns import ClippedColumns, Mean, SmoothTruncatedMean, TrimmedMean, TruncatedMean

__all__ = [
    "SVRG", "AcceleratedGradient", "AcceleratedMirror", "All", "Attention", "ClipCoordinate", "ClipLabel", "ClipNorm",
    "ClipResidual", "ClippedColumns", "ClippedMean", "FrankWolfe", "GradientDescent", "HardThresholding",
    "Katyusha", "LinearRegression", "LinearSVC", "LogisticRegression", "Mean", "Minimizer", "MirrorDescent", "Newton",
    "PerturbedObjective", "PerturbedOutput", "RobustNewton", "SVRGPlusPlus", "Sample", "SampleAndAggregate",
    "ScaleRows", "Shrink", "SmoothTruncate", "SmoothTruncatedMean", "Split", "SufficientStatistics", "Trim",
    "TrimmedMean", "Truncate", "TruncatedMean",
]  # fmt: skip
