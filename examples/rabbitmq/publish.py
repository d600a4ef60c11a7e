"""Send a job file to a pool by RabbitMQ: python publish.py job.yml [NAME]"""

import os
import sys
import uuid
from pathlib import Path

import pika

connection = pika.BlockingConnection(pika.URLParameters(os.environ.get("AMQP_URL", "amqp://127.0.0.1:5672/%2F")))
channel = connection.channel()
channel.confirm_delivery()  # an error instead of a lost message
properties = pika.BasicProperties(
    message_id=str(uuid.uuid4()),  # the same message sent twice is one run
    content_type="application/yaml",
    correlation_id=sys.argv[2] if len(sys.argv) > 2 else None,  # comes back with every status
    delivery_mode=2,  # it survives a restart of RabbitMQ
)
channel.basic_publish("deborgen", "execute", Path(sys.argv[1]).read_bytes(), properties, mandatory=True)
connection.close()
