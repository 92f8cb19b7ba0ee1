"""One real broker for all tests of this folder."""

from collections.abc import Iterator

import pytest

from pipeline.demo import broker as broker_module
from pipeline.demo.broker import Broker

# Kafka's default for the buffer is 128 MB: half of the broker's heap.
COMPACTS_OFTEN = "log.cleaner.backoff.ms=100\nlog.cleaner.dedupe.buffer.size=8388608\n"
HAS_RIGHTS = (
    "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\n"
    "allow.everyone.if.no.acl.found=true\n"
)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(broker_module, "_PROPERTIES", broker_module._PROPERTIES + COMPACTS_OFTEN + HAS_RIGHTS)
        running = Broker.start(tmp_path_factory.mktemp("broker"))
    with running:
        yield running
