"""Sessions of the dashboard, and the links that begin them."""

from __future__ import annotations

from peewee import BigIntegerField, Check, DoubleField, Model, TextField

from ..database import DatabaseConnection
from . import create_table


class SignInTable(Model):
    digest = TextField(primary_key=True)
    token_id = TextField()
    is_link = BigIntegerField(constraints=[Check("is_link IN (0, 1)")])
    host = TextField()
    expires_at = DoubleField()

    class Meta:
        table_name = "sign_in"


def migrate(connection: DatabaseConnection) -> None:
    create_table(connection, SignInTable)
