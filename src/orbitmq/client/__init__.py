"""What every client stands on: the private loop, an instance's connections, routes, settings."""

from __future__ import annotations
