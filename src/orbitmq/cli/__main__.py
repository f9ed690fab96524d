"""``python -m orbitmq.cli``: the command where it is not on the PATH."""

from __future__ import annotations

import sys

from orbitmq.cli import main

sys.exit(main())
