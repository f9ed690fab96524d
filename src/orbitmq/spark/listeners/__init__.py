"""Listeners, the same functions as of a push consumer, in the tasks of a stream."""
