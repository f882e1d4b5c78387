"""A program on a client that openapi-python-client has made of /openapi.json: `topics_api` beside this file.

python use_generated.py URL
"""

import sys

from topics_api import Client
from topics_api.api.queues import ack_jobs, claim_jobs
from topics_api.api.topics import create_topic, get_topic, list_topics, read_records, write_records
from topics_api.models import ClaimJobsBody, Config, ConfigType, Error404, Leases, NewRecord, ReadRecordsBody
from topics_api.models import WriteRecordsBody as Body

client = Client(base_url=sys.argv[1])
made = create_topic.sync("generated", client=client, body=Config(type_=ConfigType.QUEUE))
assert made.created
assert made.config.type_ == ConfigType.QUEUE
records = [NewRecord(data={"sku": number}, tag="eu") for number in (1, 2)]
written = write_records.sync("generated", client=client, body=Body(records=records))
assert written.seqs == [1, 2]
page = read_records.sync("generated", client=client, body=ReadRecordsBody(include_tags=True))
assert [(record.seq, record.tag, record.data) for record in page.records] == [
    (1, "eu", {"sku": 1}),
    (2, "eu", {"sku": 2}),
]
jobs = claim_jobs.sync("generated", client=client, body=ClaimJobsBody(node="w1", max_=1))
assert jobs.claimed[0].data == {"sku": 1}
assert ack_jobs.sync("generated", client=client, body=Leases(node="w1", seqs=[1])).acked == 1
assert get_topic.sync("generated", client=client).queue.ready == 1
assert [row.topic for row in list_topics.sync(client=client, prefix="gen").topics] == ["generated"]
absent = read_records.sync("absent", client=client, body=ReadRecordsBody())
assert isinstance(absent, Error404)
assert absent.error.code == "topic_not_found"
print("done")
