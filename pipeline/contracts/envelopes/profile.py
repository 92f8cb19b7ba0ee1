"""The place of profiles until every branch of issue 35 imports `pipeline.contracts.profile`."""

from pipeline.contracts.profile import SCHEMA_ID_HEADER, WRAPPER, SourceProfile

__all__ = ["SCHEMA_ID_HEADER", "WRAPPER", "SourceProfile"]
