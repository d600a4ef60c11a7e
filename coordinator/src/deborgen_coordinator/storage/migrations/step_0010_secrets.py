"""Secrets, encrypted."""

from __future__ import annotations

from peewee import SQL, BigAutoField, BigIntegerField, BlobField, DoubleField, Model, TextField

from ..database import DatabaseConnection
from . import create_table


class SecretTable(Model):
    id = BigAutoField()
    owner_id = BigIntegerField(null=True)
    name = TextField()
    value = BlobField()
    set_at = DoubleField()
    last_used_at = DoubleField(null=True)

    class Meta:
        table_name = "secret"
        constraints = (SQL("FOREIGN KEY (owner_id) REFERENCES submitter (id)"),)


SecretTable.add_index(
    SecretTable.owner_id, SecretTable.name, unique=True, where=SecretTable.owner_id.is_null(False), name="secret_own"
)
SecretTable.add_index(SecretTable.name, unique=True, where=SecretTable.owner_id.is_null(), name="secret_shared")


def migrate(connection: DatabaseConnection) -> None:
    create_table(connection, SecretTable)
