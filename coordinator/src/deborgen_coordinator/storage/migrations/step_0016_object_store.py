"""Where each blob is, the uploads to the object store, and the store of each run."""

from __future__ import annotations

from peewee import SQL, BigIntegerField, Check, DoubleField, Model, TextField

from ..database import DatabaseConnection
from . import add_column, create_table


class UploadTable(Model):
    id = TextField(primary_key=True)
    digest = TextField()
    size = BigIntegerField(constraints=[Check("size >= 0")])
    owner = TextField()
    multipart = TextField()
    created_at = DoubleField()

    class Meta:
        table_name = "upload"


UploadTable.add_index(UploadTable.owner, UploadTable.digest, name="upload_owner")
UploadTable.add_index(UploadTable.created_at, name="upload_age")


class ArtifactStoreTable(Model):
    address = TextField(primary_key=True)

    class Meta:
        table_name = "artifact_store"


def migrate(connection: DatabaseConnection) -> None:
    add_column(connection, "blob", "upload", TextField(constraints=[SQL("DEFAULT ''")]))
    connection.run("CREATE INDEX blob_remote ON blob (digest) WHERE upload != ''")
    store = TextField(constraints=[SQL("DEFAULT 'local'"), Check("artifact_store IN ('local', 's3')")])
    add_column(connection, "run", "artifact_store", store)
    create_table(connection, UploadTable)
    create_table(connection, ArtifactStoreTable)
