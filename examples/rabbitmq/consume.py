"""Print the statuses of a pool's jobs from RabbitMQ, each once, until a run has ended: python consume.py"""

import json
import os

import pika

connection = pika.BlockingConnection(pika.URLParameters(os.environ.get("AMQP_URL", "amqp://127.0.0.1:5672/%2F")))
channel = connection.channel()
seen = set()  # keep it with your own data: a status may come again after a restart
for method, properties, body in channel.consume("status.queue"):
    status = json.loads(body)
    if properties.message_id not in seen:
        seen.add(properties.message_id)
        print(properties.correlation_id, status.get("job") or f"run {status.get('run')}", status["state"], flush=True)
    channel.basic_ack(method.delivery_tag)  # only now: a consumer that dies gets it again
    if properties.type != "job":
        break  # the run has ended, or the message was refused
connection.close()
