"""What tests of OrbitMQ and with OrbitMQ use."""

from __future__ import annotations
