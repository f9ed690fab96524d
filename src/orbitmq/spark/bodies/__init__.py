"""Bodies of messages as typed columns, what does not decode, and what is expected of rows."""
