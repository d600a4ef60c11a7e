"""The database. No other package uses SQL or Peewee, and callers get plain values, never Peewee's objects."""
