"""What operators ask and do: one module a subject, each a set of questions to an Asker."""

from __future__ import annotations
