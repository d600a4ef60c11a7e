"""The bridge between RabbitMQ and a pool: jobs come in from one queue, and statuses go out to another."""
