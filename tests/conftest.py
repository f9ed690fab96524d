"""What holds for every test: how hypothesis looks for examples."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# Workers share the machine's cores, so a time limit on one example would measure the machine.
settings.register_profile(
    "orbitmq", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("orbitmq")
