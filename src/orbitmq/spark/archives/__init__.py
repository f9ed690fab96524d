"""Topics to Parquet files by day, and back."""
