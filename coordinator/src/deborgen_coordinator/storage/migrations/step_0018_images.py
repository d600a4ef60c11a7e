"""Images that jobs have built, and which machines have them."""

from __future__ import annotations

from peewee import SQL, BigAutoField, BigIntegerField, Check, CompositeKey, DoubleField, Model, TextField

from ..database import DatabaseConnection
from . import create_table


class ImageTable(Model):
    id = BigAutoField()
    name = TextField()
    digest = TextField()
    archive = TextField(null=True)
    url = TextField(null=True)
    size = BigIntegerField(constraints=[Check("size >= 0")])
    job_id = BigIntegerField()
    number = BigIntegerField()
    repo = TextField(null=True)
    commit_id = TextField(null=True)
    seconds = DoubleField()
    created_at = DoubleField()
    standing = TextField(constraints=[Check("standing IN ('current', 'replaced', 'removed')")])

    class Meta:
        table_name = "image"
        constraints = (
            SQL("FOREIGN KEY (job_id, number) REFERENCES attempt (job_id, number)"),
            Check("(archive IS NULL) != (url IS NULL)"),
        )


ImageTable.add_index(ImageTable.name, where=(ImageTable.standing == "current"), unique=True, name="image_current")
ImageTable.add_index(ImageTable.digest, name="image_digest")
ImageTable.add_index(ImageTable.job_id, name="image_job")
ImageTable.add_index(ImageTable.archive, where=ImageTable.archive.is_null(False), name="image_archive")


class PlaceTable(Model):
    worker_id = BigIntegerField()
    digest = TextField()

    class Meta:
        table_name = "image_place"
        primary_key = CompositeKey("worker_id", "digest")
        without_rowid = True
        constraints = (SQL("FOREIGN KEY (worker_id) REFERENCES worker (id)"),)


def migrate(connection: DatabaseConnection) -> None:
    create_table(connection, ImageTable)
    create_table(connection, PlaceTable)
