"""Algorithms with a trusted coordinator, one module per problem family."""

from dpdist.central.aggregate import SampleAndAggregate
from dpdist.central.bounding import (
    All,
    ClipCoordinate,
    ClipNorm,
    ClipResidual,
    Sample,
    Shrink,
    SmoothTruncate,
    Split,
    Trim,
    Truncate,
)  # fmt: skip
from dpdist.central.combine import Attention, ClippedMean
from dpdist.central.convex import AcceleratedGradient
from dpdist.central.frank_wolfe import FrankWolfe
from dpdist.central.hard_threshold import HardThresholding
from dpdist.central.heavy_tailed import GradientDescent
from dpdist.central.linear import LinearRegression, LinearSVC, LogisticRegression
from dpdist.central.mean import ClippedColumns, Mean, SmoothTruncatedMean, TrimmedMean, TruncatedMean
from dpdist.central.minimizer import Minimizer
from dpdist.central.mirror import AcceleratedMirror, MirrorDescent
from dpdist.central.perturbation import PerturbedObjective, PerturbedOutput
from dpdist.central.variance_reduced import SVRG, Katyusha, SVRGPlusPlus

__all__ = [
    "SVRG", "AcceleratedGradient", "AcceleratedMirror", "All", "Attention", "ClipCoordinate", "ClipNorm",
    "ClipResidual", "ClippedColumns", "ClippedMean", "FrankWolfe", "GradientDescent", "HardThresholding",
    "Katyusha", "LinearRegression", "LinearSVC", "LogisticRegression", "Mean", "Minimizer", "MirrorDescent",
    "PerturbedObjective", "PerturbedOutput", "SVRGPlusPlus", "Sample", "SampleAndAggregate", "Shrink",
    "SmoothTruncate", "SmoothTruncatedMean", "Split", "Trim", "TrimmedMean", "Truncate", "TruncatedMean",
]  # fmt: skip
