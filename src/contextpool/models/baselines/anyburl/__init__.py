"""AnyBURL: rules learned bottom up from sampled paths."""

from contextpool.models.baselines.anyburl.model import AnyBURL, AnyBURLConfig
from contextpool.models.baselines.anyburl.ruleset import RuleSet

__all__ = ["AnyBURL", "AnyBURLConfig", "RuleSet"]
