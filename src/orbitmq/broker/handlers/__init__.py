"""Request handlers, one module per family: they translate, and decide nothing themselves."""

from __future__ import annotations
