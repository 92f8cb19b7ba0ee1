"""Modules that a command must not import before it needs them."""

HEAVY = {"deltalake", "duckdb", "numpy", "pandas", "pyarrow", "pyspark", "streamlit"}
