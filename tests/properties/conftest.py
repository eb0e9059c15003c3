"""No example has a deadline: on a machine that does other work, Hypothesis would call a slow one a failure."""

from hypothesis import settings

settings.register_profile("untimed", parent=settings.default, deadline=None)
settings.load_profile("untimed")
