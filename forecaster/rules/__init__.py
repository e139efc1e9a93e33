"""Guardrails: small pure functions from a situation and targets to targets and a reason."""

from forecaster.rules.base import Rule, Situation, Targets, Verdict
from forecaster.rules.pipeline import RAISING, STABILISING, apply_rules

__all__ = ["RAISING", "STABILISING", "Rule", "Situation", "Targets", "Verdict", "apply_rules"]
