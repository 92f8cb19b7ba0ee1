"""What reading and writing a Delta table raises; the classes are those of delta-rs."""

from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

__all__ = ["CommitFailedError", "DeltaError", "TableNotFoundError"]
