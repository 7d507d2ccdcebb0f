"""Planning rules: how the samples of a plan become the next plan. One file each, with its settings."""

from __future__ import annotations

from movlr_jax._util.parts import Parts
from movlr_jax.control.mpc.rules.base import PlanDistribution, PlanningRule, shift
from movlr_jax.control.mpc.rules.cem import Cem
from movlr_jax.control.mpc.rules.dial import Dial
from movlr_jax.control.mpc.rules.evosax import Evosax
from movlr_jax.control.mpc.rules.mppi import Mppi
from movlr_jax.control.mpc.rules.predictive_sampling import PredictiveSampling

RULES: Parts[PlanningRule] = Parts(
    "rule",
    "movlr_jax.planning_rules",
    {"mppi": Mppi, "predictive_sampling": PredictiveSampling, "cem": Cem, "dial": Dial, "evosax": Evosax},
    tag="rule",
    former={"best": "predictive_sampling"},
)

__all__ = [
    "RULES",
    "Cem",
    "Dial",
    "Evosax",
    "Mppi",
    "PlanDistribution",
    "PlanningRule",
    "PredictiveSampling",
    "shift",
]
