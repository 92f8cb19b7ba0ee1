"""The log that an edge writes into, by the settings: what ingest reads."""

from pipeline.base.errors import Refused
from pipeline.data.ingest.profiles import configured
from pipeline.edge.logs.landing import LandingLog
from pipeline.edge.logs.log import EdgeLog
from pipeline.lake.kafka.acknowledged import AcknowledgedProducer
from pipeline.lake.storage.places import located
from pipeline.settings.source import reads_several
from pipeline.settings.tree import Paths, Settings


def log_of(settings: Settings, paths: Paths) -> EdgeLog:
    """Open the log.

    Raises:
        Refused: the source is several sources or topics, of records that are no wrappers, or cannot be written.
    """
    if settings.sources:
        raise Refused("The edge writes into one source, and the settings have several. Use [source] alone for it.")
    source = settings.source
    if reads_several(source):
        raise Refused("The edge writes into one topic. Set source.topic alone.")
    if configured(settings) is not None:
        raise Refused(
            "The edge takes turnout's own wrappers, and the source has other records. Leave out source.envelope, "
            "source.routing and source.framing."
        )
    if source.kind == "kafka":
        topic = next(iter(source.topics), source.topic)
        seconds = settings.edge.deadline_seconds
        return AcknowledgedProducer(source.bootstrap_servers, topic, source.kafka_options, seconds)
    return LandingLog(located(source.path) if source.path else paths.landing, own=not source.path)
