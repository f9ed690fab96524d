"""Topics as Spark's source: what a query reads, planned in the driver and read in tasks."""
