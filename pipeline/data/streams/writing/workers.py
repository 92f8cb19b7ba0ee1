"""The process from which Spark forks the Python workers of a group's driver, in place of `pyspark.daemon`.

What their tasks import is loaded here once, before the first fork, and its memory is shared.
"""

import gc

from pyspark import daemon

from pipeline.data.streams.writing import rows, split

LOADED = (rows, split)
"""What a task needs, with all that it imports."""

if __name__ == "__main__":
    gc.collect()
    gc.freeze()  # else the first collection in a worker copies the shared memory
    daemon.manager()
