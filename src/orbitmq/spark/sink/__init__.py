"""Topics as Spark's sink: rows to messages, and the guarantees of their delivery."""
