"""The bytes before a payload that name its writer's schema. Pure, vectorised, called in tasks.

A *writer* is the id as on the wire: Confluent's magic byte 0 with four bytes of id, magic 1 with a GUID of 16 bytes (in
a header followed by the index path), Glue's version 3 with a UUID of 16 bytes; where a topic or game has one schema, its
name in UTF-8.
"""
