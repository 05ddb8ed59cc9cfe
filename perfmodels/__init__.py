"""Performance models: how fast a job trains and how many watts it draws in every configuration."""

from wattsched.perfmodels.profile import Configurations, Profile, catalogue, find

__all__ = ["Configurations", "Profile", "catalogue", "find"]
